/**
 * Inline mode: a job runs where it is enqueued, in the test's own process, before `enqueue` resolves. No server runs.
 *
 * The arguments go through JSON and are validated as a worker does. A failed attempt is repeated at once, as often as the
 * job may be retried; a delay is not waited for. Unique keys, schedules, timeouts and limits need a real server: use
 * `TestServer` for them.
 */

import { randomUUID } from "node:crypto";

import { Client, Handle, type JobRequest } from "../client.js";
import { withRun } from "../context.js";
import { ConvokeError, Rejected } from "../errors.js";
import type { AnyJob } from "../job.js";
import { parse, stringify } from "../json.js";
import type { Json } from "../json.js";
import { RESULT_BYTES_MAX } from "../limits.js";
import type { JobRecord, Level, LogLine } from "../records.js";
import { Sandboxes } from "../sandbox.js";
import { validate } from "../schema.js";
import { failureOf } from "../worker/failure.js";
import { Run } from "../worker/run.js";

/** What the server sets for a job that sets none. */
const MAX_RETRIES = 3;

type Spec = { id: string; type: string; queue?: string; maxRetries?: number; correlationId?: string; tags?: string[]; args?: Json };
type Writable = { -readonly [Key in keyof JobRecord]: JobRecord[Key] };

/** A client that runs the jobs it is given. */
export class InlineClient extends Client {
  readonly #jobs: ReadonlyMap<string, AnyJob>;
  readonly #records = new Map<string, Writable>();
  readonly #logs = new Map<string, LogLine[]>();
  readonly #sandboxes = new Sandboxes();

  constructor(jobs: readonly AnyJob[]) {
    super({ server: "http://127.0.0.1:9" });
    this.#jobs = new Map(jobs.map((job) => [job.type, job]));
  }

  override async enqueueBatch<Output>(requests: readonly JobRequest<Output>[]): Promise<Handle<Output>[]> {
    const handles: Handle<Output>[] = [];
    for (const request of requests) {
      const spec = parse(request.text) as unknown as Spec;
      await this.#runToEnd(spec);
      handles.push(new Handle<Output>(this, spec.id, true));
    }
    return handles;
  }

  override async job(id: string): Promise<JobRecord> {
    const record = this.#records.get(id);
    if (!record) throw new Rejected(404, "not_found", `there is no job ${id}`, null);
    return record;
  }

  override wait(id: string): Promise<JobRecord> {
    return this.job(id);
  }

  override async logs(id: string, options: { after?: number; limit?: number } = {}): Promise<LogLine[]> {
    await this.job(id);
    return this.#logs.get(id)!.filter((line) => line.seq > (options.after ?? 0)).slice(0, options.limit ?? 1_000);
  }

  protected override async exchange(call: { readonly method: string; readonly path: string }): Promise<Json> {
    throw new ConvokeError(`inline mode has no ${call.method} ${call.path}: use TestServer`);
  }

  async #runToEnd(spec: Spec): Promise<void> {
    const at = new Date().toISOString();
    const record: Writable = {
      id: spec.id, type: spec.type, queue: spec.queue ?? "default", status: "running", attempt: 0, maxRetries: spec.maxRetries ?? MAX_RETRIES,
      args: spec.args ?? null, result: null, error: null, progress: null, correlationId: spec.correlationId ?? null, tags: spec.tags ?? [],
      workerId: null, ownerNode: null, createdAt: at, scheduledAt: null, startedAt: at, completedAt: null,
    };
    this.#records.set(spec.id, record);
    this.#logs.set(spec.id, []);
    do {
      record.attempt++;
    } while ((await this.#attempt(record)) && record.attempt <= record.maxRetries);
    record.completedAt = new Date().toISOString();
  }

  /** Runs one attempt. Returns whether another may follow. */
  async #attempt(record: Writable): Promise<boolean> {
    const { id: jobId, type, queue, args, attempt, maxRetries, correlationId, tags } = record;
    const run = new Run({ jobId, executionId: randomUUID(), type, queue, args, attempt, maxRetries, correlationId, tags: tags ?? [] }, {
      log: (_, event) => this.#log(record, event),
      progress: (_, event) => {
        const { percent, message } = JSON.parse(event) as { percent: number; message?: string };
        record.progress = { percent, message: message ?? null };
      },
    });
    run.startedAt = Date.now();
    const job = this.#jobs.get(type);
    const failed = (error: string, retry: boolean) => {
      [record.status, record.error] = ["failed", error];
      return retry;
    };
    if (!job) return failed(`this client has no handler for the type ${JSON.stringify(type)}`, false);
    let given: unknown = args;
    try {
      if (job.args) given = await validate(job.args, args);
    } catch (error) {
      return failed(`the arguments do not fit ${type}: ${(error as Error).message}`, false);
    }
    let output: unknown;
    try {
      output = await withRun(run, () => (typeof job.run === "function" ? job.run(given, run) : this.#sandboxes.run(job.run, given, run)));
    } catch (error) {
      const failure = failureOf(error);
      if (failure.stack !== undefined) run.log(failure.stack, "error");
      return failed(failure.text, failure.retries);
    }
    try {
      record.result = output === undefined || output === null ? null : parse(stringify(output, "result", RESULT_BYTES_MAX));
    } catch (error) {
      return failed((error as Error).message, false);
    }
    [record.status, record.error] = ["completed", null];
    return false;
  }

  #log(record: Writable, event: string): void {
    const { at, message, level, executionId } = JSON.parse(event) as { at: string; message: string; level: Level; executionId: string };
    const lines = this.#logs.get(record.id)!;
    lines.push({ seq: lines.length + 1, at, level, message, executionId });
  }

  /** Ends the threads of sandboxes, if any were used. */
  async close(): Promise<void> {
    await this.#sandboxes.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Returns a client that runs these jobs where they are enqueued: pass it to the code under test. */
export function inline(jobs: readonly AnyJob[]): InlineClient {
  return new InlineClient(jobs);
}
