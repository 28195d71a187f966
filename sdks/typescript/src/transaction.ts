/**
 * Enqueues in a transaction of your own, if the cluster's store is the same PostgreSQL: the job exists if and only if the
 * transaction commits. Works with a client of `pg`, and with all that has the same `query(text, values)`.
 */

import { requestText, type EnqueueOptions, type Job } from "./job.js";
import { validate } from "./schema.js";

export interface Queryable {
  query(text: string, values: unknown[]): Promise<{ rows: unknown[] }>;
}

/** Calls `convoke_enqueue` and returns the job's id. */
export async function enqueueIn<Input, Args, Output>(
  transaction: Queryable,
  job: Job<Input, Args, Output> | string,
  args: Input,
  options: EnqueueOptions = {},
): Promise<string> {
  if (typeof job !== "string" && job.args) await validate(job.args, args);
  const text = typeof job === "string" ? requestText(job, args, options) : requestText(job.type, args, { ...job, ...options });
  const { rows } = await transaction.query("select convoke_enqueue($1::jsonb)::text as id", [text]);
  return (rows[0] as { id: string }).id;
}
