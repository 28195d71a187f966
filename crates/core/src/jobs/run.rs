//! Reports of a run: claimed, started, progress, log lines, its end.
//!
//! Reports of one run are merged, so that a short job costs a single write: `started`, its log lines and its end are
//! stored as one [`RunReport`].

use jiff::Timestamp;

use super::job::{ExecutionStatus, LogLevel, Progress};
use crate::ids::{ExecutionId, JobId, NodeId, WorkerId};
use crate::json::Json;
use crate::mutant::mutant;

/// A merged report of one run. Its fence is `execution`: a store rejects it if the job has another present run.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The job of the run.
    pub job: JobId,
    /// The run.
    pub execution: ExecutionId,
    /// The worker that has the run. None: not known.
    pub worker: Option<WorkerId>,
    /// The node that records this run. None: the report needs no owner.
    pub owner: Option<Claim>,
    /// When a gateway sent the run to its worker. The timeout of a run that never reports `started` counts from then.
    pub handed_out_at: Option<Timestamp>,
    /// When the worker started the run.
    pub started_at: Option<Timestamp>,
    /// The last progress.
    pub progress: Option<Progress>,
    /// New log lines, in their order.
    pub logs: Vec<NewLog>,
    /// How the run ended. None: it goes on.
    pub end: Option<RunEnd>,
    /// Whether the events came over the job's channels on the bus, which must be closed later. False: over a gateway.
    pub by_channel: bool,
}

/// How a node becomes the owner of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The gateway of the node handed the run out: the node replaces any owner.
    Take(NodeId),
    /// The node was assigned the run or reads its channels: the report counts only if no other node owns the run.
    IfFree(NodeId),
}

impl Claim {
    /// Returns the node that claims the run.
    pub fn node(&self) -> &NodeId {
        match self {
            Claim::Take(node) | Claim::IfFree(node) => node,
        }
    }

    /// Returns whether a report with this claim is rejected if `owner` owns the run.
    pub fn yields_to(&self, owner: Option<&NodeId>) -> bool {
        match self {
            Claim::Take(_) => false,
            Claim::IfFree(node) => owner.is_some_and(|owner| owner != node) && !mutant("owner on channel events"),
        }
    }
}

/// A log line to record.
#[derive(Debug, Clone)]
pub struct NewLog {
    /// The number of the line within its run, rising in the order of sending, so that a repeated line is recorded once.
    /// None: the worker does not number its lines, and a repeated report repeats them.
    pub seq: Option<u64>,
    /// When the line was logged.
    pub at: Timestamp,
    /// The level of the line.
    pub level: LogLevel,
    /// The text of the line.
    pub message: String,
}

/// The end of a run.
#[derive(Debug, Clone)]
pub struct RunEnd {
    /// When the run ended.
    pub at: Timestamp,
    /// How the run ended.
    pub outcome: Outcome,
    /// The random number of the jitter of a retry, in `[0, 1)`.
    pub roll: f64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The worker reported success.
    Completed {
        /// The result, if the run has one.
        result: Option<Json>,
    },
    /// The worker reported an error.
    Failed {
        /// The text of the error.
        error: String,
        /// False: no further attempt.
        retry: bool,
    },
    /// The run exceeded its timeout.
    TimedOut {
        /// The text of the error.
        error: String,
    },
    /// The run was cancelled.
    Cancelled {
        /// The reason, if one was given.
        reason: Option<String>,
    },
    /// The worker is silent, or no longer names the run. Counts as an attempt, so that a job cannot crash workers for
    /// ever.
    Lost {
        /// The text of the error.
        error: String,
    },
    /// Returned unfinished by a worker that drains, or received by no worker. Does not count as an attempt.
    Released,
}

impl Outcome {
    /// Returns the status of the run in the job's history.
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

    /// Returns the error, or the reason of the cancellation.
    pub fn error(&self) -> Option<&str> {
        match self {
            Outcome::Failed { error, .. } | Outcome::TimedOut { error } | Outcome::Lost { error } => Some(error),
            Outcome::Cancelled { reason } => reason.as_deref(),
            Outcome::Completed { .. } | Outcome::Released => None,
        }
    }

    /// Returns whether this outcome is the same as the recorded one: `ended`, with `error` and `result`. The reason of
    /// a cancellation is not compared, because the worker may not know the one that is recorded.
    pub fn repeats(&self, ended: ExecutionStatus, error: Option<&str>, result: Option<&str>) -> bool {
        self.ended_as() == ended
            && match self {
                Outcome::Completed { result: own } => own.as_ref().map(Json::as_str) == result,
                Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. } => self.error() == error,
                Outcome::Cancelled { .. } | Outcome::Released => true,
            }
    }
}

impl RunReport {
    /// Returns an empty report.
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

    /// Returns the report with this end. `roll` is [`RunEnd::roll`].
    pub fn ended(mut self, at: Timestamp, outcome: Outcome, roll: f64) -> Self {
        self.end = Some(RunEnd { at, outcome, roll });
        self
    }
}
