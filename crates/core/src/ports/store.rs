//! The truth: jobs, runs, schedules, queues, workers, nodes, the roster of shard workers, the sealed epoch, the
//! record of operators' acts and the values that all nodes share.
//!
//! Every method is one transaction. An enqueue, a report, a cancellation and a seal are durable when the method
//! returns, because its caller reports them as done. Promotions, dispatches, heartbeats and deletions are internal:
//! they survive a crash of the process; after a power failure they may be lost, but then so are all later writes.
//!
//! Methods that only a leader may call take its [`Fence`] and compare it inside the transaction; methods about a run
//! compare its `ExecutionId`. A method that takes a slice returns a vector of the same length and order, unless its doc
//! differs. Adapters decide nothing about jobs: [`lifecycle::after`](crate::jobs::lifecycle::after) decides what
//! follows the end of a run.

mod audit;
mod fence;
mod records;
mod runs;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::byte_budget::ByteBudget;
use crate::error::Result;
use crate::ids::{Epoch, ExecutionId, JobId, NodeId, QueueName, ScheduleName, WorkerId};
use crate::jobs::link::Enqueued;
pub use crate::jobs::listing::JobQuery;
use crate::jobs::schedule::Schedule;
use crate::jobs::wire::NodeState;
use crate::jobs::{Execution, Job, LogLine, NewJob, Queue, QueuePatch, RunReport, Status};
use crate::limits::PAGE_BYTES_MAX;
use crate::mutant::mutant;
use crate::shards::{RosterChange, ShardMember};

pub use audit::{AuditStore, ValueStore};
pub use fence::Fence;
pub use records::{NodeRecord, WorkerRecord};
pub use runs::{
    Change, Cutoffs, DispatchOrder, Dispatched, Expired, Handover, Holders, InFlight, InFlightFilter, Overdue,
    OwnerShare, Promoted, QueueDispatch, Reassign, Reassigned, Recorded, UnreadableRun, Window,
};

/// All methods of a store.
pub trait Store:
    EpochStore
    + JobStore
    + RunStore
    + QueueStore
    + ScheduleStore
    + WorkerStore
    + NodeStore
    + RosterStore
    + AuditStore
    + ValueStore
{
}

impl<T> Store for T where
    T: EpochStore
        + JobStore
        + RunStore
        + QueueStore
        + ScheduleStore
        + WorkerStore
        + NodeStore
        + RosterStore
        + AuditStore
        + ValueStore
{
}

/// The sealed epoch, and the properties of the store.
#[async_trait]
pub trait EpochStore: Send + Sync {
    /// Raises the sealed epoch to `epoch`: from then on no write with a lower one commits. `Fenced` if it is there
    /// already or above. For engines to implement; whoever wants to lead calls [`seal`](Self::seal).
    async fn raise_seal(&self, epoch: Epoch) -> Result<()>;
    /// Seals `epoch` and returns the fence for the writes of its leader. Nothing else makes a [`Fence`].
    async fn seal(&self, epoch: Epoch) -> Result<Fence> {
        if !mutant("seal before the first write") {
            self.raise_seal(epoch).await?;
        }
        Ok(Fence::sealed(epoch))
    }
    /// Returns the highest sealed epoch.
    async fn sealed(&self) -> Result<Epoch>;
    /// Checks that a write would be accepted now.
    async fn ping(&self) -> Result<()>;
    /// Returns the store's address for display, without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// Returns whether confirmed writes outlive the process.
    fn is_lasting(&self) -> bool {
        true
    }
    /// Returns whether only this process can have the store open: then other nodes in its registry are dead.
    fn is_exclusive(&self) -> bool {
        false
    }
    /// Returns a handle to the same store for clients' requests, if the store keeps connections for clients apart from
    /// those of the coordinator's duties. `None`: this handle is for both.
    fn for_clients(&self) -> Option<Arc<dyn Store>> {
        None
    }
}

