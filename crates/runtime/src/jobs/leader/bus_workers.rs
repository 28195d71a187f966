//! Receives the heartbeats of workers on the bus, and keeps their records in the registry.
//!
//! A worker of a gateway is known to the gateway's node; a worker on the bus is known by its heartbeats alone, and the
//! leader writes its record: at once if a worker is new, leaves or changes its queues, else at most twice per
//! heartbeat. Its heartbeats also list its runs: a run that it has by the store and that two of them do not list is
//! lost, unless the job's channel still holds entries that its owner has not read (for a [while](super::unread)).
//!
//! Workers that send no heartbeats are entered by [`sight`](BusWorkers::sight) instead.
//!
//! Silence is measured only while the leader receives messages. It sends messages to itself all the time; whenever one
//! does not come back, the bus was unavailable, and every worker's silence starts anew: an outage of the bus for a
//! minute ends no worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::event::{ClusterEvent, WorkerChange};
use convoke_core::jobs::readers::BUSY_SILENCE;
use convoke_core::jobs::unlisted::{Unlisted, lost_reports, unlisted_error};
use convoke_core::jobs::wire::{self, Ready, RunRef, V1, WorkerHeartbeat, WorkerState};
use convoke_core::ports::store::{InFlightFilter, WorkerRecord};
use convoke_core::{ExecutionId, QueueName, Result, WorkerId};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::info;

use super::LeaderState;
use super::group_readers::is_reader;
use super::unread::Unread;
use crate::jobs::duty::{DutyRun, SubscribedTo};
use crate::jobs::feed::{Feed, Received};
use crate::jobs::gateway::runs_of;
use crate::jobs::views::in_flight;
use crate::jobs::{recorder, telemetry};

/// Upper bound of the workers whose heartbeats are kept: clients choose the ids.
const WORKERS_MAX: usize = 100_000;

/// The state of the workers on the bus, in one term.
#[derive(Default)]
pub struct BusWorkers {
    received: Mutex<ReceivedHeartbeats>,
    /// Notified when a record should be written at once.
    changed: Notify,
}

#[derive(Default)]
struct ReceivedHeartbeats {
    workers: BTreeMap<WorkerId, Known>,
    /// The workers that the store knew when the term began.
    registered: BTreeMap<WorkerId, Registered>,
    /// When the last message came, and since when receiving has not failed.
    last: Option<Instant>,
    since: Option<Instant>,
    began: Option<Instant>,
}

impl ReceivedHeartbeats {
    /// Returns the worker of a heartbeat, added if it was unknown.
    fn known(&mut self, heartbeat: &WorkerHeartbeat, now: Timestamp) -> &mut Known {
        let registered = self.registered.get(&heartbeat.worker_id).copied();
        self.workers.entry(heartbeat.worker_id.clone()).or_insert_with(|| Known {
            record: record(heartbeat, registered.map_or(now, |registered| registered.at), now),
            is_reader: false,
            heartbeat: heartbeat.clone(),
            seen: Instant::now(),
            is_new: registered.is_none(),
            written: None,
            urgent: true,
            named: BTreeSet::new(),
            has_named: false,
            to_compare: false,
            unlisted: Unlisted::default(),
        })
    }
}

#[derive(Clone, Copy)]
struct Registered {
    at: Timestamp,
    is_reader: bool,
}

struct Known {
    record: WorkerRecord,
    /// It sends no heartbeats.
    is_reader: bool,
    heartbeat: WorkerHeartbeat,
    seen: Instant,
    is_new: bool,
    /// When the registry had it last.
    written: Option<Instant>,
    /// It changed in a way that must be written at once.
    urgent: bool,
    /// The runs of its last list.
    named: BTreeSet<ExecutionId>,
    has_named: bool,
    /// It has sent a list since the last comparison with the store.
    to_compare: bool,
    /// Runs that it had by the store and that its last list did not name.
    unlisted: Unlisted,
}

