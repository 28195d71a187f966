//! Shapes of the job types, whose own schemas are not derived yet.

#![allow(dead_code, reason = "described, never made")]

use convoke_core::jobs::cron::DayRule;
use convoke_core::jobs::schedule::{Missed, Overlap};
use convoke_core::jobs::{Ownership, Priority, Progress, RetryPolicy, Status};
use jiff::Timestamp;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

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

#[derive(ToSchema)]
pub struct Polled {
    pub jobs: Vec<Assignment>,
    /// Runs of this worker to stop
    pub cancel: Vec<Uuid>,
    /// Finish what you have and take no more
    pub drain: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Assignment {
    pub job_id: Uuid,
    pub execution_id: Uuid,
    pub r#type: String,
    pub queue: String,
    pub args: Value,
    pub attempt: u32,
    pub max_retries: u32,
    pub timeout: Option<String>,
    pub correlation_id: Option<String>,
}
