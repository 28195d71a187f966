//! A worker that uses the bus by hand: plain Redis commands on the documented channels, without code of the product.
//!
//! It takes runs from `job.dispatch.{queue}`, names them in its heartbeats and publishes their statuses on their jobs'
//! channels. It holds its runs until the test releases them. Dropping it kills it without a drain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use redis::Pipeline;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::waiting::eventually;

const GROUP: &str = "workers";
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
const READ_PAUSE: Duration = Duration::from_millis(10);
/// Limit of what is read and published at once.
const BATCH: usize = 500;

pub struct BusWorker {
    inner: Arc<Inner>,
    tasks: Vec<AbortHandle>,
}

struct Inner {
    redis: MultiplexedConnection,
    prefix: String,
    id: String,
    queue: String,
    concurrency: usize,
    /// Execution to job, of what it has.
    held: Mutex<BTreeMap<String, String>>,
    /// It completes all runs that it has and receives.
    releases: AtomicBool,
    /// It publishes a log line of each run after its end.
    publishes_late: AtomicBool,
    /// It acknowledges what it takes and leaves it where it is.
    only_acks: AtomicBool,
    completed: AtomicUsize,
}

impl BusWorker {
    /// Works until it is dropped. `url` is that of Redis itself.
    pub async fn start(url: &str, prefix: &str, id: &str, queue: &str, concurrency: usize) -> BusWorker {
        let client = redis::Client::open(url).expect("an address");
        let redis = eventually("Redis", || async { client.get_multiplexed_async_connection().await.ok() }).await;
        let inner = Arc::new(Inner {
            redis,
            prefix: prefix.into(),
            id: id.into(),
            queue: queue.into(),
            concurrency,
            held: Mutex::default(),
            releases: AtomicBool::new(false),
            publishes_late: AtomicBool::new(false),
            only_acks: AtomicBool::new(false),
            completed: AtomicUsize::new(0),
        });
        inner.join().await;
        inner.heartbeat().await;
        let heartbeats = tokio::spawn(inner.clone().send_heartbeats());
        let takes = tokio::spawn(inner.clone().work());
        BusWorker { inner, tasks: vec![heartbeats.abort_handle(), takes.abort_handle()] }
    }

    /// Returns its runs: execution to job.
    pub fn held(&self) -> BTreeMap<String, String> {
        self.inner.held.lock().clone()
    }

    /// Completes all that it has and, from now on, all that it gets.
    pub fn release_all(&self) {
        self.inner.releases.store(true, Ordering::Relaxed);
    }

    /// From now on publishes a log line of each run after its end, when no reader is left.
    pub fn publish_late(&self) {
        self.inner.publishes_late.store(true, Ordering::Relaxed);
    }

    /// From now on acknowledges what it takes and does not delete it, which is all that Redis asks of a consumer.
    pub fn only_ack(&self) {
        self.inner.only_acks.store(true, Ordering::Relaxed);
    }

    /// Publishes once more that a run has started, however long ago it ended. The channel exists when this returns.
    pub async fn publish_status_of(&self, execution: &str, job: &str) {
        self.inner.publish_status(&[(execution.into(), job.into())], "started").await;
    }

    /// Publishes this status of all its runs without a bell, as a worker does that does not know it.
    pub async fn publish_status_quietly(&self, kind: &str) {
        let runs: Vec<_> = self.held().into_iter().collect();
        self.inner.send(self.inner.status_entries(&runs, kind)).await;
    }

    /// How many runs it has completed.
    pub fn completed(&self) -> usize {
        self.inner.completed.load(Ordering::Relaxed)
    }
}

impl Drop for BusWorker {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Inner {
    fn dispatches(&self) -> String {
        format!("{}.job.dispatch.{}", self.prefix, self.queue)
    }

    async fn join(&self) {
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(self.dispatches()).arg(GROUP).arg("0").arg("MKSTREAM");
        // It may be there already.
        let _: redis::RedisResult<()> = create.query_async(&mut self.redis.clone()).await;
    }

    async fn send_heartbeats(self: Arc<Self>) {
        loop {
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            self.heartbeat().await;
        }
    }

    async fn heartbeat(&self) {
        let held: Vec<String> = self.held.lock().keys().cloned().collect();
        let heartbeat = json!({
            "v": 1, "workerId": self.id, "queues": [self.queue], "running": held.len(),
            "free": self.concurrency.saturating_sub(held.len()), "state": "active", "at": Timestamp::now().to_string(),
            "concurrency": self.concurrency, "executions": held,
        });
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(format!("{}.worker.heartbeat", self.prefix)).arg(heartbeat.to_string());
        let _: redis::RedisResult<()> = publish.query_async(&mut self.redis.clone()).await;
    }