impl BusWorkers {
    /// Starts receiving, with these workers in the registry: heartbeats from before a gap are out of date.
    fn begin(&self, stored: Vec<WorkerRecord>) {
        let registered = stored.into_iter().filter(|worker| worker.via.is_none());
        let registered = registered.map(|worker| {
            let is_reader = is_reader(&worker);
            (worker.worker_id, Registered { at: worker.registered_at, is_reader })
        });
        let registered = registered.collect();
        let now = Some(Instant::now());
        *self.received.lock() =
            ReceivedHeartbeats { workers: BTreeMap::new(), registered, last: now, since: now, began: now };
    }

    /// Records that a message came; `gap` if messages are known to be lost. Receiving is certain from now on if it was
    /// not before.
    fn listened(&self, patience: Duration, gap: bool) {
        let (mut received, now) = (self.received.lock(), Instant::now());
        let deaf = received.last.is_none_or(|last| now.duration_since(last) > patience);
        if gap || deaf {
            received.since = Some(now);
        }
        received.last = Some(now);
    }

    fn on_heartbeat(&self, heartbeat: WorkerHeartbeat, now: Timestamp) {
        let mut received = self.received.lock();
        if heartbeat.via.is_some() {
            // It is connected to a gateway by now, and that node writes its record.
            received.workers.remove(&heartbeat.worker_id);
            return;
        }
        if !received.workers.contains_key(&heartbeat.worker_id)
            && (heartbeat.state == WorkerState::Gone || received.workers.len() >= WORKERS_MAX)
        {
            return;
        }
        let known = received.known(&heartbeat, now);
        known.is_reader = false;
        if known.on_heartbeat(heartbeat, now) {
            self.changed.notify_one();
        }
    }

    /// Records the observation of a worker that sends no heartbeats and last read `silent_for` ago.
    pub fn sight(&self, heartbeat: WorkerHeartbeat, silent_for: Duration, now: Timestamp) {
        let mut received = self.received.lock();
        match received.workers.get(&heartbeat.worker_id) {
            Some(known) if !known.is_reader => return,
            None if heartbeat.state == WorkerState::Gone || received.workers.len() >= WORKERS_MAX => return,
            _ => {}
        }
        let known = received.known(&heartbeat, now);
        known.is_reader = true;
        let is_urgent = known.on_heartbeat(heartbeat, now - silent_for);
        known.seen = Instant::now().checked_sub(silent_for).unwrap_or(known.seen);
        if is_urgent {
            self.changed.notify_one();
        }
    }

    /// Returns whether a worker sends heartbeats, or did before this term and may not have had the time since.
    pub fn sends_heartbeats(&self, worker: &WorkerId, stale_after: Duration) -> bool {
        let received = self.received.lock();
        match received.workers.get(worker) {
            Some(known) => !known.is_reader,
            None => {
                let is_young = received.began.is_none_or(|began| began.elapsed() < stale_after);
                is_young && received.registered.get(worker).is_some_and(|registered| !registered.is_reader)
            }
        }
    }

    /// Returns how long a worker may be silent. A worker that sends no heartbeats may be busy with its runs.
    pub fn silence_limit(&self, worker: &WorkerId, stale_after: Duration) -> Duration {
        let is_reader = self.received.lock().workers.get(worker).is_some_and(|known| known.is_reader);
        if is_reader { stale_after * BUSY_SILENCE } else { stale_after }
    }

    /// Returns the last sign of life of a worker.
    pub fn heartbeat(&self, worker: &WorkerId) -> Option<WorkerHeartbeat> {
        self.received.lock().workers.get(worker).map(|known| known.heartbeat.clone())
    }

    /// Returns how long a worker was silent while its heartbeats could have been received.
    pub fn silent_for(&self, worker: &WorkerId) -> Duration {
        let received = self.received.lock();
        let (Some(last), Some(since)) = (received.last, received.since) else { return Duration::ZERO };
        let seen = received.workers.get(worker).map_or(since, |known| known.seen.max(since));
        last.saturating_duration_since(seen)
    }

