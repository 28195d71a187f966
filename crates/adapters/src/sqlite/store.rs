//! The ports' verbs, each passed to the writer or to a reader.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::audit::{Act, AuditPage, AuditQuery};
use convoke_core::election::Fence;
use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::wire::NodeState;
use convoke_core::jobs::{Job, LogLine, NewJob, Queue, QueuePatch, RunReport, Status};
use convoke_core::ports::store::*;
use convoke_core::shards::{RosterChange, ShardMember};
use convoke_core::{Epoch, JobId, NodeId, QueueName, Result, ScheduleName, WorkerId};
use jiff::Timestamp;

use super::readers::{Purposes, Readers};
use super::writer::Writer;
use super::{
    SqliteStore, archive, audit, cancel, dispatch, epoch, fleet, insert, list, logs, queues, record, retention, roster,
    runs, schedules,
};

/// Rows that one transaction of a purge deletes, so that no other write waits long for it.
const PURGED_ROWS_MAX: usize = 1_000;

/// The writer and the readers.
pub(super) struct Engine {
    // Dropped before the writer, so that the connection that closes last is the one that can remove the log.
    pub(super) readers: Purposes,
    pub(super) writer: Writer,
    /// The file, as a URL.
    pub(super) address: String,
}

impl SqliteStore {
    fn reads(&self) -> &Readers {
        if self.for_clients { &self.engine.readers.client_reads } else { &self.engine.readers.duties }
    }

    fn lists(&self) -> &Readers {
        if self.for_clients { &self.engine.readers.client_lists } else { &self.engine.readers.duties }
    }
}

#[async_trait]
impl EpochStore for SqliteStore {
    async fn raise_seal(&self, epoch: Epoch) -> Result<()> {
        self.engine.writer.call(1, move |tx| epoch::raise_seal(tx, epoch)).await
    }

    async fn sealed(&self) -> Result<Epoch> {
        self.reads().call(epoch::sealed).await
    }

    async fn ping(&self) -> Result<()> {
        self.engine.writer.call(1, |tx| epoch::ping(tx.db)).await
    }

    fn address(&self) -> String {
        self.engine.address.clone()
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn for_clients(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SqliteStore { for_clients: true, ..self.clone() }))
    }
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.engine.writer.call(insert::rows(&jobs), move |tx| insert::insert(tx, &jobs)).await
    }

    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        let ids = ids.to_vec();
        self.reads().call(move |db| cancel::get(db, &ids)).await
    }

    async fn list(&self, query: JobQuery) -> Result<JobPage> {
        self.lists().call(move |db| list::list(db, &query)).await
    }

    async fn count(&self, query: JobQuery) -> Result<JobCount> {
        self.lists().call(move |db| list::count(db, &query)).await
    }

    async fn history(&self, id: JobId, after: u64, limit: usize) -> Result<HistoryPage> {
        self.reads().call(move |db| archive::history(db, id, after, limit)).await
    }

    async fn logs(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>> {
        self.reads().call(move |db| logs::logs(db, id, after, limit)).await
    }

    async fn cancel(&self, ids: &[JobId], reason: Option<&str>, now: Timestamp) -> Result<Vec<Cancelled>> {
        let (ids, reason) = (ids.to_vec(), reason.map(str::to_owned));
        let verb = move |tx: &mut super::catalog::WriteTx<'_>| cancel::cancel(tx, &ids, reason.as_deref(), now);
        self.engine.writer.call(1, verb).await
    }

    async fn redrive(&self, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
        let ids = ids.to_vec();
        self.engine.writer.call(ids.len(), move |tx| cancel::redrive(tx, &ids, now)).await
    }

    async fn purge(&self, ids: &[JobId], statuses: &[Status]) -> Result<u64> {
        let mut purged = 0;
        loop {
            let (ids, statuses) = (ids.to_vec(), statuses.to_vec());
            let verb = move |tx: &mut super::catalog::WriteTx<'_>| cancel::purge(tx, &ids, &statuses, PURGED_ROWS_MAX);
            let (jobs, more) = self.engine.writer.call(PURGED_ROWS_MAX, verb).await?;
            purged += jobs;
            if !more {
                return Ok(purged);
            }
        }
    }
}

#[async_trait]
impl RunStore for SqliteStore {
    async fn promote(&self, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.engine.writer.call_later(limit, move |tx| runs::promote(tx, fence, now, limit)).await
    }

    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched> {
        let rows = order.windows.iter().map(|window| window.limit).sum::<usize>().min(order.executions.len());
        self.engine.writer.call_later(rows, move |tx| dispatch::dispatch(tx, fence, &order)).await
    }

    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        self.engine.writer.call(record::rows(&reports), move |tx| record::record(tx, &reports)).await
    }

    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        self.engine.writer.call(reports.len(), move |tx| record::end_as_leader(tx, fence, &reports)).await
    }

    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>> {
        self.engine.writer.call(changes.len(), move |tx| runs::reassign(tx, &changes)).await
    }

    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>> {
        self.reads().call(move |db| runs::in_flight(db, &filter, after, limit)).await
    }

    async fn holders(&self) -> Result<Holders> {
        self.reads().call(runs::holders).await
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Overdue> {
        self.reads().call(move |db| runs::overdue(db, now, limit)).await
    }

    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
        self.reads().call(move |db| retention::uncleaned(db, before, limit)).await
    }

    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>> {
        let ids = ids.to_vec();
        self.engine.writer.call_later(ids.len(), move |tx| retention::mark_cleaned(tx, fence, before, &ids)).await
    }

    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
        self.engine.writer.call_later(rows_max, move |tx| retention::expire(tx, fence, cutoffs, rows_max)).await
    }
}

