// A worker that keeps to the coordinator's documented protocol and nothing more: one JSON frame on a DEALER. It registers, takes
// its shards from the first assignment and sends heartbeats that report them.
//
// It prints what it receives as lines of JSON. With READ=all it goes on reading, and takes each assignment as it comes.
import { Dealer } from "zeromq";

const { COORDINATOR, SERVICE = "service", WORKER = "worker", READ = "first" } = process.env;
const maxShardCount = Number(process.env.SHARDS ?? 10);
const intervalMs = Number(process.env.HEARTBEAT_MS ?? 1000);

const print = (line) => console.log(JSON.stringify(line));
const socket = new Dealer({ linger: 500 });
socket.connect(COORDINATOR);

const identity = { serviceName: SERVICE, workerId: WORKER, maxShardCount };
let assignedShards = [];
let heartbeats = 0;

const send = (type, data) => socket.send(JSON.stringify({ type, data }));

function take({ type, data }) {
  print({ event: type, ...data });
  if (type === "assignment") assignedShards = data.assignedShards;
  return type === "assignment";
}

async function heartbeat() {
  await send("heartbeat", { ...identity, assignedShards });
  heartbeats += 1;
  print({ event: "heartbeat", heartbeats });
}

process.on("SIGTERM", () => {
  socket.close();
  print({ event: "closed" });
  process.exit(0);
});

await send("register", identity);
for (;;) {
  const [frame] = await socket.receive();
  if (take(JSON.parse(frame.toString()))) break;
}
setInterval(() => heartbeat().catch((error) => print({ event: "failed", message: String(error) })), intervalMs);
while (READ === "all") {
  const [frame] = await socket.receive();
  take(JSON.parse(frame.toString()));
}
