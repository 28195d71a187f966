import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { defineJob } from "../out/src/index.js";
import { inline, useTestServer } from "../out/src/testing/index.js";

const email = defineJob({ type: "email.send", run: ({ to }) => `sent to ${to}` });

describe("in vitest", () => {
  const server = useTestServer({ beforeEach, afterEach });
  const urls = new Set();

  test("inline mode runs a job", async () => {
    const handle = await inline([email]).enqueue(email, { to: "ada@example.org" });
    expect(await handle.result()).toBe("sent to ada@example.org");
  });

  for (const attempt of [1, 2]) {
    test(`each test has a server of its own, whose time it moves (${attempt})`, async () => {
      expect(urls.has(server.current.url)).toBe(false);
      urls.add(server.current.url);
      await server.worker({ jobs: [email] });
      const handle = await server.current.client.enqueue(email, { to: "ada@example.org" }, { delay: "24h" });
      await server.current.advance("23h");
      expect((await handle.job()).status).toBe("scheduled");
      await server.current.advance("1h");
      expect(await handle.result()).toBe("sent to ada@example.org");
    });
  }
});

test("there is no server outside of the suite that has the hooks", () => {
  const unused = useTestServer({ beforeEach: () => {}, afterEach: () => {} });
  expect(() => unused.current).toThrow(/within a test/);
});
