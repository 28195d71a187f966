/** A server of its own for a test: the real binary, a temporary SQLite file, a free port. */

import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";

const BINARY = process.env["CONVOKE_BIN"] ?? "../../target/debug/convoke";
const SETTINGS = { CONVOKE_WORKER__HEARTBEAT_INTERVAL: "500ms", CONVOKE_WORKER__STALE_AFTER: "2s", CONVOKE_RETRY__INITIAL_DELAY: "50ms" };

export class RealServer {
  readonly url: string;
  readonly #directory: string;
  #process: ChildProcess | undefined;
  #shards = "off";
  #env: Record<string, string> = {};

  private constructor(url: string, directory: string) {
    this.url = url;
    this.#directory = directory;
  }

  static async start(settings: { shards?: string; env?: Record<string, string> } = {}): Promise<RealServer> {
    const server = new RealServer(`http://127.0.0.1:${await freePort()}`, mkdtempSync(join(tmpdir(), "convoke-")));
    [server.#shards, server.#env] = [settings.shards ?? "off", settings.env ?? {}];
    await server.start();
    return server;
  }

  async start(): Promise<void> {
    const flags = ["serve", "--http", new URL(this.url).host, "--store", `sqlite:${join(this.#directory, "jobs.db")}`, "--shards", this.#shards];
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("CONVOKE_")));
    const started = spawn(BINARY, flags, { cwd: this.#directory, env: { ...env, ...SETTINGS, ...this.#env }, stdio: "ignore" });
    this.#process = started;
    while (!(await this.#isReady())) {
      if (started.exitCode !== null) throw new Error(`${BINARY} ended with code ${started.exitCode}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async #isReady(): Promise<boolean> {
    try {
      return (await fetch(`${this.url}/readyz`)).ok;
    } catch {
      return false;
    }
  }

  async kill(): Promise<void> {
    if (!this.#process || this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

export async function freePort(): Promise<number> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  listener.close();
  await once(listener, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
