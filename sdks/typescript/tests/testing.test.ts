import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";

import { defineJob, NotCompleted, Permanent, Rejected, Retry, sandbox } from "../src/index.js";
import { inline, TestServer, useTestServer } from "../src/testing/index.js";

const silent = { info: () => {}, warn: () => {}, error: () => {} };
const HOUR = 3_600_000;

describe("the test server", () => {
  const server = useTestServer({ beforeEach, afterEach }, { start: new Date("2031-05-06T07:08:09Z") });

  test("stands still until the test moves its time", async () => {
    const { client } = server.current;
    const remind = defineJob({ type: "remind", run: ({ who }: { who: string }) => `reminded ${who}` });
    await server.worker({ jobs: [remind], logger: silent });
    const now = await client.enqueue(remind, { who: "bob" });
    const later = await client.enqueue(remind, { who: "ada" }, { delay: "24h" });
    await server.current.runUntilIdle();
    assert.deepEqual([(await now.job()).status, (await later.job()).status], ["completed", "scheduled"]);
    await server.current.advance("23h59m");
    assert.equal((await later.job()).status, "scheduled");
    const moved = await server.current.advance(60_000);
    assert.deepEqual(moved, { now: new Date("2031-05-07T07:08:09Z"), running: 0 });
    assert.equal((await later.job()).status, "completed");
    assert.equal(await later.result(), "reminded ada");
  });

  test("fires retries and schedules in virtual time", async () => {
    const { client } = server.current;
    const [attempts, ticks]: [number[], number[]] = [[], []];
    const flaky = defineJob({
      type: "flaky", retryPolicy: { initialDelay: HOUR, multiplier: 2, maxDelay: 8 * HOUR, jitter: "none" },
      run: (_: null, { attempt }) => {
        attempts.push(attempt);
        if (attempt < 3) throw new Error("not yet");
      },
    });
    const tick = defineJob({ type: "tick", run: (_: null) => { ticks.push(1); } });
    await server.worker({ jobs: [flaky, tick], logger: silent });
    await client.enqueue(flaky, null);
    await server.current.runUntilIdle();
    assert.deepEqual(attempts, [1]);
    await server.current.advance("1h");
    assert.deepEqual(attempts, [1, 2]);
    await server.current.advance(new Date("2031-05-06T10:08:08Z"));
    assert.deepEqual(attempts, [1, 2]);
    await server.current.advance("1s");
    assert.deepEqual(attempts, [1, 2, 3]);
    await client.putSchedule("daily", { every: 24 * HOUR }, tick, null);
    await server.current.advance("72h");
    assert.equal(ticks.length, 3);
  });

  test("fails as it is told, and the worker recovers", async () => {
    const { client } = server.current;
    const once = defineJob({ type: "once", run: (_: null, { attempt }) => attempt });
    await server.worker({ jobs: [once], logger: silent });
    await server.current.failReports(2);
    assert.equal(await (await client.enqueue(once, null)).result({ timeout: "20s" }), 1);
    await server.current.loseReplies(1);
    assert.equal(await (await client.enqueue(once, null)).result({ timeout: "20s" }), 1);
    await server.current.killLeader();
    assert.equal(await (await client.enqueue(once, null)).result({ timeout: "20s" }), 1);
    await server.current.clearFaults();
  });

  test("is named if its program is missing", async () => {
    await assert.rejects(TestServer.start({ binary: "/nowhere/convoke" }), /did not start.*set CONVOKE_BIN/s);
    await assert.rejects(TestServer.start({ binary: process.execPath }), /did not start/);
  });
});

describe("inline mode", () => {
  test("runs a job before enqueue resolves, in this process", async () => {
    const ran: string[] = [];
    const email = defineJob({
      type: "email.send", queue: "mail", run: ({ to }: { to: string }, context) => {
        ran.push(to);
        context.log("on its way");
        context.progress(40, "almost");
        return { sent: 2n ** 60n };
      },
    });
    const client = inline([email]);
    const handle = await client.enqueue(email, { to: "ada@example.org" }, { delay: "1h", tags: ["eu"] });
    assert.deepEqual(ran, ["ada@example.org"]);
    assert.deepEqual(await handle.result(), { sent: 2n ** 60n });
    const job = await handle.job();
    assert.deepEqual([job.status, job.queue, job.attempt, job.tags, job.progress?.percent], ["completed", "mail", 1, ["eu"], 40]);
    assert.deepEqual((await client.logs(handle.id)).map((line) => line.message), ["on its way"]);
  });

  test("repeats failed attempts at once, and reports failures", async () => {
    const flaky = defineJob({
      type: "flaky", run: ({ until }: { until: number }, { attempt }) => {
        if (attempt < until) throw new Retry("not yet", { after: "1h" });
        return attempt;
      },
    });
    const never = defineJob({ type: "never", run: (_: null) => { throw new Permanent("no such user"); } });
    const client = inline([flaky, never]);
    assert.equal(await (await client.enqueue(flaky, { until: 3 })).result(), 3);
    await assert.rejects((await client.enqueue(flaky, { until: 9 })).result(), (error: NotCompleted) => error.job.attempt === 4);
    assert.equal((await (await client.enqueue(never, null)).wait()).attempt, 1);
    assert.equal((await (await client.enqueue("nobody")).wait()).status, "failed");
  });

  test("runs sandboxes, and names what needs a server", async () => {
    const sum = defineJob({ type: "sum", run: sandbox<{ n: number }, number>(new URL("./sandboxed.js", import.meta.url)) });
    await using client = inline([sum]);
    assert.equal(await (await client.enqueue(sum, { n: 1_000 })).result(), 499_500);
    await assert.rejects(client.schedules(), /use TestServer/);
    await assert.rejects(client.job("00000000-0000-7000-8000-000000000000"), Rejected);
  });
});
