//! The workers that are connected to this node: their free slots, their runs, and the notices for them.

mod unnamed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::link::Heartbeat;
use convoke_core::jobs::unlisted::Unlisted;
use convoke_core::jobs::wire::{InboxReport, RunRef, WorkerHeartbeat, WorkerState};
use convoke_core::ports::store::WorkerRecord;
use convoke_core::{ExecutionId, JobId, QueueName, Result, WorkerId};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

pub use unnamed::expect_stored;

use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::follower;
use crate::jobs::node::Node;
use crate::jobs::over::Over;

/// Upper bound of the runs that a worker is sent beside those that it executes.
const PREFETCH_MAX: usize = 1_000;

#[derive(Default)]
pub struct Sessions {
    inner: Mutex<Inner>,
    /// Held while signs of life are written, and while a worker is removed from the registry: a record that was read
    /// before it left must not be written after.
    pub registry: tokio::sync::Mutex<()>,
    /// Held while runs are searched by their execution ids alone.
    pub adoption: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Inner {
    workers: BTreeMap<WorkerId, Session>,
    runs: BTreeMap<ExecutionId, Run>,
    /// Workers that leave or are being declared dead: until that is done they must not be restored from the store.
    barred: BTreeSet<WorkerId>,
    /// How often a bar was added or removed. A record of a worker that was read before that may be out of date.
    bars: u64,
    /// Runs that were cancelled before a worker of this node had them.
    over: Over,
}

pub struct Session {
    pub record: WorkerRecord,
    /// Wakes a waiting poll that has a notice for the worker.
    pub wake: Arc<Notify>,
    runs: BTreeSet<ExecutionId>,
    cancel: BTreeSet<ExecutionId>,
    seen: Instant,
    /// Polls that wait.
    parked: usize,
    /// How many runs they ask for together.
    asked: usize,
    /// How many runs it wants to have beside those that it executes, by its last poll.
    prefetch: u32,
    /// When its polls last asked for as many runs as it has slots: then it had no run.
    idle_at: Option<Instant>,
    /// How often it registered with this node, and when it did last.
    registrations: u64,
    registered: Instant,
    last_heartbeat: Option<Instant>,
    /// A heartbeat was compared with the store.
    compared: bool,
    /// Runs that its last heartbeat did not list.
    unlisted: Unlisted,
    /// When its list was last compared with the store.
    checked: Option<Instant>,
    /// Its last sign of life is not in the store yet.
    unwritten: bool,
    rotation: usize,
}

struct Run {
    job: JobId,
    worker: WorkerId,
    handed_out: Instant,
    /// When it was handed out, or last listed by a heartbeat or a report; and in which of its worker's registrations.
    named: Instant,
    registration: u64,
}

/// The state that a poll needs to wait for work.
pub struct Turn {
    pub queues: Vec<QueueName>,
    pub cancel: Vec<ExecutionId>,
}

impl Sessions {
    /// Adds a worker, or changes its offer; its runs stay.
    pub fn enter(&self, record: WorkerRecord) {
        let mut inner = self.inner.lock();
        let session = Self::admit(&mut inner, record);
        session.registrations += 1;
        session.registered = Instant::now();
    }

    /// Adds a worker as the store had it when there were this many `bars`. Returns false, and adds nothing, if a worker
    /// has left since.
    pub fn enter_again(&self, record: WorkerRecord, bars: u64) -> bool {
        let mut inner = self.inner.lock();
        let is_current = inner.bars == bars;
        if is_current {
            Self::admit(&mut inner, record);
        }
        is_current
    }

    fn admit(inner: &mut Inner, record: WorkerRecord) -> &mut Session {
        let now = Instant::now();
        let session = inner.workers.entry(record.worker_id.clone()).or_insert_with(|| Session {
            record: record.clone(),
            wake: Arc::default(),
            runs: BTreeSet::new(),
            cancel: BTreeSet::new(),
            seen: now,
            parked: 0,
            asked: 0,
            prefetch: 0,
            idle_at: None,
            registrations: 0,
            registered: now,
            last_heartbeat: None,
            compared: false,
            unlisted: Unlisted::default(),
            checked: None,
            unwritten: false,
            rotation: 0,
        });
        (session.record, session.seen) = (record, now);
        session.wake.notify_waiters();
        session
    }

    pub fn contains(&self, worker: &WorkerId) -> bool {
        self.inner.lock().workers.contains_key(worker)
    }

    /// Records a sign of life. Returns false if the worker is not known here.
    pub fn see(&self, worker: &WorkerId) -> bool {
        self.inner.lock().workers.get_mut(worker).map(Session::see).is_some()
    }

    /// Returns the signal that is notified when there is a notice for a worker.
    pub fn bell(&self, worker: &WorkerId) -> Option<Arc<Notify>> {
        self.inner.lock().workers.get(worker).map(|session| session.wake.clone())
    }

