import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { defineJob } from "../src/index.js";
import { inline, useTestServer } from "../src/testing/index.js";

const email = defineJob({ type: "email.send", run: ({ to }: { to: string }) => `sent to ${to}` });
const server = useTestServer({ beforeEach, afterEach }); // those of vitest fit, too

test("a mail is sent", async () => {
  const client = inline([email]); // no server: the handler runs in this process
  const handle = await client.enqueue(email, { to: "ada@example.org" });
  assert.equal(await handle.result(), "sent to ada@example.org");
});

test("a mail is sent a day later", async () => {
  await server.worker({ jobs: [email] });
  const handle = await server.current.client.enqueue(email, { to: "ada@example.org" }, { delay: "24h" });
  await server.current.advance("24h"); // every schedule, retry, timeout and lease that is due fires, in order
  assert.equal(await handle.result(), "sent to ada@example.org");
});
