//! How a worker and a client reach a coordinator: five calls and four, the same over HTTP, in process or by the bus.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::job::{Job, LogLevel};
use super::spec::JobSpec;
use super::template::RunInput;
use super::wire::Dispatch;
use crate::error::Result;
use crate::flat::flattened;
use crate::ids::{ExecutionId, JobId, QueueName, WorkerId};
use crate::json::Json;

/// What a worker says and hears. An unknown worker gets [`Error::NotFound`](crate::Error::NotFound) and registers again.
#[async_trait]
pub trait WorkerLink: Send + Sync {
    async fn register(&self, worker: Register) -> Result<Registered>;
    /// Answers as soon as there is one job, or after `wait`.
    async fn poll(&self, poll: Poll) -> Result<Polled>;
    /// What it accepts is durable when it answers.
    async fn report(&self, report: Report) -> Result<Reported>;
    async fn heartbeat(&self, beat: Heartbeat) -> Result<Beaten>;
    /// Unfinished runs go back at once.
    async fn leave(&self, worker: WorkerId) -> Result<()>;
    /// Where the coordinator is, for people to read and without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
}

/// What an application asks of a coordinator.
#[async_trait]
pub trait ClientLink: Send + Sync {
    async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>>;
    /// The job as it is, or as it is once it has ended or `wait` has passed.
    async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job>;
    async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job>;
    async fn retry(&self, id: JobId) -> Result<Job>;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    pub id: JobId,
    /// False where the job was there already, by its unique key or its id.
    pub created: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Register {
    /// Made by the server where the worker has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub queues: Vec<QueueName>,
    pub concurrency: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    pub worker_id: WorkerId,
    #[serde(with = "crate::duration")]
    pub heartbeat_interval: Duration,
    #[serde(with = "crate::duration")]
    pub stale_after: Duration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Poll {
    pub worker_id: WorkerId,
    pub max: usize,
    #[serde(with = "crate::duration", default = "default_wait")]
    pub wait: Duration,
}

fn default_wait() -> Duration {
    Duration::from_secs(20)
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Polled {
    pub jobs: Vec<Assignment>,
    pub cancel: Vec<ExecutionId>,
    /// The worker should finish what it has and take no more.
    pub drain: bool,
}

/// A run, as a worker receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Assignment {
    pub job_id: JobId,
    pub execution_id: ExecutionId,
    #[serde(flatten, skip_deserializing, default = "RunInput::unread")]
    pub input: RunInput,
    pub attempt: u32,
}

flattened!(Assignment, input);

impl From<Dispatch> for Assignment {
    fn from(dispatch: Dispatch) -> Self {
        let Dispatch { job_id, execution_id, input, attempt, .. } = dispatch;
        Assignment { job_id, execution_id, input, attempt }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Report {
    pub worker_id: WorkerId,
    pub events: Vec<Event>,
}

/// One thing a worker says of one run. Which of the optional fields it may have depends on `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Event {
    pub execution_id: ExecutionId,
    pub job_id: JobId,
    pub kind: EventKind,
    #[serde(default, with = "crate::instant::option", skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// `progress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// `log` and `progress`; of `cancelled`, the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevel>,
    /// `log`: the line's number within its run, rising. A line that is sent again under its number is recorded once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// `failed` and `timedOut`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `failed`: false where another attempt would be in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<bool>,
}

impl Event {
    pub fn new(job_id: JobId, execution_id: ExecutionId, kind: EventKind) -> Self {
        Event {
            execution_id,
            job_id,
            kind,
            at: None,
            percent: None,
            message: None,
            level: None,
            seq: None,
            result: None,
            error: None,
            retry: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    Started,
    Progress,
    Log,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
    /// Unfinished, given back by a worker that drains: the job runs again at once and no attempt is counted.
    Released,
}

impl EventKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            EventKind::Started => "started",
            EventKind::Progress => "progress",
            EventKind::Log => "log",
            EventKind::Completed => "completed",
            EventKind::Failed => "failed",
            EventKind::TimedOut => "timedOut",
            EventKind::Cancelled => "cancelled",
            EventKind::Released => "released",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// How many events are durable, those repeated included.
    pub accepted: usize,
    pub rejected: Vec<Rejected>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    pub execution_id: ExecutionId,
    pub code: RejectedCode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectedCode {
    /// The run is over: another has taken its place, or it ended otherwise.
    StaleExecution,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Heartbeat {
    pub worker_id: WorkerId,
    /// All that it has: a run that is missing from two heartbeats is lost.
    pub running: Vec<ExecutionId>,
    /// It takes no more: its free slots are none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Beaten {
    pub cancel: Vec<ExecutionId>,
    pub drain: bool,
}

#[cfg(test)]
mod tests;
