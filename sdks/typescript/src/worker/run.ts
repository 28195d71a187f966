/** One run in hand, and the texts of its events. */

import type { Context } from "../context.js";
import { milliseconds } from "../duration.js";
import type { Json } from "../json.js";
import { cut, ERROR_BYTES_MAX, LOG_LINE_BYTES_MAX, PROGRESS_MESSAGE_BYTES_MAX } from "../limits.js";
import type { Level } from "../records.js";

/** A run as a poll returns it. */
export interface Assignment {
  readonly jobId: string;
  readonly executionId: string;
  readonly type: string;
  readonly queue: string;
  readonly args: Json;
  readonly attempt: number;
  readonly maxRetries: number;
  readonly timeout?: string | null;
  readonly correlationId?: string | null;
  readonly tags?: readonly string[];
}

/** Where a run sends what its handler reports. */
export interface Reports {
  log(run: Run, event: string): void;
  progress(run: Run, event: string): void;
}

export class Run implements Context {
  readonly jobId: string;
  readonly executionId: string;
  readonly type: string;
  readonly queue: string;
  readonly args: Json;
  readonly attempt: number;
  readonly maxRetries: number;
  readonly correlationId: string | null;
  readonly tags: readonly string[];
  readonly timeoutMs: number | null;
  readonly #reports: Reports;
  /** Its end is decided, here or by the server: later reports of its handler are ignored. */
  isOver = false;
  startedAt = 0;
  isStartReported = false;
  timer: NodeJS.Timeout | undefined;
  #lines = 0;
  #stopped: unknown;
  #controller: AbortController | undefined;

  constructor(given: Assignment, reports: Reports) {
    this.jobId = given.jobId;
    this.executionId = given.executionId;
    this.type = given.type;
    this.queue = given.queue;
    this.args = given.args;
    this.attempt = given.attempt;
    this.maxRetries = given.maxRetries;
    this.correlationId = given.correlationId ?? null;
    this.tags = given.tags ?? [];
    this.timeoutMs = given.timeout ? milliseconds(given.timeout, "timeout") : null;
    this.#reports = reports;
  }

  get deadline(): Date | null {
    return this.timeoutMs === null ? null : new Date(this.startedAt + this.timeoutMs);
  }

  /** Made when it is first read: most handlers never do. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#stopped !== undefined) this.#controller.abort(this.#stopped);
    return this.#controller.signal;
  }

  /** Tells the handler to stop. */
  stop(reason: Error): void {
    this.#stopped ??= reason;
    this.#controller?.abort(reason);
  }

  log(message: string, level: Level = "info"): void {
    const text = cut(message, LOG_LINE_BYTES_MAX);
    this.#reports.log(this, this.event("log", { at: new Date(), message: text, level, seq: ++this.#lines }));
  }

  progress(percent: number, message?: string): void {
    const whole = Math.max(0, Math.min(100, Math.trunc(Number(percent) || 0)));
    const text = message === undefined ? undefined : cut(message, PROGRESS_MESSAGE_BYTES_MAX);
    this.#reports.progress(this, this.event("progress", { percent: whole, message: text }));
  }

  event(kind: string, fields: object = {}): string {
    return JSON.stringify({ jobId: this.jobId, executionId: this.executionId, kind, ...fields });
  }

  failed(error: string, retry: boolean): string {
    return this.event("failed", { error: cut(error, ERROR_BYTES_MAX), retry });
  }

  /** `result` is a JSON text. */
  completed(result: string | undefined): string {
    const event = this.event("completed");
    return result === undefined ? event : `${event.slice(0, -1)},"result":${result}}`;
  }
}