    async fn work(self: Arc<Self>) {
        loop {
            let taken = self.take().await;
            let released = self.release().await;
            if taken > 0 || released > 0 {
                // Slots were taken or became free: the leader need not wait for the next heartbeat.
                self.heartbeat().await;
            } else {
                tokio::time::sleep(READ_PAUSE).await;
            }
        }
    }

    /// Takes as many runs as it has free slots and publishes that they have started.
    async fn take(&self) -> usize {
        let free = self.concurrency.saturating_sub(self.held.lock().len()).min(BATCH);
        if free == 0 {
            return 0;
        }
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP")
            .arg(GROUP)
            .arg(&self.id)
            .arg("COUNT")
            .arg(free)
            .arg("STREAMS")
            .arg(self.dispatches())
            .arg(">");
        let read: redis::RedisResult<Option<StreamReadReply>> = read.query_async(&mut self.redis.clone()).await;
        let Ok(Some(read)) = read else { return 0 };
        let entries: Vec<_> = read.keys.into_iter().flat_map(|key| key.ids).collect();
        if entries.is_empty() {
            return 0;
        }
        let (mut ids, mut runs) = (Vec::new(), Vec::new());
        for entry in entries {
            let data: String = entry.get("data").expect("an entry has a body");
            let run: Value = serde_json::from_str(&data).expect("a dispatch is JSON");
            let text = |field: &str| run[field].as_str().unwrap_or_else(|| panic!("{run} has no {field}")).to_owned();
            runs.push((text("executionId"), text("jobId")));
            ids.push(entry.id);
        }
        self.held.lock().extend(runs.iter().cloned());
        self.publish_status(&runs, "started").await;
        let mut done = redis::pipe();
        done.cmd("XACK").arg(self.dispatches()).arg(GROUP).arg(&ids);
        if !self.only_acks.load(Ordering::Relaxed) {
            done.cmd("XDEL").arg(self.dispatches()).arg(&ids);
        }
        let _: redis::RedisResult<()> = done.query_async(&mut self.redis.clone()).await;
        runs.len()
    }

    async fn release(&self) -> usize {
        if !self.releases.load(Ordering::Relaxed) {
            return 0;
        }
        let runs: Vec<_> = self.held.lock().clone().into_iter().take(BATCH).collect();
        self.publish_status(&runs, "completed").await;
        self.completed.fetch_add(runs.len(), Ordering::Relaxed);
        let mut held = self.held.lock();
        for (execution, _) in &runs {
            held.remove(execution);
        }
        runs.len()
    }

    /// Publishes the same status of each run on its job's channel, and one bell for all.
    async fn publish_status(&self, runs: &[(String, String)], kind: &str) {
        if runs.is_empty() {
            return;
        }
        let mut commands = self.status_entries(runs, kind);
        let jobs: Vec<&String> = runs.iter().map(|(_, job)| job).collect();
        // Of statuses alone: late log lines have no bell.
        let bell = json!({ "v": 1, "jobs": jobs, "logs": [] });
        commands.cmd("PUBLISH").arg(format!("{}.job.bell", self.prefix)).arg(bell.to_string()).ignore();
        self.send(commands).await;
    }

    fn status_entries(&self, runs: &[(String, String)], kind: &str) -> Pipeline {
        let at = Timestamp::now().to_string();
        let mut commands = Pipeline::new();
        for (execution, job) in runs {
            let status =
                json!({ "v": 1, "jobId": job, "executionId": execution, "workerId": self.id, "kind": kind, "at": at });
            let channel = format!("{}.job.{job}.status", self.prefix);
            commands.cmd("XADD").arg(channel).arg("*").arg("data").arg(status.to_string()).ignore();
            if kind == "completed" && self.publishes_late.load(Ordering::Relaxed) {
                let log =
                    json!({ "v": 1, "jobId": job, "executionId": execution, "seq": 1, "at": at, "message": "late" });
                let channel = format!("{}.job.{job}.logs", self.prefix);
                commands.cmd("XADD").arg(channel).arg("*").arg("data").arg(log.to_string()).ignore();
            }
        }
        commands
    }

    async fn send(&self, commands: Pipeline) {
        let sent: redis::RedisResult<()> = commands.query_async(&mut self.redis.clone()).await;
        sent.expect("Redis is available");
    }
}
