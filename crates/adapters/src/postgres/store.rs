//! The ports' verbs, each passed to a lane or to a connection of a pool.

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

use super::dispatch::{DispatchWork, Order};
use super::insert::{self, CarefulInsert, PlainInsert, Way};
use super::lane::Lane;
use super::leases::PostgresLeases;
use super::locked_keys::LockedKeys;
use super::names::Names;
use super::record::{EndAsLeaderCall, EndAsLeaderWork, RecordWork, readable_reports};
use super::server::{Ways, lent};
use super::{
    PostgresStore, audit, cancel, epoch, fleet, history, list, only, queues, retention, roster, runs, schedules,
};

/// All connections.
pub(super) struct Engine {
    pub(super) duties: Ways,
    pub(super) client_reads: Ways,
    pub(super) client_lists: Ways,
    pub(super) client_writes: Ways,
    pub(super) bookkeepers: Ways,
    pub(super) inserts: Lane<PlainInsert>,
    pub(super) careful_inserts: Lane<CarefulInsert>,
    pub(super) dispatches: Lane<DispatchWork>,
    pub(super) records: Lane<RecordWork>,
    pub(super) judgements: Lane<EndAsLeaderWork>,
    pub(super) leases: PostgresLeases,
    pub(super) names: Names,
    pub(super) locked: Arc<LockedKeys>,
}

impl PostgresStore {
    fn reads(&self) -> &Ways {
        if self.for_clients { &self.engine.client_reads } else { &self.engine.duties }
    }

    fn lists(&self) -> &Ways {
        if self.for_clients { &self.engine.client_lists } else { &self.engine.duties }
    }

    fn writes(&self) -> &Ways {
        if self.for_clients { &self.engine.client_writes } else { &self.engine.duties }
    }
}

#[async_trait]
impl EpochStore for PostgresStore {
    fn address(&self) -> String {
        self.engine.duties.address()
    }

    async fn raise_seal(&self, epoch: Epoch) -> Result<()> {
        lent!(Write, self.writes(), |db| epoch::raise_seal(db, epoch))
    }

    async fn sealed(&self) -> Result<Epoch> {
        lent!(Read, self.reads(), |db| epoch::sealed(db))
    }

    async fn ping(&self) -> Result<()> {
        lent!(Read, self.reads(), |db| epoch::ping(db))
    }

    fn for_clients(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(PostgresStore { engine: Arc::clone(&self.engine), for_clients: true }))
    }
}

#[async_trait]
impl JobStore for PostgresStore {
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        insert::check(&jobs)?;
        self.engine.locked.check(&jobs)?;
        match insert::way(self.reads(), &self.engine.names, jobs).await? {
            Way::Fast(jobs) => self.engine.inserts.call(jobs).await,
            Way::Careful(jobs) => self.engine.careful_inserts.call(jobs).await,
        }
    }

    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        lent!(Read, self.reads(), |db| cancel::get_jobs(db, ids))
    }

    async fn list(&self, query: JobQuery) -> Result<JobPage> {
        lent!(Read, self.lists(), |db| list::list(db, &query))
    }

    async fn count(&self, query: JobQuery) -> Result<JobCount> {
        lent!(Read, self.lists(), |db| list::count(db, &query))
    }

    async fn history(&self, id: JobId, after: u64, limit: usize) -> Result<HistoryPage> {
        lent!(Read, self.reads(), |db| history::history(db, id, after, limit))
    }

    async fn logs(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>> {
        lent!(Read, self.reads(), |db| history::logs(db, id, after, limit))
    }

    async fn cancel(&self, ids: &[JobId], reason: Option<&str>, now: Timestamp) -> Result<Vec<Cancelled>> {
        lent!(Write, self.writes(), |db| cancel::cancel(db, ids, reason, now))
    }

    async fn redrive(&self, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
        lent!(Write, self.writes(), |db| cancel::redrive(db, ids, now))
    }

    async fn purge(&self, ids: &[JobId], statuses: &[Status]) -> Result<u64> {
        let mut purged = 0;
        loop {
            let (jobs, more) = lent!(Write, self.writes(), |db| cancel::purge(db, ids, statuses))?;
            purged += jobs;
            if !more {
                return Ok(purged);
            }
        }
    }
}

