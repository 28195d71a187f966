/** For tests: a server whose time the test moves, and a client that runs jobs where they are enqueued. */

export { inline, InlineClient } from "./inline.js";
export { TestServer, useTestServer } from "./server.js";
export type { Hooks, Moved, TestServerOfEach, TestServerOptions } from "./server.js";
