/**
 * Heartbeats, from a thread of their own: a handler that blocks the event loop for a minute keeps its lease. The thread
 * knows the ids of the runs in hand; while the loop is blocked they cannot change.
 */

import { Worker as Thread } from "node:worker_threads";

import type { Servers } from "../servers.js";

/** Where and how often to send heartbeats. */
export interface HeartbeatSettings {
  readonly urls: readonly string[];
  readonly token: string | undefined;
  readonly workerId: string;
  readonly intervalMs: number;
}

export type ToHeartbeats =
  | { readonly kind: "settings"; readonly settings: HeartbeatSettings }
  | { readonly kind: "runs"; readonly added: readonly string[]; readonly removed: readonly string[] }
  | { readonly kind: "draining" };

export type FromHeartbeats =
  | { readonly kind: "cancel"; readonly executions: readonly string[] }
  | { readonly kind: "unknown" }
  | { readonly kind: "drain" }
  | { readonly kind: "failed"; readonly error: string };

export class Heartbeats {
  readonly #thread: Thread;
  #removed: string[] = [];

  /** `died` is called if the thread ends by itself: without heartbeats the worker must not go on. */
  constructor(on: (message: FromHeartbeats) => void, died: (error: Error) => void) {
    // Flags of the process, such as those of a loader, are not for this thread, and some would end it.
    this.#thread = new Thread(new URL("./heartbeat_thread.js", import.meta.url), { execArgv: [] });
    this.#thread.on("message", on);
    this.#thread.on("error", died);
    // The thread must not keep a process alive that has nothing else to do.
    this.#thread.unref();
  }

  begin(servers: Servers, workerId: string, intervalMs: number): void {
    const { urls, token } = servers;
    this.#post({ kind: "settings", settings: { urls, token, workerId, intervalMs } });
  }

  /** Adds runs. Called before their handlers, which may block. */
  added(executions: string[]): void {
    this.#post({ kind: "runs", added: executions, removed: this.#removed });
    this.#removed = [];
  }

  /** Removes runs, with the next message. A run that is named for too long is only returned to be cancelled. */
  removed(executions: readonly string[]): void {
    this.#removed.push(...executions);
    if (this.#removed.length > 1_000) this.added([]);
  }

  flush(): void {
    if (this.#removed.length > 0) this.added([]);
  }

  draining(): void {
    this.#post({ kind: "draining" });
  }

  async end(): Promise<void> {
    await this.#thread.terminate();
  }

  #post(message: ToHeartbeats): void {
    this.#thread.postMessage(message);
  }
}