#[async_trait]
impl RunStore for PostgresStore {
    async fn promote(&self, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted> {
        lent!(Write, &self.engine.bookkeepers, |db| runs::promote(db, fence, now, limit))
    }

    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched> {
        only(self.engine.dispatches.call(vec![Order { fence, order }]).await?)
    }

    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        self.engine.records.call(readable_reports(reports)).await
    }

    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        only(self.engine.judgements.call(vec![EndAsLeaderCall { fence, reports: readable_reports(reports) }]).await?)
    }

    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>> {
        lent!(Write, self.writes(), |db| runs::reassign(db, &changes))
    }

    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>> {
        lent!(Read, self.reads(), |db| runs::in_flight(db, &filter, after, limit))
    }

    async fn holders(&self) -> Result<Holders> {
        lent!(Read, self.reads(), |db| runs::holders(db))
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Overdue> {
        lent!(Read, self.reads(), |db| runs::overdue(db, now, limit))
    }

    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
        lent!(Read, self.reads(), |db| retention::uncleaned(db, before, limit))
    }

    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>> {
        lent!(Write, &self.engine.bookkeepers, |db| retention::mark_cleaned(db, fence, before, ids))
    }

    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
        lent!(Write, &self.engine.bookkeepers, |db| retention::expire(db, fence, cutoffs, rows_max))
    }
}

#[async_trait]
impl QueueStore for PostgresStore {
    async fn queues(&self) -> Result<Vec<Queue>> {
        lent!(Read, self.reads(), |db| queues::queues(db))
    }

    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>> {
        lent!(Read, self.reads(), |db| queues::queue(db, name))
    }

    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
        lent!(Write, self.writes(), |db| queues::configure(db, name, patch))
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<bool> {
        lent!(Write, self.writes(), |db| queues::delete_queue(db, name))
    }

    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
        lent!(Read, self.reads(), |db| queues::grants(db, queue, since))
    }
}

#[async_trait]
impl ScheduleStore for PostgresStore {
    async fn put_schedule(&self, schedule: Schedule) -> Result<bool> {
        lent!(Write, self.writes(), |db| schedules::put_schedule(db, &schedule))
    }

    async fn replace_schedule(&self, known: &Schedule, schedule: Schedule) -> Result<bool> {
        lent!(Write, self.writes(), |db| schedules::replace_schedule(db, known, &schedule))
    }

    async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>> {
        lent!(Read, self.reads(), |db| schedules::schedule(db, name))
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        lent!(Read, self.reads(), |db| schedules::schedules(db))
    }

    async fn remove_schedule(&self, name: &ScheduleName) -> Result<bool> {
        lent!(Write, self.writes(), |db| schedules::remove_schedule(db, name))
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<DueSchedules> {
        lent!(Read, self.reads(), |db| schedules::due_schedules(db, now, limit))
    }

    async fn tick(&self, fence: Fence, ticks: Vec<Tick>) -> Result<Vec<Ticked>> {
        lent!(Write, self.writes(), |db| schedules::tick(db, fence, &ticks))
    }
}

#[async_trait]
impl WorkerStore for PostgresStore {
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()> {
        lent!(Write, &self.engine.bookkeepers, |db| fleet::record_worker_heartbeats(db, workers))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        lent!(Read, self.reads(), |db| fleet::workers(db))
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>> {
        lent!(Read, self.reads(), |db| fleet::worker(db, id))
    }

    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
        lent!(Write, self.writes(), |db| fleet::remove_workers(db, fence, ids))
    }
}

#[async_trait]
impl NodeStore for PostgresStore {
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()> {
        lent!(Write, &self.engine.bookkeepers, |db| fleet::record_node_heartbeat(db, &node))
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        lent!(Read, self.reads(), |db| fleet::nodes(db))
    }

    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()> {
        lent!(Write, self.writes(), |db| fleet::retire_node(db, fence, id, state, at))
    }

    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()> {
        lent!(Write, self.writes(), |db| fleet::forget_nodes(db, fence, ids))
    }
}

#[async_trait]
impl RosterStore for PostgresStore {
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()> {
        lent!(Write, self.writes(), |db| roster::change(db, fence, change))
    }

    async fn shard_roster(&self) -> Result<Vec<ShardMember>> {
        lent!(Read, self.reads(), |db| roster::all(db))
    }
}

#[async_trait]
impl AuditStore for PostgresStore {
    async fn append_audit(&self, act: Act) -> Result<u64> {
        lent!(Write, self.writes(), |db| audit::append(db, &act))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        lent!(Read, self.lists(), |db| audit::page(db, query))
    }

    async fn expire_audit(&self, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
        lent!(Write, &self.engine.bookkeepers, |db| audit::expire(db, fence, before, limit))
    }
}

#[async_trait]
impl ValueStore for PostgresStore {
    async fn value(&self, name: &str) -> Result<Option<Vec<u8>>> {
        lent!(Read, self.reads(), |db| audit::value(db, name))
    }

    async fn swap_value(&self, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        lent!(Write, self.writes(), |db| audit::swap_value(db, name, known, value))
    }
}
