import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { type } from "arktype";
import * as v from "valibot";
import * as z from "zod";

import { Client, currentRun, defineJob, NotCompleted, Permanent, Rejected, Retry, sandbox, StillRunning, Worker } from "../src/index.js";
import type { AnyJob, WorkerOptions } from "../src/index.js";
import { RealServer } from "./server.js";

let server: RealServer;
let client: Client;
let queues = 0;

before(async () => {
  server = await RealServer.start();
  client = new Client({ server: server.url });
});
after(() => server[Symbol.asyncDispose]());

const silent = { info: () => {}, warn: () => {}, error: () => {} };

/** Starts a worker for jobs on a queue of their own. */
function work(jobs: AnyJob[], options: Partial<WorkerOptions> = {}): Worker {
  return new Worker({ server: server.url, jobs, logger: silent, ...options }).start();
}

const queue = () => `q${++queues}`;

describe("a job", () => {
  test("completes with the result of its handler", async () => {
    const add = defineJob({ type: "add", queue: queue(), run: ({ a, b }: { a: number; b: number }) => a + b });
    await using _ = work([add]);
    const handle = await client.enqueue(add, { a: 1, b: 2 });
    const sum: number = await handle.result({ timeout: "10s" });
    assert.equal(sum, 3);
    assert.equal(handle.created, true);
  });

  test("has arguments that fit their schema, of any library of Standard Schema", async () => {
    const name = queue();
    const zod = defineJob({ type: "zod", queue: name, args: z.object({ to: z.string(), n: z.coerce.number() }), run: ({ to, n }) => `${to}${n}` });
    const valibot = defineJob({ type: "valibot", queue: name, args: v.object({ to: v.string() }), run: ({ to }) => to });
    const arktype = defineJob({ type: "arktype", queue: name, args: type({ to: "string" }), run: ({ to }) => to });
    await using _ = work([zod, valibot, arktype]);
    assert.equal(await (await client.enqueue(arktype, { to: "c" })).result(), "c");
    // @ts-expect-error: the arguments have the type of the schema's input.
    await assert.rejects(client.enqueue(arktype, { to: 7 }), /to/);
    assert.equal(await (await client.enqueue(zod, { to: "a", n: "7" })).result(), "a7");
    assert.equal(await (await client.enqueue(valibot, { to: "b" })).result(), "b");
    // Sent by a client without the schema.
    const wrong = await client.enqueue("valibot", { to: 7 }, { queue: name });
    const ended = await wrong.wait();
    assert.equal(ended.status, "failed");
    assert.equal(ended.attempt, 1);
    assert.match(ended.error ?? "", /to: /);
    // @ts-expect-error: the arguments have the type of the schema's input.
    await assert.rejects(client.enqueue(valibot, { to: 7 }), /to: /);
  });

  test("is retried, or fails for good, as its handler says", async () => {
    const name = queue();
    const flaky = defineJob({
      type: "flaky", queue: name, run: (_: null, { attempt }) => {
        if (attempt === 1) throw new Error("first");
        if (attempt === 2) throw new Retry("second", { after: 20 });
        return attempt;
      },
    });
    const bad = defineJob({ type: "bad", queue: name, run: () => { throw new Permanent("never"); } });
    await using _ = work([flaky, bad]);
    const handle = await client.enqueue(flaky, null, { retryPolicy: { initialDelay: 10 } });
    assert.equal(await handle.result(), 3);
    assert.match((await client.logs(handle.id))[0]!.message, /Error: first/);
    const failed = await client.enqueue("bad", null, { queue: name });
    await assert.rejects(failed.result(), (error: NotCompleted) => error.job.error === "never" && error.job.attempt === 1);
  });

  test("logs, reports progress and knows itself", async () => {
    const seen = defineJob({
      type: "seen", queue: queue(), run: (_: null, context) => {
        assert.equal(currentRun().executionId, context.executionId);
        context.log("one");
        context.log("two", "warn");
        context.progress(40, "almost");
        return { jobId: context.jobId, tags: context.tags };
      },
    });
    await using _ = work([seen]);
    const handle = await client.enqueue(seen, null, { tags: ["t"] });
    assert.deepEqual(await handle.result(), { jobId: handle.id, tags: ["t"] });
    const lines = await client.logs(handle.id);
    assert.deepEqual(lines.map((line) => [line.message, line.level]), [["one", "info"], ["two", "warn"]]);
    assert.deepEqual((await handle.job()).progress, { percent: 40, message: "almost" });
  });

  test("that is cancelled, takes too long or outlasts the drain stops by its signal", async () => {
    const name = queue();
    const reasons: string[] = [];
    const endless = defineJob({
      type: "endless", queue: name, run: (_: null, { signal }) => new Promise((_, reject) => {
        signal.addEventListener("abort", () => { reasons.push((signal.reason as Error).name); reject(signal.reason as Error); });
      }),
    });
    const worker = work([endless], { drain: 50 });
    const isRunning = async (id: string) => { while ((await client.job(id)).status !== "running") await new Promise((r) => setTimeout(r, 20)); };
    const cancelled = await client.enqueue(endless, null);
    await isRunning(cancelled.id);
    await cancelled.cancel("enough");
    assert.equal((await cancelled.wait()).status, "cancelled");
    const late = await client.enqueue(endless, null, { timeout: 200, maxRetries: 0 });
    assert.equal((await late.wait()).status, "timedOut");
    const released = await client.enqueue(endless, null);
    await isRunning(released.id);
    await assert.rejects(client.wait(released.id, { timeout: 50 }), StillRunning);
    await worker.stop();
    const job = await released.job();
    assert.deepEqual([job.status, job.attempt], ["pending", 0]);
    assert.deepEqual(reasons, ["AbortError", "TimeoutError", "AbortError"]);
    await released.cancel();
  });

  test("runs in a thread if its handler is a sandbox, and is ended there", async () => {
    const name = queue();
    const module = new URL("./sandboxed.js", import.meta.url);
    const sum = defineJob({ type: "sum", queue: name, run: sandbox<{ n: number }, number>(module) });
    await using _ = work([sum]);
    assert.equal(await (await client.enqueue(sum, { n: 1_000 })).result(), 499_500);
    const stuck = await client.enqueue(sum, { n: -1 }, { timeout: 200, maxRetries: 0 });
    assert.equal((await stuck.wait()).status, "timedOut");
    assert.equal(await (await client.enqueue(sum, { n: 3 })).result(), 3);
  });
});