/// The requests of clients.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Inserts all jobs or none. A job is not created if its id is known, if its unique key is taken (by a live job, or
    /// until that job's `unique_until`, even if it is deleted), or if its schedule's tick has a job; the result then
    /// names the existing job. The same holds within a batch. `unique_until` is compared with `created_at`. `Invalid`
    /// if there would be too many queues.
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>>;
    /// Returns the jobs with these ids; `None` for an unknown one.
    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>>;
    /// Returns jobs, the last stored first. Reads a bounded number of rows and returns at most [`PAGE_BYTES_MAX`] bytes
    /// of arguments, results and errors (but at least one job that was found): a page may be short, even empty, and
    /// still have a cursor.
    async fn list(&self, query: JobQuery) -> Result<JobPage>;
    /// Counts the jobs that [`list`](Self::list) would return, at most `limit` of them, without reading them. Reads a
    /// bounded number of rows: a count may be low, even zero, and still have a cursor.
    async fn count(&self, query: JobQuery) -> Result<JobCount>;
    /// Returns the runs of a job, oldest first, the present one included, without the first `after`: at most `limit`,
    /// and at most [`PAGE_BYTES_MAX`] bytes of errors (but at least one run). Empty if the job is unknown.
    async fn history(&self, id: JobId, after: u64, limit: usize) -> Result<HistoryPage>;
    /// Returns log lines with `seq > after`, in order: at most `limit`, and at most
    /// [`LOG_PAGE_BYTES_MAX`](crate::limits::LOG_PAGE_BYTES_MAX) bytes of messages (but at least one line). Only an
    /// empty page shows that there are no more.
    async fn logs(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>>;
    /// Ends live jobs as cancelled, in any state; the reason becomes the job's error.
    async fn cancel(&self, ids: &[JobId], reason: Option<&str>, now: Timestamp) -> Result<Vec<Cancelled>>;
    /// Makes ended jobs pending again, due now, with all their retries. Their attempts and history continue, and they
    /// take their unique key again.
    async fn redrive(&self, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>>;
    /// Deletes those of `ids` that have ended with one of `statuses`, with their history and logs; a live job stays,
    /// whatever `statuses` has. Returns how many were deleted. Many log lines are deleted in several transactions, before
    /// their job.
    async fn purge(&self, ids: &[JobId], statuses: &[Status]) -> Result<u64>;
}

/// A page of jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobPage {
    /// The jobs, the last stored first.
    pub jobs: Vec<Job>,
    /// The cursor of the next page. `None` on the last page.
    pub next_cursor: Option<String>,
}

/// A part of the number of jobs that match a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobCount {
    /// The jobs that were counted.
    pub jobs: u64,
    /// The cursor from which the count goes on. `None` if all were counted.
    pub next_cursor: Option<String>,
}

/// A page of a job's runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryPage {
    /// The runs, oldest first.
    pub runs: Vec<Execution>,
    /// The `after` of the next page, if there may be one.
    pub next_after: Option<u64>,
}

