//! A worker's link to the coordinators over the bus: without a gateway, and independent of any single node.
//!
//! It reads runs from `job.dispatch.{queue}`, one consumer per queue, and reports on the channels of their jobs, which
//! the owner reads. *Accepted* means here that the bus has it; an owner that finds a run to be stale rejects its events
//! without a message to the worker, so [`Reported::rejected`] is always empty. A worker receives only `job.cancel`:
//! cancelled jobs, and runs that the leader has given to another worker.
//!
//! An entry is acknowledged once `started`, or an end, is on the job's status channel. If a worker dies before that,
//! the entry stays pending: another takes it over after `stale_after`, unless the leader has given the job a new run by
//! then. If a worker dies after it, the store has the run, which is lost when the worker is declared dead. In either
//! case, a run that two workers have can be committed once: the execution id is its fence.
//!
//! While the bus is unavailable every call fails as transient; the worker goes on with its runs and retries. If the bus
//! comes back empty, the coordinators find the missing entries in the store.

mod background;
mod held_runs;
mod timings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{
    Assignment, Heartbeat, HeartbeatReply, Poll, Polled, Register, Registered, Report, Reported, WorkerLink,
};
use convoke_core::jobs::wire::{self, V1, WorkerHeartbeat, WorkerState};
use convoke_core::ports::{Bus, Clock, Consumer, Delivery};
use convoke_core::{Error, ExecutionId, QueueName, Result, WorkerId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::held_runs::HeldRuns;
use self::timings::Timings;
use crate::jobs::WorkerSettings;
use crate::jobs::intake::{self, WORKERS};
use crate::machine;

/// A longer wait gains nothing: the worker polls again anyway.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The settings of a worker until the leader's heartbeats publish those of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusLinkSettings {
    /// How often the worker is expected to send a heartbeat.
    pub heartbeat_interval: Duration,
    /// As the coordinators have it: entries of a worker that was silent for this long are taken over.
    pub stale_after: Duration,
}

impl Default for BusLinkSettings {
    fn default() -> Self {
        let WorkerSettings { heartbeat_interval, stale_after, .. } = WorkerSettings::default();
        BusLinkSettings { heartbeat_interval, stale_after }
    }
}

/// The link of the workers of this process. Dropping it is the same as a crash for the others; [`leave`](WorkerLink::leave)
/// does not.
pub struct BusLink {
    post: Post,
    timings: Arc<Timings>,
    registrations: Mutex<BTreeMap<WorkerId, Registration>>,
}

/// The bus and the names of the channels.
#[derive(Clone)]
struct Post {
    bus: Arc<dyn Bus>,
    channels: Channels,
    clock: Arc<dyn Clock>,
}

impl Post {
    /// The topics that a worker subscribes to.
    fn topics(&self) -> [String; 2] {
        [self.channels.cancel(), self.channels.coordinator_heartbeat()]
    }
}

/// A registered worker and its background tasks, which end when it is dropped.
struct Registration {
    session: Arc<Session>,
    _tasks: JoinSet<()>,
}

struct Session {
    worker: WorkerId,
    name: Option<String>,
    queues: Vec<QueueName>,
    /// One for each queue, in order.
    consumers: Vec<Arc<dyn Consumer>>,
    held_runs: Mutex<HeldRuns>,
    draining: AtomicBool,
    /// Wakes a poll that has a notice for the worker.
    bell: Notify,
    /// Notified when there are messages to send or to acknowledge, or when slots were taken or became free.
    action_ready: Notify,
    /// One errand at a time: the last of them must be done before the worker has left.
    flushing: tokio::sync::Mutex<()>,
    rotation: AtomicUsize,
    next_take_over: Mutex<Instant>,
}

impl BusLink {
    /// Creates a link whose channels have the prefix of `channels`.
    pub fn new(bus: Arc<dyn Bus>, channels: Channels, clock: Arc<dyn Clock>, settings: BusLinkSettings) -> Self {
        let timings = Arc::new(Timings::new(settings));
        BusLink { post: Post { bus, channels, clock }, timings, registrations: Mutex::default() }
    }

