//! The truth: jobs, runs, schedules, queues, workers, nodes, the roster of shard workers and the sealed epoch.
//!
//! Every verb is one transaction. What somebody is told of as done (an enqueue, a report, a cancellation, a seal) is durable
//! when the verb answers. What is only bookkeeping of the coordinator's own (promotions, dispatches, heartbeats, cleaning
//! up) survives the process; a machine that loses power may forget it, but then also all that came after it.
//!
//! Verbs that only a leader may use take its [`Fence`] and compare it inside the transaction; verbs about a run compare its
//! `ExecutionId`. A verb takes a slice and gives a vector of the same length and order, unless it says otherwise. Adapters
//! decide nothing about jobs: what follows a run's end is [`lifecycle::after`](crate::jobs::lifecycle::after)'s to say.

mod fence;
mod records;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::byte_budget::ByteBudget;
use crate::error::Result;
use crate::ids::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, ScheduleName, WorkerId};
use crate::jobs::link::Enqueued;
pub use crate::jobs::listing::JobQuery;
use crate::jobs::schedule::Schedule;
use crate::jobs::wire::{Dispatch, NodeState};
use crate::jobs::{Execution, Job, LogLine, NewJob, Ownership, Queue, QueuePatch, RunReport, Status};
use crate::limits::PAGE_BYTES_MAX;
use crate::shards::{RosterChange, ShardMember};

pub use fence::Fence;
pub use records::{NodeRecord, WorkerRecord};

pub trait Store:
    EpochStore + JobStore + RunStore + QueueStore + ScheduleStore + WorkerStore + NodeStore + RosterStore
{
}

impl<T> Store for T where
    T: EpochStore + JobStore + RunStore + QueueStore + ScheduleStore + WorkerStore + NodeStore + RosterStore
{
}

#[async_trait]
pub trait EpochStore: Send + Sync {
    /// Raises the sealed epoch to `epoch`: from then on no write with a lower one commits. `Fenced` if it is there
    /// already or above. For engines to implement; whoever wants to lead calls [`seal`](Self::seal).
    async fn raise_seal(&self, epoch: Epoch) -> Result<()>;
    /// Seals `epoch` and returns the fence for the writes of its leader. Nothing else makes a [`Fence`].
    async fn seal(&self, epoch: Epoch) -> Result<Fence> {
        self.raise_seal(epoch).await?;
        Ok(Fence::sealed(epoch))
    }
    async fn sealed(&self) -> Result<Epoch>;
    /// Whether a write would be taken now.
    async fn ping(&self) -> Result<()>;
    /// Where it is, for people to read and without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// Whether what it has confirmed outlives the process.
    fn is_lasting(&self) -> bool {
        true
    }
    /// Whether nobody but this process can have it open: then other nodes in its registry are dead.
    fn is_exclusive(&self) -> bool {
        false
    }
    /// Returns a handle to the same store for what clients request, if the store keeps connections for clients apart from
    /// those of the coordinator's duties. `None`: this handle is for both.
    fn for_clients(&self) -> Option<Arc<dyn Store>> {
        None
    }
}

