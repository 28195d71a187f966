//! The least that can be a worker: it reads its queue in the group of workers, reports and acknowledges. It sends no
//! heartbeats, announces nothing, and writes keys in PascalCase, as a .NET worker does that serialises its own types.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::waiting::eventually;

const GROUP: &str = "workers";
/// Shorter than the client's response timeout.
const BLOCK_MS: usize = 200;

pub struct BusReader {
    completed: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl BusReader {
    /// Reads and completes one run after the other until it is dropped. `url` is that of Redis itself.
    pub async fn start(url: &str, prefix: &str, name: &str, queue: &str) -> BusReader {
        let client = redis::Client::open(url).expect("an address");
        let redis = eventually("Redis", || async { client.get_multiplexed_async_connection().await.ok() }).await;
        let completed = Arc::new(AtomicUsize::new(0));
        let (prefix, name, queue) = (prefix.to_owned(), name.to_owned(), format!("{prefix}.job.dispatch.{queue}"));
        let task = tokio::spawn(read_on(redis, prefix, name, queue, completed.clone())).abort_handle();
        BusReader { completed, task }
    }

    /// How many runs it has completed.
    pub fn completed(&self) -> usize {
        self.completed.load(Ordering::Relaxed)
    }
}

impl Drop for BusReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_on(
    mut redis: MultiplexedConnection,
    prefix: String,
    name: String,
    queue: String,
    completed: Arc<AtomicUsize>,
) {
    loop {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&name).arg("COUNT").arg(1).arg("BLOCK").arg(BLOCK_MS);
        read.arg("STREAMS").arg(&queue).arg(">");
        let reply: redis::RedisResult<Option<StreamReadReply>> = read.query_async(&mut redis).await;
        let Ok(reply) = reply else {
            let mut create = redis::cmd("XGROUP");
            create.arg("CREATE").arg(&queue).arg(GROUP).arg("0").arg("MKSTREAM");
            let _: redis::RedisResult<()> = create.query_async(&mut redis).await;
            continue;
        };
        for entry in reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids) {
            let data: String = entry.get("data").expect("an entry has a body");
            let run: Value = serde_json::from_str(&data).expect("a dispatch is JSON");
            let job = run["jobId"].as_str().expect("a job");
            let status = json!({ "JobId": job, "HistoryId": run["executionId"], "WorkerId": name, "Kind": "Completed",
                                 "Timestamp": Timestamp::now().to_string() });
            let mut done = redis::pipe();
            let channel = format!("{prefix}.job.{job}.status");
            done.cmd("XADD").arg(channel).arg("*").arg("data").arg(status.to_string()).ignore();
            done.cmd("XACK").arg(&queue).arg(GROUP).arg(&entry.id).ignore();
            let done: redis::RedisResult<()> = done.query_async(&mut redis).await;
            done.expect("Redis is there");
            completed.fetch_add(1, Ordering::Relaxed);
        }
    }
}