    /// Returns whether a worker has listed its runs in this term.
    pub fn has_named_runs(&self, worker: &WorkerId) -> bool {
        self.received.lock().workers.get(worker).is_some_and(|known| known.has_named)
    }

    /// Returns those of `runs` that a worker listed in its last heartbeat. Walks once over the lists, however many
    /// workers there are.
    pub fn named_among<'a>(&self, runs: impl Iterator<Item = &'a ExecutionId>) -> BTreeSet<ExecutionId> {
        let runs: BTreeSet<&ExecutionId> = runs.collect();
        if runs.is_empty() {
            return BTreeSet::new();
        }
        let received = self.received.lock();
        received.workers.values().flat_map(|known| &known.named).filter(|named| runs.contains(named)).copied().collect()
    }

    /// Forgets a worker that was declared dead, until its next heartbeat.
    pub fn forget(&self, worker: &WorkerId) {
        let mut received = self.received.lock();
        received.workers.remove(worker);
        received.registered.remove(worker);
    }

    /// Returns the queues of workers that send heartbeats and were silent for `silence` or longer.
    pub fn queues_of_the_silent(&self, silence: Duration) -> BTreeSet<QueueName> {
        let received = self.received.lock();
        let (Some(last), Some(since)) = (received.last, received.since) else { return BTreeSet::new() };
        let silent = received
            .workers
            .values()
            .filter(|known| !known.is_reader && last.saturating_duration_since(known.seen.max(since)) >= silence);
        silent.flat_map(|known| known.record.queues.iter().cloned()).collect()
    }

    /// Returns the records that are due to be written, and which of them are new.
    fn unwritten(&self, interval: Duration) -> (Vec<WorkerRecord>, Vec<WorkerId>) {
        let mut received = self.received.lock();
        let (mut records, mut new) = (Vec::new(), Vec::new());
        for known in received.workers.values_mut() {
            let due = known.written.is_none_or(|written| known.seen > written && written.elapsed() >= interval);
            if std::mem::take(&mut known.urgent) || due {
                known.written = Some(Instant::now());
                records.push(known.record.clone());
                if std::mem::take(&mut known.is_new) {
                    new.push(known.record.worker_id.clone());
                }
            }
        }
        (records, new)
    }

    /// Marks records whose write failed as due at once.
    fn unwrite(&self, records: &[WorkerRecord], new: &[WorkerId]) {
        let mut received = self.received.lock();
        for record in records {
            if let Some(known) = received.workers.get_mut(&record.worker_id) {
                known.urgent = true;
                known.is_new = new.contains(&record.worker_id);
            }
        }
    }

    /// Returns workers that have left.
    fn gone(&self) -> Vec<WorkerId> {
        let received = self.received.lock();
        let gone = received.workers.values().filter(|known| known.record.state == WorkerState::Gone);
        gone.map(|known| known.record.worker_id.clone()).collect()
    }

    /// Returns workers that have listed their runs since the last call.
    fn to_compare(&self) -> Vec<WorkerId> {
        let mut received = self.received.lock();
        let named = received
            .workers
            .iter_mut()
            .filter_map(|(id, known)| std::mem::take(&mut known.to_compare).then(|| id.clone()));
        named.collect()
    }

    /// Compares a worker's last list with its runs in the store. Returns those that were missing the time before, too.
    fn compare(&self, worker: &WorkerId, stored: Vec<RunRef>) -> Vec<RunRef> {
        let mut received = self.received.lock();
        let Some(known) = received.workers.get_mut(worker) else { return Vec::new() };
        let Known { named, unlisted, .. } = known;
        unlisted.compare(stored, |execution| named.contains(execution))
    }
}

