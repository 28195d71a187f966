/** The thread that sends heartbeats. */

import { parentPort } from "node:worker_threads";

import { Rejected } from "../errors.js";
import { send, sleep } from "../http.js";
import { Servers } from "../servers.js";
import type { FromHeartbeats, HeartbeatSettings, ToHeartbeats } from "./heartbeat.js";

const port = parentPort!;
const running = new Set<string>();
let draining = false;
let settings: HeartbeatSettings | undefined;

port.on("message", (message: ToHeartbeats) => {
  if (message.kind === "runs") {
    message.removed.forEach((execution) => running.delete(execution));
    message.added.forEach((execution) => running.add(execution));
  } else if (message.kind === "draining") {
    draining = true;
  } else {
    const isFirst = settings === undefined;
    settings = message.settings;
    if (isFirst) void beat(new Servers(message.settings.urls, message.settings.token));
  }
});

async function beat(servers: Servers): Promise<never> {
  for (;;) {
    const { workerId, intervalMs } = settings!;
    let pauseMs = intervalMs / 2;
    try {
      const body = JSON.stringify({ workerId, running: [...running], draining });
      const reply = (await send(servers, { method: "POST", path: "/v1/worker/heartbeat", body })) as unknown as { cancel: string[]; drain?: boolean };
      if (reply.cancel.length > 0) post({ kind: "cancel", executions: reply.cancel });
      if (reply.drain === true && !draining) post({ kind: "drain" });
    } catch (error) {
      if (error instanceof Rejected && error.code === "unknown_worker") post({ kind: "unknown" });
      else post({ kind: "failed", error: (error as Error).message });
      pauseMs = Math.min(pauseMs, 1_000);
    }
    await sleep(pauseMs);
  }
}

function post(message: FromHeartbeats): void {
  port.postMessage(message);
}
