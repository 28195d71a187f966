//! A process's way to the store.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adapters::memory::MemoryStore;
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

use super::store_server::{By, StoreServer, change_line};
use super::{Way, now};
use crate::history::Entry;

/// A process's way to the store.
#[derive(Clone)]
pub struct SimStore {
    pub way: Way,
    pub server: Arc<StoreServer>,
}

impl SimStore {
    async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        act: impl FnOnce(&MemoryStore) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let server = self.server.clone();
        self.way.call(what, false, move || act(&server.store)).await
    }

    async fn write<T: Send + 'static>(
        &self,
        what: &'static str,
        act: impl FnOnce(&StoreServer, &By) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (server, by) = (self.server.clone(), self.way.process.name.clone());
        self.way.call(what, true, move || act(&server, &by)).await
    }

    async fn lead<T: Send + 'static>(
        &self,
        what: &'static str,
        fence: Fence,
        act: impl FnOnce(&StoreServer, &By) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (epoch, history) = (fence.epoch().0, &self.way.network.history);
        if self.way.process.is_running() {
            let lease_until_ms = history.lease_until(epoch);
            self.server.add(&self.way.process.name, Entry::Acts { what, epoch, lease_until_ms });
        }
        self.write(what, move |server, by| server.fenced(by, what, fence, || act(server, by))).await
    }
}

#[async_trait]
impl EpochStore for SimStore {
    async fn raise_seal(&self, epoch: Epoch) -> Result<()> {
        self.write("seal", move |server, by| server.raise_seal(by, epoch)).await
    }

    async fn sealed(&self) -> Result<Epoch> {
        self.read("sealed", |store| now(store.sealed())).await
    }

    async fn ping(&self) -> Result<()> {
        self.read("ping", |store| now(store.ping())).await
    }
}

#[async_trait]
impl JobStore for SimStore {
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.write("insert", move |server, by| {
            let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
            server.changing(by, "insert", &ids, |_| None, || now(server.store.insert(jobs)))
        })
        .await
    }

    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        let ids = ids.to_vec();
        self.read("get", move |store| now(store.get(&ids))).await
    }

    async fn list(&self, query: JobQuery) -> Result<JobPage> {
        self.read("list", move |store| now(store.list(query))).await
    }

    async fn count(&self, query: JobQuery) -> Result<JobCount> {
        self.read("count", move |store| now(store.count(query))).await
    }

    async fn history(&self, id: JobId, after: u64, limit: usize) -> Result<HistoryPage> {
        self.read("history", move |store| now(store.history(id, after, limit))).await
    }

    async fn logs(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>> {
        self.read("logs", move |store| now(store.logs(id, after, limit))).await
    }

    async fn cancel(&self, ids: &[JobId], reason: Option<&str>, at: Timestamp) -> Result<Vec<Cancelled>> {
        let (ids, reason) = (ids.to_vec(), reason.map(str::to_owned));
        self.write("cancel", move |server, by| {
            let act = || now(server.store.cancel(&ids, reason.as_deref(), at));
            server.changing(by, "cancel", &ids, |_| None, act)
        })
        .await
    }

    async fn redrive(&self, ids: &[JobId], at: Timestamp) -> Result<Vec<Redriven>> {
        let ids = ids.to_vec();
        self.write("redrive", move |server, by| {
            server.changing(by, "redrive", &ids, |_| None, || now(server.store.redrive(&ids, at)))
        })
        .await
    }

    async fn purge(&self, ids: &[JobId], statuses: &[Status]) -> Result<u64> {
        let (ids, statuses) = (ids.to_vec(), statuses.to_vec());
        self.write("purge", move |server, by| {
            server.changing(by, "purge", &ids, |_| None, || now(server.store.purge(&ids, &statuses)))
        })
        .await
    }
}

#[async_trait]
impl RunStore for SimStore {
    async fn promote(&self, fence: Fence, at: Timestamp, limit: usize) -> Result<Promoted> {
        self.lead("promote", fence, move |server, _| now(server.store.promote(fence, at, limit))).await
    }

    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched> {
        self.lead("dispatch", fence, move |server, by| {
            let dispatched = now(server.store.dispatch(fence, order))?;
            for run in &dispatched.runs {
                let after = server.job(run.job_id);
                server.network.note_of(by, || format!("dispatch: {}", change_line(None, after.as_ref())));
                let after = after.map(Box::new);
                server.add(by, Entry::Changed { what: "dispatch", before: None, after, report: None });
            }
            Ok(dispatched)
        })
        .await
    }

    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        self.write("record", move |server, by| {
            server.record(by, "record", reports, |reports| now(server.store.record(reports)))
        })
        .await
    }

    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        self.lead("end_as_leader", fence, move |server, by| {
            if reports.is_empty() {
                return now(server.store.end_as_leader(fence, reports));
            }
            server.record(by, "end_as_leader", reports, |reports| now(server.store.end_as_leader(fence, reports)))
        })
        .await
    }

    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>> {
        self.write("reassign", move |server, by| server.reassign(by, changes)).await
    }

    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>> {
        self.read("in_flight", move |store| now(store.in_flight(filter, after, limit))).await
    }

    async fn holders(&self) -> Result<Holders> {
        self.read("holders", |store| now(store.holders())).await
    }

    async fn overdue(&self, at: Timestamp, limit: usize) -> Result<Overdue> {
        self.read("overdue", move |store| now(store.overdue(at, limit))).await
    }

    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
        self.read("uncleaned", move |store| now(store.uncleaned(before, limit))).await
    }

    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>> {
        let ids = ids.to_vec();
        self.lead("mark_cleaned", fence, move |server, _| now(server.store.mark_cleaned(fence, before, &ids))).await
    }

    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
        self.lead("expire", fence, move |server, _| now(server.store.expire(fence, cutoffs, rows_max))).await
    }
}