/// What clients do.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// All or nothing. A job whose id is known, or whose unique key is taken (by a live job, or until that job's
    /// `unique_until`, even if it is gone), or whose schedule's tick has its job, is not created: the answer names the
    /// one that is there. Holds within a batch as well. `created_at` is the time that `unique_until` is compared with.
    /// `Invalid` where a queue would be one too many.
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>>;
    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>>;
    /// Newest first: the last that was stored. Looks at a bounded number of rows and returns at most
    /// [`PAGE_BYTES_MAX`] bytes of arguments, results and errors (but at least one job that
    /// was found): a page may be short, even empty, and still have a cursor.
    async fn list(&self, query: JobQuery) -> Result<JobPage>;
    /// Runs of a job, oldest first, the present one included, without the first `after`: at most `limit`, and at most
    /// [`PAGE_BYTES_MAX`] bytes of errors (but at least one run). Empty where the job is
    /// unknown.
    async fn history(&self, id: JobId, after: u64, limit: usize) -> Result<HistoryPage>;
    /// Lines with `seq > after`, in order: at most `limit`, and at most
    /// [`LOG_PAGE_BYTES_MAX`](crate::limits::LOG_PAGE_BYTES_MAX) bytes of messages (but at least one line). Only an empty
    /// page says that there are no more.
    async fn logs(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>>;
    /// Ends live jobs as cancelled, whatever they are doing; the reason becomes the job's error.
    async fn cancel(&self, ids: &[JobId], reason: Option<&str>, now: Timestamp) -> Result<Vec<Cancelled>>;
    /// Makes ended jobs pending again, at once, with a fresh budget of retries. Their attempts and history go on, and
    /// they take their unique key again.
    async fn redrive(&self, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>>;
    /// Deletes dead letters: those of `ids` that are one, with their history and logs. Answers how many were. Many log lines
    /// are deleted in several transactions, before their job.
    async fn purge(&self, ids: &[JobId]) -> Result<u64>;
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobPage {
    pub jobs: Vec<Job>,
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryPage {
    pub runs: Vec<Execution>,
    /// The `after` of the next page, if there may be one.
    pub next_after: Option<u64>,
}

impl HistoryPage {
    /// Takes a page off `runs`, which begin with the one at `after`.
    pub fn of<E>(after: u64, limit: usize, runs: impl IntoIterator<Item = Result<Execution, E>>) -> Result<Self, E> {
        let mut budget = ByteBudget::new(PAGE_BYTES_MAX);
        let mut page = HistoryPage::default();
        for run in runs {
            let run = run?;
            if page.runs.len() == limit.max(1) || !budget.admits(run.error.as_ref().map_or(0, String::len)) {
                page.next_after = Some(after + page.runs.len() as u64);
                break;
            }
            page.runs.push(run);
        }
        Ok(page)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cancelled {
    /// It was live. `run` is what was in flight, for its worker to be told.
    Now {
        job: Job,
        run: Option<ExecutionId>,
    },
    /// It had ended before, as the job says.
    Before(Job),
    Unknown,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Redriven {
    Pending(Job),
    /// It is live, or completed: nothing to redrive; or another job has its unique key by now.
    Refused(Job),
    Unknown,
}

/// A job's runs, from dispatch to end.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Makes scheduled jobs that are due pending: at most `limit`.
    async fn promote(&self, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted>;
    /// Gives pending jobs of each queue, at most as many as its window, an execution id each and marks them dispatched.
    /// Serves by [`Priority::rank`](crate::jobs::Priority::rank), first stored first among equals of one priority; skips
    /// paused queues; respects a queue's concurrency. Takes at most
    /// [`DISPATCH_BYTES_MAX`](crate::limits::DISPATCH_BYTES_MAX) bytes of arguments over all windows, in their order, but at
    /// least one job.
    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched>;
    /// What runs say of themselves. Each report stands alone: one that is stale changes nothing and hinders no other.
    ///
    /// A worker that is named is noted. So is an owner, and the job is then owned, unless the claim is
    /// [`IfFree`](crate::jobs::Claim::IfFree) and another owns it: such a report changes nothing at all. An owner that is
    /// named again leaves a handoff in progress as it is. `started_at` makes a dispatched job
    /// running, and the first one stands; the run's time is up its timeout after that. Until a run has started, it is
    /// up its timeout after `handed_out_at`, which leaves the job dispatched. At the end of a run that is to be
    /// followed by another, the job forgets what was the run's alone (execution, worker, owner, progress, times), which
    /// goes to the history; its `error` stays until a run ends otherwise; its `scheduled_at` is when a retry that waits
    /// is due (of a schedule's job it stays the tick). A job that ends for good, here or by a cancellation, is unowned;
    /// its owner stays as the record of who wrote it. It needs no channels cleaned where it was never dispatched, or
    /// where its first run was its only one and `record` heard all of it by a gateway.
    ///
    /// Of the lines of a run's log those are recorded that [`RunLog::take`](crate::jobs::run_log::RunLog::take) takes: each
    /// number once, and no more than the limit.
    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>>;
    /// The same, said by the leader of runs that no longer speak: lost, timed out, never picked up. It cannot know whether
    /// they opened channels.
    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>>;
    /// Moves the ownership of runs in flight. Each change stands alone, and is made only where the run is still the job's
    /// and its owner is as expected: of two nodes that want one run, one has it.
    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>>;
    /// Runs in flight, by job id. Not paged by offset: `after` is the last job of the page before. Without any filter but
    /// `executions` all runs in flight are read; with one, only runs that this filter may match: of the worker, of the owner,
    /// `moving`, or without a worker or an owner.
    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>>;
    /// Returns the workers and the owners that runs in flight name, once each, without reading all runs.
    async fn holders(&self) -> Result<Holders>;
    /// Runs whose time is up, the longest overdue first.
    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Overdue>;
    /// Ended jobs whose channels are not cleaned and that ended before `before`, the longest ended first.
    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>>;
    /// Marks as cleaned those of `ids` that ended before `before` and were not, and returns them. The others are passed over:
    /// they run again, or did and ended since. Channels are closed only of jobs that are returned.
    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>>;
    /// Deletes jobs that ended before their kind's cutoff and whose channels are cleaned, with their history and logs: one
    /// [`slice`](crate::jobs::retention::slice) of at most `rows_max` rows, so that no call takes long. Log lines are
    /// deleted before their job. Also deletes unique keys that were reserved and are free by then.
    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired>;
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promoted {
    /// How many became pending.
    pub count: usize,
    /// In which queues.
    pub queues: Vec<QueueName>,
    /// When the next one is due, where one waits.
    pub next_due_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct DispatchOrder {
    pub now: Timestamp,
    pub windows: Vec<Window>,
    /// One for each job that could be dispatched; those left over are not used.
    pub executions: Vec<ExecutionId>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    pub queue: QueueName,
    pub limit: usize,
    /// Keep a record of what was granted for so long, for [`QueueStore::grants`]. `None`: keep none.
    pub metered: Option<Duration>,
}

#[derive(Debug, Clone, Default)]
pub struct Dispatched {
    pub runs: Vec<Dispatch>,
    /// One for each window, in order.
    pub queues: Vec<QueueDispatch>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct QueueDispatch {
    pub queue: QueueName,
    pub taken: usize,
    /// Pending jobs that are left: by the store's counter.
    pub pending: u64,
    /// The bytes of the order were used up before the window was full: it may be ordered again at once.
    pub is_cut: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
    Applied(Change),
    /// The run already ended with the same outcome, be it the job's last run or one of its history. Nothing changed. An outcome
    /// is the same if its kind, result and error are; a cancelled run may be reported with any reason or none.
    Duplicate,
    /// Another node owns the run, and the report is accepted from the owner only. Nothing changed.
    NotOwner,
    /// The job is unknown or has another run by now, or the run ended with another outcome, or it ended and the report has no
    /// end. Nothing changed.
    Stale,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Reassign {
    pub job: JobId,
    pub execution: ExecutionId,
    /// Who gives it away.
    pub from: NodeId,
    pub to: Handover,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handover {
    /// `from`, the owner, offers it: it is being handed off.
    Offer,
    /// `from`, the owner, keeps it after all.
    Keep,
    /// `from`, the owner, found nobody: the orphan detector is to see to it.
    Orphan,
    /// This node takes it: where `from` still owns it, nobody does, or it was left as an orphan.
    Take(NodeId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reassigned {
    Done,
    /// Not as expected: this node owns it, or nobody does. Of a take: the taker itself where it has it already.
    OwnedBy(Option<NodeId>),
    /// The run is over, or the job has another by now, or is unknown.
    Over,
}

/// What a report did to its job; `attempt`, `due_at` and `started_at` are those of the run that was reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub status: Status,
    pub job_type: JobType,
    pub queue: QueueName,
    pub attempt: u32,
    /// Since when it could have run.
    pub due_at: Timestamp,
    pub started_at: Option<Timestamp>,
    /// Where the job is to run again: when.
    pub retry_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct InFlightFilter {
    pub worker: Option<WorkerId>,
    pub owner: Option<NodeId>,
    /// Dispatched before this, not running, and no worker is known to have picked it up.
    pub unclaimed_before: Option<Timestamp>,
    /// No worker is known to have picked it up.
    pub without_worker: bool,
    /// Dispatched before this, and no node is known to own it.
    pub unowned_before: Option<Timestamp>,
    /// On their way from one owner to another: being handed off, or left as orphans.
    pub moving: bool,
    /// One of these; empty for all.
    pub executions: Vec<ExecutionId>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holders {
    pub workers: Vec<WorkerId>,
    pub owners: Vec<NodeId>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    pub job: JobId,
    pub execution: ExecutionId,
    pub job_type: JobType,
    pub queue: QueueName,
    pub attempt: u32,
    pub status: Status,
    pub worker: Option<WorkerId>,
    pub owner: Option<NodeId>,
    pub ownership: Ownership,
    pub dispatched_at: Timestamp,
    /// When its time is up. Only [`overdue`](RunStore::overdue) tells.
    pub deadline: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overdue {
    pub runs: Vec<InFlight>,
    /// When the next run's time is up, where one that has a timeout runs or was handed out. Not before `now` once `runs` is not full.
    pub next_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cutoffs {
    pub completed: Timestamp,
    pub cancelled: Timestamp,
    pub dead: Timestamp,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    /// The number of jobs that were deleted.
    pub jobs: u64,
    /// Whether there may be more to delete now. Only true if the call deleted something.
    pub more: bool,
}

#[async_trait]
pub trait QueueStore: Send + Sync {
    /// All of them, by name.
    async fn queues(&self) -> Result<Vec<Queue>>;
    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>>;
    /// Changes a queue, and creates it where it is new.
    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue>;
    /// Deletes a queue that has no jobs, with its settings; its next job creates it again. Returns whether there was one.
    /// `Conflict` if it has jobs.
    async fn delete_queue(&self, name: &QueueName) -> Result<bool>;
    /// Returns what metered windows of a queue, or of all queues, were granted since `since`, oldest first: so that a rate limit
    /// holds across a change of leader. The next metered window of a queue may forget what is older than it asks to keep.
    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>>;
}

#[async_trait]
pub trait ScheduleStore: Send + Sync {
    /// Creates or replaces by name. Answers whether it is new.
    async fn put_schedule(&self, schedule: Schedule) -> Result<bool>;
    /// Replaces `known` with `schedule`, which has its name. Returns false and changes nothing if the stored one is no longer
    /// as `known`: it has ticked, was replaced or removed since it was read.
    async fn replace_schedule(&self, known: &Schedule, schedule: Schedule) -> Result<bool>;
    async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>>;
    /// All of them, by name.
    async fn schedules(&self) -> Result<Vec<Schedule>>;
    async fn remove_schedule(&self, name: &ScheduleName) -> Result<bool>;
    /// Schedules whose `next_run_at` has come, the earliest first: at most `limit`, and about
    /// [`PAGE_BYTES_MAX`] bytes of arguments (but at least one).
    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<DueSchedules>;
    /// Makes one job for each (schedule, tick) and moves the schedule on, where it is still at `expected`. A tick that has
    /// its job makes no second; with `skip_overlap` a tick while a job of the schedule is live makes none, be that one of
    /// the same call. `last_run_at` becomes the last tick that made a job.
    async fn tick(&self, fence: Fence, ticks: Vec<Tick>) -> Result<Vec<Ticked>>;
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct DueSchedules {
    pub due: Vec<Schedule>,
    /// When the next one is due, where one waits beyond these.
    pub next_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct Tick {
    pub schedule: ScheduleName,
    /// The `next_run_at` that the plan was made from.
    pub expected: Timestamp,
    /// The jobs of the ticks, oldest first; `run_at` is the tick.
    pub jobs: Vec<NewJob>,
    pub skip_overlap: bool,
    pub next_run_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ticked {
    /// What was made: may be less than asked, by overlap or because a tick had its job.
    pub made: Vec<JobId>,
    /// False where the schedule had moved on, was replaced, paused or removed: nothing was done.
    pub moved: bool,
}

#[async_trait]
pub trait WorkerStore: Send + Sync {
    /// Adds or replaces, by id.
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()>;
    /// All of them, by id.
    async fn workers(&self) -> Result<Vec<WorkerRecord>>;
    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>>;
    /// By the leader, which declares them dead, with its fence; without one when they leave by themselves.
    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()>;
}

#[async_trait]
pub trait NodeStore: Send + Sync {
    /// Adds or replaces, by id.
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()>;
    /// Returns all of them by id, those that are gone included.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;
    /// Marks a node as gone: `Dead` by the leader, with its fence; `Left` by the node itself, without one. It stays listed
    /// until it is forgotten or beats again. Not an error if it is unknown.
    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()>;
    /// Deletes those of `ids` that are gone. A node that has come back stays.
    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()>;
}

/// The workers that may hold shards. See [`Roster`](crate::shards::Roster).
#[async_trait]
pub trait RosterStore: Send + Sync {
    /// Adds rows that are missing and removes rows that are there. Durable when it returns: a coordinator that was told so
    /// sends shards to the workers it added.
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()>;
    /// Returns all rows, by service, then by worker.
    async fn shard_roster(&self) -> Result<Vec<ShardMember>>;
}