describe("a worker", () => {
  test("keeps its runs while a handler blocks the event loop for longer than staleAfter", async () => {
    const block = defineJob({
      type: "block", queue: queue(), run: (_: null, { attempt }) => {
        const end = performance.now() + 4_000;
        while (performance.now() < end);
        return attempt;
      },
    });
    await using _ = work([block]);
    assert.equal(await (await client.enqueue(block, null)).result({ timeout: "20s" }), 1);
  });

  test("runs many fast jobs, each once", async () => {
    const seen = new Set<number>();
    const count = defineJob({ type: "count", queue: queue(), run: ({ n }: { n: number }) => { assert.ok(!seen.has(n)); seen.add(n); } });
    const { request } = await import("../src/index.js");
    const requests = await Promise.all(Array.from({ length: 2_000 }, (_, n) => request(count, { n })));
    const handles = await client.enqueueBatch(requests);
    await using _ = work([count]);
    await Promise.all(handles.slice(-50).map((handle) => handle.result()));
    while (seen.size < 2_000) await new Promise((resolve) => setTimeout(resolve, 20));
  });

  test("reports what ended while the server was away", async () => {
    await using own = await RealServer.start();
    let [begin, end] = [() => {}, () => {}];
    const begun = new Promise<void>((resolve) => (begin = resolve));
    const gone = new Promise<void>((resolve) => (end = resolve));
    const slow = defineJob({ type: "slow", run: async (_: null, { attempt }) => { begin(); await gone; return attempt; } });
    const worker = new Worker({ server: ["http://127.0.0.1:9", own.url], jobs: [slow], logger: silent }).start();
    const patient = new Client({ server: ["http://127.0.0.1:9", own.url], retryFor: "20s" });
    const handle = await patient.enqueue(slow, null);
    await begun;
    await own.kill();
    end();
    await own.start();
    assert.equal(await handle.result({ timeout: "20s" }), 1);
    await worker.stop();
  });

  test("that the server rejects ends with its reason", async () => {
    const job = defineJob({ type: "t", queue: "not a name\n", run: () => {} });
    await assert.rejects(new Worker({ server: server.url, jobs: [job], logger: silent }).run(), Rejected);
  });
});

test("schedules make jobs until they are removed", async () => {
  const name = queue();
  const ticks: unknown[] = [];
  const tick = defineJob({ type: "tick", queue: name, run: (args: { n: number }) => { ticks.push(args); } });
  await using _ = work([tick]);
  await client.putSchedule("s", { every: 100 }, tick, { n: 1 });
  while (ticks.length < 2) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal((await client.pauseSchedule("s")).paused, true);
  assert.equal((await client.schedules()).length, 1);
  await client.removeSchedule("s");
  await assert.rejects(client.schedule("s"), (error: Rejected) => error.status === 404);
  for await (const job of client.jobs({ type: "tick" })) assert.equal(job.schedule, "s");
});
