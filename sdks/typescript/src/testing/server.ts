/** The test server: the real coordinator in memory, whose time stands still until the test moves it. */

import { spawn, type ChildProcess } from "node:child_process";
import process from "node:process";
import { createInterface } from "node:readline";

import { Client } from "../client.js";
import { durationText, milliseconds, type Duration } from "../duration.js";
import { ConvokeError } from "../errors.js";
import { send } from "../http.js";
import type { Json } from "../json.js";
import { Servers } from "../servers.js";
import { Worker, type WorkerOptions } from "../worker/worker.js";

const START_LIMIT_MS = 10_000;
/** How long, in real time, the server waits for runs if the caller does not set it. */
const PATIENCE_MS = 10_000;
const LINES_MAX = 50;

export interface TestServerOptions {
  /** Decides all its random numbers and ids: the same seed and the same requests have the same results. Default: 0. */
  readonly seed?: number;
  /** When its time begins. Default: 2030-01-01T00:00:00Z. */
  readonly start?: Date;
  /** The program. Default: `CONVOKE_BIN`, then `convoke` of the `PATH`. */
  readonly binary?: string;
}

/** Where the clock is now, and how many runs have not ended within the time that they are waited for. */
export interface Moved {
  readonly now: Date;
  readonly running: number;
}

/** A server for tests. `await using server = await TestServer.start()`. */
export class TestServer {
  readonly url: string;
  readonly client: Client;
  readonly #process: ChildProcess;
  readonly #servers: Servers;
  readonly #end: () => void;

