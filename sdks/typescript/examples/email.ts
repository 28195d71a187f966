/**
 * A client and a worker in one program. While a coordinator runs on this machine:
 *
 *     npm run check && node out/examples/email.js
 */

import { Client, defineJob, Worker } from "../src/index.js";

const email = defineJob({
  type: "email.send",
  queue: "mail",
  maxRetries: 5,
  timeout: "30s",
  run: async ({ to }: { to: string }, context) => {
    context.log(`to ${to}`);
    return { sent: 1 };
  },
});

await using worker = new Worker({ jobs: [email], concurrency: 8 }).start();

const handle = await new Client().enqueue(email, { to: "ada@example.org" });
console.log(await handle.result()); // { sent: 1 }, and typed so
