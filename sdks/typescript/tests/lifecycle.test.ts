/** How a worker treats what a server may return at a bad moment: played by a server of the test's own. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import events from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { defineJob, Retry, Worker } from "../src/index.js";
import { RunTable } from "../src/worker/run_table.js";

interface Event {
  readonly executionId: string;
  readonly kind: string;
  readonly retry?: boolean;
}
type Body = Record<string, unknown> & { events?: Event[]; running?: string[]; max?: number };
/** Returns a status and a body, or nothing to leave the request open. */
type Reply = (body: Body, number: number) => [number, object] | undefined;

const silent = { info: () => {}, warn: () => {}, error: () => {} };
const assignment = (executionId: string) => ({
  jobId: `job-of-${executionId}`, executionId, type: "work", queue: "default", args: null, attempt: 1, maxRetries: 3,
});
const rejection = (status: number): [number, object] => [status, { error: { code: "wrong", message: "no", field: null } }];

/** A server whose replies are given by call; it records what it received. */
async function play(replies: Record<string, Reply>) {
  const received: Record<string, Body[]> = { register: [], poll: [], report: [], heartbeat: [], leave: [] };
  const open: ServerResponse[] = [];
  const defaults: Record<string, Reply> = {
    register: () => [200, { workerId: "w", heartbeatInterval: "50ms", staleAfter: "2s" }],
    poll: () => undefined,
    report: (body) => [200, { accepted: body.events!.length, rejected: [] }],
    heartbeat: () => [200, { cancel: [], drain: false }],
    leave: () => [200, {}],
  };
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += String(part)));
    request.on("end", () => {
      const call = request.url!.split("/").at(-1)!;
      const body = JSON.parse(text) as Body;
      const number = received[call]!.push(body);
      const reply = (replies[call] ?? defaults[call])!(body, number);
      if (!reply) return open.push(response);
      return response.writeHead(reply[0], { "content-type": "application/json" }).end(JSON.stringify(reply[1]));
    });
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    ends: () => received["report"]!.flatMap((body) => body.events!).filter((event) => event.kind !== "started" && event.kind !== "log"),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const once = (jobs: object[]): Reply => (_, number) => (number === 1 ? [200, { jobs, cancel: [], drain: false }] : undefined);

async function until(isSo: () => boolean, limitMs = 20_000): Promise<void> {
  for (const end = performance.now() + limitMs; !isSo(); await new Promise((resolve) => setTimeout(resolve, 5))) {
    assert.ok(performance.now() < end, "not so in time");
  }
}

test("a run whose lease is lost is aborted, and nothing is reported of it", async () => {
  let reason: unknown;
  await using server = await play({
    poll: once([assignment("e1")]),
    heartbeat: (body) => [200, { cancel: body.running, drain: false }],
  });
  const work = defineJob({
    type: "work", run: (_: null, { signal }) => new Promise((_, reject) => {
      signal.addEventListener("abort", () => { reason = signal.reason; reject(signal.reason as Error); });
    }),
  });
  const worker = new Worker({ server: server.url, jobs: [work], logger: silent }).start();
  await until(() => reason !== undefined);
  assert.match(String(reason), /given to another worker/);
  await worker.stop();
  assert.deepEqual(server.ends(), []);
});

test("an end that a wrong token keeps back is sent again, and polls go on", async () => {
  await using server = await play({
    poll: (_, number) => (number === 1 ? [200, { jobs: [assignment("e1")], cancel: [], drain: false }] : number === 2 ? rejection(401) : undefined),
    report: (_, number) => (number === 1 ? rejection(401) : [200, { accepted: 1, rejected: [] }]),
  });
  const worker = new Worker({ server: server.url, jobs: [defineJob({ type: "work", run: () => "done" })], logger: silent }).start();
  await until(() => server.ends().length === 2 && server.received["poll"]!.length === 3);
  assert.deepEqual(server.ends().map((event) => event.executionId), ["e1", "e1"]);
  await worker.stop();
});

test("an end that the server does not accept is replaced by a failure, and takes no other with it", async () => {
  await using server = await play({
    poll: once(["e1", "e2", "e3"].map((id) => assignment(id))),
    report: (body) => {
      const isWrong = body.events!.some((event) => event.executionId === "e2" && event.kind === "completed");
      return isWrong ? rejection(400) : [200, { accepted: body.events!.length, rejected: [] }];
    },
  });
  const worker = new Worker({ server: server.url, jobs: [defineJob({ type: "work", run: () => 1 })], logger: silent }).start();
  await until(() => server.ends().some((event) => event.kind === "failed"));
  await worker.stop();
  const accepted = server.received["report"]!.filter((body) => !body.events!.some((event) => event.executionId === "e2" && event.kind === "completed"));
  const ends = accepted.flatMap((body) => body.events!).map((event) => `${event.executionId} ${event.kind} ${event.retry ?? ""}`.trim());
  assert.deepEqual(ends.sort(), ["e1 completed", "e2 failed false", "e3 completed"]);
});

test("a kept retry is reported at once when the worker stops", async () => {
  await using server = await play({ poll: once([assignment("e1")]) });
  const work = defineJob({ type: "work", run: () => { throw new Retry("later", { after: "1h" }); } });
  const worker = new Worker({ server: server.url, jobs: [work], logger: silent }).start();
  await until(() => server.received["report"]!.length > 0 || server.received["heartbeat"]!.some((body) => body.running!.includes("e1")));
  assert.deepEqual(server.ends(), []);
  await worker.stop();
  assert.deepEqual(server.ends().map((event) => event.kind), ["failed"]);
});

