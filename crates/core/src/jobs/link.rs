//! The calls of a worker and of a client to a coordinator: the same over HTTP, in process or over the bus.

mod event_limits;
mod worker_limits;

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
use crate::ids::{Epoch, ExecutionId, JobId, QueueName, ScheduleName, WorkerId};
use crate::json::Json;

/// The calls of a worker. An unknown worker gets [`Error::NotFound`](crate::Error::NotFound) and must register again.
#[async_trait]
pub trait WorkerLink: Send + Sync {
    /// Registers the worker, or replaces its registration.
    async fn register(&self, worker: Register) -> Result<Registered>;
    /// Returns as soon as there is a run for the worker, or after `wait`.
    async fn poll(&self, poll: Poll) -> Result<Polled>;
    /// Records events of runs. Accepted events are durable when it returns.
    async fn report(&self, report: Report) -> Result<Reported>;
    /// Reports that the worker is alive and which runs it has.
    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatReply>;
    /// Removes the worker. Its unfinished runs are released at once.
    async fn leave(&self, worker: WorkerId) -> Result<()>;
    /// Returns the address of the coordinator, for people to read and without credentials; empty if it is in this
    /// process.
    fn address(&self) -> String {
        String::new()
    }
}

/// The calls of an application.
#[async_trait]
pub trait ClientLink: Send + Sync {
    /// Stores the jobs. Returns one result for each, in their order.
    async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>>;
    /// Returns the job. With `wait`, returns when the job has ended or `wait` has passed.
    async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job>;
    /// Cancels a job. A run of it is stopped by its worker.
    async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job>;
    /// Makes an ended job pending again.
    async fn retry(&self, id: JobId) -> Result<Job>;
    /// Makes, reads or changes a schedule. Returns the response of the HTTP API as JSON.
    async fn schedule(&self, call: ScheduleCall) -> Result<Json>;
}

/// A call about schedules.
#[derive(Debug, Clone)]
pub enum ScheduleCall {
    /// Makes or replaces the schedule of this name. The request is that of `PUT /v1/schedules/{name}`.
    Put(ScheduleName, Json),
    /// Reads all schedules.
    List,
    /// Reads a schedule.
    Get(ScheduleName),
    /// Pauses a schedule.
    Pause(ScheduleName),
    /// Resumes a schedule.
    Resume(ScheduleName),
    /// Makes a job of a schedule now.
    Trigger(ScheduleName),
    /// Deletes a schedule.
    Remove(ScheduleName),
}

/// A job that was enqueued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    /// The id of the job.
    pub id: JobId,
    /// False if a job with this unique key or id existed already.
    pub created: bool,
}

/// A worker that registers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Register {
    /// The id of the worker. The server makes one if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// A name for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The queues that the worker receives runs of.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 1000))]
    pub queues: Vec<QueueName>,
    /// How many runs the worker executes at once at most.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100_000, example = 10))]
    pub concurrency: u32,
}

/// The response to a registration: the worker's id and the times that it must keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    /// The id of the worker.
    pub worker_id: WorkerId,
    /// How often the worker sends heartbeats.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "10s"))]
    #[serde(with = "crate::duration")]
    pub heartbeat_interval: Duration,
    /// How long a worker may be silent before it is declared dead and its runs are lost.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "30s"))]
    #[serde(with = "crate::duration")]
    pub stale_after: Duration,
}

/// A request for runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Poll {
    /// The id of the worker.
    pub worker_id: WorkerId,
    /// How many runs to return at most.
    #[cfg_attr(feature = "openapi", schema(format = Int64, maximum = 10_000, example = 10))]
    pub max: usize,
    /// How long to wait for a run: `20s` if it is absent, at most `1m`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "20s"))]
    #[serde(with = "crate::duration", default = "default_wait")]
    pub wait: Duration,
}

fn default_wait() -> Duration {
    Duration::from_secs(20)
}

/// The runs that a worker received.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Polled {
    /// The runs that the worker is to execute.
    pub jobs: Vec<Assignment>,
    /// Runs of this worker to stop.
    pub cancel: Vec<ExecutionId>,
    /// Whether the worker is to finish its runs and take no more.
    pub drain: bool,
}

