/** The client: enqueues jobs and reads them. */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";

import { milliseconds, type Duration } from "./duration.js";
import { InvalidArguments, NotCompleted, StillRunning, Unavailable } from "./errors.js";
import { send, sleep, type Call } from "./http.js";
import { requestText, type EnqueueOptions, type Job, type JobOptions } from "./job.js";
import { stringify, type Json } from "./json.js";
import { ARGS_BYTES_MAX, BATCH_BYTES_MAX, BATCH_JOBS_MAX } from "./limits.js";
import { hasEnded, type JobRecord, type LogLine, type ScheduleRecord, type Status } from "./records.js";
import { validate } from "./schema.js";
import { Backoff, Servers } from "./servers.js";

/** The longest wait that one request asks for. A longer wait is several requests. */
const WAIT_MAX_MS = 60_000;

export interface ClientOptions {
  /** The URL of a server, or of several nodes of one cluster. Default: `CONVOKE_SERVER`, then `http://127.0.0.1:3000`. */
  readonly server?: string | readonly string[];
  /** Default: `CONVOKE_TOKEN`. */
  readonly token?: string;
  /** How long a request is repeated while no server responds; after that it throws `Unavailable`. Default: 10 s. */
  readonly retryFor?: Duration;
}

/** A job to enqueue in a batch. Made by {@link request}. */
export interface JobRequest<Output> {
  readonly text: string;
  /** Never set: the type of the result. */
  readonly output?: Output;
}

/** When a schedule ticks. */
export type Timing = (
  | { readonly cron: string; readonly tz?: string; readonly day?: "or" | "and" }
  | { readonly every: Duration }
) & { readonly missed?: "skip" | "latest" | "all"; readonly overlap?: "skip" | "allow" };

/** Filters of a list of jobs. */
export interface JobFilter {
  readonly queue?: string;
  readonly type?: string;
  readonly status?: Status;
  readonly tag?: string;
  readonly correlationId?: string;
}

/**
 * Checks the arguments of a defined job, or takes those of a type by name, and returns a request for
 * {@link Client.enqueueBatch}.
 */
export async function request<Input, Args, Output>(
  job: Job<Input, Args, Output> | string,
  args: Input,
  options: EnqueueOptions = {},
): Promise<JobRequest<Output>> {
  // An id makes the request repeatable: sent twice, it makes one job.
  const id = options.id ?? newJobId();
  if (typeof job === "string") return { text: requestText(job, args, { ...options, id }) };
  if (job.args) await validate(job.args, args);
  return { text: requestText(job.type, args, { ...job, ...options, id }) };
}

export class Client {
  readonly #servers: Servers;
  readonly #retryForMs: number;

  constructor(options: ClientOptions = {}) {
    this.#servers = new Servers(options.server, options.token);
    this.#retryForMs = milliseconds(options.retryFor ?? 10_000, "retryFor");
  }

  /** Enqueues one job. It is durable when the promise resolves. */
  async enqueue<Input, Args, Output>(job: Job<Input, Args, Output>, args: Input, options?: EnqueueOptions): Promise<Handle<Output>>;
  async enqueue(type: string, args?: unknown, options?: EnqueueOptions): Promise<Handle<Json>>;
  async enqueue(job: Job<unknown, unknown, unknown> | string, args?: unknown, options: EnqueueOptions = {}): Promise<Handle<unknown>> {
    const [handle] = await this.enqueueBatch([await request(job, args, options)]);
    return handle!;
  }

  /** Enqueues up to 10,000 jobs, all or none, in order. */
  async enqueueBatch<Output>(requests: readonly JobRequest<Output>[]): Promise<Handle<Output>[]> {
    if (requests.length < 1 || requests.length > BATCH_JOBS_MAX) {
      throw new InvalidArguments("jobs", `expected 1 to ${BATCH_JOBS_MAX} jobs, got ${requests.length}`);
    }
    const body = `{"jobs":[${requests.map((each) => each.text).join(",")}]}`;
    if (Buffer.byteLength(body) > BATCH_BYTES_MAX) throw new InvalidArguments("jobs", `expected at most ${BATCH_BYTES_MAX} bytes in a batch`);
    const reply = (await this.#send({ method: "POST", path: "/v1/jobs/batch", body })) as unknown as {
      jobs: { id: string; created: boolean }[];
    };
    return reply.jobs.map((each) => new Handle<Output>(this, each.id, each.created));
  }

  /** Reads a job. */
  async job(id: string): Promise<JobRecord> {
    return this.#get(`/v1/jobs/${encodeURIComponent(id)}`);
  }

