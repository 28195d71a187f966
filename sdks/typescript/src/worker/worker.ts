/**
 * The worker. Three activities share one {@link RunTable}: polls fetch runs, reports send their events, and a thread sends
 * heartbeats. Each survives the absence of the server: it tries again, at the next URL if there is one.
 */

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import process from "node:process";
import { setImmediate } from "node:timers";

import { withRun } from "../context.js";
import { Deadline } from "../deadline.js";
import { milliseconds, type Duration } from "../duration.js";
import { ConvokeError, InvalidArguments, Rejected, Retry, Unavailable } from "../errors.js";
import { send, sleep } from "../http.js";
import type { AnyJob } from "../job.js";
import { stringify } from "../json.js";
import { CONCURRENCY_MAX, QUEUES_MAX, RESULT_BYTES_MAX } from "../limits.js";
import { Sandboxes } from "../sandbox.js";
import { validate } from "../schema.js";
import { Backoff, Servers } from "../servers.js";
import { failureOf } from "./failure.js";
import { Heartbeats, type FromHeartbeats } from "./heartbeat.js";
import { quietLogger, type Logger } from "./log.js";
import type { OutEvent } from "./outbox.js";
import type { Assignment, Run } from "./run.js";
import { RunTable } from "./run_table.js";

const POLL_WAIT_MS = 20_000;
/** A worker of short jobs is full all the time, and never for long; one that stays full polls for cancellations only. */
const FULL_FOR_MS = 250;
/** How long to wait after a rejection that an operator must correct, such as that of a token. */
const REJECTED_MS = 5_000;
const ABOUT_THE_EVENTS: ReadonlySet<number> = new Set([400, 413, 422]);
/** How long a stopping worker tries to send its last reports, and then to leave. */
const FLUSH_MS = 5_000;
const LEAVE_MS = 2_000;
/** How long the worker may take after a second signal to release its runs, before the process ends anyway. */
const AT_ONCE_MS = 1_000;

export interface WorkerOptions {
  /** The jobs that this worker runs. */
  readonly jobs: readonly AnyJob[];
  /** Default: the queues of the jobs. */
  readonly queues?: readonly string[];
  /** How many runs at a time. Default: 10. */
  readonly concurrency?: number;
  /** How long runs may go on after the worker was asked to stop; what is unfinished then is released. Default: 25 s. */
  readonly drain?: Duration;
  /** For people. Default: host name and process id. */
  readonly name?: string;
  /** Unlike that of any other worker. Default: a new one. */
  readonly id?: string;
  /** The URL of a server, or of several nodes of one cluster. Default: `CONVOKE_SERVER`, then `http://127.0.0.1:3000`. */
  readonly server?: string | readonly string[];
  /** Default: `CONVOKE_TOKEN`. */
  readonly token?: string;
  /** Default: warnings and errors to the console. */
  readonly logger?: Logger;
}

export class Worker {
  readonly id: string;
  readonly queues: readonly string[];
  readonly concurrency: number;
  readonly #jobs: ReadonlyMap<string, AnyJob>;
  readonly #drainMs: number;
  readonly #name: string;
  readonly #servers: Servers;
  readonly #logger: Logger;
  readonly #table: RunTable;
  readonly #sandboxes = new Sandboxes();
  /** Aborted when the worker stops fetching; and when it ends at once. */
  readonly #draining = new AbortController();
  readonly #ending = new AbortController();
  #heartbeats: Heartbeats | undefined;
  #ended: Promise<void> | undefined;
  #wakeFetch = () => {};
  #wakeReport = () => {};
  #isAway = false;
  #failure: Error | undefined;
  /** Resolves when the server knows that this worker drains. */
  #drainSent: Promise<void> = Promise.resolve();