#[async_trait]
impl QueueStore for SimStore {
    async fn queues(&self) -> Result<Vec<Queue>> {
        self.read("queues", |store| now(store.queues())).await
    }

    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>> {
        let name = name.clone();
        self.read("queue", move |store| now(store.queue(&name))).await
    }

    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
        let name = name.clone();
        self.write("configure", move |server, _| now(server.store.configure(&name, patch))).await
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<bool> {
        let name = name.clone();
        self.write("delete_queue", move |server, _| now(server.store.delete_queue(&name))).await
    }

    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
        let queue = queue.cloned();
        self.read("grants", move |store| now(store.grants(queue.as_ref(), since))).await
    }
}

#[async_trait]
impl ScheduleStore for SimStore {
    async fn put_schedule(&self, schedule: Schedule) -> Result<bool> {
        self.write("put_schedule", move |server, _| now(server.store.put_schedule(schedule))).await
    }

    async fn replace_schedule(&self, known: &Schedule, schedule: Schedule) -> Result<bool> {
        let known = known.clone();
        self.write("replace_schedule", move |server, _| now(server.store.replace_schedule(&known, schedule))).await
    }

    async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>> {
        let name = name.clone();
        self.read("schedule", move |store| now(store.schedule(&name))).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.read("schedules", |store| now(store.schedules())).await
    }

    async fn remove_schedule(&self, name: &ScheduleName) -> Result<bool> {
        let name = name.clone();
        self.write("remove_schedule", move |server, _| now(server.store.remove_schedule(&name))).await
    }

    async fn due_schedules(&self, at: Timestamp, limit: usize) -> Result<DueSchedules> {
        self.read("due_schedules", move |store| now(store.due_schedules(at, limit))).await
    }

    async fn tick(&self, fence: Fence, ticks: Vec<Tick>) -> Result<Vec<Ticked>> {
        self.lead("tick", fence, move |server, by| {
            let ids: Vec<JobId> = ticks.iter().flat_map(|tick| tick.jobs.iter().map(|job| job.id)).collect();
            let planned: Vec<usize> = ticks.iter().map(|tick| tick.jobs.len()).collect();
            let ticked = server.changing(by, "tick", &ids, |_| None, || now(server.store.tick(fence, ticks)))?;
            for (ticked, planned) in ticked.iter().zip(planned) {
                if !ticked.moved {
                    server.network.history.reach("tick of a schedule that moved on refused");
                } else if ticked.made.len() < planned {
                    server.network.history.reach("tick that has its job made no other");
                }
            }
            Ok(ticked)
        })
        .await
    }
}

#[async_trait]
impl WorkerStore for SimStore {
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()> {
        let workers = workers.to_vec();
        self.write("worker heartbeats", move |server, _| now(server.store.record_worker_heartbeats(&workers))).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.read("workers", |store| now(store.workers())).await
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>> {
        let id = id.clone();
        self.read("worker", move |store| now(store.worker(&id))).await
    }

    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
        let ids = ids.to_vec();
        let Some(fence) = fence else {
            return self.write("leave", move |server, _| now(server.store.remove_workers(None, &ids))).await;
        };
        if !ids.is_empty() {
            self.way.network.history.reach("worker declared dead");
        }
        self.lead("remove_workers", fence, move |server, _| now(server.store.remove_workers(Some(fence), &ids))).await
    }
}

#[async_trait]
impl NodeStore for SimStore {
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()> {
        self.write("node heartbeat", move |server, _| now(server.store.record_node_heartbeat(node))).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.read("nodes", |store| now(store.nodes())).await
    }

    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()> {
        let id = id.clone();
        let Some(fence) = fence else {
            return self.write("retire", move |server, _| now(server.store.retire_node(None, &id, state, at))).await;
        };
        self.way.network.history.reach("node declared dead");
        self.lead("retire_node", fence, move |server, _| now(server.store.retire_node(Some(fence), &id, state, at)))
            .await
    }

    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()> {
        let ids = ids.to_vec();
        self.lead("forget_nodes", fence, move |server, _| now(server.store.forget_nodes(fence, &ids))).await
    }
}

#[async_trait]
impl RosterStore for SimStore {
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()> {
        let change = change.clone();
        self.lead("change_shard_roster", fence, move |server, _| now(server.store.change_shard_roster(fence, &change)))
            .await
    }

    async fn shard_roster(&self) -> Result<Vec<ShardMember>> {
        self.read("shard_roster", |store| now(store.shard_roster())).await
    }
}

#[async_trait]
impl AuditStore for SimStore {
    async fn append_audit(&self, act: Act) -> Result<u64> {
        self.write("append_audit", move |server, _| now(server.store.append_audit(act))).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        let query = query.clone();
        self.read("audit", move |store| now(store.audit(&query))).await
    }

    async fn expire_audit(&self, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
        self.lead("expire_audit", fence, move |server, _| now(server.store.expire_audit(fence, before, limit))).await
    }
}

#[async_trait]
impl ValueStore for SimStore {
    async fn value(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.read("value", move |store| now(store.value(&name))).await
    }

    async fn swap_value(&self, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        let (name, known, value) = (name.to_owned(), known.map(<[u8]>::to_vec), value.to_vec());
        self.write("swap_value", move |server, _| now(server.store.swap_value(&name, known.as_deref(), &value))).await
    }
}