test("a full worker polls for cancellations only, and for runs as soon as it has room", async () => {
  let end = () => {};
  await using server = await play({ poll: once([assignment("e1")]) });
  const work = defineJob({ type: "work", run: () => new Promise<void>((resolve) => (end = resolve)) });
  const worker = new Worker({ server: server.url, jobs: [work], concurrency: 1, logger: silent }).start();
  await until(() => server.received["poll"]!.length === 2);
  assert.equal(server.received["poll"]![1]!.max, 0);
  end();
  await until(() => server.received["poll"]!.length === 3);
  assert.equal(server.received["poll"]![2]!.max, 1);
  await worker.stop();
});

for (const call of ["poll", "heartbeat"]) {
  test(`a worker whose server asks for it by a ${call} drains and leaves`, async () => {
    await using server = await play({ [call]: () => [200, { jobs: [], cancel: [], drain: true }] });
    await new Worker({ server: server.url, jobs: [defineJob({ type: "work", run: () => {} })], logger: silent }).run();
    assert.equal(server.received["leave"]!.length, 1);
  });
}

test("a node that drains is left for the next", async () => {
  await using next = await play({ poll: once([assignment("e1")]) });
  await using draining = await play({ poll: () => rejection(503) });
  const worker = new Worker({ server: [draining.url, next.url], jobs: [defineJob({ type: "work", run: () => 1 })], logger: silent }).start();
  await until(() => next.ends().length === 1);
  await worker.stop();
  assert.equal(draining.received["poll"]!.length, 1);
});

test("runs that have not started are released at once when the worker drains", () => {
  const started: string[] = [];
  const table = new RunTable(1, { start: (run) => started.push(run.executionId), send: () => {}, progressed: () => {}, removed: () => {} });
  table.accept([assignment("e1"), assignment("e2"), assignment("e3")]);
  table.fill();
  table.drain();
  assert.deepEqual(started, ["e1"]);
  const events = table.outbox.take().map((event) => JSON.parse(event.text) as Event);
  assert.deepEqual(events.map((event) => [event.executionId, event.kind]), [["e2", "released"], ["e3", "released"]]);
  table.releaseAll(new Error("the end"));
});

test("nothing keeps the process alive after an idle worker has stopped", async () => {
  await using server = await play({});
  const index = new URL("../src/index.js", import.meta.url).href;
  const code = `import { defineJob, Worker } from ${JSON.stringify(index)};
    const worker = new Worker({ server: ${JSON.stringify(server.url)}, jobs: [defineJob({ type: "work", run() {} })] }).start();
    setTimeout(() => void worker.stop().then(() => console.log(process.getActiveResourcesInfo().filter((name) => name === "Timeout").length)), 300);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (part) => (output += String(part)));
  const [exit] = (await events.once(child, "exit")) as [number];
  assert.deepEqual([exit, output.trim(), server.received["leave"]!.length], [0, "0", 1]);
});

/** Runs `worker.run()` in a process of its own, with a job whose handler is `handler`. */
function spawnWorker(url: string, handler: string) {
  const index = new URL("../src/index.js", import.meta.url).href;
  const code = `import { defineJob, Worker } from ${JSON.stringify(index)};
    const work = defineJob({ type: "work", run: ${handler} });
    await new Worker({ server: ${JSON.stringify(url)}, jobs: [work], drain: "1h" }).run();`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "inherit", "ignore"] });
  return { child, exit: events.once(child, "exit") as Promise<[number | null, string | null]> };
}

const isDraining = (body: Body) => body["draining"] === true;

test("SIGTERM ends an idle worker", async () => {
  await using server = await play({});
  const { child, exit } = spawnWorker(server.url, "() => {}");
  await until(() => server.received["poll"]!.length > 0);
  child.kill("SIGTERM");
  assert.deepEqual(await exit, [0, null]);
  assert.equal(server.received["leave"]!.length, 1);
});

test("SIGTERM lets a run finish, and its result is reported before the worker leaves", async () => {
  await using server = await play({ poll: once([assignment("e1")]) });
  const { child, exit } = spawnWorker(server.url, "() => new Promise((resolve) => process.once(\"SIGTERM\", () => setTimeout(resolve, 300, 7)))");
  await until(() => server.received["report"]!.length > 0);
  child.kill("SIGTERM");
  assert.deepEqual(await exit, [0, null]);
  assert.deepEqual(server.ends().map((event) => event.kind), ["completed"]);
});

test("a second signal releases what runs, and ends the process", async () => {
  await using server = await play({ poll: once([assignment("e1")]) });
  const { child, exit } = spawnWorker(server.url, "() => new Promise(() => setInterval(() => {}, 1_000))");
  await until(() => server.received["report"]!.length > 0);
  child.kill("SIGTERM");
  await until(() => server.received["heartbeat"]!.some(isDraining));
  assert.equal(child.exitCode, null);
  child.kill("SIGINT");
  assert.deepEqual(await exit, [1, null], "the handler's timer would keep it");
  assert.deepEqual(server.ends().map((event) => event.kind), ["released"]);
});

for (const call of ["register", "report", "leave"]) {
  test(`a second signal ends a worker whose server does not respond to a ${call}`, async () => {
    await using server = await play({ poll: once([assignment("e1")]), leave: () => undefined, [call]: () => undefined });
    const { child, exit } = spawnWorker(server.url, "() => setInterval(() => {}, 1_000) && 1");
    await until(() => server.received[call === "leave" ? "poll" : call]!.length > 0);
    child.kill("SIGTERM");
    await until(() => server.received["leave"]!.length > 0 || server.received["heartbeat"]!.some(isDraining));
    child.kill("SIGTERM");
    const [code] = await exit;
    assert.equal(code, 1, "it waits neither for the response nor for the handler's timer");
  });
}