#[async_trait]
impl QueueStore for SqliteStore {
    async fn queues(&self) -> Result<Vec<Queue>> {
        self.reads().call(queues::queues).await
    }

    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>> {
        let name = name.clone();
        self.reads().call(move |db| queues::queue(db, &name)).await
    }

    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
        let name = name.clone();
        self.engine.writer.call(1, move |tx| queues::configure(tx, &name, patch)).await
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<bool> {
        let name = name.clone();
        self.engine.writer.call(1, move |tx| queues::delete_queue(tx, &name)).await
    }

    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
        let queue = queue.cloned();
        self.reads().call(move |db| queues::grants(db, queue.as_ref(), since)).await
    }
}

#[async_trait]
impl ScheduleStore for SqliteStore {
    async fn put_schedule(&self, schedule: Schedule) -> Result<bool> {
        self.engine.writer.call(1, move |tx| schedules::put_schedule(tx, &schedule)).await
    }

    async fn replace_schedule(&self, known: &Schedule, schedule: Schedule) -> Result<bool> {
        let known = known.clone();
        self.engine.writer.call(1, move |tx| schedules::replace_schedule(tx, &known, &schedule)).await
    }

    async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>> {
        let name = name.clone();
        self.reads().call(move |db| schedules::schedule(db, &name)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.reads().call(schedules::schedules).await
    }

    async fn remove_schedule(&self, name: &ScheduleName) -> Result<bool> {
        let name = name.clone();
        self.engine.writer.call(1, move |tx| schedules::remove_schedule(tx, &name)).await
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<DueSchedules> {
        self.reads().call(move |db| schedules::due_schedules(db, now, limit)).await
    }

    async fn tick(&self, fence: Fence, ticks: Vec<Tick>) -> Result<Vec<Ticked>> {
        let rows = ticks.iter().map(|tick| tick.jobs.len() + 1).sum();
        self.engine.writer.call(rows, move |tx| schedules::tick(tx, fence, &ticks)).await
    }
}

#[async_trait]
impl WorkerStore for SqliteStore {
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()> {
        let workers = workers.to_vec();
        self.engine.writer.call_later(workers.len(), move |tx| fleet::record_worker_heartbeats(tx, &workers)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.reads().call(fleet::workers).await
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>> {
        let id = id.clone();
        self.reads().call(move |db| fleet::worker(db, &id)).await
    }

    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
        let ids = ids.to_vec();
        self.engine.writer.call(ids.len(), move |tx| fleet::remove_workers(tx, fence, &ids)).await
    }
}

#[async_trait]
impl NodeStore for SqliteStore {
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()> {
        self.engine.writer.call_later(1, move |tx| fleet::record_node_heartbeat(tx, &node)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.reads().call(fleet::nodes).await
    }

    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()> {
        let id = id.clone();
        self.engine.writer.call(1, move |tx| fleet::retire_node(tx, fence, &id, state, at)).await
    }

    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()> {
        let ids = ids.to_vec();
        self.engine.writer.call(ids.len(), move |tx| fleet::forget_nodes(tx, fence, &ids)).await
    }
}

#[async_trait]
impl RosterStore for SqliteStore {
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()> {
        let change = change.clone();
        self.engine.writer.call(change.len(), move |tx| roster::change(tx, fence, &change)).await
    }

    async fn shard_roster(&self) -> Result<Vec<ShardMember>> {
        self.reads().call(roster::all).await
    }
}

#[async_trait]
impl AuditStore for SqliteStore {
    async fn append_audit(&self, act: Act) -> Result<u64> {
        self.engine.writer.call(1, move |tx| audit::append(tx, &act)).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        let query = query.clone();
        self.lists().call(move |db| audit::page(db, &query)).await
    }

    async fn expire_audit(&self, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
        self.engine.writer.call_later(limit, move |tx| audit::expire(tx, fence, before, limit)).await
    }
}

#[async_trait]
impl ValueStore for SqliteStore {
    async fn value(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.reads().call(move |db| audit::value(db, &name)).await
    }

    async fn swap_value(&self, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        let (name, known, value) = (name.to_owned(), known.map(<[u8]>::to_vec), value.to_vec());
        self.engine.writer.call(1, move |tx| audit::swap_value(tx, &name, known.as_deref(), &value)).await
    }
}