  constructor(options: WorkerOptions) {
    this.#jobs = new Map(options.jobs.map((job) => [job.type, job]));
    this.queues = options.queues ?? [...new Set(options.jobs.map((job) => job.queue ?? "default"))];
    this.concurrency = options.concurrency ?? 10;
    if (this.queues.length < 1 || this.queues.length > QUEUES_MAX) {
      throw new InvalidArguments("queues", `expected 1 to ${QUEUES_MAX}, got ${this.queues.length}; is any job defined?`);
    }
    if (!Number.isInteger(this.concurrency) || this.concurrency < 1 || this.concurrency > CONCURRENCY_MAX) {
      throw new InvalidArguments("concurrency", `expected 1 to ${CONCURRENCY_MAX}, got ${this.concurrency}`);
    }
    this.id = options.id ?? randomUUID();
    this.#drainMs = milliseconds(options.drain ?? 25_000, "drain");
    this.#name = options.name ?? `${hostname()}:${process.pid}`;
    this.#servers = new Servers(options.server, options.token);
    this.#logger = options.logger ?? quietLogger;
    this.#table = new RunTable(this.concurrency, {
      start: (run) => void this.#run(run),
      send: () => this.#wakeReport(),
      progressed: () => this.#wakeFetch(),
      removed: (executions) => this.#heartbeats?.removed(executions),
    });
  }

  /** Begins to work, and returns at once. Installs no signal handlers. */
  start(): this {
    if (this.#ended) throw new ConvokeError("this worker was started already");
    this.#heartbeats = new Heartbeats(
      (message) => this.#onHeartbeat(message),
      (error) => this.#fail(error),
    );
    this.#ended = this.#work();
// A caller that waits for `stop` or `run` receives the error; without one it must not end the process.
    this.#ended.catch((error: Error) => this.#logger.error(`worker ended worker=${this.id} error=${error.message}`));
    return this;
  }

  /**
   * Fetches no more, lets runs go on for the drain time, releases the rest, leaves the server. Resolves when all of it is
   * done. Called again, it releases what still runs at once.
   */
  async stop(): Promise<void> {
    if (this.#draining.signal.aborted) this.#ending.abort();
    this.#draining.abort();
    await this.#ended;
  }

  /**
   * Works until SIGTERM or SIGINT, then drains. After a second signal runs are released, and the process ends within a
   * second, whatever else is going on: the server may be away.
   */
  async run(): Promise<void> {
    let end: NodeJS.Timeout | undefined;
    const stop = () => {
      if (this.#draining.signal.aborted) end ??= setTimeout(() => process.exit(1), AT_ONCE_MS);
      void this.stop().catch(() => {});
    };
    process.on("SIGTERM", stop).on("SIGINT", stop);
    try {
      await this.start().#ended;
    } finally {
      // What handlers have left behind does not keep the process after a second signal.
      end?.unref();
      process.off("SIGTERM", stop).off("SIGINT", stop);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #work(): Promise<void> {
    const flushed = new AbortController();
    const reporting = this.#report(flushed.signal);
    try {
      await this.#register(this.#draining.signal);
      await this.#fetch();
      this.#table.drain();
      this.#heartbeats?.draining();
      this.#drainSent = this.#sendDraining();
      await this.#drain();
      // The timer must not keep the process alive once all is sent.
      await Promise.race([reporting, sleep(FLUSH_MS, flushed.signal)]);
    } finally {
      flushed.abort();
      this.#wakeReport();
      await this.#heartbeats?.end();
      await this.#sandboxes.close();
      await this.#leave();
    }
    if (this.#failure) throw this.#failure;
  }

  /** Ends the worker because of a bug or a lack of memory in its own thread: it must not look alive without heartbeats. */
  #fail(error: Error): void {
    this.#failure ??= error;
    this.#draining.abort();
  }

  /** Registers until it succeeds or the signal is aborted; throws if the server rejects it. */
  async #register(signal: AbortSignal): Promise<void> {
    const body = JSON.stringify({ workerId: this.id, name: this.#name, queues: this.queues, concurrency: this.concurrency });
    const backoff = new Backoff(this.#servers);
    while (!signal.aborted) {
      try {
        const call = { method: "POST", path: "/v1/worker/register", body, signal } as const;
        const reply = (await send(this.#servers, call)) as unknown as { heartbeatInterval: string };
        this.#here();
        this.#heartbeats?.begin(this.#servers, this.id, milliseconds(reply.heartbeatInterval, "heartbeatInterval"));
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Unavailable)) throw error;
        this.#away(error);
        await sleep(backoff.nextDelayMs(), signal);
      }
    }
  }

  async #fetch(): Promise<void> {
    const signal = this.#draining.signal;
    const backoff = new Backoff(this.#servers);
    signal.addEventListener("abort", () => this.#wakeFetch(), { once: true });
    while (!signal.aborted) {
      // A poll for runs must not be ended: its runs would be lost. A poll for none ends as soon as there is room.
      const room = new AbortController();
      const full = performance.now();
      while (this.#table.wanted === 0 && !signal.aborted && performance.now() - full < FULL_FOR_MS) await this.#news(FULL_FOR_MS);
      const max = this.#table.wanted;
      if (max === 0) this.#wakeFetch = () => this.#table.wanted > 0 && room.abort();
      try {
        const body = JSON.stringify({ workerId: this.id, max, wait: `${POLL_WAIT_MS}ms` });
        const ends = max === 0 ? AbortSignal.any([signal, room.signal]) : signal;
        const call = { method: "POST", path: "/v1/worker/poll", body, waitMs: POLL_WAIT_MS, signal: ends } as const;
        const reply = (await send(this.#servers, call)) as unknown as { jobs: Assignment[]; cancel: string[]; drain?: boolean };
        backoff.reset();
        this.#here();
        this.#table.cancel(reply.cancel);
        const added = this.#table.accept(reply.jobs);
        if (reply.drain === true) this.#drainOnDemand();
        // Before the handlers, which may block.
        if (added.length > 0) this.#heartbeats?.added(added);
        this.#table.fill();
        // Handlers and reports come first: a worker under load must not poll before it has sent anything.
        await new Promise<void>((resolve) => setImmediate(resolve));
      } catch (error) {
        if (signal.aborted) return;
        if (room.signal.aborted) continue;
        await this.#fetchFailed(error as Error, backoff, signal);
      }
    }
  }

  async #fetchFailed(error: Error, backoff: Backoff, signal: AbortSignal): Promise<void> {
    if (error instanceof Rejected && error.code === "unknown_worker") {
      try {
        return await this.#register(signal);
      } catch (rejected) {
        error = rejected as Error;
      }
    }
    if (error instanceof Unavailable) {
      this.#away(error);
      return sleep(backoff.nextDelayMs(), signal);
    }
    if (!(error instanceof Rejected)) throw error;
    // An operator can correct it, and runs in hand go on.
    this.#logger.error(`poll rejected, retrying worker=${this.id} error=${error.message}`);
    await sleep(REJECTED_MS, signal);
  }

  /** Waits until runs or room have changed, or for this time. */
  async #news(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ms);
      this.#wakeFetch = resolve;
    });
    clearTimeout(timer);
  }

  /** Sends events until the worker has ended and all are sent, or the signal is aborted. */
  async #report(signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(this.#servers);
    while (!signal.aborted) {
      if (this.#table.outbox.isEmpty) {
        if (this.#table.isDraining && this.#table.live === 0) return;
        this.#heartbeats?.flush();
        await new Promise<void>((resolve) => (this.#wakeReport = resolve));
// Other ends of this turn of the loop go into the same request.
        await new Promise<void>((resolve) => setImmediate(resolve));
        continue;
      }
      const dropped = this.#table.takeDropped();
      if (dropped > 0) this.#logger.warn(`log lines dropped worker=${this.id} count=${dropped}`);
      await this.#drainSent;
      const events = this.#table.outbox.take();
      await this.#sendEvents(events, backoff, signal);
      this.#wakeFetch();
    }
  }

  async #sendEvents(events: readonly OutEvent[], backoff: Backoff, signal: AbortSignal): Promise<void> {
    const body = `{"workerId":${JSON.stringify(this.id)},"events":[${events.map((event) => event.text).join(",")}]}`;
    while (!signal.aborted) {
      try {
        const call = { method: "POST", path: "/v1/worker/report", body, signal } as const;
        const reply = (await send(this.#servers, call)) as unknown as { rejected: { executionId: string }[] };
        backoff.reset();
        this.#here();
        this.#table.cancel(reply.rejected.map((each) => each.executionId));
        return this.#table.ended(events);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Unavailable) {
          this.#away(error);
          await sleep(backoff.nextDelayMs(), signal);
        } else if (!(error instanceof Rejected && ABOUT_THE_EVENTS.has(error.status))) {
          // A wrong token: an operator can correct it, and the results are kept.
          this.#logger.error(`report rejected, retrying worker=${this.id} error=${(error as Error).message}`);
          await sleep(REJECTED_MS, signal);
        } else if (events.length > 1) {
          // One of them is wrong: it must not take the others with it.
          const half = events.length >> 1;
          await this.#sendEvents(events.slice(0, half), backoff, signal);
          return this.#sendEvents(events.slice(half), backoff, signal);
        } else {
          return this.#dropEvent(events[0]!, error);
        }
      }
    }
  }

  /** Gives up an event that the server does not accept. A result that it does not accept is a failure for good. */
  #dropEvent(event: OutEvent, error: Rejected): void {
    this.#logger.error(`event rejected worker=${this.id} job=${event.run.jobId} error=${error.message}`);
    if (!event.isEnd) return;
    if (event.isFailure) this.#table.ended([event]);
    else this.#table.replaceEnd(event.run, event.run.failed(`the server rejects the end of the run: ${error.message}`, false));
  }

  async #run(run: Run): Promise<void> {
    const job = this.#jobs.get(run.type);
    if (!job) {
      // A worker of another version may have a handler.
      return this.#failed(run, run.failed(`this worker has no handler for the type ${JSON.stringify(run.type)}`, true), "no handler");
    }
    let args: unknown = run.args;
    if (job.args) {
      try {
        args = await validate(job.args, run.args);
      } catch (error) {
        const text = `the arguments do not fit ${run.type}: ${(error as Error).message}`;
        return this.#failed(run, run.failed(text, false), text);
      }
    }
    let output: unknown;
    try {
      output = await withRun(run, () => (typeof job.run === "function" ? job.run(args, run) : this.#sandboxes.run(job.run, args, run)));
    } catch (error) {
      return this.#threw(run, error);
    }
    try {
      const result = output === undefined || output === null ? undefined : stringify(output, "result", RESULT_BYTES_MAX);
      this.#table.end(run, run.completed(result));
    } catch (error) {
      // A result that cannot be sent fails for good: it would be the same again.
      this.#failed(run, run.failed((error as Error).message, false), (error as Error).message);
    }
  }

  #threw(run: Run, error: unknown): void {
    const { text, retries, stack } = failureOf(error);
    if (stack !== undefined && !run.isOver) run.log(stack, "error");
    let afterMs: number | undefined;
    if (error instanceof Retry && error.after !== undefined) {
      try {
        afterMs = milliseconds(error.after, "after");
      } catch (wrong) {
        run.log((wrong as Error).message, "error");
      }
    }
    this.#failed(run, run.failed(text, retries), text, afterMs);
  }

  #failed(run: Run, event: string, text: string, afterMs?: number): void {
    if (!run.isOver) {
      this.#logger.warn(`job failed job=${run.jobId} type=${run.type} attempt=${run.attempt} error=${text.slice(0, 500)}`);
    }
    this.#table.end(run, event, afterMs);
  }

  /** Tells the server before a slot becomes free, so that no further run is dispatched to it. */
  async #sendDraining(): Promise<void> {
    const body = JSON.stringify({ workerId: this.id, running: this.#table.executions, draining: true });
    const call = { method: "POST", path: "/v1/worker/heartbeat", body, signal: AbortSignal.timeout(LEAVE_MS) } as const;
    // Without a response it drains all the same: leaving releases what was dispatched meanwhile.
    await send(this.#servers, call).catch(() => {});
  }

  async #drain(): Promise<void> {
    const deadline = new Deadline(this.#drainMs, this.#ending.signal);
    const { signal } = deadline;
    signal.addEventListener("abort", () => this.#wakeFetch(), { once: true });
    while (this.#table.live > 0 && !signal.aborted) await new Promise<void>((resolve) => (this.#wakeFetch = resolve));
    deadline.end();
    this.#table.releaseAll(new DOMException("the worker ends", "AbortError"));
    this.#wakeReport();
  }

  /** Leaves the server, which releases whatever it still has of this worker. */
  async #leave(): Promise<void> {
    try {
      const body = JSON.stringify({ workerId: this.id });
      await send(this.#servers, { method: "POST", path: "/v1/worker/leave", body, signal: AbortSignal.timeout(LEAVE_MS) });
    } catch (error) {
      if (!(error instanceof Rejected)) this.#logger.warn(`leaving failed worker=${this.id} error=${(error as Error).message}`);
    }
  }

  #drainOnDemand(): void {
    this.#logger.info(`draining: the server asked for it worker=${this.id}`);
    this.#draining.abort();
  }

  #onHeartbeat(message: FromHeartbeats): void {
    if (message.kind === "cancel") this.#table.cancel(message.executions);
    else if (message.kind === "drain") this.#drainOnDemand();
    else if (message.kind === "unknown") void this.#register(this.#draining.signal).catch(() => {});
    else this.#logger.warn(`worker heartbeat failed worker=${this.id} error=${message.error}`);
  }

  #away(error: Error): void {
    if (!this.#isAway) this.#logger.warn(`server not reached worker=${this.id} error=${error.message}`);
    this.#isAway = true;
  }

  #here(): void {
    if (this.#isAway) this.#logger.info(`server reached again worker=${this.id}`);
    this.#isAway = false;
  }
}
