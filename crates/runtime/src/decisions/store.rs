//! A store that records its fenced operations. The methods about runs are in `store_runs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::audit::{Act, AuditPage, AuditQuery};
use convoke_core::decisions::{Decision, Mark, Outcome, What};
use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::wire::NodeState;
use convoke_core::jobs::{Job, LogLine, NewJob, Queue, QueuePatch, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::*;
use convoke_core::shards::{RosterChange, ShardMember};
use convoke_core::{Epoch, JobId, NodeId, QueueName, Result, ScheduleName, WorkerId};
use jiff::Timestamp;

use super::Recorder;

/// Passes every call on to a store, and records those that compare a fence.
pub struct RecordingStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) recorder: Arc<Recorder>,
}

impl RecordingStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>, recorder: Arc<Recorder>) -> Arc<Self> {
        Arc::new(RecordingStore { inner, recorder })
    }

    /// Records a write of a leader that changed a number of things. A write that changed nothing is left out.
    pub(super) fn record_write<T>(
        &self,
        since: u64,
        what: What,
        fence: Fence,
        result: &Result<T>,
        count: impl FnOnce(&T) -> u64,
    ) {
        let count = result.as_ref().ok().map(count);
        if count != Some(0) {
            let decision = Decision { epoch: Some(fence.epoch()), count, ..Decision::of(what, result.into()) };
            self.recorder.record_one(since, decision);
        }
    }
}

#[async_trait]
impl EpochStore for RecordingStore {
    async fn raise_seal(&self, epoch: Epoch) -> Result<()> {
        let since = self.recorder.since();
        let result = self.inner.raise_seal(epoch).await;
        let seal = Decision { after: Some(Mark::from(epoch)), ..Decision::of(What::EpochSeal, (&result).into()) };
        self.recorder.record_one(since, seal);
        result
    }

    async fn sealed(&self) -> Result<Epoch> {
        let since = self.recorder.since();
        let result = self.inner.sealed().await;
        if let Ok(epoch) = result {
            let read = Decision { after: Some(Mark::from(epoch)), ..Decision::of(What::EpochRead, Outcome::Accepted) };
            self.recorder.record_one(since, read);
        }
        result
    }

    async fn ping(&self) -> Result<()> {
        self.inner.ping().await
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    fn is_lasting(&self) -> bool {
        self.inner.is_lasting()
    }

    fn is_exclusive(&self) -> bool {
        self.inner.is_exclusive()
    }

    fn for_clients(&self) -> Option<Arc<dyn Store>> {
        let inner = self.inner.for_clients()?;
        Some(Arc::new(RecordingStore { inner, recorder: self.recorder.clone() }))
    }
}

/// Returns the record of a job that is about to be stored.
fn stored(job: &NewJob) -> Decision {
    Decision {
        job: Some(job.id),
        job_type: Some(job.definition.job_type.clone()),
        queue: Some(job.definition.queue.clone()),
        attempts_max: Some(job.definition.max_retries.saturating_add(1)),
        tick: job.run_at.filter(|_| job.schedule.is_some()),
        schedule: job.schedule.clone(),
        ..Decision::of(What::JobsEnqueue, Outcome::Accepted)
    }
}

#[async_trait]
impl JobStore for RecordingStore {
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        let unfinished = self.recorder.unfinished(jobs.iter().map(stored).collect());
        let result = self.inner.insert(jobs).await;
        unfinished.finish(|decisions| match &result {
            Ok(enqueued) => {
                for (decision, Enqueued { id, created }) in decisions.iter_mut().zip(enqueued) {
                    if !created {
                        // Another job, whose type and queue are its own.
                        *decision = Decision { job: Some(*id), ..Decision::of(What::JobsEnqueue, Outcome::Existing) };
                    }
                }
            }
            Err(error) => decisions.iter_mut().for_each(|decision| decision.outcome = error.into()),
        });
        result
    }

    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
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
        let since = self.recorder.since();
        let result = self.inner.cancel(ids, reason, now).await;
        let of = |outcome, id: &JobId| Decision { job: Some(*id), ..Decision::of(What::JobsCancel, outcome) };
        let decisions = match &result {
            Err(error) => ids.iter().map(|id| of(error.into(), id)).collect(),
            Ok(cancelled) => {
                let pairs = ids.iter().zip(cancelled);
                pairs
                    .map(|(id, cancelled)| match cancelled {
                        Cancelled::Now { job, run } => {
                            Decision { run: *run, status: Some(job.status), ..of(Outcome::Accepted, id) }
                        }
                        Cancelled::Before(job) => Decision { status: Some(job.status), ..of(Outcome::Existing, id) },
                        Cancelled::Unknown => of(Outcome::Gone, id),
                    })
                    .collect()
            }
        };
        self.recorder.record(since, decisions);
        result
    }

    async fn redrive(&self, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
        let of = |outcome, id: &JobId| Decision { job: Some(*id), ..Decision::of(What::JobsRedrive, outcome) };
        self.recorder.announce(ids.iter().map(|id| of(Outcome::Asked, id)).collect()).await;
        let since = self.recorder.since();
        let result = self.inner.redrive(ids, now).await;
        let decisions = match &result {
            Err(error) => ids.iter().map(|id| of(error.into(), id)).collect(),
            Ok(redriven) => {
                let pairs = ids.iter().zip(redriven);
                pairs
                    .map(|(id, redriven)| match redriven {
                        Redriven::Pending(job) => Decision { status: Some(job.status), ..of(Outcome::Accepted, id) },
                        Redriven::Refused(job) => Decision { status: Some(job.status), ..of(Outcome::Conflict, id) },
                        Redriven::Unknown => of(Outcome::Gone, id),
                    })
                    .collect()
            }
        };
        self.recorder.record(since, decisions);
        result
    }

    async fn purge(&self, ids: &[JobId], statuses: &[Status]) -> Result<u64> {
        let of = |id: &JobId| Decision { job: Some(*id), ..Decision::of(What::JobsPurge, Outcome::Asked) };
        self.recorder.announce(ids.iter().map(of).collect()).await;
        let since = self.recorder.since();
        let result = self.inner.purge(ids, statuses).await;
        let count = result.as_ref().ok().copied();
        self.recorder.record_one(since, Decision { count, ..Decision::of(What::JobsPurge, (&result).into()) });
        result
    }
}

