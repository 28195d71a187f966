//! The worker against a scripted coordinator, under paused time.

mod ending;
mod fetching;
mod reporting;
mod running;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::jobs::RunInput;
use convoke_core::jobs::link::*;
use convoke_core::ports::Clock;
use convoke_core::{Epoch, Error, ExecutionId, Invalid, JobId, JobType, Json, QueueName, Result, WorkerId};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Context, Failure, HandlerFuture, Handlers, Settings, Shutdown, Summary, Worker};

#[derive(Default)]
pub struct Script {
    pub jobs: VecDeque<Assignment>,
    pub cancel: Vec<ExecutionId>,
    pub drain: bool,
    /// Every call returns `Unavailable`.
    pub away: bool,
    /// Every call but `register` returns `NotFound`.
    pub forgotten: bool,
    /// Registration is rejected permanently.
    pub denied: bool,
    /// This many reports are applied, but return `Unknown`.
    pub replies_to_lose: usize,
    /// Events of these runs are rejected.
    pub stale: BTreeSet<ExecutionId>,
    /// A report with such an event is rejected as a whole.
    pub minds: Option<fn(&Event) -> bool>,
    /// Reports wait until this is false again.
    pub reports_held: bool,

    pub registered: Vec<Register>,
    pub polls: Vec<Poll>,
    pub reports: Vec<Vec<Event>>,
    pub reports_begun: usize,
    pub heartbeats: Vec<Vec<ExecutionId>>,
    pub left: usize,
}

impl Script {
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.reports.iter().flatten()
    }

    pub fn of_kind(&self, kind: EventKind) -> usize {
        self.events().filter(|event| event.kind == kind).count()
    }

    pub fn kinds(&self) -> Vec<EventKind> {
        self.events().map(|event| event.kind).collect()
    }

    fn check_reachable(&self) -> Result<()> {
        if self.away {
            return Err(Error::unavailable("the coordinator", "away"));
        }
        if self.forgotten {
            return Err(Error::not_found("worker", "w"));
        }
        Ok(())
    }
}

#[derive(Default)]
pub struct Fake {
    script: Mutex<Script>,
    changed: Notify,
}

impl Fake {
    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock()
    }

    /// Changes the behavior of the coordinator, and wakes the tasks that wait for it.
    pub fn change_script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock());
        self.changed.notify_waiters();
    }

    pub fn give(&self, jobs: impl IntoIterator<Item = Assignment>) {
        self.change_script(|script| script.jobs.extend(jobs));
    }

    /// Waits until the condition holds; an hour of paused time without it is a failure.
    pub async fn until(&self, what: &str, mut is_so: impl FnMut(&Script) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if is_so(&self.script.lock()) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(3600), wait).await.is_err() {
            panic!("never happened: {what}");
        }
    }
}

#[async_trait]
impl WorkerLink for Fake {
    async fn register(&self, worker: Register) -> Result<Registered> {
        let mut script = self.script();
        if script.away {
            script.check_reachable()?;
        }
        if script.denied {
            return Err(Error::denied("no"));
        }
        script.forgotten = false;
        let worker_id = worker.worker_id.clone().expect("the worker names itself");
        script.registered.push(worker);
        drop(script);
        self.changed.notify_waiters();
        let (heartbeat_interval, stale_after) = (Duration::from_secs(10), Duration::from_secs(30));
        Ok(Registered { worker_id, heartbeat_interval, stale_after })
    }

    async fn poll(&self, poll: Poll) -> Result<Polled> {
        let until = tokio::time::Instant::now() + poll.wait;
        let max = poll.max;
        self.change_script(|script| script.polls.push(poll));
        loop {
            let changed = self.changed.notified();
            {
                let mut script = self.script();
                script.check_reachable()?;
                let count = script.jobs.len().min(max);
                let jobs: Vec<_> = script.jobs.drain(..count).collect();
                let cancel = std::mem::take(&mut script.cancel);
                if !jobs.is_empty() || !cancel.is_empty() || script.drain {
                    return Ok(Polled { jobs, cancel, drain: script.drain });
                }
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                return Ok(Polled::default());
            }
        }
    }

