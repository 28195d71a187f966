/** What the server returns: jobs, log lines, schedules. */

import type { Json } from "./json.js";

export type Status = "scheduled" | "pending" | "dispatched" | "running" | "completed" | "failed" | "timedOut" | "cancelled";
export type Level = "trace" | "debug" | "info" | "warn" | "error";

/** A job as the server shows it. A later version may add fields. */
export interface JobRecord {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly status: Status;
  readonly attempt: number;
  readonly maxRetries: number;
  readonly args: Json;
  readonly result: Json;
  readonly error: string | null;
  readonly progress: { readonly percent: number; readonly message: string | null } | null;
  readonly correlationId: string | null;
  readonly tags?: readonly string[];
  readonly schedule?: string | null;
  readonly workerId: string | null;
  readonly ownerNode: string | null;
  readonly createdAt: string;
  readonly scheduledAt: string | null;
  readonly startedAt: string | null;
  readonly completedAt: string | null;
}

/** A line of a job's log. */
export interface LogLine {
  readonly seq: number;
  readonly at: string;
  readonly level: Level;
  readonly message: string;
  readonly executionId: string;
}

/** A schedule as the server shows it. `warnings` says why it may differ from what was intended. */
export interface ScheduleRecord {
  readonly name: string;
  readonly type: string;
  readonly queue: string;
  readonly cron?: string | null;
  readonly every?: string | null;
  readonly paused: boolean;
  readonly nextRunAt: string | null;
  readonly lastRunAt: string | null;
  readonly warnings?: readonly string[];
}

const LIVE: ReadonlySet<string> = new Set(["scheduled", "pending", "dispatched", "running"]);

/** Returns whether a job has ended, with whatever outcome. */
export function hasEnded(job: JobRecord): boolean {
  return !LIVE.has(job.status);
}
