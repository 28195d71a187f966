/** The other side of a sandbox: runs one handler at a time. */

import { parentPort } from "node:worker_threads";

import { withRun, type Context } from "./context.js";
import type { FromThread, RunFacts, ToThread } from "./sandbox.js";

const port = parentPort!;
let controller = new AbortController();

port.on("message", (message: ToThread) => {
  if (message.kind === "abort") return controller.abort();
  controller = new AbortController();
  void run(message.module, message.args, message.facts).then((end) => port.postMessage(end));
});

async function run(module: string, args: unknown, facts: RunFacts): Promise<FromThread> {
  const context: Context = {
    ...facts,
    signal: controller.signal,
    log: (message, level = "info") => post({ kind: "log", message, level }),
    progress: (percent, message) => post({ kind: "progress", percent, message }),
  };
  try {
    const loaded = (await import(module)) as { default: (args: unknown, context: Context) => unknown };
    return { kind: "returned", output: await withRun(context, () => loaded.default(args, context)) };
  } catch (error) {
    const { name, message, stack, after } = (error instanceof Error ? error : new Error(String(error))) as Error & { after?: unknown };
    return { kind: "thrown", name, message, stack: stack ?? message, after };
  }
}

function post(message: FromThread): void {
  port.postMessage(message);
}