    async fn report(&self, report: Report) -> Result<Reported> {
        self.change_script(|script| script.reports_begun += 1);
        self.until("reports are let through", |script| !script.reports_held).await;
        let mut script = self.script();
        script.check_reachable()?;
        if script.minds.is_some_and(|minds| report.events.iter().any(minds)) {
            return Err(Error::Invalid(Invalid::new("events", "one of them")));
        }
        let stale = |event: &&Event| script.stale.contains(&event.execution_id);
        let code = RejectedCode::StaleExecution;
        let rejected: Vec<_> =
            report.events.iter().filter(stale).map(|e| Rejected { execution_id: e.execution_id, code }).collect();
        let accepted = report.events.len() - rejected.len();
        script.reports.push(report.events);
        let lost = script.replies_to_lose > 0;
        script.replies_to_lose = script.replies_to_lose.saturating_sub(1);
        drop(script);
        self.changed.notify_waiters();
        if lost { Err(Error::unknown("the coordinator", "cut")) } else { Ok(Reported { accepted, rejected }) }
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatReply> {
        self.script().check_reachable()?;
        self.change_script(|script| script.heartbeats.push(heartbeat.running));
        let mut script = self.script();
        // Jobs wait for a poll; cancellations go to the first poll.
        Ok(HeartbeatReply { cancel: std::mem::take(&mut script.cancel), drain: script.drain })
    }

    async fn leave(&self, _: WorkerId) -> Result<()> {
        self.script().check_reachable()?;
        self.change_script(|script| script.left += 1);
        Ok(())
    }
}

/// Wall time that follows the paused one.
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.0.elapsed()
    }
}

pub struct Rig {
    pub fake: Arc<Fake>,
    pub shutdown: Shutdown,
    pub worker: JoinHandle<Result<Summary>>,
}

pub fn settings(concurrency: u32) -> Settings {
    Settings {
        id: Some(WorkerId::new("w").expect("a name")),
        queues: vec![QueueName::new("q").expect("a name")],
        concurrency,
        ..Settings::default()
    }
}

pub fn start(concurrency: u32, handlers: Handlers) -> Rig {
    start_with(Arc::default(), settings(concurrency), handlers)
}

pub fn start_with(fake: Arc<Fake>, settings: Settings, handlers: Handlers) -> Rig {
    let clock = Arc::new(PausedClock(tokio::time::Instant::now()));
    let shutdown = Shutdown::default();
    let worker = Worker::new(fake.clone(), clock, settings, handlers).run(shutdown.clone());
    Rig { fake, shutdown, worker: tokio::spawn(worker) }
}

impl Rig {
    pub async fn stop(self) -> Summary {
        self.shutdown.drain.cancel();
        self.worker.await.expect("no panic").expect("it began")
    }
}

pub fn run_id(n: u128) -> ExecutionId {
    ExecutionId(Uuid::from_u128(n))
}

pub fn job(n: u128, job_type: &str) -> Assignment {
    Assignment {
        job_id: JobId(Uuid::from_u128(n)),
        execution_id: run_id(n),
        input: RunInput {
            job_type: JobType::new(job_type).expect("a name"),
            queue: QueueName::new("q").expect("a name"),
            args: Json::of(&n.to_string()).expect("a string"),
            max_retries: 3,
            timeout: None,
            correlation_id: None,
            tags: Vec::new(),
        },
        attempt: 1,
        epoch: Epoch(7),
    }
}

/// Returns a job with this timeout.
pub fn timed_job(n: u128, job_type: &str, timeout: Duration) -> Assignment {
    let mut job = job(n, job_type);
    job.input.timeout = Some(timeout);
    job
}

pub fn jobs(range: std::ops::Range<u128>, job_type: &str) -> Vec<Assignment> {
    range.map(|n| job(n, job_type)).collect()
}

pub fn handler<F, Fut>(job_type: &str, handle: F) -> Handlers
where
    F: Fn(Context, Json) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Json>, Failure>> + Send + 'static,
{
    let mut handlers = Handlers::default();
    let boxed = move |cx, args| -> HandlerFuture { Box::pin(handle(cx, args)) };
    handlers.add(JobType::new(job_type).expect("a name"), boxed);
    handlers
}

pub fn no_op() -> Handlers {
    handler("noop", |_, _| async { Ok(None) })
}

/// Runs for as long as its arguments set.
pub fn sleeper(duration: Duration) -> Handlers {
    handler("sleep", move |_, _| async move {
        tokio::time::sleep(duration).await;
        Ok(None)
    })
}

/// Shows by its drop that a handler is gone.
pub struct Gone(pub Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
