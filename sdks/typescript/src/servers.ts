/** The addresses of the nodes, which of them is in use, and how long to wait after a failure. */

import process from "node:process";

import { SERVERS_MAX } from "./limits.js";

/** The nodes of one cluster. All requests use the same one until it fails; then all move to the next. */
export class Servers {
  readonly urls: readonly string[];
  readonly token: string | undefined;
  #place = 0;

  constructor(urls: string | readonly string[] | undefined, token: string | undefined) {
    const given = urls ?? process.env["CONVOKE_SERVER"] ?? "http://127.0.0.1:3000";
    const listed = typeof given === "string" ? given.split(",") : given;
    if (listed.length < 1 || listed.length > SERVERS_MAX) {
      throw new TypeError(`expected 1 to ${SERVERS_MAX} servers, got ${listed.length}`);
    }
    this.urls = listed.map(checked);
    this.token = token ?? process.env["CONVOKE_TOKEN"];
  }

  get current(): string {
    return this.urls[this.#place]!;
  }

  /** Goes to the next server, unless another request has done so already. */
  moveOn(failed: string): void {
    if (this.current === failed) this.#place = (this.#place + 1) % this.urls.length;
  }
}

function checked(text: string): string {
  const given = text.trim();
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (!url || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new TypeError(`expected the URL of a server such as http://127.0.0.1:3000, got ${JSON.stringify(text)}`);
  }
  if (url.username || url.search || url.hash) {
    throw new TypeError(`expected a URL without user, query and fragment, got ${url.origin}${url.pathname}; set token for access`);
  }
  return url.href.replace(/\/$/, "");
}

const FIRST_MS = 100;
const MAX_MS = 5_000;

/**
 * The delay before a retry: doubles up to a limit, with jitter, so that workers do not come back in step. A cluster is
 * asked node by node: the first round over all servers has no delay worth mentioning.
 */
export class Backoff {
  readonly #free: number;
  #failures = 0;

  constructor(servers: Servers) {
    this.#free = servers.urls.length - 1;
  }

  nextDelayMs(): number {
    this.#failures++;
    if (this.#failures <= this.#free) return 10;
    const ceiling = Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(this.#failures - this.#free - 1, 10));
    return ceiling * (0.5 + Math.random() / 2);
  }

  reset(): void {
    this.#failures = 0;
  }
}
