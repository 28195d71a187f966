//! Shapes of requests and answers.

#![allow(dead_code, reason = "described, never made")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(ToSchema)]
pub struct ErrorBody {
    pub error: Refusal,
}

#[derive(ToSchema)]
pub struct Refusal {
    /// For programs
    #[schema(example = "invalid_argument")]
    pub code: String,
    /// For people
    pub message: String,
    /// What was refused, by its path
    #[schema(example = "jobs[3].delay", required)]
    pub field: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum Status {
    Created,
    Pending,
    Scheduled,
    Dispatched,
    Running,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum Priority {
    Low,
    Normal,
    High,
    Critical,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RetryPolicy {
    #[schema(example = "10s")]
    pub initial_delay: Option<String>,
    #[schema(minimum = 1, maximum = 1000, example = 2.0)]
    pub multiplier: Option<f64>,
    #[schema(example = "10m")]
    pub max_delay: Option<String>,
    pub jitter: Option<Jitter>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum Jitter {
    Full,
    None,
}

/// A request to enqueue
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct JobSpec {
    /// Made by the client, so that a request whose answer was lost can be sent again
    pub id: Option<Uuid>,
    #[schema(example = "email.send", max_length = 255)]
    pub r#type: String,
    /// `default` where absent
    #[schema(max_length = 255)]
    pub queue: Option<String>,
    /// Any JSON of at most 1 MiB
    pub args: Option<Value>,
    pub priority: Option<Priority>,
    /// Not before so long from now; either this or `runAt`
    #[schema(example = "5s")]
    pub delay: Option<String>,
    /// Not before this instant
    pub run_at: Option<Timestamp>,
    #[schema(maximum = 1000)]
    pub max_retries: Option<u32>,
    pub retry_policy: Option<RetryPolicy>,
    /// Of one attempt
    #[schema(example = "30s")]
    pub timeout: Option<String>,
    #[schema(max_length = 255)]
    pub correlation_id: Option<String>,
    /// While a job with this key is live, no other is made
    #[schema(max_length = 255)]
    pub unique_key: Option<String>,
    /// Keeps the key taken for so long, also after the job has ended
    #[schema(example = "1h")]
    pub unique_for: Option<String>,
}

#[derive(ToSchema)]
pub struct Batch {
    #[schema(max_items = 10000)]
    pub jobs: Vec<JobSpec>,
}

#[derive(ToSchema)]
pub struct BatchAnswer {
    pub jobs: Vec<Enqueued>,
}

#[derive(ToSchema)]
pub struct Enqueued {
    pub id: Uuid,
    /// False where the job was there already
    pub created: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Job {
    pub id: Uuid,
    pub r#type: String,
    pub queue: String,
    pub status: Status,
    pub priority: Priority,
    pub args: Value,
    pub attempt: u32,
    pub retry_count: u32,
    pub max_retries: u32,
    pub retry_policy: RetryPolicy,
    pub execution_id: Option<Uuid>,
    pub ownership: Ownership,
    pub owner_node: Option<String>,
    pub worker_id: Option<String>,
    pub correlation_id: Option<String>,
    pub unique_key: Option<String>,
    pub timeout: Option<String>,
    pub progress: Option<Progress>,
    pub result: Option<Value>,
    pub error: Option<String>,
    /// The schedule that made it
    pub schedule: Option<String>,
    pub created_at: Timestamp,
    pub scheduled_at: Option<Timestamp>,
    pub dispatched_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub channels_cleaned: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum Ownership {
    Unowned,
    Owned,
    HandingOff,
    OrphanPending,
}

#[derive(ToSchema)]
pub struct Progress {
    #[schema(maximum = 100)]
    pub percent: u8,
    pub message: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct JobsPage {
    pub jobs: Vec<Job>,
    /// Where the next page begins, also after a short or empty page; null at the end
    pub next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct History {
    pub executions: Vec<Execution>,
    /// For `after` of the next request; null at the end
    pub next_after: Option<u64>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Execution {
    pub execution_id: Uuid,
    pub attempt: u32,
    pub worker_id: Option<String>,
    pub status: ExecutionStatus,
    pub error: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum ExecutionStatus {
    Dispatched,
    Running,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
    Lost,
    Released,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Logs {
    pub logs: Vec<LogLine>,
    /// For `after` of the next request
    pub next_after: u64,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct LogLine {
    pub seq: u64,
    pub at: Timestamp,
    pub level: LogLevel,
    pub message: String,
    pub execution_id: Uuid,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(ToSchema)]
pub struct Cancel {
    pub reason: Option<String>,
}

/// Either `cron` or `every`
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ScheduleSpec {
    pub r#type: String,
    pub queue: Option<String>,
    pub args: Option<Value>,
    /// Five or six fields, or a nickname such as `@hourly`; reversed ranges (`22-2`), `L`, `L-3`, `W` and `#` are accepted
    #[schema(example = "0 9 * * 1-5")]
    pub cron: Option<String>,
    /// At least `100ms`
    pub every: Option<String>,
    /// Of `cron`; `UTC` where absent
    #[schema(example = "Europe/Berlin")]
    pub tz: Option<String>,
    /// Of `cron`; `or` where absent
    pub day: Option<DayRule>,
    pub missed: Option<Missed>,
    pub overlap: Option<Overlap>,
    pub paused: Option<bool>,
    pub priority: Option<Priority>,
    pub max_retries: Option<u32>,
    pub timeout: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Schedule {
    pub name: String,
    pub r#type: String,
    pub queue: String,
    pub args: Value,
    pub cron: Option<String>,
    pub every: Option<String>,
    pub tz: Option<String>,
    pub day: Option<DayRule>,
    pub missed: Missed,
    pub overlap: Overlap,
    pub paused: bool,
    pub priority: Priority,
    pub max_retries: Option<u32>,
    pub timeout: Option<String>,
    pub created_at: Timestamp,
    pub next_run_at: Option<Timestamp>,
    pub last_run_at: Option<Timestamp>,
}

/// Days that match either (`or`) or both (`and`) day fields, if both are restricted
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum DayRule {
    Or,
    And,
}

/// What to do about ticks that passed while nobody was there
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum Missed {
    Skip,
    Latest,
    All,
}

/// What to do when a tick comes while a job of the schedule is live
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum Overlap {
    Skip,
    Allow,
}

#[derive(ToSchema)]
pub struct Schedules {
    pub schedules: Vec<Schedule>,
}

#[derive(ToSchema)]
pub struct Queues {
    pub queues: Vec<Queue>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Queue {
    pub name: String,
    pub paused: bool,
    /// Its own
    pub rate_limit: Option<RateLimit>,
    /// Its own, or the default of the configuration
    pub effective_rate_limit: Option<RateLimit>,
    pub concurrency: Option<u32>,
    /// Jobs by status
    pub counts: BTreeMap<String, u64>,
    /// How long the oldest pending job has waited
    #[schema(example = "12s")]
    pub oldest_pending_age: Option<String>,
    pub workers: u32,
}

#[derive(ToSchema)]
pub struct RateLimit {
    #[schema(minimum = 1, maximum = 1000000)]
    pub limit: u32,
    #[schema(example = "1s")]
    pub per: String,
}

/// What is absent stays, `null` takes a limit away
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct QueuePatch {
    pub paused: Option<bool>,
    pub rate_limit: Option<RateLimit>,
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct DeadLetters {
    pub dead_letters: Vec<DeadLetter>,
    /// Where the next page begins, also after a short or empty page; null at the end
    pub next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct DeadLetter {
    pub job_id: Uuid,
    pub r#type: String,
    pub queue: String,
    pub status: Status,
    pub error: Option<String>,
    pub attempts: u32,
    pub failed_at: Option<Timestamp>,
    pub args: Value,
}

/// Either `ids`, or `queue` and `type`, or `all`
#[derive(ToSchema)]
pub struct DeadSelection {
    #[schema(max_items = 10000)]
    pub ids: Option<Vec<Uuid>>,
    pub queue: Option<String>,
    pub r#type: Option<String>,
    pub all: Option<bool>,
}

#[derive(ToSchema)]
pub struct Retried {
    pub retried: u64,
}

#[derive(ToSchema)]
pub struct Purged {
    pub purged: u64,
}

#[derive(ToSchema)]
pub struct Health {
    #[schema(example = "healthy")]
    pub status: String,
    pub checks: Vec<HealthCheck>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct HealthCheck {
    #[schema(example = "Coordinator")]
    pub component: String,
    pub is_healthy: bool,
    /// Only where something is wrong
    pub detail: Option<String>,
}

#[derive(ToSchema)]
pub struct Probe {
    pub status: String,
}
