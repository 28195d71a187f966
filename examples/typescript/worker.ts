// A worker that owns a part of a service's shards.
//
//   npm install && npm run build
//   node dist/worker.js tcp://127.0.0.1:5555 my-service worker-1 100
//
// It prints a line of JSON whenever its part changes, and leaves cleanly on SIGINT or SIGTERM.

import { Dealer } from "zeromq";

type Assignment = { assignedShards: number[]; version?: number };
type Answer =
  | { type: "assignment"; data: Assignment }
  | { type: "error"; data: { code: string; message: string } };

const [url = "tcp://127.0.0.1:5555", serviceName = "my-service", workerId = "worker-1", shards = "100"] =
  process.argv.slice(2);
const maxShardCount = Number(shards);
const beatMs = Number(process.env.HEARTBEAT_MS ?? 5_000);

const socket = new Dealer({ linger: 1_000 });
socket.connect(url);

let assignedShards: number[] = [];
let version = 0;

const say = (type: "register" | "heartbeat" | "leave") =>
  socket
    .send(JSON.stringify({ type, data: { serviceName, workerId, maxShardCount, assignedShards } }))
    .catch((error) => console.error(`cannot say ${type}: ${error}`));

await say("register");
// Every heartbeat is answered with the present assignment: a message that was lost is made good by the next beat.
const beating = setInterval(() => say("heartbeat"), beatMs);

const leave = async () => {
  clearInterval(beating);
  await say("leave");
  socket.close();
};
process.once("SIGINT", leave);
process.once("SIGTERM", leave);

for await (const [frame] of socket) {
  const answer = JSON.parse(frame.toString()) as Answer;
  if (answer.type === "error") {
    console.error(`${answer.data.code}: ${answer.data.message}`);
    continue;
  }
  if (answer.type !== "assignment") continue;
  const next = answer.data;
  // An answer that was overtaken by a newer one says nothing new.
  if (next.version !== undefined && next.version < version) continue;
  version = next.version ?? version;
  const added = next.assignedShards.filter((shard) => !assignedShards.includes(shard));
  const removed = assignedShards.filter((shard) => !next.assignedShards.includes(shard));
  assignedShards = next.assignedShards;
  if (added.length + removed.length > 0) {
    console.log(JSON.stringify({ version, shards: assignedShards, added, removed }));
  }
}
