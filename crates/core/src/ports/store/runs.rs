//! The arguments and results of the methods about runs.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{ExecutionId, JobId, JobType, NodeId, QueueName, WorkerId};
use crate::jobs::wire::Dispatch;
use crate::jobs::{Ownership, Status};

/// The result of a promotion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promoted {
    /// How many jobs became pending.
    pub count: usize,
    /// The queues of those jobs.
    pub queues: Vec<QueueName>,
    /// When the next scheduled job is due. `None` if there is none.
    pub next_due_at: Option<Timestamp>,
}

/// An order to dispatch: the runs that may be made, by queue.
#[derive(Debug, Clone)]
pub struct DispatchOrder {
    /// The present time, which becomes `dispatched_at`.
    pub now: Timestamp,
    /// The queues to dispatch from, in order.
    pub windows: Vec<Window>,
    /// Execution ids, one for each job that may be dispatched; the rest is not used.
    pub executions: Vec<ExecutionId>,
}

/// How many runs of a queue may be dispatched now.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// The queue.
    pub queue: QueueName,
    /// The number of runs.
    pub limit: usize,
    /// How long to keep a record of the granted runs for [`QueueStore::grants`](super::QueueStore::grants). `None`: no record.
    pub metered: Option<Duration>,
    /// The nodes that own the runs from the commit on. The first runs of the window, in the order of dispatch, belong
    /// to the first node, the next ones to the second, and so on; the rest have no owner yet.
    pub owners: Vec<OwnerShare>,
}

/// The part of a window that is for the workers of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerShare {
    /// The node.
    pub node: NodeId,
    /// The number of runs.
    pub runs: usize,
}

impl Window {
    /// Returns a window whose runs have no owner and of which no record is kept.
    pub fn new(queue: QueueName, limit: usize) -> Self {
        Window { queue, limit, metered: None, owners: Vec::new() }
    }

    /// Returns the owner of each run of the window, in the order of dispatch; `None` for those without.
    pub fn owner_of_each(&self) -> impl Iterator<Item = Option<&NodeId>> {
        let owned = self.owners.iter().flat_map(|share| std::iter::repeat_n(Some(&share.node), share.runs));
        owned.chain(std::iter::repeat(None)).take(self.limit)
    }
}

/// The result of a dispatch.
#[derive(Debug, Clone, Default)]
pub struct Dispatched {
    /// The new runs, for publication.
    pub runs: Vec<Dispatch>,
    /// One for each window, in order.
    pub queues: Vec<QueueDispatch>,
    /// Those of `runs` whose definition or arguments the store cannot read. They must not be sent: the leader ends them.
    pub unreadable: Vec<UnreadableRun>,
}

/// A run of a job whose stored definition or arguments cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRun {
    /// The job.
    pub job: JobId,
    /// The run.
    pub execution: ExecutionId,
    /// What cannot be read, and why.
    pub error: String,
}

/// The result of a dispatch for one queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueDispatch {
    /// The queue.
    pub queue: QueueName,
    /// How many jobs were dispatched.
    pub taken: usize,
    /// Pending jobs that are left, by the store's counter.
    pub pending: u64,
    /// The byte limit of the order was reached before the window was full: it may be ordered again at once.
    pub is_cut: bool,
}

/// The result of one report.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
    /// The report is recorded.
    Applied(Change),
    /// This run already ended with the same outcome, as the job's last run or one of its history. Nothing changed.
    /// Outcomes are the same if their kind, result and error are; a cancelled run may be reported with any reason or
    /// none.
    Duplicate,
    /// Another node owns the run, and the report is accepted from the owner only. Nothing changed.
    NotOwner,
    /// The job is unknown or has another run by now, or the run ended with another outcome, or it ended and the report
    /// has no end. Nothing changed.
    Stale,
}

/// A change of a run's owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Reassign {
    /// The job.
    pub job: JobId,
    /// The run; the change fails if it is no longer the present one.
    pub execution: ExecutionId,
    /// The owner that the change expects.
    pub from: NodeId,
    /// The change.
    pub to: Handover,
}

/// A step in the handoff of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handover {
    /// The owner `from` offers the run: the handoff begins.
    Offer,
    /// The owner `from` keeps the run: the handoff ends.
    Keep,
    /// The owner `from` found no other node: the run is left to the orphan detector.
    Orphan,
    /// This node takes the run over, if `from` still owns it, it has no owner, or it is an orphan.
    Take(NodeId),
}

/// The result of a change of owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reassigned {
    /// The change was made.
    Done,
    /// The owner is not as expected: it is this node, or none. After a take it may be the taker itself, which had the
    /// run already.
    OwnedBy(Option<NodeId>),
    /// The run has ended, or the job has another run, or is unknown.
    Over,
}

/// The effect of a report on its job. `attempt`, `due_at` and `started_at` are those of the reported run.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The job's new status.
    pub status: Status,
    /// The job's type.
    pub job_type: JobType,
    /// The job's queue.
    pub queue: QueueName,
    /// The number of the reported run.
    pub attempt: u32,
    /// From when it could have run.
    pub due_at: Timestamp,
    /// When the run started, if it did.
    pub started_at: Option<Timestamp>,
    /// When the job is due again, if it is to run again.
    pub retry_at: Option<Timestamp>,
}

/// Selects runs in flight. Empty fields select all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InFlightFilter {
    /// Runs of this worker.
    pub worker: Option<WorkerId>,
    /// Runs of this owner.
    pub owner: Option<NodeId>,
    /// Runs that were dispatched before this, are not running and have no known worker.
    pub unclaimed_before: Option<Timestamp>,
    /// Only runs without a known worker.
    pub without_worker: bool,
    /// Runs that were dispatched before this and have no known owner.
    pub unowned_before: Option<Timestamp>,
    /// Only runs that change their owner: in a handoff, or orphans.
    pub moving: bool,
    /// Only these runs; empty for all.
    pub executions: Vec<ExecutionId>,
}

/// The names in runs in flight.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holders {
    /// The workers, once each.
    pub workers: Vec<WorkerId>,
    /// The owners, once each.
    pub owners: Vec<NodeId>,
}

/// A run in flight: dispatched or running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    /// The job.
    pub job: JobId,
    /// The run.
    pub execution: ExecutionId,
    /// The job's type.
    pub job_type: JobType,
    /// The job's queue.
    pub queue: QueueName,
    /// The number of the run.
    pub attempt: u32,
    /// `dispatched` or `running`.
    pub status: Status,
    /// The worker that picked it up, if known.
    pub worker: Option<WorkerId>,
    /// The node that records its events, if known.
    pub owner: Option<NodeId>,
    /// Whether the owner holds it, hands it off or left it.
    pub ownership: Ownership,
    /// When the leader dispatched it.
    pub dispatched_at: Timestamp,
    /// When it times out. Only [`overdue`](super::RunStore::overdue) sets it.
    pub deadline: Option<Timestamp>,
}

/// The result of a search for overdue runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overdue {
    /// The overdue runs, the longest overdue first.
    pub runs: Vec<InFlight>,
    /// The next deadline of a run that is started or handed out and has a timeout. After `now`, unless `runs` is full.
    pub next_at: Option<Timestamp>,
}

/// The times before which ended jobs are deleted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cutoffs {
    /// For completed jobs.
    pub completed: Timestamp,
    /// For cancelled jobs.
    pub cancelled: Timestamp,
    /// For dead letters.
    pub dead: Timestamp,
}

/// The result of a deletion of ended jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    /// The number of deleted jobs.
    pub jobs: u64,
    /// Whether there may be more to delete now. Only true if the call deleted something.
    pub more: bool,
}
