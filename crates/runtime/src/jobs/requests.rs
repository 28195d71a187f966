//! The requests of clients. An enqueue returns once it is committed.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::jobs::error_group::normalise;
use convoke_core::jobs::event::{ClusterEvent, ScheduleChange};
use convoke_core::jobs::link::{ClientLink, Enqueued, ScheduleCall};
use convoke_core::jobs::schedule::{Schedule, ScheduleSpec, job_for_tick};
use convoke_core::jobs::wire::{Cancel, V1};
use convoke_core::jobs::{Job, JobSpec, NewJob, Queue, QueuePatch, Status};
use convoke_core::limits::{ARGS_BYTES_MAX, BATCH_JOBS_MAX, PAGE_BYTES_MAX, RESULT_BYTES_MAX};
use convoke_core::ports::store::{Cancelled, JobPage, JobQuery, Redriven};
use convoke_core::strict::Strict;
use convoke_core::{Error, ExecutionId, Invalid, JobId, JobType, Json, QueueName, Result, ScheduleName};
use serde::Deserialize;
use tokio::time::Instant;

use super::coordinator::Coordinator;
use super::node::Node;
use super::{history, recorder, telemetry, waiting};

/// Selects dead letters.
#[derive(Debug, Clone, PartialEq)]
pub enum DeadSelection {
    /// The dead letters with these ids.
    Ids(Vec<JobId>),
    /// All that match; without either filter, all dead letters.
    Filter {
        /// Only those of this queue; `None` for all queues.
        queue: Option<QueueName>,
        /// Only those of this type; `None` for all types.
        job_type: Option<JobType>,
        /// Only those whose error is of this [group](convoke_core::jobs::error_group); `None` for all errors.
        error: Option<String>,
    },
}

/// The statuses of dead letters.
const DEAD: [Status; 2] = [Status::Failed, Status::TimedOut];

const DEAD_BATCH: usize = 500;
/// The same for ids that a client lists: each job may have arguments and a result of the largest size.
pub(super) const DEAD_IDS_BATCH: usize = PAGE_BYTES_MAX / (ARGS_BYTES_MAX + RESULT_BYTES_MAX);

/// How often a change of a schedule is retried if another change, or a tick, came first.
const SCHEDULE_TRIES_MAX: usize = 20;

fn changed_meanwhile(name: &ScheduleName) -> Error {
    Error::Conflict(format!("schedule {name} was changed by others {SCHEDULE_TRIES_MAX} times meanwhile: try again"))
}

impl Coordinator {
    /// Enqueues one job. Returns false if it existed already, by its unique key or its id.
    pub async fn enqueue(&self, spec: JobSpec) -> Result<(Job, bool)> {
        let node = self.node();
        let job = spec.into_job(node.job_id(), node.now(), &node.settings.retry)?;
        let stored = job.clone().into_stored();
        let answers = insert(node, vec![job]).await?;
        match answers.first() {
            Some(Enqueued { id, created: false }) => Ok((self.job(*id, None).await?, false)),
            _ => Ok((stored, true)),
        }
    }

    /// Enqueues all or none.
    pub async fn enqueue_batch(&self, specs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
        let node = self.node();
        if specs.is_empty() || specs.len() > BATCH_JOBS_MAX {
            let message = format!("expected 1 to {BATCH_JOBS_MAX} jobs, got {}", specs.len());
            return Err(Invalid::new("jobs", message).into());
        }
        let now = node.now();
        let jobs = specs.into_iter().enumerate().map(|(index, spec)| {
            let job = spec.into_job(node.job_id(), now, &node.settings.retry);
            job.map_err(|invalid| invalid.within(format_args!("jobs[{index}]")))
        });
        insert(node, jobs.collect::<Result<Vec<_>, _>>()?).await
    }

    /// Returns the job as it is, or as it is once it has ended or `wait` has passed.
    pub async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job> {
        let node = self.node();
        let Some(wait) = wait else { return self.stored(id).await };
        let deadline = Instant::now() + wait;
        let waiting = node.gateway.waiters.enter(id);
        let mut pause = waiting::SPREAD;
        loop {
            // Before the job is read, so that an end that comes now is not missed.
            let mut woken = pin!(waiting.woken());
            woken.as_mut().enable();
            let job = self.stored(id).await?;
            if !job.status.is_live() || Instant::now() >= deadline {
                return Ok(job);
            }
            // Thousands may wait, and its arguments may be large.
            drop(job);
            if pause == waiting::SPREAD {
                waiting.announce();
            }
            let look = deadline.min(Instant::now() + pause);
            tokio::select! {
                biased;
                () = woken => {}
                () = tokio::time::sleep_until(look) => {}
                () = node.drain.begun.cancelled() => return self.stored(id).await,
            }
            pause = waiting::LOOK_INTERVAL;
        }
    }