  /** Starts `convoke test-server`. */
  static async start(options: TestServerOptions = {}): Promise<TestServer> {
    const { CONVOKE_BIN, PATH } = process.env;
    const binary = options.binary ?? CONVOKE_BIN ?? "convoke";
    const flags = ["test-server", "--seed", String(options.seed ?? 0), ...(options.start ? ["--start", options.start.toISOString()] : [])];
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("CONVOKE_")));
    const child = spawn(binary, flags, { env, stdio: ["ignore", "pipe", "pipe"] });
    const errors: string[] = [];
    createInterface({ input: child.stderr }).on("line", (line) => {
      errors.push(line);
      if (errors.length > LINES_MAX) errors.shift();
    });
    const lines = createInterface({ input: child.stdout });
    try {
      const url = await new Promise<string>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`no URL within ${START_LIMIT_MS} ms`)), START_LIMIT_MS);
        const fail = (error: Error) => (clearTimeout(timer), reject(error));
        lines.on("line", (line) => line.startsWith("http") && (clearTimeout(timer), resolve(line.trim())));
        child.once("error", (error: NodeJS.ErrnoException) => fail(error.code === "ENOENT" ? new Error(`${binary} is not in ${PATH}: set CONVOKE_BIN`) : error));
        child.once("exit", (code) => fail(new Error(`it ended with code ${code}`)));
      });
      return new TestServer(url, child);
    } catch (error) {
      child.kill("SIGKILL");
      throw new ConvokeError([`the test server did not start: ${(error as Error).message}`, ...errors].join("\n"), { cause: error });
    }
  }

  private constructor(url: string, child: ChildProcess) {
    this.url = url;
    this.client = new Client({ server: url });
    this.#process = child;
    this.#servers = new Servers(url, undefined);
    this.#end = () => void child.kill("SIGKILL");
    process.once("exit", this.#end);
    // Neither the process nor its output keeps a test runner alive.
    child.unref();
    for (const stream of [child.stdout, child.stderr]) (stream as unknown as { unref?: () => void } | null)?.unref?.();
  }

  /** Returns the time of the server. */
  async now(): Promise<Date> {
    return new Date(((await this.#call("GET", "clock")) as { now: string }).now);
  }

  /**
   * Moves the clock. Every schedule, retry, timeout, lease and retention that is due fires, in order. Runs that start
   * meanwhile are waited for, each for `waitForRuns` in real time (10 s), before time goes on.
   */
  async advance(by: Duration | Date, options: { waitForRuns?: Duration } = {}): Promise<Moved> {
    const target = by instanceof Date ? { to: by.toISOString() } : { advance: durationText(by, "by") };
    const waitForRuns = durationText(options.waitForRuns ?? PATIENCE_MS, "waitForRuns");
    const moved = (await this.#call("POST", "clock", { ...target, waitForRuns }, 3_600_000)) as { now: string; running: number };
    return { now: new Date(moved.now), running: moved.running };
  }

  /** Waits, in real time, until no run is due or under way; throws `Rejected` if that takes longer than `timeout` (10 s). */
  async runUntilIdle(options: { timeout?: Duration } = {}): Promise<void> {
    const timeout = options.timeout ?? PATIENCE_MS;
    await this.#call("POST", "run-until-idle", { timeout: durationText(timeout, "timeout") }, milliseconds(timeout, "timeout"));
  }

  /** Rejects the next reports of workers as if the store were away. */
  async failReports(count: number): Promise<void> {
    await this.#call("POST", "faults", { failReports: count });
  }

  /** Carries out the next reports of workers, and drops the responses. */
  async loseReplies(count: number): Promise<void> {
    await this.#call("POST", "faults", { loseReplies: count });
  }

  /** Drops the next heartbeats of a worker. */
  async dropHeartbeats(worker: string, count = 1): Promise<void> {
    await this.#call("POST", "faults", { dropHeartbeats: { worker, count } });
  }

  /** Drops everything that a worker sends, until `reconnect`. */
  async cutOff(worker: string): Promise<void> {
    await this.#call("POST", "faults", { cutOff: worker });
  }

  async reconnect(worker: string): Promise<void> {
    await this.#call("POST", "faults", { reconnect: worker });
  }

  /** Ends the term of the leader without notice; another takes over. */
  async killLeader(): Promise<void> {
    await this.#call("POST", "faults", { killLeader: true });
  }

  async clearFaults(): Promise<void> {
    await this.#call("DELETE", "faults");
  }

  /** Starts a worker at this server, and resolves when it is registered: time must not move before. */
  async worker(options: WorkerOptions): Promise<Worker> {
    const worker = new Worker({ drain: 1_000, name: "test", ...options, server: this.url }).start();
    for (const end = performance.now() + START_LIMIT_MS; performance.now() < end; ) {
      const { workers } = (await send(this.#servers, { method: "GET", path: "/v1/workers" })) as unknown as { workers: { workerId: string }[] };
      if (workers.some((each) => each.workerId === worker.id)) return worker;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await worker.stop();
    throw new ConvokeError("the worker did not register at the test server");
  }

  /** Ends the server. */
  async close(): Promise<void> {
    process.off("exit", this.#end);
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.ref();
    this.#process.kill("SIGKILL");
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #call(method: "GET" | "POST" | "DELETE", name: string, body?: object, waitMs = 0): Promise<Json> {
    const call = { method, path: `/v1/test/${name}`, waitMs } as const;
    return send(this.#servers, body ? { ...call, body: JSON.stringify(body) } : call);
  }
}

/** The hooks of a test runner: those of `node:test` and of vitest fit. */
export interface Hooks {
  beforeEach(run: () => Promise<void>): void;
  afterEach(run: () => Promise<void>): void;
}

/** What the tests of a file or a suite share: a server of its own for each test. */
export interface TestServerOfEach {
  /** The server of the present test. */
  readonly current: TestServer;
  /** Starts a worker, which stops after the test. */
  worker(options: WorkerOptions): Promise<Worker>;
}

/**
 * Starts a server before each test and ends it afterwards:
 * `const server = useTestServer({ beforeEach, afterEach })`, with the hooks of `node:test` or of vitest.
 */
export function useTestServer(hooks: Hooks, options: TestServerOptions = {}): TestServerOfEach {
  let current: TestServer | undefined;
  let workers: Worker[] = [];
  hooks.beforeEach(async () => {
    current = await TestServer.start(options);
  });
  hooks.afterEach(async () => {
    await Promise.all(workers.map((worker) => worker.stop()));
    workers = [];
    await current?.close();
    current = undefined;
  });
  const present = () => {
    if (!current) throw new ConvokeError("there is a test server within a test only");
    return current;
  };
  return {
    get current() {
      return present();
    },
    async worker(settings) {
      const worker = await present().worker(settings);
      workers.push(worker);
      return worker;
    },
  };
}
