//! Limits on all input. Units are last in the names.

/// Arguments of a job.
pub const ARGS_BYTES_MAX: usize = 1 << 20;
/// Result of a run.
pub const RESULT_BYTES_MAX: usize = 1 << 20;
/// Error text of a run.
pub const ERROR_BYTES_MAX: usize = 16 << 10;
/// Message of one log line.
pub const LOG_LINE_BYTES_MAX: usize = 16 << 10;
/// Log lines that are kept per run. One more line reports that the rest is dropped.
pub const RUN_LOG_LINES_MAX: u64 = 10_000;
/// Message of a progress report.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Jobs of one enqueue request.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// Body of one enqueue or report request.
pub const BATCH_BYTES_MAX: usize = 32 << 20;
/// Arguments that one dispatch reads and publishes, in bytes. One job always fits.
pub const DISPATCH_BYTES_MAX: usize = 8 << 20;
/// Arguments of one queue's runs that are published and not yet received by a worker, in bytes. Above it, the queue is
/// not dispatched from.
pub const UNTAKEN_QUEUE_BYTES_MAX: u64 = 16 << 20;
/// The same for all queues together. Above it, a queue without such runs gets one run at a time.
pub const UNTAKEN_BYTES_MAX: u64 = 64 << 20;
/// Arguments of the runs of one message to a node's inbox, in bytes. One run always fits.
pub const INBOX_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Runs of one message to a node's inbox.
pub const INBOX_MESSAGE_RUNS_MAX: usize = 1_000;
/// Runs that wait in a node's inbox. Further ones are released.
pub const INBOX_RUNS_MAX: usize = 100_000;
/// Arguments of the runs that wait in a node's inbox, in bytes. Further ones are released.
pub const INBOX_BYTES_MAX: usize = 128 << 20;
/// Bodies of the entries that one read of a bus queue returns, in bytes; also what one poll returns of a queue. One
/// entry always fits.
pub const TAKE_BYTES_MAX: usize = 8 << 20;
/// Arguments, results and errors of one page of jobs or runs, in bytes. One row always fits.
pub const PAGE_BYTES_MAX: usize = 8 << 20;
/// Messages of one page of log lines, in bytes. One line always fits. Each log stream holds one page.
pub const LOG_PAGE_BYTES_MAX: usize = 128 << 10;
/// Any name: a queue, a job type, a worker, a schedule.
pub const NAME_BYTES_MAX: usize = 255;
/// Queues in a store.
pub const QUEUES_MAX: usize = 10_000;
/// Bytes that an audit entry keeps of its target before the act, and as many of it afterwards, as JSON.
pub const AUDIT_DETAIL_BYTES_MAX: usize = 4 << 10;
/// Nesting depth of a JSON value.
pub const JSON_DEPTH_MAX: usize = 64;
/// Retries of a job.
pub const RETRIES_MAX: u32 = 1_000;
/// Items of one page of a list.
pub const PAGE_MAX: usize = 1_000;
/// Slots of one worker.
pub const WORKER_CONCURRENCY_MAX: u32 = 100_000;
/// Queues that one worker subscribes to.
pub const WORKER_QUEUES_MAX: usize = 1_000;
/// Members of a queue's consumer group that one read returns.
pub const GROUP_READERS_MAX: usize = 1_000;
/// Entries of `job.cancel` that are kept for workers that read it as a queue.
pub const CANCELLATIONS_KEPT: usize = 1_000;
/// Runs that one poll returns.
pub const POLL_JOBS_MAX: usize = 10_000;
/// Events of one report request.
pub const REPORT_EVENTS_MAX: usize = 20_000;
/// Shards of one service; also how many a worker may report.
pub const SHARDS_MAX: u32 = 100_000;
/// Services with shards.
pub const SHARD_SERVICES_MAX: usize = 10_000;
/// Workers of all services together.
pub const SHARD_WORKERS_MAX: usize = 200_000;
/// Shards of all services together.
pub const SHARDS_TOTAL_MAX: usize = 4_000_000;

/// Bytes that are kept of a message that could not be read.
pub const POISON_BODY_BYTES_MAX: usize = 4 << 10;
