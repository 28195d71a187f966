/** One request to the server that is in use. Requests of this package may be sent twice. */

import { Buffer } from "node:buffer";

import { Deadline } from "./deadline.js";
import { Rejected, Unavailable } from "./errors.js";
import { parse, type Json } from "./json.js";
import { RESPONSE_BYTES_MAX } from "./limits.js";
import type { Servers } from "./servers.js";

/** How long a response may take beyond the wait that the request asks for. */
const RESPONSE_TIMEOUT_MS = 30_000;

export interface Call {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  /** A JSON text. */
  readonly body?: string;
  /** How long the server may hold the request back. */
  readonly waitMs?: number;
  /** Ends the request: the promise rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * Sends a request and returns the body of its response. A server that does not respond or cannot serve is left for the
 * next one, and `Unavailable` is thrown.
 */
export async function send(servers: Servers, call: Call): Promise<Json> {
  const server = servers.current;
  try {
    return await exchange(server, servers.token, call);
  } catch (error) {
    call.signal?.throwIfAborted();
    if (error instanceof Rejected) throw error;
    servers.moveOn(server);
    if (error instanceof Unavailable) throw error;
    const text = `${server} did not respond to ${call.method} ${call.path}: ${reason(error)}`;
    throw new Unavailable(text, { cause: error });
  }
}

async function exchange(server: string, token: string | undefined, call: Call): Promise<Json> {
  const others = call.signal ? [call.signal] : [];
  const deadline = new Deadline(Math.ceil(call.waitMs ?? 0) + RESPONSE_TIMEOUT_MS, ...others);
  try {
    return await exchangeUntil(deadline.signal, server, token, call);
  } finally {
    deadline.end();
  }
}

async function exchangeUntil(signal: AbortSignal, server: string, token: string | undefined, call: Call): Promise<Json> {
  const headers: Record<string, string> = {};
  if (call.body !== undefined) headers["content-type"] = "application/json";
  if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
  const response = await fetch(server + call.path, {
    method: call.method,
    headers,
    body: call.body ?? null,
    redirect: "error",
    signal,
  });
  const text = await bounded(response);
  if (response.ok) return text === "" ? null : parse(text);
  throw failure(response.status, text);
}

/** Returns the body. Most have a length, which is compared before anything is read. */
async function bounded(response: Response): Promise<string> {
  const length = response.headers.get("content-length");
  if (length !== null && Number(length) <= RESPONSE_BYTES_MAX) return response.text();
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body ?? []) {
    bytes += part.length;
    if (bytes > RESPONSE_BYTES_MAX) throw new Error(`the response has more than ${RESPONSE_BYTES_MAX} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

function failure(status: number, text: string): Error {
  let error: { code?: unknown; message?: unknown; field?: unknown } = {};
  try {
    error = (JSON.parse(text) as { error?: typeof error }).error ?? {};
  } catch {
    // A proxy's page: the status has to do.
  }
  const code = typeof error.code === "string" ? error.code : `http_${status}`;
  const message = typeof error.message === "string" ? error.message : `the server returned ${status}`;
  if (status === 429 || status === 408 || status >= 500) return new Unavailable(`${code}: ${message}`);
  return new Rejected(status, code, message, typeof error.field === "string" ? error.field : null);
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message || error.cause.name : error.message;
}

/** Resolves after a time, or as soon as the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
  });
}