  /** Returns the job once it has ended; throws `StillRunning` if `timeout` is over before. */
  async wait(id: string, options: { timeout?: Duration; signal?: AbortSignal } = {}): Promise<JobRecord> {
    const end = options.timeout === undefined ? Infinity : performance.now() + milliseconds(options.timeout, "timeout");
    for (;;) {
      const waitMs = Math.max(0, Math.min(WAIT_MAX_MS, end - performance.now()));
      const path = `/v1/jobs/${encodeURIComponent(id)}${waitMs >= 1 ? `?wait=${Math.floor(waitMs)}ms` : ""}`;
      const call: Call = { method: "GET", path, waitMs };
      const job = (await this.#send(options.signal ? { ...call, signal: options.signal } : call)) as unknown as JobRecord;
      if (hasEnded(job)) return job;
      if (performance.now() >= end) throw new StillRunning(`job ${id} has not ended: it is ${job.status}`);
    }
  }

  /** Cancels the job, whether it waits or runs. */
  async cancel(id: string, reason?: string): Promise<JobRecord> {
    return this.#post(`/v1/jobs/${encodeURIComponent(id)}/cancel`, reason === undefined ? {} : { reason });
  }

  /** Runs an ended job again, with a fresh budget of retries. */
  async retry(id: string): Promise<JobRecord> {
    return this.#post(`/v1/jobs/${encodeURIComponent(id)}/retry`, {});
  }

  /** Yields jobs, the newest first, page by page. */
  async *jobs(filter: JobFilter = {}): AsyncGenerator<JobRecord, void, undefined> {
    let cursor: string | undefined;
    do {
      const query = new URLSearchParams({ ...filter, ...(cursor === undefined ? {} : { cursor }) });
      const page = await this.#get<{ jobs: JobRecord[]; nextCursor?: string | null }>(`/v1/jobs?${query}`);
      yield* page.jobs;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Returns a page of the job's log: lines with `seq` above `after`. */
  async logs(id: string, options: { after?: number; limit?: number } = {}): Promise<LogLine[]> {
    const query = `after=${options.after ?? 0}&limit=${options.limit ?? 1_000}`;
    return (await this.#get<{ logs: LogLine[] }>(`/v1/jobs/${encodeURIComponent(id)}/logs?${query}`)).logs;
  }

  /** Creates or replaces a schedule. */
  async putSchedule<Input, Args, Output>(
    name: string,
    timing: Timing,
    job: Job<Input, Args, Output> | string,
    args: Input,
    options: JobOptions = {},
  ): Promise<ScheduleRecord> {
    const template = typeof job === "string" ? requestText(job, args, options) : requestText(job.type, args, { ...job, ...options });
    if (typeof job !== "string" && job.args) await validate(job.args, args);
    const every = "every" in timing ? { every: typeof timing.every === "number" ? `${timing.every}ms` : timing.every } : {};
    const head = stringify({ ...timing, ...every }, "timing", ARGS_BYTES_MAX);
    const body = `${head.slice(0, -1)},${template.slice(1)}`;
    return (await this.#send({ method: "PUT", path: schedulePath(name), body })) as unknown as ScheduleRecord;
  }

  async schedule(name: string): Promise<ScheduleRecord> {
    return this.#get(schedulePath(name));
  }

  async schedules(): Promise<ScheduleRecord[]> {
    return (await this.#get<{ schedules: ScheduleRecord[] }>("/v1/schedules")).schedules;
  }

  /** Deletes a schedule. The jobs that it made stay. */
  async removeSchedule(name: string): Promise<void> {
    await this.#send({ method: "DELETE", path: schedulePath(name) });
  }

  async pauseSchedule(name: string): Promise<ScheduleRecord> {
    return this.#post(`${schedulePath(name)}/pause`, {});
  }

  async resumeSchedule(name: string): Promise<ScheduleRecord> {
    return this.#post(`${schedulePath(name)}/resume`, {});
  }

  /** Makes a job now, beside the ticks. */
  async triggerSchedule(name: string): Promise<JobRecord> {
    return this.#post(`${schedulePath(name)}/trigger`, {});
  }

  async #get<T>(path: string): Promise<T> {
    return (await this.#send({ method: "GET", path })) as unknown as T;
  }

  async #post<T>(path: string, body: object): Promise<T> {
    return (await this.#send({ method: "POST", path, body: stringify(body, "body", BATCH_BYTES_MAX) })) as unknown as T;
  }

  /** Sends one request, once. */
  protected exchange(call: Call): Promise<Json> {
    return send(this.#servers, call);
  }

  async #send(call: Call): Promise<Json> {
    const [end, backoff] = [performance.now() + this.#retryForMs, new Backoff(this.#servers)];
    for (;;) {
      try {
        return await this.exchange(call);
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        const delay = backoff.nextDelayMs();
        if (performance.now() + delay > end) throw error;
        await sleep(delay, call.signal);
      }
    }
  }
}

/** An enqueued job. */
export class Handle<Output> {
  readonly #client: Client;
  readonly id: string;
  /** False if a job with the same unique key or id existed already. */
  readonly created: boolean;

  constructor(client: Client, id: string, created: boolean) {
    this.#client = client;
    this.id = id;
    this.created = created;
  }

  /** Reads the job as it is now. */
  job(): Promise<JobRecord> {
    return this.#client.job(this.id);
  }

  /** Waits through all attempts until the job has ended, with whatever outcome. */
  wait(options?: { timeout?: Duration; signal?: AbortSignal }): Promise<JobRecord> {
    return this.#client.wait(this.id, options);
  }

  /** Waits for the job and returns its result; throws `NotCompleted` if it did not complete. */
  async result(options?: { timeout?: Duration; signal?: AbortSignal }): Promise<Output> {
    const job = await this.wait(options);
    if (job.status !== "completed") throw new NotCompleted(job);
    return job.result as Output;
  }

  cancel(reason?: string): Promise<JobRecord> {
    return this.#client.cancel(this.id, reason);
  }
}

function schedulePath(name: string): string {
  return `/v1/schedules/${encodeURIComponent(name)}`;
}

/** Returns a UUID of version 7, which sorts by time as the server's own ids do. */
function newJobId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