    /// Begins a poll: returns the queues that it may take runs of, another one first each time, and the notices for the
    /// worker.
    pub fn turn(&self, worker: &WorkerId, max: usize) -> Option<Turn> {
        let mut inner = self.inner.lock();
        let session = inner.workers.get_mut(worker)?;
        session.see();
        session.parked += 1;
        session.asked += max;
        session.idle_at = session.idle_since().or(session.idle_at);
        if max > 0 {
            let held = session.runs.len() + max;
            let prefetch = held.saturating_sub(session.record.concurrency as usize).min(PREFETCH_MAX);
            session.prefetch = prefetch as u32;
        }
        let mut queues = session.record.queues.clone();
        if !queues.is_empty() {
            let start = session.rotation % queues.len();
            queues.rotate_left(start);
            session.rotation = session.rotation.wrapping_add(1);
        }
        Some(Turn { queues, cancel: std::mem::take(&mut session.cancel).into_iter().collect() })
    }

    /// Returns which of these queues no worker of this node serves.
    pub fn unserved(&self, mut queues: BTreeSet<QueueName>) -> BTreeSet<QueueName> {
        let inner = self.inner.lock();
        for session in inner.workers.values().filter(|session| session.record.state == WorkerState::Active) {
            session.record.queues.iter().for_each(|queue| {
                queues.remove(queue);
            });
        }
        queues
    }

    /// Returns a worker that serves one of these queues.
    pub fn server_of(&self, queues: &BTreeSet<QueueName>) -> Option<WorkerId> {
        let inner = self.inner.lock();
        let mut workers = inner.workers.iter();
        let server = workers.find(|(_, session)| session.record.queues.iter().any(|queue| queues.contains(queue)));
        server.map(|(worker, _)| worker.clone())
    }

    /// Ends a poll that has returned or was dropped.
    pub fn unpark(&self, worker: &WorkerId, max: usize) {
        if let Some(session) = self.inner.lock().workers.get_mut(worker) {
            session.parked = session.parked.saturating_sub(1);
            session.asked = session.asked.saturating_sub(max);
            // A returned poll is no sign of life of a worker that may be frozen; one that never sends heartbeats has
            // only its polls.
            if session.last_heartbeat.is_none() {
                session.see();
            }
        }
    }

    /// Records runs that were handed out to a worker. Returns false, and records nothing, if the worker is no longer
    /// known here.
    pub fn hand_out(&self, worker: &WorkerId, runs: &[RunRef], now: Instant) -> bool {
        let mut inner = self.inner.lock();
        let Inner { workers, runs: all, .. } = &mut *inner;
        let Some(registration) = workers.get(worker).map(|session| session.registrations) else { return false };
        for run in runs {
            let (worker, handed_out) = (worker.clone(), now);
            let entry = Run { job: run.job_id, worker, handed_out, named: now, registration };
            let before = all.insert(run.execution_id, entry);
            if let Some(holder) = before.and_then(|before| workers.get_mut(&before.worker)) {
                holder.runs.remove(&run.execution_id);
            }
        }
        if let Some(session) = workers.get_mut(worker) {
            session.runs.extend(runs.iter().map(|run| run.execution_id));
        }
        true
    }

    /// Removes runs that have ended. Returns the workers whose slots became free.
    pub fn forget<'a>(&self, executions: impl Iterator<Item = &'a ExecutionId>) -> Vec<WorkerId> {
        let mut inner = self.inner.lock();
        let Inner { workers, runs, .. } = &mut *inner;
        let mut freed: BTreeSet<WorkerId> = BTreeSet::new();
        for execution in executions {
            let Some(run) = runs.remove(execution) else { continue };
            if let Some(session) = workers.get_mut(&run.worker) {
                session.runs.remove(execution);
            }
            freed.insert(run.worker);
        }
        freed.into_iter().collect()
    }

    /// Marks a run to be stopped by its worker, if that is one of this node's.
    pub fn cancel(&self, execution: ExecutionId) {
        let mut inner = self.inner.lock();
        let Inner { workers, runs, over, .. } = &mut *inner;
        let Some(session) = runs.get(&execution).and_then(|run| workers.get_mut(&run.worker)) else {
            return over.insert(execution);
        };
        if session.cancel.insert(execution) {
            session.wake.notify_waiters();
        }
    }

    /// Returns which of these runs were cancelled lately, before a worker of this node had them.
    pub fn over(&self, executions: impl Iterator<Item = ExecutionId>) -> BTreeSet<ExecutionId> {
        let inner = self.inner.lock();
        executions.filter(|execution| inner.over.contains(execution)).collect()
    }

