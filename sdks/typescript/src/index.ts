/** Client and worker for Convoke. */

export { Client, Handle, request } from "./client.js";
export type { ClientOptions, JobFilter, JobRequest, Timing } from "./client.js";
export { currentRun } from "./context.js";
export type { Context } from "./context.js";
export type { Duration } from "./duration.js";
export { ConvokeError, InvalidArguments, NotCompleted, Permanent, Rejected, Retry, StillRunning, Unavailable } from "./errors.js";
export { defineJob } from "./job.js";
export type { AnyJob, EnqueueOptions, Handler, Job, JobOptions, Priority, RetryPolicy } from "./job.js";
export type { Json } from "./json.js";
export { parse, stringify } from "./json.js";
export { hasEnded } from "./records.js";
export type { JobRecord, Level, LogLine, ScheduleRecord, Status } from "./records.js";
export { sandbox } from "./sandbox.js";
export type { Sandbox, SandboxContext } from "./sandbox.js";
export type { Schema } from "./schema.js";
export type { ShardChange } from "./shards/rules.js";
export { ShardWorker } from "./shards/worker.js";
export type { ShardWorkerOptions } from "./shards/worker.js";
export { enqueueIn } from "./transaction.js";
export type { Queryable } from "./transaction.js";
export type { Logger } from "./worker/log.js";
export { Worker } from "./worker/worker.js";
export type { WorkerOptions } from "./worker/worker.js";
