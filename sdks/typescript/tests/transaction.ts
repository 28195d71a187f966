/** Jobs in a transaction of one's own, on a real PostgreSQL that is the store of a server: started by `scripts/test-sdks`. */

import assert from "node:assert/strict";
import { test } from "node:test";

import pg from "pg";
import * as z from "zod";

import { Client, defineJob, enqueueIn, InvalidArguments, Rejected } from "../src/index.js";

const confirm = defineJob({
  type: "order.confirm",
  queue: "mail",
  maxRetries: 7,
  args: z.object({ order: z.bigint(), note: z.string() }),
  run: () => {},
});
const args = { order: 2n ** 53n + 1n, note: "Grüße $1 %s" };

test("a job exists if and only if its transaction commits", async () => {
  const [client, connection] = [new Client(), new pg.Client({ connectionString: process.env["DATABASE_URL"] })];
  await connection.connect();
  try {
    await connection.query("begin");
    const committed = await enqueueIn(connection, confirm, args, { uniqueKey: "order-17" });
    await assert.rejects(client.job(committed), (error: Rejected) => error.status === 404);
    await connection.query("commit");
    const job = await client.job(committed);
    assert.deepEqual([job.type, job.queue, job.maxRetries, job.args], ["order.confirm", "mail", 7, args]);
    await connection.query("begin");
    const rolledBack = await enqueueIn(connection, "order.confirm", args);
    await connection.query("rollback");
    await assert.rejects(client.job(rolledBack), (error: Rejected) => error.status === 404);
    // @ts-expect-error: the arguments have the type of the schema's input.
    await assert.rejects(enqueueIn(connection, confirm, { order: 17 }), InvalidArguments);
  } finally {
    await connection.end();
  }
});
