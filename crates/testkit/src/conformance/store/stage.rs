//! Shared parts of the cases of the store: jobs, times, and a leader that acts.

use std::cell::Cell;
use std::time::Duration;

use convoke_core::election::Fence;
use convoke_core::jobs::run::{NewLog, Outcome};
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{
    Execution, ExecutionStatus, Jitter, Job, JobTemplate, LogLevel, NewJob, Queue, QueueCounts, RetryPolicy,
    RetrySettings, RunReport, Status,
};
use convoke_core::ports::Store;
use convoke_core::ports::store::{Change, DispatchOrder, JobQuery, Recorded, Window};
use convoke_core::{Epoch, Error, ExecutionId, JobId, JobType, Json, NodeId, QueueName, Result, WorkerId};
use jiff::Timestamp;
use uuid::Uuid;

/// A small generator with a fixed seed, not 0: the same workload for every adapter, every time.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The statuses of dead letters.
pub const DEAD: [Status; 2] = [Status::Failed, Status::TimedOut];

/// So many seconds after the beginning. Whole ones: a store may keep no more than microseconds.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("in range")
}

pub fn job_id(n: u64) -> JobId {
    JobId(Uuid::from_u128((0x0199 << 112) | (7 << 76) | (2 << 62) | u128::from(n)))
}

pub fn execution_id(n: u64) -> ExecutionId {
    ExecutionId(Uuid::from_u128((0x0199 << 112) | (7 << 76) | (2 << 62) | (1 << 48) | u128::from(n)))
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a name")
}

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

pub fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).expect("valid JSON")
}

/// Arguments of exactly so many bytes.
pub fn large_args(bytes: usize) -> Json {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

/// A job of queue `q`, due at once, that may be retried three times, ten seconds after the first failure.
pub fn job(n: u64) -> NewJob {
    NewJob {
        id: job_id(n),
        definition: JobTemplate {
            queue: Some(queue("q")),
            args: Some(json(r#"{"a": 1}"#)),
            max_retries: Some(3),
            retry_policy: Some(RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() }),
            ..JobTemplate::new(JobType::new("t").expect("a name"))
        }
        .define(&RetrySettings::default()),
        unique_until: None,
        created_at: at(0),
        run_at: None,
        schedule: None,
    }
}

pub fn completed() -> Outcome {
    Outcome::Completed { result: None }
}

pub fn failed(error: &str) -> Outcome {
    Outcome::Failed { error: error.into(), retry: true }
}

pub fn failed_for_good(error: &str) -> Outcome {
    Outcome::Failed { error: error.into(), retry: false }
}

pub fn lost() -> Outcome {
    Outcome::Lost { error: "worker lost".into() }
}

/// A line without a number.
pub fn log(message: &str) -> NewLog {
    NewLog { seq: None, at: at(1), level: LogLevel::Info, message: message.into() }
}

/// An empty report of a run that was dispatched.
pub fn report(run: &Dispatch) -> RunReport {
    RunReport::of(run.job_id, run.execution_id)
}

pub fn assert_fenced<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Fenced { .. })), "expected a refusal by the fence, got {result:?}");
}

pub fn assert_invalid<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Invalid(_))), "expected a refusal of the argument, got {result:?}");
}

/// A leader of epoch 1 over the store under test.
pub struct Stage<'a> {
    pub store: &'a dyn Store,
    pub fence: Fence,
    executions: Cell<u64>,
}

impl<'a> Stage<'a> {
    pub async fn new(store: &'a dyn Store) -> Self {
        let fence = store.seal(Epoch(1)).await.expect("nothing is sealed yet");
        Stage { store, fence, executions: Cell::new(0) }
    }

    /// Seals the next epoch; the stage's own fence is then a former leader's.
    pub async fn depose(&self) -> Fence {
        self.store.seal(Epoch(2)).await.expect("a higher epoch")
    }

    pub async fn enqueue(&self, jobs: impl IntoIterator<Item = NewJob>) -> Vec<JobId> {
        let results = self.store.insert(jobs.into_iter().collect()).await.expect("insert");
        assert!(results.iter().all(|result| result.created), "all are new: {results:?}");
        results.into_iter().map(|result| result.id).collect()
    }

    pub fn executions(&self, count: usize) -> Vec<ExecutionId> {
        let first = self.executions.get() + 1;
        self.executions.set(first + count as u64 - 1);
        (first..first + count as u64).map(execution_id).collect()
    }