impl HistoryPage {
    /// Takes a page from `runs`, which begin with the one at `after`.
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

/// The result of a cancellation.
#[derive(Debug, Clone, PartialEq)]
pub enum Cancelled {
    /// The job was live, and is cancelled now.
    Now {
        /// The job as it is now.
        job: Job,
        /// The run that was in flight, for the message to its worker.
        run: Option<ExecutionId>,
    },
    /// The job had already ended.
    Before(Job),
    /// There is no such job.
    Unknown,
}

/// The result of a redrive.
#[derive(Debug, Clone, PartialEq)]
pub enum Redriven {
    /// The job is pending again.
    Pending(Job),
    /// Rejected: the job is live or completed, or another job has its unique key by now.
    Refused(Job),
    /// There is no such job.
    Unknown,
}

/// A job's runs, from dispatch to end.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Makes scheduled jobs that are due pending: at most `limit`.
    async fn promote(&self, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted>;
    /// Gives pending jobs of each queue, at most as many as its window, an execution id each and marks them dispatched.
    /// The order is [`Priority::rank`](crate::jobs::Priority::rank), then first stored first among jobs of one
    /// priority. Skips paused queues; respects a queue's concurrency. Takes at most
    /// [`DISPATCH_BYTES_MAX`](crate::limits::DISPATCH_BYTES_MAX) bytes of arguments over all windows, in their order,
    /// but at least one job. A run whose window names its owner belongs to that node from the commit on.
    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched>;
    /// Records the reports of runs. Each report stands alone: a stale one changes nothing and does not affect the
    /// others.
    ///
    /// - A worker in the report is stored as the run's worker.
    /// - An owner in the report becomes the job's owner, unless the claim is [`IfFree`](crate::jobs::Claim::IfFree) and
    ///   another node owns it: such a report changes nothing at all. A report of the present owner leaves a handoff in
    ///   progress as it is.
    /// - `started_at` makes a dispatched job running; the first one counts. The run's deadline is its timeout after
    ///   that. Until a run has started, its deadline is its timeout after `handed_out_at`, which leaves the job
    ///   dispatched.
    /// - If another run follows, the run's own fields (execution, worker, owner, progress, times) move from the job to
    ///   the history. The job's `error` stays until a run ends otherwise; its `scheduled_at` is when a waiting retry is
    ///   due (for a schedule's job it stays the tick).
    /// - A job that has ended, here or by a cancellation, is unowned; its owner stays as the record of the node that
    ///   wrote it. Its channels need no cleaning if it was never dispatched, or if its first run was its only one and
    ///   `record` received all of it from a gateway.
    /// - Of the run's log lines, [`RunLog::take`](crate::jobs::run_log::RunLog::take) selects those that are recorded:
    ///   each number once, and no more than the limit.
    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>>;
    /// Ends runs on the leader's authority: lost, timed out or never started. Fenced by the epoch. Their channels are
    /// always cleaned, because the leader cannot know whether they opened any.
    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>>;
    /// Moves the ownership of runs in flight. Each change stands alone, and is made only if the run is still the job's
    /// and its owner is as expected: of two nodes that want one run, one gets it.
    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>>;
    /// Returns runs in flight, by job id; `after` is the last job of the previous page. Without any filter but
    /// `executions` all runs in flight are read; with one, only runs that this filter may match: of the worker, of the
    /// owner, `moving`, or without a worker or an owner.
    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>>;
    /// Returns the workers and the owners of runs in flight, once each, without reading all runs.
    async fn holders(&self) -> Result<Holders>;
    /// Returns the runs whose deadline has passed, the longest overdue first.
    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Overdue>;
    /// Returns ended jobs whose channels are not cleaned and that ended before `before`, the longest ended first.
    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>>;
    /// Marks as cleaned those of `ids` that ended before `before` and were not cleaned, and returns them. Others run
    /// again, or have ended again since. The caller closes the channels of the returned jobs only.
    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>>;
    /// Deletes jobs that ended before their kind's cutoff and whose channels are cleaned, with their history and logs:
    /// one [`slice`](crate::jobs::retention::slice) of at most `rows_max` rows, so that no call takes long. Log lines
    /// are deleted before their job. Also deletes reserved unique keys whose time has passed.
    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired>;
}

/// The queues and their settings.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// Returns all queues, by name.
    async fn queues(&self) -> Result<Vec<Queue>>;
    /// Returns a queue; `None` if it is unknown.
    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>>;
    /// Changes a queue's settings, and creates the queue if it is new.
    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue>;
    /// Deletes a queue that has no jobs, with its settings; its next job creates it again. Returns whether there was
    /// one. `Conflict` if it has jobs.
    async fn delete_queue(&self, name: &QueueName) -> Result<bool>;
    /// Returns how many runs metered windows of a queue, or of all queues, were granted since `since`, oldest first, so
    /// that a rate limit holds across a change of leader. The next metered window of a queue may delete records that
    /// are older than it asks to keep.
    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>>;
}

