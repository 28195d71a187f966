import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";

import { InvalidArguments, ShardWorker } from "../src/index.js";
import type { ShardChange, ShardWorkerOptions } from "../src/index.js";
import { Rules } from "../src/shards/rules.js";
import { freePort, RealServer } from "./server.js";

const silent = { info: () => {}, warn: () => {}, error: () => {} };
const env = { CONVOKE_SHARDS__HEARTBEAT_TIMEOUT: "1500ms", CONVOKE_SHARDS__CHECK_INTERVAL: "100ms" };
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(isSo: () => boolean, limitMs = 20_000): Promise<void> {
  for (const end = performance.now() + limitMs; !isSo(); await pause(10)) assert.ok(performance.now() < end, "not so in time");
}

/** A server whose shard coordinator has an address that stays. */
async function coordinator(): Promise<{ address: string; server: RealServer; join: (workerId: string, options?: Partial<ShardWorkerOptions>) => Promise<ShardWorker> }> {
  const address = `tcp://127.0.0.1:${await freePort()}`;
  const server = await RealServer.start({ shards: address, env });
  const join = (workerId: string, options: Partial<ShardWorkerOptions> = {}) =>
    ShardWorker.connect({ address, service: "prices", workerId, maxShards: 10, logger: silent, ...options });
  return { address, server, join };
}

/** Reads the changes of a worker. With a gate it is slow to stop: the gate must be opened. */
function follow(worker: ShardWorker, gate?: Promise<void>) {
  const state = { held: [] as readonly number[], changes: [] as ShardChange[], isRemoving: false, ended: Promise.resolve() };
  state.ended = (async () => {
    for await (const change of worker.changes()) {
      if (change.removed.length > 0) {
        state.isRemoving = true;
        await gate;
      }
      state.held = change.shards;
      state.changes.push(change);
    }
  })();
  return state;
}

