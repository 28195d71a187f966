//! A node on the memory adapters, and the requests of a worker and a client.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod counting;
mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use convoke_adapters::memory::SystemClock;
use convoke_core::jobs::link::{Event, EventKind, Poll, Polled, Register, Report, WorkerLink};
use convoke_core::jobs::{Job, JobSpec};
use convoke_core::ports::Clock;
use convoke_core::{ExecutionId, JobId, JobType, NodeId, QueueName, WorkerId};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};
use convoke_testkit::shared_bus::SharedBus;
use jiff::{SignedDuration, Timestamp};

pub use memory::ports;

/// Wall time that follows tokio's, which a test can pause.
pub struct TokioClock {
    started: tokio::time::Instant,
    started_at: Timestamp,
    ahead_ms: AtomicI64,
}

impl Default for TokioClock {
    fn default() -> Self {
        let (started, started_at) = (tokio::time::Instant::now(), SystemClock.now());
        TokioClock { started, started_at, ahead_ms: AtomicI64::new(0) }
    }
}

impl TokioClock {
    /// Another clock that shows so many seconds more than this one; less if that is negative.
    pub fn ahead(&self, seconds: i64) -> Arc<Self> {
        let clock = TokioClock { started: self.started, started_at: self.started_at, ahead_ms: AtomicI64::new(0) };
        clock.set_ahead(seconds);
        Arc::new(clock)
    }

    pub fn set_ahead(&self, seconds: i64) {
        self.ahead_ms.store(seconds * 1_000, Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_millis(self.ahead_ms.load(Ordering::SeqCst));
        let now = self.started_at + self.started.elapsed() + ahead;
        Timestamp::from_microsecond(now.as_microsecond()).expect("an instant")
    }
}

/// For several nodes.
pub fn shared_ports() -> Ports {
    let ports = ports();
    Ports { bus: Arc::new(SharedBus(ports.bus.clone())), ..ports }
}

/// A wall clock that is wrong by so much.
pub struct SkewedClock(pub jiff::SignedDuration);

impl Clock for SkewedClock {
    fn now(&self) -> jiff::Timestamp {
        SystemClock.now() + self.0
    }
}

/// The same world, seen by a machine whose wall clock is wrong by so many minutes.
pub fn skewed(ports: &Ports, minutes: i64) -> Ports {
    Ports { clock: Arc::new(SkewedClock(jiff::SignedDuration::from_mins(minutes))), ..ports.clone() }
}

pub fn quick() -> Settings {
    let mut settings = Settings::default();
    settings.worker.heartbeat_interval = Duration::from_millis(50);
    settings.worker.stale_after = Duration::from_millis(300);
    settings.retry.initial_delay = Duration::from_millis(5);
    settings.retry.max_delay = Duration::from_millis(20);
    settings
}

pub async fn start(ports: &Ports) -> Coordinator {
    start_as("n1", ports).await
}

/// One more node of the cluster that shares `ports`.
pub async fn start_as(id: &str, ports: &Ports) -> Coordinator {
    let node = NodeId::new(id).expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), quick()).await.expect("it starts");
    coordinator.ready().await;
    coordinator
}

pub fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).expect("a name")
}

pub async fn register(coordinator: &Coordinator, id: &str, concurrency: u32) {
    let queues = vec![QueueName::new("default").expect("a name")];
    let register = Register { worker_id: Some(worker(id)), name: None, queues, concurrency };
    coordinator.register(register).await.expect("it registers");
}

pub async fn poll(coordinator: &Coordinator, id: &str, max: usize) -> Polled {
    let poll = Poll { worker_id: worker(id), max, wait: Duration::from_secs(5) };
    coordinator.poll(poll).await.expect("a poll returns")
}

pub async fn one(coordinator: &Coordinator, id: &str) -> (JobId, ExecutionId, u32) {
    let polled = poll(coordinator, id, 1).await;
    let job = polled.jobs.first().expect("a job");
    (job.job_id, job.execution_id, job.attempt)
}

pub fn spec() -> JobSpec {
    JobSpec::new(JobType::new("test").expect("a name"))
}

pub async fn report(coordinator: &Coordinator, id: &str, events: Vec<Event>) -> (usize, usize) {
    let reported = coordinator.report(Report { worker_id: worker(id), events }).await.expect("a report returns");
    (reported.accepted, reported.rejected.len())
}

pub fn failed(job: JobId, execution: ExecutionId) -> Event {
    Event { error: Some("no".into()), ..Event::new(job, execution, EventKind::Failed) }
}

/// Waits until `is` holds for a job.
pub async fn until(coordinator: &Coordinator, id: JobId, is: impl Fn(&Job) -> bool) -> Job {
    loop {
        let job = coordinator.job(id, None).await.expect("it is there");
        if is(&job) {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
