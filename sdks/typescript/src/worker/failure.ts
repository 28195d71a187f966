/** What a thrown value means for its run. */

import { Permanent, Retry } from "../errors.js";

export interface Failure {
  readonly text: string;
  readonly retries: boolean;
  /** For the job's log; undefined if the handler threw one of this package's own errors on purpose. */
  readonly stack: string | undefined;
}

export function failureOf(error: unknown): Failure {
  const thrown = error instanceof Error ? error : new Error(String(error));
  const isOwn = thrown instanceof Permanent || thrown instanceof Retry;
  const text = isOwn ? thrown.message : `${thrown.name}: ${thrown.message}`;
  return { text, retries: !(thrown instanceof Permanent), stack: isOwn ? undefined : (thrown.stack ?? text) };
}
