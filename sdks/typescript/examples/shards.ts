/** A worker that prints which shards it gets and loses: `node out/examples/shards.js tcp://127.0.0.1:5555`. */

import { ShardWorker } from "../src/index.js";

const address = process.argv[2] ?? "tcp://127.0.0.1:5555";

const shards = await ShardWorker.connect({ address, service: "my-service", workerId: "worker-1", maxShards: 100, handoff: true });
process.once("SIGTERM", () => void shards.leave());
for await (const change of shards.changes()) {
  // Stop to work on change.removed here: they move when the next change is requested.
  console.log(JSON.stringify(change));
}