    fn session(&self, worker: &WorkerId) -> Result<Arc<Session>> {
        let registrations = self.registrations.lock();
        registrations
            .get(worker)
            .map(|registration| registration.session.clone())
            .ok_or_else(|| Error::not_found("worker", worker))
    }

    async fn open(&self, worker: WorkerId, register: Register) -> Result<Registration> {
        // Before any run is taken: a run that is cancelled meanwhile must not start.
        let topics = self.post.bus.subscribe(&self.post.topics()).await?;
        // A worker that is restarted under its id is another consumer.
        let name = format!("{worker}-{}", machine::id().simple());
        let mut consumers: Vec<Arc<dyn Consumer>> = Vec::with_capacity(register.queues.len());
        for queue in &register.queues {
            let channel = self.post.channels.dispatch(queue);
            consumers.push(self.post.bus.consumer(&channel, WORKERS, &name).await?.into());
        }
        let session = Arc::new(Session {
            worker,
            name: register.name,
            queues: register.queues,
            consumers,
            held_runs: Mutex::new(HeldRuns::new(register.concurrency)),
            draining: AtomicBool::new(false),
            bell: Notify::new(),
            action_ready: Notify::new(),
            flushing: tokio::sync::Mutex::new(()),
            rotation: AtomicUsize::new(0),
            next_take_over: Mutex::new(Instant::now()),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(background::receive(self.post.clone(), session.clone(), self.timings.clone(), topics));
        tasks.spawn(background::run(self.post.clone(), session.clone()));
        tasks.spawn(background::keep_pace(self.post.clone(), session.clone(), self.timings.clone()));
        Ok(Registration { session, _tasks: tasks })
    }

    /// Reads what the worker's queues hold now, from the first that has any; the next queue first each time.
    async fn take(&self, session: &Session, first: Option<usize>, max: usize) -> Result<Vec<Assignment>> {
        let count = session.consumers.len();
        let first = first.unwrap_or_else(|| session.rotation.fetch_add(1, Ordering::Relaxed) % count.max(1));
        let taken = intake::take_from_first(&session.consumers, (first..count).chain(0..first), max).await?;
        // Nothing is awaited from here on: a poll that is dropped has lost nothing that it took.
        Ok(taken.map(|(place, deliveries)| session.accept(&self.post, place, deliveries)).unwrap_or_default())
    }

    /// Takes over, now and then, runs that a dead worker received and never started. Only the end of the worker may
    /// cancel it: entries that were claimed and not returned wait for that.
    async fn take_over(&self, session: &Session, max: usize) -> Result<Vec<Assignment>> {
        if max == 0 || Instant::now() < *session.next_take_over.lock() {
            return Ok(Vec::new());
        }
        for (place, consumer) in session.consumers.iter().enumerate() {
            let deliveries = consumer.take_over(self.timings.current().stale_after, max).await?;
            if !deliveries.is_empty() {
                tracing::info!(queue = %session.queues[place], runs = deliveries.len(), "took over runs of a worker that is gone");
                return Ok(session.accept(&self.post, place, deliveries));
            }
        }
        *session.next_take_over.lock() = Instant::now() + self.timings.current().stale_after / 3;
        Ok(Vec::new())
    }
}

#[async_trait]
impl WorkerLink for BusLink {
    fn address(&self) -> String {
        self.post.bus.address()
    }

    async fn register(&self, mut register: Register) -> Result<Registered> {
        let worker_id = match register.worker_id.take() {
            Some(id) => id,
            None => WorkerId::new(format!("w-{}", machine::id().simple()))?,
        };
        let mut seen = BTreeSet::new();
        register.queues.retain(|queue| seen.insert(queue.clone()));
        let known = self.session(&worker_id).ok();
        let session = match known.filter(|session| session.queues == register.queues) {
            Some(session) => {
                session.held_runs.lock().concurrency = register.concurrency;
                session
            }
            None => {
                let registration = self.open(worker_id.clone(), register).await?;
                let session = registration.session.clone();
                self.registrations.lock().insert(worker_id.clone(), registration);
                session
            }
        };
        let executions = session.held_runs.lock().executions();
        session.send_heartbeat(&self.post, WorkerState::Active, Some(executions)).await?;
        let BusLinkSettings { heartbeat_interval, stale_after } = self.timings.current();
        Ok(Registered { worker_id, heartbeat_interval, stale_after })
    }

    async fn poll(&self, poll: Poll) -> Result<Polled> {
        let session = self.session(&poll.worker_id)?;
        let deadline = Instant::now() + poll.wait.min(WAIT_MAX);
        loop {
            // Armed before any state is read, so that a cancellation that comes now is not missed.
            let bell = session.bell.notified();
            tokio::pin!(bell);
            bell.as_mut().enable();
            let cancel = session.held_runs.lock().take_cancelled();
            if !cancel.is_empty() {
                return Ok(Polled { cancel, ..Polled::default() });
            }
            let mut jobs = self.take_over(&session, poll.max).await?;
            if jobs.is_empty() {
                jobs = self.take(&session, None, poll.max).await?;
            }
            let wake_at = if poll.max == 0 { deadline } else { deadline.min(*session.next_take_over.lock()) };
            // Only the wait can be cut short: the entries of a read are returned.
            while jobs.is_empty() {
                let place = tokio::select! {
                    biased;
                    () = &mut bell => break,
                    place = intake::ready(&session.consumers, poll.max) => place?,
                    () = tokio::time::sleep_until(wake_at) => {
                        if Instant::now() >= deadline {
                            return Ok(Polled::default());
                        }
                        break;
                    }
                };
                jobs = self.take(&session, Some(place), poll.max).await?;
            }
            if !jobs.is_empty() {
                return Ok(Polled { jobs, ..Polled::default() });
            }
        }
    }

    /// Sends all events of a report as one batch on the bus.
    async fn report(&self, report: Report) -> Result<Reported> {
        let session = self.session(&report.worker_id)?;
        let entries = session.held_runs.lock().messages(&self.post, &session.worker, &report.events);
        self.post.bus.push(entries).await?;
        if session.held_runs.lock().mark_reported(&report.events) {
            session.action_ready.notify_one();
        }
        Ok(Reported { accepted: report.events.len(), rejected: Vec::new() })
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatReply> {
        let session = self.session(&heartbeat.worker_id)?;
        session.draining.store(heartbeat.draining, Ordering::Release);
        session.send_heartbeat(&self.post, session.state(), Some(heartbeat.running)).await?;
        let cancel = session.held_runs.lock().take_cancelled();
        Ok(HeartbeatReply { cancel, drain: false })
    }

    async fn leave(&self, worker: WorkerId) -> Result<()> {
        let registration =
            self.registrations.lock().remove(&worker).ok_or_else(|| Error::not_found("worker", &worker))?;
        let session = &registration.session;
        session.held_runs.lock().release(&self.post, &worker);
        // Before its entries are acknowledged: an acknowledged entry cannot be taken over.
        let flushed = background::flush(&self.post, session).await;
        let reported = session.send_heartbeat(&self.post, WorkerState::Gone, Some(Vec::new())).await;
        for consumer in &session.consumers {
            consumer.leave().await?;
        }
        flushed.and(reported)
    }
}

impl Session {
    fn state(&self) -> WorkerState {
        if self.draining.load(Ordering::Acquire) { WorkerState::Draining } else { WorkerState::Active }
    }

    /// Returns the received entries as runs for the worker.
    fn accept(&self, post: &Post, place: usize, deliveries: Vec<Delivery>) -> Vec<Assignment> {
        let jobs = self.held_runs.lock().take(post, &self.worker, place, &self.queues[place], deliveries);
        self.action_ready.notify_one();
        jobs
    }

    async fn send_heartbeat(
        &self,
        post: &Post,
        state: WorkerState,
        executions: Option<Vec<ExecutionId>>,
    ) -> Result<()> {
        let heartbeat = {
            let held_runs = self.held_runs.lock();
            WorkerHeartbeat {
                v: V1,
                worker_id: self.worker.clone(),
                queues: self.queues.clone(),
                running: held_runs.running(),
                free: if state == WorkerState::Active { held_runs.free() } else { 0 },
                state,
                at: post.clock.now(),
                name: self.name.clone(),
                concurrency: Some(held_runs.concurrency),
                via: None,
                executions,
                inbox: None,
            }
        };
        post.bus.publish(&post.channels.worker_heartbeat(), wire::encode(&heartbeat)).await
    }
}
