//! What is said of a run: that it was claimed, started, got on, ended.
//!
//! Reports of one run are coalesced, so that a job that finishes fast costs a single write: `started`, its logs and its
//! end arrive as one [`RunReport`].

use jiff::Timestamp;

use super::job::{ExecutionStatus, LogLevel, Progress};
use crate::ids::{ExecutionId, JobId, NodeId, WorkerId};
use crate::json::Json;

/// All that is new of one run. Its fence is `execution`: a store refuses it where the job has another by now.
#[derive(Debug, Clone)]
pub struct RunReport {
    pub job: JobId,
    pub execution: ExecutionId,
    pub worker: Option<WorkerId>,
    /// The node that records this run.
    pub owner: Option<Claim>,
    /// When a gateway gave the run to its worker. A run that never says `started` is timed from then.
    pub handed_out_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub progress: Option<Progress>,
    pub logs: Vec<NewLog>,
    pub end: Option<RunEnd>,
    /// The events came by the job's channels on the bus, which must be closed one day. False: by a gateway.
    pub by_channel: bool,
}

/// How a node comes to own a job's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Its gateway handed the run out: it owns it, whoever did before.
    Take(NodeId),
    /// It was assigned the run, or hears it by its channels: the report counts only where no other node owns it.
    IfFree(NodeId),
}

impl Claim {
    pub fn node(&self) -> &NodeId {
        match self {
            Claim::Take(node) | Claim::IfFree(node) => node,
        }
    }

    /// Whether a report with this claim is refused where `owner` owns the job.
    pub fn yields_to(&self, owner: Option<&NodeId>) -> bool {
        match self {
            Claim::Take(_) => false,
            Claim::IfFree(node) => owner.is_some_and(|owner| owner != node),
        }
    }
}

#[derive(Debug, Clone)]
pub struct NewLog {
    /// The line's number within its run, rising in the order of sending, so that a line that is sent again is recognised. None:
    /// the worker does not number its lines, and a repeated report repeats them.
    pub seq: Option<u64>,
    pub at: Timestamp,
    pub level: LogLevel,
    pub message: String,
}

#[derive(Debug, Clone)]
pub struct RunEnd {
    pub at: Timestamp,
    pub outcome: Outcome,
    /// The die of the retry's jitter, in `[0, 1)`.
    pub roll: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Completed {
        result: Option<Json>,
    },
    Failed {
        error: String,
        retry: bool,
    },
    TimedOut {
        error: String,
    },
    Cancelled {
        reason: Option<String>,
    },
    /// Its worker stopped beating, or no longer knows of it. Counts as an attempt: a poison job must not kill for ever.
    Lost {
        error: String,
    },
    /// Given back unfinished by a worker that drains, or never picked up. Does not count.
    Released,
}

impl Outcome {
    /// How the run is shown in the job's history.
    pub const fn ended_as(&self) -> ExecutionStatus {
        match self {
            Outcome::Completed { .. } => ExecutionStatus::Completed,
            Outcome::Failed { .. } => ExecutionStatus::Failed,
            Outcome::TimedOut { .. } => ExecutionStatus::TimedOut,
            Outcome::Cancelled { .. } => ExecutionStatus::Cancelled,
            Outcome::Lost { .. } => ExecutionStatus::Lost,
            Outcome::Released => ExecutionStatus::Released,
        }
    }

    /// Returns the result of a run that completed with one.
    pub fn result(&self) -> Option<&Json> {
        match self {
            Outcome::Completed { result } => result.as_ref(),
            _ => None,
        }
    }

    /// What went wrong, or why it was cancelled.
    pub fn error(&self) -> Option<&str> {
        match self {
            Outcome::Failed { error, .. } | Outcome::TimedOut { error } | Outcome::Lost { error } => Some(error),
            Outcome::Cancelled { reason } => reason.as_deref(),
            Outcome::Completed { .. } | Outcome::Released => None,
        }
    }

    /// Whether this only says again how a run ended: `ended`, with that `error` and `result`. A cancelled run is cancelled
    /// whatever the reason: its worker need not know the one that was given to the job.
    pub fn repeats(&self, ended: ExecutionStatus, error: Option<&str>, result: Option<&str>) -> bool {
        self.ended_as() == ended
            && match self {
                Outcome::Completed { result: said } => said.as_ref().map(Json::as_str) == result,
                Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. } => self.error() == error,
                Outcome::Cancelled { .. } | Outcome::Released => true,
            }
    }
}

impl RunReport {
    /// A report that says nothing yet.
    pub fn of(job: JobId, execution: ExecutionId) -> Self {
        RunReport {
            job,
            execution,
            worker: None,
            owner: None,
            handed_out_at: None,
            started_at: None,
            progress: None,
            logs: Vec::new(),
            end: None,
            by_channel: false,
        }
    }

    pub fn ended(mut self, at: Timestamp, outcome: Outcome, roll: f64) -> Self {
        self.end = Some(RunEnd { at, outcome, roll });
        self
    }
}
