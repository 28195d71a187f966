//! A store that counts how often it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use convoke_core::audit::{Act, AuditPage, AuditQuery};
use convoke_core::election::Fence;
use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::wire::NodeState;
use convoke_core::jobs::{Job, LogLine, NewJob, Queue, QueuePatch, RunReport};
use convoke_core::ports::Store;
use convoke_core::ports::store::*;
use convoke_core::shards::{RosterChange, ShardMember};
use convoke_core::{Epoch, Error, JobId, NodeId, QueueName, Result, ScheduleName, WorkerId};
use jiff::Timestamp;

pub struct CountingStore {
    inner: Arc<dyn Store>,
    pub gets: AtomicUsize,
    pub workers: AtomicUsize,
    pub nodes: AtomicUsize,
    pub pings: AtomicUsize,
    pub roster_writes: AtomicUsize,
    /// While it is set, the roster of shard workers cannot be written.
    pub roster_fails: AtomicBool,
    /// While it is written to, pings wait.
    pub gate: tokio::sync::RwLock<()>,
}

impl CountingStore {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let zero = || AtomicUsize::new(0);
        Arc::new(CountingStore {
            inner,
            gets: zero(),
            workers: zero(),
            nodes: zero(),
            pings: zero(),
            roster_writes: zero(),
            roster_fails: AtomicBool::new(false),
            gate: Default::default(),
        })
    }
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::SeqCst);
}

#[async_trait]
impl EpochStore for CountingStore {
    async fn raise_seal(&self, epoch: Epoch) -> Result<()> {
        self.inner.raise_seal(epoch).await
    }

    async fn sealed(&self) -> Result<Epoch> {
        self.inner.sealed().await
    }

    fn is_lasting(&self) -> bool {
        self.inner.is_lasting()
    }

    fn is_exclusive(&self) -> bool {
        self.inner.is_exclusive()
    }

    async fn ping(&self) -> Result<()> {
        count(&self.pings);
        let _open = self.gate.read().await;
        self.inner.ping().await
    }
}

#[async_trait]
impl JobStore for CountingStore {
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.inner.insert(jobs).await
    }

    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        count(&self.gets);
        self.inner.get(ids).await
    }

    async fn list(&self, query: JobQuery) -> Result<JobPage> {
        self.inner.list(query).await
    }

    async fn count(&self, query: JobQuery) -> Result<JobCount> {
        self.inner.count(query).await
    }

    async fn history(&self, id: JobId, after: u64, limit: usize) -> Result<HistoryPage> {
        self.inner.history(id, after, limit).await
    }

    async fn logs(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>> {
        self.inner.logs(id, after, limit).await
    }

    async fn cancel(&self, ids: &[JobId], reason: Option<&str>, now: Timestamp) -> Result<Vec<Cancelled>> {
        self.inner.cancel(ids, reason, now).await
    }

    async fn redrive(&self, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
        self.inner.redrive(ids, now).await
    }

    async fn purge(&self, ids: &[JobId], statuses: &[convoke_core::jobs::Status]) -> Result<u64> {
        self.inner.purge(ids, statuses).await
    }
}

#[async_trait]
impl RunStore for CountingStore {
    async fn promote(&self, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.inner.promote(fence, now, limit).await
    }

    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched> {
        self.inner.dispatch(fence, order).await
    }

    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        self.inner.record(reports).await
    }

    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        self.inner.end_as_leader(fence, reports).await
    }

    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>> {
        self.inner.reassign(changes).await
    }

    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>> {
        self.inner.in_flight(filter, after, limit).await
    }

    async fn holders(&self) -> Result<Holders> {
        self.inner.holders().await
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Overdue> {
        self.inner.overdue(now, limit).await
    }

    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
        self.inner.uncleaned(before, limit).await
    }

    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>> {
        self.inner.mark_cleaned(fence, before, ids).await
    }

    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
        self.inner.expire(fence, cutoffs, rows_max).await
    }
}

#[async_trait]
impl QueueStore for CountingStore {
    async fn queues(&self) -> Result<Vec<Queue>> {
        self.inner.queues().await
    }

    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>> {
        self.inner.queue(name).await
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<bool> {
        self.inner.delete_queue(name).await
    }

    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
        self.inner.configure(name, patch).await
    }

    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
        self.inner.grants(queue, since).await
    }
}

#[async_trait]
impl ScheduleStore for CountingStore {
    async fn put_schedule(&self, schedule: Schedule) -> Result<bool> {
        self.inner.put_schedule(schedule).await
    }

    async fn replace_schedule(&self, known: &Schedule, schedule: Schedule) -> Result<bool> {
        self.inner.replace_schedule(known, schedule).await
    }

    async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>> {
        self.inner.schedule(name).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.inner.schedules().await
    }

    async fn remove_schedule(&self, name: &ScheduleName) -> Result<bool> {
        self.inner.remove_schedule(name).await
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<DueSchedules> {
        self.inner.due_schedules(now, limit).await
    }

    async fn tick(&self, fence: Fence, ticks: Vec<Tick>) -> Result<Vec<Ticked>> {
        self.inner.tick(fence, ticks).await
    }
}

#[async_trait]
impl WorkerStore for CountingStore {
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()> {
        self.inner.record_worker_heartbeats(workers).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        count(&self.workers);
        self.inner.workers().await
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>> {
        self.inner.worker(id).await
    }

    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
        self.inner.remove_workers(fence, ids).await
    }
}

#[async_trait]
impl RosterStore for CountingStore {
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()> {
        count(&self.roster_writes);
        if self.roster_fails.load(Ordering::SeqCst) {
            return Err(Error::unavailable("store", "it is away"));
        }
        self.inner.change_shard_roster(fence, change).await
    }

    async fn shard_roster(&self) -> Result<Vec<ShardMember>> {
        self.inner.shard_roster().await
    }
}

#[async_trait]
impl NodeStore for CountingStore {
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()> {
        self.inner.record_node_heartbeat(node).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        count(&self.nodes);
        self.inner.nodes().await
    }

    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()> {
        self.inner.retire_node(fence, id, state, at).await
    }

    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()> {
        self.inner.forget_nodes(fence, ids).await
    }
}

#[async_trait]
impl AuditStore for CountingStore {
    async fn append_audit(&self, act: Act) -> Result<u64> {
        self.inner.append_audit(act).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        self.inner.audit(query).await
    }

    async fn expire_audit(&self, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
        self.inner.expire_audit(fence, before, limit).await
    }
}

#[async_trait]
impl ValueStore for CountingStore {
    async fn value(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.inner.value(name).await
    }

    async fn swap_value(&self, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        self.inner.swap_value(name, known, value).await
    }
}
