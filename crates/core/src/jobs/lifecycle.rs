//! The states of a job and what may follow each.
//!
//! Everything that moves a job asks [`Status::to`], so that the table below is the only place that knows. A failed
//! attempt with retries left goes back to `scheduled` or `pending`; `failed` and `timedOut` mean that they are used up,
//! and are the dead letters. Those and `cancelled` can be redriven; `completed` is for good.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::retry::RetryPolicy;
use super::run::Outcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum Status {
    /// Known, not yet in the store.
    Created = 0,
    /// Due: waits for a free slot of a worker.
    Pending = 1,
    /// Waits for its time.
    Scheduled = 2,
    /// On its way to a worker.
    Dispatched = 3,
    /// A worker said that it started.
    Running = 4,
    Completed = 5,
    /// Its attempts are used up, or its worker said not to retry: a dead letter.
    Failed = 6,
    /// As `Failed`, the last attempt having run out of time.
    TimedOut = 7,
    Cancelled = 8,
}

use Status::*;

/// A move that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {} cannot become {}", from.as_str(), to.as_str())]
pub struct IllegalTransition {
    pub from: Status,
    pub to: Status,
}

impl Status {
    pub const ALL: [Status; 9] =
        [Created, Pending, Scheduled, Dispatched, Running, Completed, Failed, TimedOut, Cancelled];

    /// What may follow.
    pub const fn next(self) -> &'static [Status] {
        match self {
            Created => &[Pending, Scheduled, Cancelled],
            Pending => &[Dispatched, Cancelled],
            Scheduled => &[Pending, Cancelled],
            // A terminal event needs no `started` before it; back to `pending` when the run was lost or given back.
            Dispatched => &[Pending, Scheduled, Running, Completed, Failed, TimedOut, Cancelled],
            Running => &[Pending, Scheduled, Completed, Failed, TimedOut, Cancelled],
            Completed => &[],
            // Redriven by hand.
            Failed | TimedOut | Cancelled => &[Pending],
        }
    }

    pub fn to(self, to: Status) -> Result<Status, IllegalTransition> {
        if self.next().contains(&to) { Ok(to) } else { Err(IllegalTransition { from: self, to }) }
    }

    /// Neither ended nor only imagined.
    pub const fn is_live(self) -> bool {
        matches!(self, Created | Pending | Scheduled | Dispatched | Running)
    }

    /// A worker has it, or is about to.
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Dispatched | Running)
    }

    pub const fn is_dead_letter(self) -> bool {
        matches!(self, Failed | TimedOut)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Created => "created",
            Pending => "pending",
            Scheduled => "scheduled",
            Dispatched => "dispatched",
            Running => "running",
            Completed => "completed",
            Failed => "failed",
            TimedOut => "timedOut",
            Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The number a store keeps.
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Status> {
        Status::ALL.get(usize::from(code)).copied()
    }
}

/// What becomes of a job when one of its runs ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    Final(Status),
    /// Another run, not before `due_at`. A run that was given back does not count as an attempt.
    Again {
        due_at: Timestamp,
        counted: bool,
    },
}

/// What a store must know of a job to end a run of it.
#[derive(Debug, Clone, Copy)]
pub struct Budget<'a> {
    /// The run that ends: 1 for the first since the job was enqueued or redriven.
    pub tries: u32,
    pub max_retries: u32,
    pub policy: &'a RetryPolicy,
}

/// Decides what follows a run's end at `at`; `roll` in `[0, 1)` is the jitter's die.
pub fn after(outcome: &Outcome, budget: Budget<'_>, at: Timestamp, roll: f64) -> Next {
    let again = |delay| Next::Again { due_at: at + delay, counted: true };
    let exhausted = budget.tries > budget.max_retries;
    match outcome {
        Outcome::Completed { .. } => Next::Final(Completed),
        Outcome::Cancelled { .. } => Next::Final(Cancelled),
        Outcome::Failed { retry: false, .. } => Next::Final(Failed),
        Outcome::Failed { .. } | Outcome::Lost { .. } if exhausted => Next::Final(Failed),
        Outcome::TimedOut { .. } if exhausted => Next::Final(TimedOut),
        // A lost run was the worker's end, not the job's failure: no reason to wait.
        Outcome::Lost { .. } => again(std::time::Duration::ZERO),
        Outcome::Failed { .. } | Outcome::TimedOut { .. } => again(budget.policy.delay(budget.tries, roll)),
        Outcome::Released => Next::Again { due_at: at, counted: false },
    }
}
