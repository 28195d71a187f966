/** Definitions of jobs: a type, its options and its handler. */

import type { Context } from "./context.js";
import { durationText, type Duration } from "./duration.js";
import { InvalidArguments } from "./errors.js";
import { stringify } from "./json.js";
import { ARGS_BYTES_MAX } from "./limits.js";
import { isSandbox, type Sandbox } from "./sandbox.js";
import type { Schema } from "./schema.js";

export type Priority = "low" | "normal" | "high" | "critical";

/** The backoff between attempts. */
export interface RetryPolicy {
  readonly initialDelay?: Duration;
  readonly multiplier?: number;
  readonly maxDelay?: Duration;
  /** Whether each delay is random from zero to the backoff. The default is that of the server: `full`. */
  readonly jitter?: "full" | "none";
}

/** Options of a job that its definition and each enqueue may set; the server has a default for each. */
export interface JobOptions {
  readonly queue?: string;
  readonly priority?: Priority;
  readonly maxRetries?: number;
  readonly retryPolicy?: RetryPolicy;
  readonly timeout?: Duration;
  readonly correlationId?: string;
  readonly uniqueKey?: string;
  readonly uniqueFor?: Duration;
  readonly tags?: readonly string[];
}

/** Options of one enqueue. */
export interface EnqueueOptions extends JobOptions {
  /** The job's id, a UUID: a second enqueue with it makes no second job. */
  readonly id?: string;
  readonly delay?: Duration;
  readonly runAt?: Date;
}

export type Handler<Args, Output> = (args: Args, context: Context) => Output | Promise<Output>;

/** A job's definition. `Input` is what an enqueue takes, `Args` what the handler receives. */
export interface Job<Input, Args, Output> extends JobOptions {
  readonly type: string;
  readonly args?: Schema<Input, Args>;
  readonly run: Handler<Args, Output> | Sandbox<Args, Output>;
}

/** Any definition, where its types do not matter. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyJob = Job<any, any, any>;

/**
 * Defines a job. With `args`, a schema, arguments are validated before the handler runs; a mismatch fails the job for
 * good, with the name of the field. Without one, the handler's own parameter type is trusted.
 */
export function defineJob<Input, Args, Output>(
  job: JobOptions & { readonly type: string; readonly args: Schema<Input, Args>; readonly run: Handler<Args, Output> | Sandbox<Args, Output> },
): Job<Input, Args, Output>;
export function defineJob<Args, Output>(
  job: JobOptions & { readonly type: string; readonly args?: undefined; readonly run: Handler<Args, Output> | Sandbox<Args, Output> },
): Job<Args, Args, Output>;
export function defineJob(job: Omit<AnyJob, "args"> & { readonly args?: AnyJob["args"] | undefined }): AnyJob {
  if (typeof job.type !== "string" || job.type === "") throw new InvalidArguments("type", "expected the name of a job type");
  if (typeof job.run !== "function" && !isSandbox(job.run)) {
    throw new InvalidArguments("run", "expected a function or sandbox(…)");
  }
  requestFields(job);
  return Object.freeze({ ...job }) as AnyJob;
}

const DURATIONS: ReadonlySet<string> = new Set(["delay", "timeout", "uniqueFor", "initialDelay", "maxDelay"]);
const NAMES = [
  "id", "queue", "priority", "delay", "runAt", "maxRetries", "retryPolicy", "timeout", "correlationId", "uniqueKey", "uniqueFor", "tags",
] as const;

/** Returns the options as the fields of a request. */
export function requestFields(options: EnqueueOptions): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const name of NAMES) {
    const value = options[name];
    if (value !== undefined) fields[name] = field(name, value);
  }
  return fields;
}

function field(name: string, value: unknown): unknown {
  if (DURATIONS.has(name)) return durationText(value as Duration, name);
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime())) throw new InvalidArguments(name, "expected a valid date");
    return value.toISOString();
  }
  if (name !== "retryPolicy") return value;
  return Object.fromEntries(Object.entries(value as RetryPolicy).map(([key, item]) => [key, field(key, item)]));
}

/** Returns a job as `POST /v1/jobs` takes it, as a JSON text. */
export function requestText(type: string, args: unknown, options: EnqueueOptions): string {
  const head = stringify({ type, ...requestFields(options) }, "options", ARGS_BYTES_MAX);
  if (args === undefined) return head;
  return `${head.slice(0, -1)},"args":${stringify(args, "args", ARGS_BYTES_MAX)}}`;
}