    async fn stored(&self, id: JobId) -> Result<Job> {
        let job = self.store().get(&[id]).await?.pop().flatten();
        job.ok_or_else(|| Error::not_found("job", id))
    }

    /// Ends a live job, whatever its state. A cancelled job stays cancelled; one that ended otherwise is rejected.
    pub async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job> {
        let node = self.node();
        let answer = self.store().cancel(&[id], reason.as_deref(), node.now()).await?.pop();
        let (job, run) = match answer {
            Some(Cancelled::Now { job, run }) => (job, run),
            Some(Cancelled::Before(job)) if job.status == Status::Cancelled => {
                // The request that cancelled it before may have been cut off before the worker was notified.
                if let Some(execution_id) = job.execution_id {
                    stop_run(node, id, execution_id, reason).await;
                }
                return Ok(job);
            }
            Some(Cancelled::Before(job)) => {
                return Err(Error::Conflict(format!("job {id} cannot be cancelled: it is {}", job.status.as_str())));
            }
            Some(Cancelled::Unknown) | None => return Err(Error::not_found("job", id)),
        };
        if let Some(execution_id) = run {
            stop_run(node, id, execution_id, reason).await;
        }
        telemetry::count_jobs(job.status, &job.definition.queue, &job.definition.job_type, 1);
        node.gateway.waiters.wake(id);
        node.views.cache.job_changed(id);
        announce(node, &job);
        Ok(job)
    }

    /// Makes an ended job pending again.
    pub async fn retry(&self, id: JobId) -> Result<Job> {
        let node = self.node();
        match self.store().redrive(&[id], node.now()).await?.pop() {
            Some(Redriven::Pending(job)) => {
                node.views.cache.job_changed(id);
                node.gateway.hints.ready(&job.definition.queue);
                announce(node, &job);
                Ok(job)
            }
            Some(Redriven::Refused(job)) => {
                Err(Error::Conflict(format!("job {id} cannot be retried: it is {}", job.status.as_str())))
            }
            Some(Redriven::Unknown) | None => Err(Error::not_found("job", id)),
        }
    }

    /// Returns one page of the dead letters that match `query`.
    pub async fn dead_letters(&self, query: JobQuery) -> Result<JobPage> {
        self.store().list(JobQuery { statuses: DEAD.to_vec(), ..query }).await
    }

    /// Makes dead letters pending again. Returns their number.
    pub async fn retry_dead(&self, which: DeadSelection) -> Result<u64> {
        let node = self.node();
        let mut retried = 0;
        let mut batches = DeadBatches::of(which, self).await?;
        while let Some(ids) = batches.next(self).await? {
            for outcome in self.store().redrive(&ids, node.now()).await? {
                if let Redriven::Pending(job) = outcome {
                    retried += 1;
                    node.views.cache.job_changed(job.id);
                    node.gateway.hints.ready(&job.definition.queue);
                    announce(node, &job);
                }
            }
        }
        Ok(retried)
    }

    /// Deletes dead letters permanently. Returns their number.
    pub async fn purge_dead(&self, which: DeadSelection) -> Result<u64> {
        let mut purged = 0;
        let mut batches = DeadBatches::of(which, self).await?;
        while let Some(ids) = batches.next(self).await? {
            purged += self.purge_jobs(&ids, &DEAD).await?;
        }
        Ok(purged)
    }

    /// Creates or replaces a schedule. Returns true if it is new.
    pub async fn put_schedule(&self, name: ScheduleName, spec: ScheduleSpec) -> Result<(Schedule, bool)> {
        let now = self.node().now();
        let wanted = spec.into_schedule(name, now)?;
        for _ in 0..SCHEDULE_TRIES_MAX {
            let mut schedule = wanted.clone();
            let created = match self.store().schedule(&wanted.name).await? {
                None => self.store().put_schedule(schedule.clone()).await?,
                Some(known) => {
                    schedule.succeed(&known, now);
                    if !self.store().replace_schedule(&known, schedule.clone()).await? {
                        continue;
                    }
                    false
                }
            };
            let change = if created { ScheduleChange::Created } else { ScheduleChange::Updated };
            self.announce_schedule(change, &schedule.name);
            return Ok((schedule, created));
        }
        Err(changed_meanwhile(&wanted.name))
    }

    /// Pauses or resumes a schedule. It must not restore one that is removed at the same time, nor undo a change.
    pub async fn pause_schedule(&self, name: &ScheduleName, paused: bool) -> Result<Schedule> {
        for _ in 0..SCHEDULE_TRIES_MAX {
            let known = self.schedule(name).await?;
            if known.paused == paused {
                return Ok(known);
            }
            let mut schedule = known.clone();
            if paused {
                schedule.pause()
            } else {
                schedule.resume(self.node().now())
            }
            if self.store().replace_schedule(&known, schedule.clone()).await? {
                self.announce_schedule(if paused { ScheduleChange::Paused } else { ScheduleChange::Resumed }, name);
                return Ok(schedule);
            }
        }
        Err(changed_meanwhile(name))
    }