/// A run, as a worker receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Assignment {
    /// The id of the job.
    pub job_id: JobId,
    /// The id of the run.
    pub execution_id: ExecutionId,
    /// The type, the arguments and the limits of the run.
    #[cfg_attr(feature = "openapi", schema(inline))]
    #[serde(flatten, skip_deserializing, default = "RunInput::unread")]
    pub input: RunInput,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The term in which the leader dispatched the run; 0 if the node is of a version that does not send it.
    #[serde(default)]
    pub epoch: Epoch,
}

flattened!(Assignment, input, BorrowedRest);

impl From<Dispatch> for Assignment {
    fn from(dispatch: Dispatch) -> Self {
        let Dispatch { job_id, execution_id, input, attempt, epoch, .. } = dispatch;
        Assignment { job_id, execution_id, input, attempt, epoch }
    }
}

/// Events of the runs of a worker, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Report {
    /// The id of the worker.
    pub worker_id: WorkerId,
    /// The events, of one run in the order in which they happened.
    #[cfg_attr(feature = "openapi", schema(max_items = 20_000))]
    pub events: Vec<Event>,
}

/// One event of one run. Which of the optional fields it may have depends on `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunEvent))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Event {
    /// The id of the run.
    pub execution_id: ExecutionId,
    /// The id of the job.
    pub job_id: JobId,
    /// The kind of the event.
    pub kind: EventKind,
    /// When it happened; when it is received, if it is absent.
    #[serde(default, with = "crate::instant::option", skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// An end: when the run started, if no `started` was sent before. One event is enough for a short run.
    #[serde(default, with = "crate::instant::option", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// `progress`: how much of the run is done.
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// `log` and `progress`: the text. `cancelled`: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `log`: the level, `info` if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevel>,
    /// `log`: the line's number within its run, rising. A line that is sent again under its number is recorded once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// `completed`: the result, any JSON of at most 1 MiB.
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// `failed` and `timedOut`: the text of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `failed`: false if the job must not be retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<bool>,
}

impl Event {
    /// Returns an event without optional fields.
    pub fn new(job_id: JobId, execution_id: ExecutionId, kind: EventKind) -> Self {
        Event {
            execution_id,
            job_id,
            kind,
            at: None,
            started_at: None,
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

/// The kind of an event of a run. `released`: its worker drains and returns it unfinished; the job runs again at once
/// and no attempt is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunEventKind))]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// The worker started the run.
    Started,
    /// The run made progress.
    Progress,
    /// The run logged a line.
    Log,
    /// The run succeeded.
    Completed,
    /// The run failed.
    Failed,
    /// The run exceeded its timeout.
    TimedOut,
    /// The worker stopped the run because it was cancelled.
    Cancelled,
    /// Returned unfinished by a worker that drains: the job runs again at once and no attempt is counted.
    Released,
}

impl EventKind {
    /// Returns whether the run is over with this event.
    pub const fn is_end(self) -> bool {
        !matches!(self, EventKind::Started | EventKind::Progress | EventKind::Log)
    }

    /// Returns the name of the kind, as in JSON.
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

/// The response to a report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// How many events are durable, repeated ones included.
    #[cfg_attr(feature = "openapi", schema(format = Int64))]
    pub accepted: usize,
    /// Events that changed nothing.
    pub rejected: Vec<Rejected>,
}

/// An event that was rejected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// The run of the event.
    pub execution_id: ExecutionId,
    /// The reason.
    pub code: RejectedCode,
}

/// Why an event was rejected. `stale_execution`: the run is over, because another run replaced it or it ended
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RejectedCode {
    /// The run is over: another run replaced it, or it ended otherwise.
    StaleExecution,
}

/// A heartbeat of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Heartbeat {
    /// The id of the worker.
    pub worker_id: WorkerId,
    /// All runs of the worker. A run that is missing from two heartbeats is lost.
    #[cfg_attr(feature = "openapi", schema(max_items = 100_000))]
    pub running: Vec<ExecutionId>,
    /// Whether the worker drains: it receives no more runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

/// The response to a heartbeat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatReply {
    /// Runs of this worker to stop.
    pub cancel: Vec<ExecutionId>,
    /// Whether the worker is to finish its runs and take no more.
    pub drain: bool,
}

#[cfg(test)]
mod tests;
