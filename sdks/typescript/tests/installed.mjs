// Uses the packed package as a program would that has installed it, on Node.js, Bun and Deno: everything by the package's name.

import assert from "node:assert/strict";

import { defineJob, Client, Worker } from "convoke";
import { inline } from "convoke/testing";

const email = defineJob({ type: "email.send", queue: "installed", run: ({ to }, run) => `sent to ${to} by attempt ${run.attempt}` });

const here = await inline([email]).enqueue(email, { to: "ada" });
assert.equal(await here.result(), "sent to ada by attempt 1");

const worker = new Worker({ jobs: [email] }).start();
const client = new Client();
const there = await client.enqueue(email, { to: "grace" });
assert.equal(await there.result({ timeout: "20s" }), "sent to grace by attempt 1");
await worker.stop();
console.log("the installed package works");