    fn announce_schedule(&self, change: ScheduleChange, name: &ScheduleName) {
        self.node().gateway.hints.schedules();
        self.node().publish_event(ClusterEvent::Schedule { change, schedule: name.clone() });
    }

    /// Runs a schedule's job now, beside its ticks. Returns false if this very instant has its job already, from a tick
    /// or another call: that one is returned.
    pub async fn trigger_schedule(&self, name: &ScheduleName) -> Result<(Job, bool)> {
        let node = self.node();
        let schedule = self.schedule(name).await?;
        let now = node.now();
        let job = job_for_tick(&schedule, node.job_id(), now, now, &node.settings.retry);
        let stored = job.clone().into_stored();
        if let Some(Enqueued { id, created: false }) = insert(node, vec![job]).await?.first() {
            return Ok((self.job(*id, None).await?, false));
        }
        node.publish_event(ClusterEvent::ScheduleFired { schedule: schedule.name, tick: now, job_id: Some(stored.id) });
        Ok((stored, true))
    }

    /// Removes a schedule. `NotFound` if there is none of that name.
    pub async fn remove_schedule(&self, name: &ScheduleName) -> Result<()> {
        if !self.store().remove_schedule(name).await? {
            return Err(Error::not_found("schedule", name));
        }
        self.node().publish_event(ClusterEvent::Schedule { change: ScheduleChange::Removed, schedule: name.clone() });
        Ok(())
    }

    /// Returns a schedule. `NotFound` if there is none of that name.
    pub async fn schedule(&self, name: &ScheduleName) -> Result<Schedule> {
        self.store().schedule(name).await?.ok_or_else(|| Error::not_found("schedule", name))
    }

    /// Changes the settings of a queue that `patch` names, and creates the queue if it is new.
    pub async fn configure_queue(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
        if let Some(Some(limit)) = patch.rate_limit {
            limit.check()?;
        }
        if patch.concurrency == Some(Some(0)) {
            return Err(Invalid::new("concurrency", "expected at least 1 (pause the queue to stop it), got 0").into());
        }
        let queue = self.store().configure(name, patch).await?;
        self.node().gateway.hints.configured(name);
        Ok(queue)
    }

    /// Deletes a queue without jobs and workers, with its settings. Its next job, worker or setting creates it again.
    pub async fn delete_queue(&self, name: &QueueName) -> Result<()> {
        if self.store().queue(name).await?.is_none() {
            return Err(Error::not_found("queue", name));
        }
        // Not from the cache: that may be a moment old.
        let workers = self.store().workers().await?.iter().filter(|worker| worker.queues.contains(name)).count();
        if workers > 0 {
            let message = format!("queue {:?} is served by {workers} workers: stop them first", name.as_str());
            return Err(Error::Conflict(message));
        }
        if !self.store().delete_queue(name).await? {
            return Err(Error::not_found("queue", name));
        }
        self.node().gateway.hints.configured(name);
        Ok(())
    }
}

#[async_trait]
impl ClientLink for Coordinator {
    async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
        self.enqueue_batch(jobs).await
    }

    async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job> {
        Coordinator::job(self, id, wait).await
    }

    async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job> {
        Coordinator::cancel(self, id, reason).await
    }

    async fn retry(&self, id: JobId) -> Result<Job> {
        Coordinator::retry(self, id).await
    }

    async fn schedule(&self, call: ScheduleCall) -> Result<Json> {
        let read = |spec: &Json| {
            let mut parser = serde_json::Deserializer::from_str(spec.as_str());
            ScheduleSpec::deserialize(Strict(&mut parser)).map_err(|error| Invalid::new("schedule", error.to_string()))
        };
        let written = match call {
            ScheduleCall::Put(name, spec) => Json::of(&self.put_schedule(name, read(&spec)?).await?.0),
            ScheduleCall::List => Json::of(&BTreeMap::from([("schedules", self.store().schedules().await?)])),
            ScheduleCall::Get(name) => Json::of(&Coordinator::schedule(self, &name).await?),
            ScheduleCall::Pause(name) => Json::of(&self.pause_schedule(&name, true).await?),
            ScheduleCall::Resume(name) => Json::of(&self.pause_schedule(&name, false).await?),
            ScheduleCall::Trigger(name) => Json::of(&self.trigger_schedule(&name).await?.0),
            ScheduleCall::Remove(name) => Json::of(&self.remove_schedule(&name).await?),
        };
        written.map_err(|error| Error::unavailable("the coordinator", error))
    }
}

