/**
 * Handlers for work that needs a processor: each run has a thread of its own, so that the worker and other handlers go on.
 * A thread that does not stop when it must is ended.
 */

import { Worker as Thread } from "node:worker_threads";

import type { Context } from "./context.js";
import { Permanent, Retry } from "./errors.js";
import type { Level } from "./records.js";

/** A handler in a module of its own. */
export interface Sandbox<Args, Output> {
  readonly module: string;
  /** Never set: the types of the handler. */
  readonly types?: readonly [Args, Output];
}

/** What a handler in a sandbox receives beside its arguments. */
export type SandboxContext = Context;

/** The values of a context that are sent to a thread. */
export type RunFacts = Omit<Context, "signal" | "log" | "progress">;

/** A message of a thread. */
export type FromThread =
  | { readonly kind: "log"; readonly message: string; readonly level: Level }
  | { readonly kind: "progress"; readonly percent: number; readonly message: string | undefined }
  | { readonly kind: "returned"; readonly output: unknown }
  | { readonly kind: "thrown"; readonly name: string; readonly message: string; readonly stack: string; readonly after: unknown };

export type ToThread =
  | { readonly kind: "run"; readonly module: string; readonly args: unknown; readonly facts: RunFacts }
  | { readonly kind: "abort" };

/** How long a handler has after its signal was aborted. */
const STOP_GRACE_MS = 2_000;
/** Threads that are kept for the next run. */
const IDLE_MAX = 4;

/**
 * Returns a handler that is the default export of a module: `sandbox(new URL("./resize.js", import.meta.url))`. It takes the
 * arguments and a context, as any handler.
 */
export function sandbox<Args, Output>(module: URL): Sandbox<Args, Output> {
  return { module: module.href };
}

export function isSandbox(run: unknown): run is Sandbox<unknown, unknown> {
  return typeof run === "object" && run !== null && typeof (run as Sandbox<unknown, unknown>).module === "string";
}

/** The threads of one worker. */
export class Sandboxes {
  readonly #idle: Thread[] = [];
  #isClosed = false;

  /** Runs a handler in a thread. */
  run(handler: Sandbox<unknown, unknown>, args: unknown, context: Context): Promise<unknown> {
    const thread = this.#idle.pop() ?? new Thread(new URL("./sandbox_thread.js", import.meta.url));
    return new Promise((resolve, reject) => {
      let grace: NodeJS.Timeout | undefined;
      const abort = () => {
        thread.postMessage({ kind: "abort" } satisfies ToThread);
        grace = setTimeout(() => void thread.terminate(), STOP_GRACE_MS);
      };
      const finish = (keep: boolean) => {
        clearTimeout(grace);
        context.signal.removeEventListener("abort", abort);
        thread.removeAllListeners();
        // An error after its run must not end the process.
        thread.on("error", () => {});
        if (keep && !this.#isClosed && this.#idle.length < IDLE_MAX) this.#idle.push(thread);
        else void thread.terminate();
      };
      thread.on("message", (message: FromThread) => {
        if (message.kind === "log") return context.log(message.message, message.level);
        if (message.kind === "progress") return context.progress(message.percent, message.message);
        finish(true);
        if (message.kind === "returned") resolve(message.output);
        else reject(thrown(message));
      });
      thread.on("error", (error) => {
        finish(false);
        reject(error);
      });
      thread.on("exit", (code) => {
        finish(false);
        reject(new Error(`the thread of the handler ended with code ${code}`));
      });
      context.signal.addEventListener("abort", abort, { once: true });
      thread.postMessage({ kind: "run", module: handler.module, args, facts: facts(context) } satisfies ToThread);
      if (context.signal.aborted) abort();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#idle.splice(0).map((thread) => thread.terminate()));
  }
}

function facts(context: Context): RunFacts {
  const { jobId, executionId, type, queue, attempt, maxRetries, correlationId, tags, deadline } = context;
  return { jobId, executionId, type, queue, attempt, maxRetries, correlationId, tags, deadline };
}

function thrown(message: FromThread & { kind: "thrown" }): Error {
  const after = message.after as number | string | undefined;
  if (message.name === "Permanent") return new Permanent(message.message);
  if (message.name === "Retry") return new Retry(message.message, after === undefined ? {} : { after });
  const error = new Error(message.message);
  [error.name, error.stack] = [message.name, message.stack];
  return error;
}
