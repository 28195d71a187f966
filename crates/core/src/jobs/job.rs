//! A job as readers see it: one row for all its attempts.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::lifecycle::Status;
use super::template::JobDefinition;
use crate::flat::flattened;
use crate::ids::{ExecutionId, JobId, NodeId, ScheduleName, WorkerId};
use crate::json::Json;

/// A job as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Job {
    /// The id of the job.
    pub id: JobId,
    /// The definition of the job, with all defaults filled in.
    #[cfg_attr(feature = "openapi", schema(inline))]
    #[serde(flatten, skip_deserializing, default = "JobDefinition::unread")]
    pub definition: JobDefinition,
    /// The state of the job.
    pub status: Status,
    /// The attempts that counted, over the whole life of the job: 0 until it is first dispatched.
    pub attempt: u32,
    /// The attempts after the first since the job was enqueued or redriven.
    pub retry_count: u32,
    /// The present run, or the last one.
    pub execution_id: Option<ExecutionId>,
    /// Whether a node records the events of the run.
    pub ownership: Ownership,
    /// The node that records the events of the run.
    pub owner_node: Option<NodeId>,
    /// The worker that received the run.
    pub worker_id: Option<WorkerId>,
    /// The progress that the worker reported last.
    pub progress: Option<Progress>,
    /// The result of the completed job.
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    pub result: Option<Json>,
    /// The error of the last run, or the reason of the cancellation.
    pub error: Option<String>,
    /// The schedule that made the job.
    pub schedule: Option<ScheduleName>,
    /// When the job was enqueued.
    pub created_at: Timestamp,
    /// When the job was requested to run, if not at once; for a job of a schedule, the tick.
    pub scheduled_at: Option<Timestamp>,
    /// When the present run was dispatched.
    pub dispatched_at: Option<Timestamp>,
    /// When the present run started.
    pub started_at: Option<Timestamp>,
    /// When the job ended, with any outcome.
    pub completed_at: Option<Timestamp>,
    /// Whether the channels of the ended job are closed.
    pub channels_cleaned: bool,
}

flattened!(Job, definition, Rest);

impl Job {
    /// Returns the keys under which the job is found by a list with a filter.
    pub fn search_keys(&self) -> Vec<String> {
        self.definition.search_keys(self.schedule.as_ref())
    }

    /// Returns the bytes of the arguments, the result and the error: the parts without a small bound.
    pub fn payload_bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |result| result.as_str().len());
        self.definition.args.as_str().len() + result + self.error.as_ref().map_or(0, String::len)
    }
}

/// Whether a node records the events of a run: `owned` by one, `handingOff` while it is offered to another node,
/// `orphanPending` if no node accepted it yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum Ownership {
    /// No node owns the run yet.
    #[default]
    Unowned = 0,
    /// A node owns the run.
    Owned = 1,
    /// The owner offers the run to other nodes.
    HandingOff = 2,
    /// No node accepted the run: the leader finds an owner.
    OrphanPending = 3,
}

impl Ownership {
    /// All values, in the order of their codes.
    pub const ALL: [Ownership; 4] =
        [Ownership::Unowned, Ownership::Owned, Ownership::HandingOff, Ownership::OrphanPending];

    /// Returns the number that stores keep.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the value with this number; `None` if there is none.
    pub fn from_code(code: u8) -> Option<Ownership> {
        Ownership::ALL.get(usize::from(code)).copied()
    }
}

/// How far a run is, as its worker reported it last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Progress {
    /// The part of the run that is done, in percent.
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub percent: u8,
    /// A text of the worker.
    pub message: Option<String>,
}

/// One run of a job, in its history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// The id of the run.
    pub execution_id: ExecutionId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The worker that received the run.
    pub worker_id: Option<WorkerId>,
    /// The state of the run.
    pub status: ExecutionStatus,
    /// Why the run failed, or why it was cancelled.
    pub error: Option<String>,
    /// When the worker started the run.
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    pub ended_at: Option<Timestamp>,
}

/// The state of a run. `lost`: its worker died or no longer knew of it; `released`: its worker returned it unfinished,
/// or no worker received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum ExecutionStatus {
    /// On its way to a worker.
    Dispatched = 0,
    /// The worker reported that it started.
    Running = 1,
    /// The worker reported success.
    Completed = 2,
    /// The worker reported an error.
    Failed = 3,
    /// It exceeded its timeout.
    TimedOut = 4,
    /// It was cancelled.
    Cancelled = 5,
    /// Its worker died, or no longer names it. The attempt counts.
    Lost = 6,
    /// Returned unfinished, or received by no worker. The attempt does not count.
    Released = 7,
}

impl ExecutionStatus {
    /// All values, in the order of their codes.
    pub const ALL: [ExecutionStatus; 8] = [
        ExecutionStatus::Dispatched,
        ExecutionStatus::Running,
        ExecutionStatus::Completed,
        ExecutionStatus::Failed,
        ExecutionStatus::TimedOut,
        ExecutionStatus::Cancelled,
        ExecutionStatus::Lost,
        ExecutionStatus::Released,
    ];

    /// Returns the number that stores keep.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the value with this number; `None` if there is none.
    pub fn from_code(code: u8) -> Option<ExecutionStatus> {
        ExecutionStatus::ALL.get(usize::from(code)).copied()
    }
}

/// A line that a run of a job logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The number of the line, from 1 within the job.
    pub seq: u64,
    /// When the line was logged.
    pub at: Timestamp,
    /// The level of the line.
    pub level: LogLevel,
    /// The text of the line.
    pub message: String,
    /// The run that logged the line.
    pub execution_id: ExecutionId,
}

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum LogLevel {
    /// Steps of the program.
    Trace = 0,
    /// Details for debugging.
    Debug = 1,
    /// Normal operation.
    #[default]
    Info = 2,
    /// Something unexpected that did no harm.
    Warn = 3,
    /// Something that failed.
    Error = 4,
}

impl LogLevel {
    /// All values, in the order of their codes.
    pub const ALL: [LogLevel; 5] = [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];

    /// Returns the number that stores keep.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the value with this number; `None` if there is none.
    pub fn from_code(code: u8) -> Option<LogLevel> {
        LogLevel::ALL.get(usize::from(code)).copied()
    }
}
