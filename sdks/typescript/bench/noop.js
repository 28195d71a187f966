/**
 * No-op jobs a second of one Node.js process, beside BullMQ in the same run. In turn, three rounds, medians.
 *
 *     npm run build && cd bench && npm install
 *     CONVOKE_SERVER=http://127.0.0.1:3000 REDIS_PORT=6379 node noop.js
 *
 * The backlog is enqueued first; the time is that of draining it.
 */

import { Queue, Worker as BullWorker } from "bullmq";

import { Client, defineJob, request, Worker } from "../dist/index.js";

const JOBS = Number(process.env.JOBS ?? 20_000);
const CONCURRENCY = Number(process.env.CONCURRENCY ?? 100);
const ROUNDS = 3;
const payload = { text: "x".repeat(80) };

async function convoke(round) {
  const queue = `bench-${process.pid}-${round}`;
  let left = JOBS;
  let done;
  const ended = new Promise((resolve) => (done = resolve));
  const job = defineJob({ type: "noop", queue, run: () => void (--left === 0 && done()) });
  const client = new Client();
  for (let n = 0; n < JOBS; n += 1_000) {
    await client.enqueueBatch(await Promise.all(Array.from({ length: 1_000 }, () => request(job, payload))));
  }
  const start = performance.now();
  const worker = new Worker({ jobs: [job], concurrency: CONCURRENCY }).start();
  await ended;
  const rate = JOBS / ((performance.now() - start) / 1_000);
  const stopping = performance.now();
  await worker.stop();
  return { rate, stopMs: performance.now() - stopping };
}

async function bullmq(round) {
  const connection = { host: "127.0.0.1", port: Number(process.env.REDIS_PORT ?? 6379) };
  const name = `bench-${process.pid}-${round}`;
  const queue = new Queue(name, { connection });
  for (let n = 0; n < JOBS; n += 1_000) {
    await queue.addBulk(Array.from({ length: 1_000 }, () => ({ name: "noop", data: payload, opts: { removeOnComplete: true } })));
  }
  let left = JOBS;
  let done;
  const ended = new Promise((resolve) => (done = resolve));
  const start = performance.now();
  const worker = new BullWorker(name, async () => {}, { connection, concurrency: CONCURRENCY });
  worker.on("completed", () => --left === 0 && done());
  await ended;
  const rate = JOBS / ((performance.now() - start) / 1_000);
  const stopping = performance.now();
  await worker.close();
  const stopMs = performance.now() - stopping;
  await queue.close();
  return { rate, stopMs };
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
const results = { convoke: [], bullmq: [] };
for (let round = 0; round < ROUNDS; round++) {
  results.convoke.push(await convoke(round));
  results.bullmq.push(await bullmq(round));
}
for (const [name, rounds] of Object.entries(results)) {
  const rate = Math.round(median(rounds.map((round) => round.rate)));
  const stop = median(rounds.map((round) => round.stopMs)).toFixed(1);
  console.log(`${name}: ${rate} jobs/s (${rounds.map((round) => Math.round(round.rate)).join(", ")}), idle stop ${stop} ms`);
}
console.log(`memory of this process: ${Math.round(process.memoryUsage().rss / 1e6)} MB`);
process.exit(0);