#[async_trait]
impl QueueStore for RecordingStore {
    async fn queues(&self) -> Result<Vec<Queue>> {
        self.inner.queues().await
    }

    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>> {
        self.inner.queue(name).await
    }

    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
        self.inner.configure(name, patch).await
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<bool> {
        self.inner.delete_queue(name).await
    }

    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
        self.inner.grants(queue, since).await
    }
}

#[async_trait]
impl ScheduleStore for RecordingStore {
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
        let of = |job: &NewJob| Decision { epoch: Some(fence.epoch()), what: What::JobsTick, ..stored(job) };
        let planned = ticks.iter().flat_map(|tick| &tick.jobs).map(of).collect();
        let unfinished = self.recorder.unfinished(planned);
        let result = self.inner.tick(fence, ticks).await;
        unfinished.finish(|decisions| match &result {
            Ok(ticked) => {
                let made: BTreeSet<JobId> = ticked.iter().flat_map(|ticked| &ticked.made).copied().collect();
                decisions.retain(|it| it.job.is_some_and(|job| made.contains(&job)));
            }
            Err(error) => decisions.iter_mut().for_each(|decision| decision.outcome = error.into()),
        });
        result
    }
}

#[async_trait]
impl WorkerStore for RecordingStore {
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()> {
        self.inner.record_worker_heartbeats(workers).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.inner.workers().await
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>> {
        self.inner.worker(id).await
    }

    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
        let since = self.recorder.since();
        let result = self.inner.remove_workers(fence, ids).await;
        if let Some(fence) = fence {
            self.record_write(since, What::RegistryChange, fence, &result, |()| ids.len() as u64);
        }
        result
    }
}

#[async_trait]
impl NodeStore for RecordingStore {
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()> {
        self.inner.record_node_heartbeat(node).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.inner.nodes().await
    }

    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()> {
        let since = self.recorder.since();
        let result = self.inner.retire_node(fence, id, state, at).await;
        if let Some(fence) = fence {
            self.record_write(since, What::RegistryChange, fence, &result, |()| 1);
        }
        result
    }

    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()> {
        let since = self.recorder.since();
        let result = self.inner.forget_nodes(fence, ids).await;
        self.record_write(since, What::RegistryChange, fence, &result, |()| ids.len() as u64);
        result
    }
}

#[async_trait]
impl RosterStore for RecordingStore {
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()> {
        let since = self.recorder.since();
        let result = self.inner.change_shard_roster(fence, change).await;
        self.record_write(since, What::RegistryChange, fence, &result, |()| 1);
        result
    }

    async fn shard_roster(&self) -> Result<Vec<ShardMember>> {
        self.inner.shard_roster().await
    }
}

#[async_trait]
impl AuditStore for RecordingStore {
    async fn append_audit(&self, act: Act) -> Result<u64> {
        self.inner.append_audit(act).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        self.inner.audit(query).await
    }

    async fn expire_audit(&self, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
        let since = self.recorder.since();
        let result = self.inner.expire_audit(fence, before, limit).await;
        self.record_write(since, What::RegistryChange, fence, &result, |count| *count as u64);
        result
    }
}

#[async_trait]
impl ValueStore for RecordingStore {
    async fn value(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.inner.value(name).await
    }

    async fn swap_value(&self, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        self.inner.swap_value(name, known, value).await
    }
}
