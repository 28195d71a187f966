// A worker that owns a part of a service's shards.
//
//   npm install && npm run build
//   node dist/worker.js tcp://127.0.0.1:5555 my-service worker-1 100
//
// It prints a line of JSON whenever its part changes, and leaves cleanly on SIGINT or SIGTERM.

import { Dealer } from "zeromq";

type Assignment = { assignedShards: number[]; version?: number };
type Message =
  | { type: "assignment"; data: Assignment }
  | { type: "error"; data: { code: string; message: string } };

const [url = "tcp://127.0.0.1:5555", serviceName = "my-service", workerId = "worker-1", shards = "100"] =
  process.argv.slice(2);
const maxShardCount = Number(shards);
const intervalMs = Number(process.env.HEARTBEAT_MS ?? 5_000);

const socket = new Dealer({ linger: 1_000 });
socket.connect(url);

let assignedShards: number[] = [];
let version = 0;

const send = (type: "register" | "heartbeat" | "leave") =>
  socket
    .send(JSON.stringify({ type, data: { serviceName, workerId, maxShardCount, assignedShards } }))
    .catch((error) => console.error(`cannot send ${type}: ${error}`));

await send("register");
// The reply to every heartbeat is the current assignment: the next heartbeat replaces a message that was lost.
const heartbeats = setInterval(() => send("heartbeat"), intervalMs);

const leave = async () => {
  clearInterval(heartbeats);
  await send("leave");
  socket.close();
};
process.once("SIGINT", leave);
process.once("SIGTERM", leave);

for await (const [frame] of socket) {
  const message = JSON.parse(frame.toString()) as Message;
  if (message.type === "error") {
    console.error(`${message.data.code}: ${message.data.message}`);
    continue;
  }
  if (message.type !== "assignment") continue;
  const next = message.data;
  // A message that was overtaken by a newer one is outdated.
  if (next.version !== undefined && next.version < version) continue;
  version = next.version ?? version;
  const added = next.assignedShards.filter((shard) => !assignedShards.includes(shard));
  const removed = assignedShards.filter((shard) => !next.assignedShards.includes(shard));
  assignedShards = next.assignedShards;
  if (added.length + removed.length > 0) {
    console.log(JSON.stringify({ version, shards: assignedShards, added, removed }));
  }
}