/// The schedules.
#[async_trait]
pub trait ScheduleStore: Send + Sync {
    /// Creates or replaces a schedule by name. Returns whether it is new.
    async fn put_schedule(&self, schedule: Schedule) -> Result<bool>;
    /// Replaces `known` with `schedule`, which has the same name. Returns false and changes nothing if the stored one
    /// differs from `known`: it has ticked, was replaced or removed since it was read.
    async fn replace_schedule(&self, known: &Schedule, schedule: Schedule) -> Result<bool>;
    /// Returns a schedule; `None` if it is unknown.
    async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>>;
    /// Returns all schedules, by name.
    async fn schedules(&self) -> Result<Vec<Schedule>>;
    /// Removes a schedule. Returns whether there was one.
    async fn remove_schedule(&self, name: &ScheduleName) -> Result<bool>;
    /// Returns schedules whose `next_run_at` has passed, the earliest first: at most `limit`, and about
    /// [`PAGE_BYTES_MAX`] bytes of arguments (but at least one).
    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<DueSchedules>;
    /// Makes one job for each (schedule, tick) and moves the schedule on, if it is still at `expected`. A tick that has
    /// a job makes no second one. With `skip_overlap`, a tick makes none while a job of the schedule is live, including
    /// one of the same call. `last_run_at` becomes the last tick that made a job.
    async fn tick(&self, fence: Fence, ticks: Vec<Tick>) -> Result<Vec<Ticked>>;
}

/// The schedules that are due.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DueSchedules {
    /// The due schedules, the earliest first.
    pub due: Vec<Schedule>,
    /// When the next schedule beyond these is due. `None` if there is none.
    pub next_at: Option<Timestamp>,
}

/// The ticks of one schedule.
#[derive(Debug, Clone)]
pub struct Tick {
    /// The schedule.
    pub schedule: ScheduleName,
    /// The `next_run_at` that the plan was made from.
    pub expected: Timestamp,
    /// The jobs of the ticks, oldest first; `run_at` is the tick.
    pub jobs: Vec<NewJob>,
    /// Whether a tick makes no job while another of the schedule is live.
    pub skip_overlap: bool,
    /// The new `next_run_at`. `None` if the schedule never ticks again.
    pub next_run_at: Option<Timestamp>,
}

/// The result of a [`Tick`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ticked {
    /// The new jobs: possibly fewer than requested, by overlap or because a tick had its job.
    pub made: Vec<JobId>,
    /// False if the schedule had moved on, was replaced, paused or removed: nothing was done.
    pub moved: bool,
}

/// The registry of workers.
#[async_trait]
pub trait WorkerStore: Send + Sync {
    /// Adds or replaces workers, by id.
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()>;
    /// Returns all workers, by id.
    async fn workers(&self) -> Result<Vec<WorkerRecord>>;
    /// Returns a worker; `None` if it is unknown.
    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>>;
    /// Removes workers: with the leader's fence if it declares them dead, without one if they leave.
    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()>;
}

/// The registry of nodes.
#[async_trait]
pub trait NodeStore: Send + Sync {
    /// Adds or replaces a node, by id.
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()>;
    /// Returns all nodes by id, those that are gone included.
    async fn nodes(&self) -> Result<Vec<NodeRecord>>;
    /// Marks a node as gone: `Dead` by the leader, with its fence; `Left` by the node itself, without one. It stays
    /// listed until it is forgotten or sends a heartbeat again. Not an error if it is unknown.
    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()>;
    /// Deletes those of `ids` that are gone. A node that has come back stays.
    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()>;
}

/// The workers that may hold shards. See [`Roster`](crate::shards::Roster).
#[async_trait]
pub trait RosterStore: Send + Sync {
    /// Adds and removes rows. Durable when it returns: the coordinator then sends shards to the workers that it added.
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()>;
    /// Returns all rows, by service, then by worker.
    async fn shard_roster(&self) -> Result<Vec<ShardMember>>;
}
