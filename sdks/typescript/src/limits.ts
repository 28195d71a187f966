/** Limits of the server, checked before anything is sent. Units are last in the names. */

import { Buffer } from "node:buffer";

export const ARGS_BYTES_MAX = 1 << 20;
export const RESULT_BYTES_MAX = 1 << 20;
export const ERROR_BYTES_MAX = 16 << 10;
export const LOG_LINE_BYTES_MAX = 16 << 10;
export const PROGRESS_MESSAGE_BYTES_MAX = 1 << 10;
export const BATCH_JOBS_MAX = 10_000;
export const BATCH_BYTES_MAX = 32 << 20;
export const POLL_JOBS_MAX = 10_000;
export const REPORT_EVENTS_MAX = 20_000;
export const REPORT_BYTES_MAX = 24 << 20;
export const CONCURRENCY_MAX = 100_000;
export const QUEUES_MAX = 1_000;
export const SERVERS_MAX = 100;
/** A response is never larger than one poll (8 MiB of arguments) or one page of jobs, with room for escapes. */
export const RESPONSE_BYTES_MAX = 64 << 20;

const MARK = "… (cut)";
const SURROGATE = /[\ud800-\udfff]/;
const MARK_BYTES = Buffer.byteLength(MARK);

/** Returns at most `bytesMax` bytes of a text, never half a character, with a mark if it was cut. */
export function cut(text: string, bytesMax: number): string {
  if (text.length * 3 <= bytesMax && !SURROGATE.test(text)) return text;
  // The way through bytes replaces lone surrogates, which UTF-8 does not have.
  const bytes = Buffer.from(text);
  if (bytes.length <= bytesMax) return bytes.toString();
  let end = bytesMax - MARK_BYTES;
  // A byte 10xxxxxx continues a character.
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end).toString() + MARK;
}
