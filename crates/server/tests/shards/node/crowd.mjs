// Many workers in one process, each with a DEALER of its own. They register, take every assignment and send heartbeats.
//
// Twice a second it prints their state as one line of JSON: how many have an assignment, how many shards they have together, the
// fewest and the most that one has, whether one shard is with two, and how many workers received a reply to a heartbeat.
import { Dealer, context } from "zeromq";

const { COORDINATOR, SERVICE = "service", PREFIX = "node" } = process.env;
const count = Number(process.env.COUNT ?? 1000);
const maxShardCount = Number(process.env.SHARDS ?? 10000);
const intervalMs = Number(process.env.HEARTBEAT_MS ?? 1000);

context.maxSockets = count + 16;

const workers = Array.from({ length: count }, (_, index) => ({
  workerId: `${PREFIX}-${String(index).padStart(5, "0")}`,
  socket: new Dealer({ linger: 0 }),
  shards: undefined,
  sent: 0,
  replies: 0,
}));

const send = (worker, type, data) => {
  const identity = { serviceName: SERVICE, workerId: worker.workerId, maxShardCount };
  return worker.socket.send(JSON.stringify({ type, data: { ...identity, ...data } }));
};

async function read(worker) {
  for await (const [frame] of worker.socket) {
    const { type, data } = JSON.parse(frame.toString());
    if (type !== "assignment") {
      console.log(JSON.stringify({ event: type, ...data }));
      continue;
    }
    worker.shards = data.assignedShards;
    if (worker.sent > 0) worker.replies += 1;
  }
}

async function heartbeat(worker) {
// A worker whose registration was lost registers again, as any worker must.
  if (worker.shards === undefined) return send(worker, "register", {});
  worker.sent += 1;
  return send(worker, "heartbeat", { assignedShards: worker.shards });
}

function census() {
  const assigned = workers.filter((worker) => worker.shards !== undefined);
  const loads = assigned.map((worker) => worker.shards.length);
  const all = assigned.flatMap((worker) => worker.shards);
  const replied = workers.filter((worker) => worker.replies > 0).length;
  const line = { event: "census", assigned: assigned.length, shards: all.length, distinct: new Set(all).size, replied };
  console.log(JSON.stringify({ ...line, fewest: Math.min(...loads), most: Math.max(...loads) }));
}

for (const worker of workers) {
  worker.socket.connect(COORDINATOR);
  read(worker);
  send(worker, "register", {});
  // Spread over the interval, as the heartbeats of a fleet are.
  setTimeout(() => setInterval(() => heartbeat(worker), intervalMs), Math.random() * intervalMs);
}
setInterval(census, 500);
