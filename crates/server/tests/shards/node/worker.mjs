// A worker that keeps to the coordinator's documented protocol and nothing more: one JSON frame on a DEALER. It registers, takes
// its shards from the first assignment and beats, reporting what it was given then.
//
// It tells what it sees as lines of JSON. With READ=all it goes on reading, and takes each assignment as it comes.
import { Dealer } from "zeromq";

const { COORDINATOR, SERVICE = "service", WORKER = "worker", READ = "first" } = process.env;
const maxShardCount = Number(process.env.SHARDS ?? 10);
const beatMs = Number(process.env.BEAT_MS ?? 1000);

const tell = (line) => console.log(JSON.stringify(line));
const socket = new Dealer({ linger: 500 });
socket.connect(COORDINATOR);

const identity = { serviceName: SERVICE, workerId: WORKER, maxShardCount };
let assignedShards = [];
let beats = 0;

const send = (type, data) => socket.send(JSON.stringify({ type, data }));

function take({ type, data }) {
  tell({ event: type, ...data });
  if (type === "assignment") assignedShards = data.assignedShards;
  return type === "assignment";
}

async function beat() {
  await send("heartbeat", { ...identity, assignedShards });
  beats += 1;
  tell({ event: "beat", beats });
}

process.on("SIGTERM", () => {
  socket.close();
  tell({ event: "closed" });
  process.exit(0);
});

await send("register", identity);
for (;;) {
  const [frame] = await socket.receive();
  if (take(JSON.parse(frame.toString()))) break;
}
setInterval(() => beat().catch((error) => tell({ event: "failed", message: String(error) })), beatMs);
while (READ === "all") {
  const [frame] = await socket.receive();
  take(JSON.parse(frame.toString()));
}
