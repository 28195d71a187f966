//! A job as it is shown: one row for all its attempts.

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
    pub id: JobId,
    #[cfg_attr(feature = "openapi", schema(inline))]
    #[serde(flatten, skip_deserializing, default = "JobDefinition::unread")]
    pub definition: JobDefinition,
    pub status: Status,
    /// How many runs counted so far, over the whole life of the job: 0 until it is first dispatched.
    pub attempt: u32,
    /// How many attempts followed the first, since it was enqueued or retried by hand.
    pub retry_count: u32,
    /// The present run, or the last one.
    pub execution_id: Option<ExecutionId>,
    pub ownership: Ownership,
    /// The node that records the events of the run.
    pub owner_node: Option<NodeId>,
    /// The worker that received the run.
    pub worker_id: Option<WorkerId>,
    pub progress: Option<Progress>,
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    pub result: Option<Json>,
    /// The error of the last run, or the reason of the cancellation.
    pub error: Option<String>,
    /// The schedule that made it.
    pub schedule: Option<ScheduleName>,
    pub created_at: Timestamp,
    /// When it is meant to run, if that is not at once; of a schedule's job, the tick.
    pub scheduled_at: Option<Timestamp>,
    pub dispatched_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    /// When the job ended, however it did.
    pub completed_at: Option<Timestamp>,
    /// Whether the channels of the ended job are closed.
    pub channels_cleaned: bool,
}

flattened!(Job, definition, Rest);

impl Job {
    /// Returns the bytes of what is not bounded by a name's length: arguments, result and error.
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
    #[default]
    Unowned = 0,
    Owned = 1,
    HandingOff = 2,
    OrphanPending = 3,
}

impl Ownership {
    pub const ALL: [Ownership; 4] =
        [Ownership::Unowned, Ownership::Owned, Ownership::HandingOff, Ownership::OrphanPending];

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Ownership> {
        Ownership::ALL.get(usize::from(code)).copied()
    }
}

/// How far a run is, as its worker reported it last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Progress {
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub percent: u8,
    pub message: Option<String>,
}

/// One run of a job, in its history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    pub execution_id: ExecutionId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The worker that received the run.
    pub worker_id: Option<WorkerId>,
    pub status: ExecutionStatus,
    /// Why the run failed, or why it was cancelled.
    pub error: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// The state of a run. `lost`: its worker died or no longer knew of it; `released`: its worker returned it unfinished, or
/// no worker received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum ExecutionStatus {
    Dispatched = 0,
    Running = 1,
    Completed = 2,
    Failed = 3,
    TimedOut = 4,
    Cancelled = 5,
    Lost = 6,
    Released = 7,
}

impl ExecutionStatus {
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

    pub const fn code(self) -> u8 {
        self as u8
    }

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
    pub at: Timestamp,
    pub level: LogLevel,
    pub message: String,
    pub execution_id: ExecutionId,
}

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum LogLevel {
    Trace = 0,
    Debug = 1,
    #[default]
    Info = 2,
    Warn = 3,
    Error = 4,
}

impl LogLevel {
    pub const ALL: [LogLevel; 5] = [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<LogLevel> {
        LogLevel::ALL.get(usize::from(code)).copied()
    }
}