/// Asks the worker of a cancelled run to stop, before its slot is freed.
async fn stop_run(node: &Node, job_id: JobId, execution_id: ExecutionId, reason: Option<String>) {
    recorder::publish_cancellation(node, Cancel { v: V1, job_id, execution_id, reason }).await;
    recorder::forget(node, &[(job_id, execution_id)]).await;
}

/// Commits new jobs, then hints that they are there.
pub(super) async fn insert(node: &Node, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
    let summaries: Vec<NewJobSummary> = jobs.iter().map(NewJobSummary::of).collect();
    let answers = telemetry::timed("insert", node.client_store.insert(jobs)).await;
    let answers = node
        .reach
        .store_failures
        .record_result(answers)
        .inspect_err(|error| node.outages.request_failed("enqueue", error))?;
    let mut tally: BTreeMap<(Status, &QueueName, &JobType), u64> = BTreeMap::new();
    for (summaries, _) in summaries.iter().zip(&answers).filter(|(_, answer)| answer.created) {
        *tally.entry((summaries.status, &summaries.queue, &summaries.job_type)).or_default() += 1;
        if node.is_watched() {
            node.publish_event(summaries.cluster_event());
        }
    }
    for ((status, queue, job_type), count) in tally {
        telemetry::count_jobs(status, queue, job_type, count);
        history::count_enqueued(node, queue, count);
        if status == Status::Pending {
            node.gateway.hints.ready(queue);
        }
    }
    if let Some(due_at) = summaries
        .iter()
        .filter(|summaries| summaries.status == Status::Scheduled)
        .map(|summaries| summaries.due_at)
        .min()
    {
        node.gateway.hints.due(due_at);
    }
    Ok(answers)
}

/// The parts of a new job that are needed after the commit.
struct NewJobSummary {
    id: JobId,
    status: Status,
    queue: QueueName,
    job_type: JobType,
    due_at: jiff::Timestamp,
}

impl NewJobSummary {
    fn of(job: &NewJob) -> Self {
        let (queue, job_type) = (job.definition.queue.clone(), job.definition.job_type.clone());
        NewJobSummary { id: job.id, status: job.status(), queue, job_type, due_at: job.due_at() }
    }

    fn cluster_event(&self) -> ClusterEvent {
        let (queue, job_type) = (self.queue.clone(), self.job_type.clone());
        ClusterEvent::Job { status: self.status, job_id: self.id, job_type, queue, attempt: 0 }
    }
}

pub(super) fn announce(node: &Node, job: &Job) {
    if node.is_watched() {
        node.publish_event(ClusterEvent::Job {
            status: job.status,
            job_id: job.id,
            job_type: job.definition.job_type.clone(),
            queue: job.definition.queue.clone(),
            attempt: job.attempt,
        });
    }
}

/// Reads dead letters, a batch at a time.
enum DeadBatches {
    Ids(Vec<JobId>),
    Query { query: Option<Box<JobQuery>>, error: Option<String> },
}

impl DeadBatches {
    /// Rejects an id that is not that of a job.
    async fn of(which: DeadSelection, coordinator: &Coordinator) -> Result<Self> {
        match which {
            DeadSelection::Ids(ids) => {
                for ids in ids.chunks(DEAD_IDS_BATCH) {
                    let jobs = coordinator.store().get(ids).await?;
                    let unknown = ids.iter().zip(&jobs).find(|(_, job)| job.is_none());
                    unknown.map_or(Ok(()), |(id, _)| Err(Error::not_found("job", id)))?;
                }
                Ok(DeadBatches::Ids(ids))
            }
            DeadSelection::Filter { queue, job_type, error } => {
                let query = JobQuery { queue, job_type, limit: DEAD_BATCH, ..JobQuery::default() };
                Ok(DeadBatches::Query { query: Some(Box::new(query)), error })
            }
        }
    }

    async fn next(&mut self, coordinator: &Coordinator) -> Result<Option<Vec<JobId>>> {
        match self {
            DeadBatches::Ids(ids) if ids.is_empty() => Ok(None),
            DeadBatches::Ids(ids) => Ok(Some(ids.drain(..ids.len().min(DEAD_IDS_BATCH)).collect())),
            DeadBatches::Query { query, error } => {
                let Some(page_query) = query.take() else { return Ok(None) };
                let page = coordinator.dead_letters((*page_query).clone()).await?;
                *query = page.next_cursor.map(|cursor| Box::new(JobQuery { cursor: Some(cursor), ..*page_query }));
                let is_wanted = |job: &&Job| {
                    error.as_ref().is_none_or(|error| normalise(job.error.as_deref().unwrap_or_default()) == *error)
                };
                Ok(Some(page.jobs.iter().filter(is_wanted).map(|job| job.id).collect()))
            }
        }
    }
}