    /// Compares a heartbeat's list of runs with the session.
    pub fn compare(&self, heartbeat: &Heartbeat, check_after: Duration) -> Option<Comparison> {
        let mut inner = self.inner.lock();
        let Inner { workers, runs, .. } = &mut *inner;
        let session = workers.get_mut(&heartbeat.worker_id)?;
        let before = session.last_heartbeat.replace(Instant::now());
        session.see();
        session.record.state = if heartbeat.draining { WorkerState::Draining } else { WorkerState::Active };
        let listed: BTreeSet<&ExecutionId> = heartbeat.running.iter().collect();
        // Runs that were handed out since the previous heartbeat may still be on their way to the worker.
        let mut expected = Vec::new();
        for execution in &session.runs {
            let Some(run) = runs.get_mut(execution) else { continue };
            if listed.contains(execution) {
                (run.named, run.registration) = (Instant::now(), session.registrations);
            } else if before.is_some_and(|before| run.handed_out < before) {
                expected.push(RunRef { job_id: run.job, execution_id: *execution });
            }
        }
        let lost = session.unlisted.compare(expected, |execution| listed.contains(execution));
        let unknown =
            heartbeat.running.iter().filter(|execution| !session.runs.contains(*execution)).copied().collect();
        // The store may have runs that another node handed out and the worker never received.
        let is_due = session.checked.is_none_or(|at| at.elapsed() >= check_after);
        if is_due {
            session.checked = Some(Instant::now());
        }
        Some(Comparison { lost, unknown, cancel: std::mem::take(&mut session.cancel).into_iter().collect(), is_due })
    }

    /// Ends a session. Returns its runs and its last message to the leader.
    pub fn leave(&self, worker: &WorkerId, at: Timestamp) -> Option<(Vec<RunRef>, WorkerHeartbeat)> {
        let mut inner = self.inner.lock();
        let session = inner.workers.remove(worker)?;
        session.wake.notify_waiters();
        let runs = session.runs.iter().filter_map(|execution| {
            let run = inner.runs.remove(execution)?;
            Some(RunRef { job_id: run.job, execution_id: *execution })
        });
        let runs = runs.collect();
        Some((runs, session.heartbeat(WorkerState::Gone, at)))
    }

    /// Bars a worker that leaves or is being declared dead: it is unknown meanwhile, whatever the store has.
    pub fn bar(&self, worker: &WorkerId) -> Barred<'_> {
        let mut inner = self.inner.lock();
        inner.barred.insert(worker.clone());
        inner.bars += 1;
        Barred { sessions: self, worker: worker.clone() }
    }

    /// Returns how many bars there were so far; `None` if one is up for this worker.
    pub fn bars(&self, worker: &WorkerId) -> Option<u64> {
        let inner = self.inner.lock();
        (!inner.barred.contains(worker)).then_some(inner.bars)
    }

    /// Returns the heartbeat of a worker. The caller adds the state of the inbox.
    pub fn heartbeat(&self, worker: &WorkerId, at: Timestamp) -> Option<WorkerHeartbeat> {
        let inner = self.inner.lock();
        inner.workers.get(worker).map(|session| session.heartbeat(session.record.state, at))
    }

    /// Returns how long a worker of this node has been silent, by the monotonic clock: a jump of the wall clock ends no
    /// worker.
    pub fn silent_for(&self, worker: &WorkerId) -> Option<Duration> {
        self.inner.lock().workers.get(worker).map(Session::silent_for)
    }

    /// Returns how long ago each of these runs was handed out, if it was here.
    pub fn ages(&self, executions: impl Iterator<Item = ExecutionId>) -> Vec<Option<Duration>> {
        let inner = self.inner.lock();
        executions.map(|execution| inner.runs.get(&execution).map(|run| run.handed_out.elapsed())).collect()
    }

    /// Returns whether one of this node's workers has the run.
    pub fn has(&self, execution: &ExecutionId) -> bool {
        self.inner.lock().runs.contains_key(execution)
    }

    /// Returns whether the worker has listed its runs in a heartbeat since it connected to this node.
    pub fn has_named_runs(&self, worker: &WorkerId) -> bool {
        self.inner.lock().workers.get(worker).is_some_and(|session| session.compared)
    }

    /// Records that a worker's heartbeat agrees with the store.
    pub fn agree(&self, worker: &WorkerId) {
        if let Some(session) = self.inner.lock().workers.get_mut(worker) {
            session.compared = true;
        }
    }

    /// Returns workers that have not called this node for this long.
    fn silent(&self, silence: Duration) -> Vec<WorkerId> {
        let inner = self.inner.lock();
        let silent = inner.workers.iter().filter(|(_, session)| session.silent_for() >= silence);
        silent.map(|(worker, _)| worker.clone()).collect()
    }

    /// Returns the current record of a worker.
    pub fn record(&self, worker: &WorkerId, now: Timestamp) -> Option<WorkerRecord> {
        let inner = self.inner.lock();
        inner.workers.get(worker).map(|session| session.record_at(now))
    }

    /// Returns the records of workers that gave a sign of life since they were last written.
    fn unwritten(&self, now: Timestamp) -> Vec<WorkerRecord> {
        let mut inner = self.inner.lock();
        let alive = inner.workers.values_mut().filter(|session| session.unwritten || session.waits());
        alive
            .map(|session| {
                session.unwritten = false;
                session.record = session.record_at(now);
                session.record.clone()
            })
            .collect()
    }
}