describe("a shard worker", () => {
  test("shares the shards, and gives them up when it leaves", async () => {
    const { server, join } = await coordinator();
    await using _ = server;
    const [a, b] = [await join("a"), await join("b")];
    await until(() => a.shards.length === 5 && b.shards.length === 5);
    assert.deepEqual([...a.shards, ...b.shards].sort(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert.ok(a.owns(a.shards[0]!) && !b.owns(a.shards[0]!));
    const before = b.version;
    assert.equal(await a.leave(), true);
    await until(() => b.shards.length === 10);
    assert.ok(b.version > before && a.shards.length === 0);
    assert.equal(await b.leave(), true);
  });

  test("gives a shard to the next worker only after it has stopped", async () => {
    const { server, join } = await coordinator();
    await using _ = server;
    let open = () => {};
    const gate = new Promise<void>((resolve) => (open = resolve));
    const first = await join("a", { handoff: true });
    const a = follow(first, gate);
    await until(() => a.held.length === 10);
    const second = await join("b", { handoff: true });
    const b = follow(second);
    await until(() => a.isRemoving);
    // Several heartbeats long: the coordinator waits for the confirmation.
    await pause(2_000);
    assert.ok(b.held.length === 0 && second.isConnected);
    assert.equal(first.shards.length, 5, "it must not begin new work on what it releases");
    open();
    await until(() => a.held.length === 5 && b.held.length === 5);
    assert.ok(!a.held.some((shard) => b.held.includes(shard)));
    assert.ok(b.changes[0]!.version > a.changes[0]!.version);
    assert.deepEqual([await second.leave(), await first.leave()], [true, true]);
    await Promise.all([a.ended, b.ended]);
    assert.deepEqual([a.held, b.held], [[], []], "the last change removes all");
  });

  test("that is cut off has no shards, and gets them back", async () => {
    const { server, join } = await coordinator();
    await using _ = server;
    const worker = await join("a", { handoff: true });
    const a = follow(worker);
    await until(() => a.held.length === 10);
    await server.kill();
    await until(() => a.held.length === 0 && a.changes.length === 2);
    assert.ok(!worker.isConnected && !worker.owns(0));
    await server.start();
    await until(() => a.held.length === 10);
    assert.equal(await worker.leave(), true);
  });

  test("is replaced by a second one of its id", async () => {
    const { server, join } = await coordinator();
    await using _ = server;
    const first = await join("a");
    const a = follow(first);
    await until(() => a.held.length === 10);
    const second = await join("a");
    await until(() => second.shards.length === 10);
    await a.ended;
    assert.ok(first.isReplaced && a.held.length === 0);
    assert.equal(await second.leave(), true);
  });

  test("finds the address that leads", async () => {
    const { address, server, join } = await coordinator();
    await using _ = server;
    await using worker = await join("a", { address: [`tcp://127.0.0.1:${await freePort()}`, address], heartbeatInterval: 100 });
    await until(() => worker.shards.length === 10);
  });

  test("is the example of the pages", async () => {
    const { address, server } = await coordinator();
    await using _ = server;
    const example = new URL("../examples/shards.js", import.meta.url).pathname;
    const child = spawn(process.execPath, [example, address], { stdio: ["ignore", "pipe", "inherit"] });
    const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
    assert.equal((JSON.parse(line) as ShardChange).added.length, 100);
    child.kill("SIGTERM");
    assert.deepEqual(await once(child, "exit"), [0, null]);
  });

  test("rejects wrong settings", async () => {
    const good = { address: "tcp://127.0.0.1:1", service: "s", workerId: "a", maxShards: 1 };
    for (const wrong of [{ address: "http://a" }, { service: "" }, { maxShards: -1 }, { workerId: "x".repeat(256) }]) {
      await assert.rejects(ShardWorker.connect({ ...good, ...wrong }), InvalidArguments);
    }
  });
});

describe("the rules of a shard worker", () => {
  const rules = () => new Rules({ service: "prices", workerId: "a", maxShards: 10, handoff: true, heartbeatIntervalMs: undefined }, 100, 0);
  const said = (worker: Rules) => worker.outgoing.splice(0);
  const receive = (worker: Rules, type: string, data: object, now: number) => worker.receive(JSON.stringify({ type, data }), now);
  const assign = (worker: Rules, assignedShards: number[], version: number, now: number, beat?: number) =>
    receive(worker, "assignment", { assignedShards, version, heartbeatTimeout: "15s", beat }, now);

  test("only a reply gives certainty, and it ends a tenth early", () => {
    const worker = rules();
    worker.tick(0);
    assert.equal(said(worker)[0]!.type, "register");
    assign(worker, [1, 2], 7, 1_000);
    assert.equal(worker.shards(1_000).size, 0, "it was not requested");
    assign(worker, [1, 2], 7, 1_000, 100);
    assert.equal(worker.shards(13_400).size, 2);
    assert.equal(worker.shards(13_600).size, 0, "counted from when the heartbeat was sent");
  });

  test("a revoked shard is reported until the change is acknowledged", () => {
    const worker = rules();
    worker.tick(0);
    assign(worker, [1, 2], 7, 0, 100);
    assert.deepEqual(worker.change(0)!.added, [1, 2]);
    worker.acknowledge();
    said(worker);
    receive(worker, "revoke", { shards: [2, 9], version: 8 }, 1_000);
    assert.deepEqual(said(worker).map(({ type, data }) => [type, data["shards"]]), [["released", [9]]]);
    assert.deepEqual(worker.change(1_000)!.removed, [2]);
    worker.tick(6_000);
    assert.deepEqual(said(worker)[0]!.data["assignedShards"], [1, 2]);
    worker.acknowledge();
    assert.deepEqual(said(worker)[0]!.data["shards"], [2]);
    worker.tick(12_000);
    assert.deepEqual(said(worker)[0]!.data["assignedShards"], [1]);
  });

  test("a lower version is ignored until nothing is held for a timeout", () => {
    const worker = rules();
    worker.tick(0);
    assign(worker, [1], 7, 0, 100);
    worker.change(0);
    worker.acknowledge();
    assign(worker, [1, 2], 6, 1_000);
    assert.equal(worker.shards(1_000).size, 1);
    assert.deepEqual(worker.change(14_000)!.removed, [1], "it has fenced itself");
    worker.acknowledge();
    assign(worker, [3], 6, 14_000);
    assert.equal(worker.version, 7);
    assign(worker, [3], 6, 15_000);
    assert.equal(worker.version, 6);
  });

  test("a replaced worker sends nothing more", () => {
    const worker = rules();
    worker.tick(0);
    assign(worker, [1], 7, 0, 100);
    worker.change(0);
    worker.acknowledge();
    said(worker);
    receive(worker, "error", { code: "replaced", message: "another process registered" }, 1_000);
    assert.deepEqual(worker.change(1_000)!.removed, [1]);
    worker.tick(9_000);
    assert.equal(worker.isGone, false);
    worker.acknowledge();
    worker.tick(10_000);
    assert.deepEqual([worker.isGone, worker.isReplaced, said(worker)], [true, true, []]);
  });
});