impl Known {
    /// Returns whether the record should be written at once.
    fn on_heartbeat(&mut self, mut heartbeat: WorkerHeartbeat, now: Timestamp) -> bool {
        self.seen = Instant::now();
        if let Some(executions) = heartbeat.executions.take() {
            self.named = executions.into_iter().collect();
            self.has_named = true;
            self.to_compare = true;
        }
        let fresh = record(&heartbeat, self.record.registered_at, now);
        let same = fresh.state == self.record.state
            && fresh.queues == self.record.queues
            && fresh.concurrency == self.record.concurrency;
        self.urgent |= !same;
        self.record = fresh;
        self.heartbeat = heartbeat;
        self.urgent
    }
}

fn record(heartbeat: &WorkerHeartbeat, registered_at: Timestamp, now: Timestamp) -> WorkerRecord {
    WorkerRecord {
        worker_id: heartbeat.worker_id.clone(),
        name: heartbeat.name.clone().unwrap_or_else(|| heartbeat.worker_id.to_string()),
        queues: heartbeat.queues.clone(),
        concurrency: heartbeat.slots(),
        running: heartbeat.running,
        state: heartbeat.state,
        registered_at,
        // By the leader's clock: a worker's own may be minutes off.
        last_heartbeat_at: now,
        via: None,
    }
}

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let feed = run.feed("bus workers");
    tokio::select! {
        biased;
        () = listen(&leader, feed) => Ok(()),
        () = keep(&leader, &mut run) => Ok(()),
    }
}

/// Receives heartbeats. A worker whose heartbeats were missed in a gap is known from the registry.
async fn listen(leader: &LeaderState, mut feed: Feed) {
    let LeaderState { node, bus_workers, group_readers, .. } = leader;
    let patience = node.settings.worker.stale_after / 2;
    loop {
        let message = match feed.next().await {
            Received::Subscribed => {
                match node.store().workers().await {
                    Ok(workers) => bus_workers.begin(workers),
                    Err(error) => {
                        node.outages.failed("bus workers", &error);
                        feed.begin_again();
                    }
                }
                continue;
            }
            Received::Message(message) => message,
            Received::Missed => {
                bus_workers.listened(patience, true);
                continue;
            }
            Received::Broken => continue,
        };
        bus_workers.listened(patience, false);
        if message.channel != node.channels.worker_heartbeat() {
            continue;
        }
        // A message that cannot be read is set aside by the dispatcher, which receives it too.
        let Ok(heartbeat) = serde_json::from_slice::<WorkerHeartbeat>(&message.body) else { continue };
        if heartbeat.via.is_none()
            && let Err(invalid) = heartbeat.check()
        {
            telemetry::log_rejection(node, "worker.heartbeat", heartbeat.worker_id.as_str(), &invalid.to_string());
            continue;
        }
        if heartbeat.via.is_none() && heartbeat.state == WorkerState::Gone {
            group_readers.leave(&heartbeat.worker_id);
        }
        bus_workers.on_heartbeat(heartbeat, node.now());
    }
}

/// Writes the records and ends the runs that are lost, until the term is over.
async fn keep(leader: &LeaderState, run: &mut DutyRun<SubscribedTo>) {
    let node = &leader.node;
    let interval = super::silence_interval(node.settings.worker.stale_after);
    // An empty hint: the leader receives it itself, which proves that it receives messages.
    let nothing = Ready { v: V1, queues: Vec::new(), configured: Vec::new(), due_at: None, schedules: false };
    let nothing = wire::encode(&nothing);
    let mut published = Instant::now() - interval;
    let mut unread = Unread::new(node);
    loop {
        if published.elapsed() >= interval {
            published = Instant::now();
            if let Err(error) = node.bus().publish(&node.channels.ready(), nothing.clone()).await {
                run.failed("bus workers", &error);
            }
        }
        let kept = async {
            write(leader).await?;
            part(leader).await?;
            compare(leader, &mut unread).await
        };
        if let Err(error) = kept.await {
            run.failed("bus workers", &error);
        }
        if run.wait(tokio::time::timeout(interval, leader.bus_workers.changed.notified())).await.is_none() {
            return;
        }
    }
}