/// Keeps its worker unknown until it is dropped, also if the task that holds it is aborted.
pub struct Barred<'a> {
    sessions: &'a Sessions,
    worker: WorkerId,
}

impl Drop for Barred<'_> {
    fn drop(&mut self) {
        let mut inner = self.sessions.inner.lock();
        inner.barred.remove(&self.worker);
        inner.bars += 1;
    }
}

/// The differences between a heartbeat's list and the runs that were handed out.
pub struct Comparison {
    /// Missing from two heartbeats in a row.
    pub lost: Vec<RunRef>,
    /// The worker has them, but this node did not hand them out.
    pub unknown: Vec<ExecutionId>,
    pub cancel: Vec<ExecutionId>,
    /// It is time to compare the list with the store.
    pub is_due: bool,
}

impl Session {
    fn see(&mut self) {
        self.seen = Instant::now();
        self.unwritten = true;
    }

    fn record_at(&self, now: Timestamp) -> WorkerRecord {
        // To the microsecond, like all published instants.
        let received = (now - self.silent_for()).as_microsecond();
        let last_heartbeat_at = Timestamp::from_microsecond(received).unwrap_or(now);
        WorkerRecord { running: self.runs.len() as u32, last_heartbeat_at, ..self.record.clone() }
    }

    /// A waiting poll counts as a heartbeat, as long as the worker sends none of its own: if a worker that used to send
    /// heartbeats has stopped, its connection may still be open and the process frozen.
    fn waits(&self) -> bool {
        self.parked > 0 && self.last_heartbeat.is_none()
    }

    fn silent_for(&self) -> Duration {
        if self.waits() { Duration::ZERO } else { self.seen.elapsed() }
    }

    fn heartbeat(&self, state: WorkerState, at: Timestamp) -> WorkerHeartbeat {
        let running = self.runs.len() as u32;
        WorkerHeartbeat {
            v: Default::default(),
            worker_id: self.record.worker_id.clone(),
            queues: self.record.queues.clone(),
            running,
            free: self.record.concurrency.saturating_sub(running),
            state,
            at,
            name: None,
            concurrency: Some(self.record.concurrency),
            via: self.record.via.clone(),
            executions: None,
            inbox: Some(InboxReport { prefetch: self.prefetch, ..InboxReport::default() }),
        }
    }
}

/// Writes signs of life to the store, and publishes the free slots of each worker to the leader.
pub async fn watch_sessions(node: Arc<Node>, mut run: DutyRun<Every>) -> Result<()> {
    let mut unserved = BTreeSet::new();
    while run.next().await {
        if let Err(error) = forget_moved_workers(&node).await {
            run.failed("silent workers", &error);
        }
        if let Err(error) = unnamed::lose_unnamed(&node).await {
            run.failed("lost runs", &error);
        }
        if let Err(error) = super::receive::release_unserved(&node, &mut unserved).await {
            run.failed("runs without a worker", &error);
        }
        let writing = node.gateway.sessions.registry.lock().await;
        let records = node.gateway.sessions.unwritten(node.now());
        if records.is_empty() {
            continue;
        }
        for record in &records {
            node.gateway.hints.slots(&record.worker_id);
        }
        if let Err(error) = node.store().record_worker_heartbeats(&records).await {
            run.failed("worker heartbeats", &error);
        }
        drop(writing);
        records.iter().for_each(|record| node.views.cache.worker_changed(&record.worker_id));
    }
    Ok(())
}

/// Forgets workers that moved to another node, or to the bus: their runs are reported there. The leader decides on
/// those that went nowhere.
async fn forget_moved_workers(node: &Node) -> Result<()> {
    for worker in node.gateway.sessions.silent(node.settings.worker.stale_after) {
        let Some(stored) = node.store().worker(&worker).await? else { continue };
        if stored.via.as_ref() == Some(&node.id) {
            continue;
        }
        let before = node.gateway.sessions.record(&worker, node.now());
        let Some((runs, _)) = node.gateway.sessions.leave(&worker, node.now()) else { continue };
        debug!(%worker, runs = runs.len(), "worker moved to another node");
        if before.is_some_and(|before| before.registered_at != stored.registered_at) {
            unnamed::lose_left_behind(node, &worker, &runs).await?;
        }
        follower::drop_claims(node, &node.ownership, runs).await;
    }
    Ok(())
}