    pub fn order(&self, name: &str, limit: usize, now: Timestamp) -> DispatchOrder {
        let windows = vec![Window::new(queue(name), limit)];
        DispatchOrder { now, windows, executions: self.executions(limit) }
    }

    pub async fn dispatch(&self, name: &str, limit: usize, now: Timestamp) -> Vec<Dispatch> {
        self.store.dispatch(self.fence, self.order(name, limit, now)).await.expect("dispatch").runs
    }

    /// Dispatches the one job that is next in queue `q`.
    pub async fn dispatch_one(&self, now: Timestamp) -> Dispatch {
        self.dispatch("q", 1, now).await.pop().expect("one job was pending")
    }

    /// Stores a job and dispatches it.
    pub async fn run(&self, job: NewJob) -> Dispatch {
        let (id, name, now) = (job.id, job.definition.queue.clone(), job.created_at);
        self.enqueue([job]).await;
        let run = self.dispatch(name.as_str(), 1, now).await.pop().expect("the job is pending");
        assert_eq!(run.job_id, id, "the only pending job of its queue");
        run
    }

    pub async fn record(&self, report: RunReport) -> Recorded {
        self.store.record(vec![report]).await.expect("record").pop().expect("a result for the report")
    }

    pub async fn end_as_leader(&self, report: RunReport) -> Recorded {
        self.store
            .end_as_leader(self.fence, vec![report])
            .await
            .expect("end_as_leader")
            .pop()
            .expect("a result for the report")
    }

    /// Records what must be news.
    pub async fn apply(&self, report: RunReport) -> Change {
        match self.record(report).await {
            Recorded::Applied(change) => change,
            other => panic!("expected the report to apply, got {other:?}"),
        }
    }

    pub async fn start(&self, run: &Dispatch, name: &str, now: Timestamp) -> Change {
        self.apply(RunReport { worker: Some(worker(name)), started_at: Some(now), ..report(run) }).await
    }

    /// Ends a run by a report of a gateway.
    pub async fn end(&self, run: &Dispatch, now: Timestamp, outcome: Outcome) -> Change {
        self.apply(report(run).ended(now, outcome, 0.5)).await
    }

    /// Ends a run by a status of its channel.
    pub async fn end_by_channel(&self, run: &Dispatch, now: Timestamp, outcome: Outcome) -> Change {
        self.apply(RunReport { by_channel: true, ..report(run).ended(now, outcome, 0.5) }).await
    }

    pub async fn find(&self, id: JobId) -> Option<Job> {
        self.store.get(&[id]).await.expect("get").pop().expect("a result for the id")
    }

    pub async fn job(&self, id: JobId) -> Job {
        self.find(id).await.expect("the job is there")
    }

    pub async fn history(&self, id: JobId) -> Vec<Execution> {
        self.store.history(id, 0, 1_000).await.expect("history").runs
    }

    /// How the runs of a job went, oldest first.
    pub async fn outcomes(&self, id: JobId) -> Vec<(u32, ExecutionStatus)> {
        self.history(id).await.into_iter().map(|run| (run.attempt, run.status)).collect()
    }

    pub async fn queue(&self, name: &str) -> Queue {
        self.store.queue(&queue(name)).await.expect("queue").expect("the queue is there")
    }

    /// Every job that matches, through all pages from the query's cursor on.
    pub async fn list(&self, query: JobQuery) -> Vec<Job> {
        let (mut jobs, mut cursor) = (Vec::new(), query.cursor.clone());
        loop {
            let page = self.store.list(JobQuery { cursor, ..query.clone() }).await.expect("list");
            jobs.extend(page.jobs);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return jobs;
            }
        }
    }

    pub async fn all(&self) -> Vec<Job> {
        self.list(JobQuery { limit: 100, ..JobQuery::default() }).await
    }

    /// A queue's counters against its jobs, counted.
    pub async fn assert_counters(&self) {
        let jobs = self.all().await;
        for queue in self.store.queues().await.expect("queues") {
            let mut counted = QueueCounts::default();
            for job in jobs.iter().filter(|job| job.definition.queue == queue.name) {
                counted.set(job.status, counted.get(job.status) + 1);
            }
            assert_eq!(queue.counts, counted, "counters of {}", queue.name);
            let pending = counted.get(Status::Pending) > 0;
            assert_eq!(queue.oldest_pending_at.is_some(), pending, "oldest pending of {}", queue.name);
        }
    }
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