async fn write(LeaderState { node, bus_workers, .. }: &LeaderState) -> Result<()> {
    let (records, new) = bus_workers.unwritten(node.settings.worker.heartbeat_interval / 2);
    if records.is_empty() {
        return Ok(());
    }
    node.store().record_worker_heartbeats(&records).await.inspect_err(|_| bus_workers.unwrite(&records, &new))?;
    records.iter().for_each(|record| node.views.cache.worker_changed(&record.worker_id));
    for worker_id in new {
        info!(worker = %worker_id, "worker joined over the bus");
        node.publish_event(ClusterEvent::Worker { change: WorkerChange::Joined, worker_id });
    }
    Ok(())
}

/// Removes workers that left, once the release of their runs is recorded. A worker whose runs no node records is
/// declared dead in time.
async fn part(LeaderState { node, term, bus_workers, group_readers, .. }: &LeaderState) -> Result<()> {
    for worker in bus_workers.gone() {
        if runs_of(node, &worker).await?.is_empty() {
            node.store().remove_workers(Some(term.fence()), std::slice::from_ref(&worker)).await?;
            node.views.cache.worker_changed(&worker);
            bus_workers.forget(&worker);
            group_readers.leave(&worker);
            node.publish_event(ClusterEvent::Worker { change: WorkerChange::Left, worker_id: worker });
        }
    }
    Ok(())
}

async fn compare(leader: &LeaderState, unread: &mut Unread) -> Result<()> {
    let LeaderState { node, term, bus_workers, .. } = leader;
    for worker in bus_workers.to_compare() {
        let stored = runs_of(node, &worker).await?;
        let mut lost = bus_workers.compare(&worker, stored);
        let unread = unread.postpone(leader, lost.iter().map(|run| (*run, Some(&worker)))).await;
        lost.retain(|run| !unread.contains(&run.execution_id));
        if !lost.is_empty() {
            info!(%worker, runs = lost.len(), "worker lost runs that it was given");
            let reports = lost_reports(&worker, lost, &unlisted_error(&worker), node.now(), || node.fraction());
            recorder::end_as_leader(node, term.fence(), reports).await?;
        }
    }
    Ok(())
}

/// Returns the runs that a dead worker may have taken without a report: runs of its queues that no node claims, that no
/// worker lists and that are no longer on the bus. They count as its attempts: a job that kills its worker at once must
/// not count as never picked up, or it would kill workers for ever.
pub async fn last_taken(leader: &LeaderState, worker: &WorkerRecord) -> Result<Vec<RunRef>> {
    let LeaderState { node, bus_workers, .. } = leader;
    let before = node.now() - node.settings.worker.stale_after / 2;
    let filter = InFlightFilter { unclaimed_before: Some(before), ..InFlightFilter::default() };
    let mut by_queue: BTreeMap<QueueName, Vec<_>> = BTreeMap::new();
    let runs = in_flight(node, filter).await?;
    let queues: BTreeSet<&QueueName> = worker.queues.iter().collect();
    let named = bus_workers.named_among(runs.iter().map(|run| &run.execution));
    for run in runs {
        let known = node.gateway.sessions.has(&run.execution) || named.contains(&run.execution);
        if queues.contains(&run.queue) && !known {
            by_queue.entry(run.queue.clone()).or_default().push(run);
        }
    }
    let mut taken = Vec::new();
    for (queue, mut runs) in by_queue {
        // Queues are served in order: the runs that still wait are those dispatched last.
        let Some(waiting) = super::untaken(node, &queue).await? else { continue };
        runs.sort_by_key(|run| run.dispatched_at);
        runs.truncate(runs.len().saturating_sub(usize::try_from(waiting).unwrap_or(usize::MAX)));
        taken.extend(runs.into_iter().map(|run| RunRef { job_id: run.job, execution_id: run.execution }));
    }
    Ok(taken)
}
