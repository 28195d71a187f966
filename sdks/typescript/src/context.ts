/** The run that a handler executes: what it knows of it, and what it reports. */

import { AsyncLocalStorage } from "node:async_hooks";

import { ConvokeError } from "./errors.js";
import type { Level } from "./records.js";

/** A run, for its handler. */
export interface Context {
  /** The id of the job, the same for all its attempts: the key that makes a handler idempotent. */
  readonly jobId: string;
  /** The id of this run, new for every attempt: use it to fence your own writes. */
  readonly executionId: string;
  readonly type: string;
  readonly queue: string;
  /** The number of this attempt; 1 for the first. */
  readonly attempt: number;
  /** How many attempts may follow the first. */
  readonly maxRetries: number;
  readonly correlationId: string | null;
  readonly tags: readonly string[];
  /** When the run's time is up; `null` if the job has no timeout. */
  readonly deadline: Date | null;
  /** Aborted if the handler must stop: its job was cancelled, its time is up, its lease is lost, or the worker ends. */
  readonly signal: AbortSignal;
  /** Adds a line to the job's log. Beyond 10,000 unsent lines of a worker it is dropped, and counted. */
  log(message: string, level?: Level): void;
  /** Reports how far the run is; the last report counts. */
  progress(percent: number, message?: string): void;
}

const storage = new AsyncLocalStorage<Context>();

/** Calls a handler whose {@link currentRun} is `context`. */
export function withRun<T>(context: Context, call: () => T): T {
  return storage.run(context, call);
}

/** Returns the run that this code executes for; throws `ConvokeError` outside of a handler. */
export function currentRun(): Context {
  const context = storage.getStore();
  if (!context) throw new ConvokeError("currentRun() was called outside of a handler");
  return context;
}
