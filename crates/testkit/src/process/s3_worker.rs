//! A process of the published system (s3db.js) in the same bucket: the files that it writes, what it reads, and how it elects, faults
//! included.
//!
//! - Each process is listed by an id that begins with `gcs-`, beside that of its plugin. Such ids are elected only if there is no other.
//! - It decides at the beginning of a heartbeat, on the state that it read there. Some requests later it reads the state again, only for
//!   its tag, and replaces it, live or not, at the epoch of the state that it decided on plus one.
//! - It never renews: when a lease is over by its wall clock, it elects the listed worker that started first, which may be another
//!   process, or a dead one.
//! - It takes a race that it lost for won, and believes what it decided until the end of its next heartbeat.
//! - It deletes a state whose `_expiresAt` has passed.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::s3::{IfMatch, S3Bucket};

/// The requests of such a process to a bucket.
#[async_trait]
pub trait Bucket: Clone + Send + Sync + 'static {
    async fn get(&self, key: &str) -> Option<(Value, String)>;
    async fn put(&self, key: &str, body: &[u8], condition: IfMatch<'_>) -> bool;
    async fn delete(&self, key: &str);
    async fn list(&self, prefix: &str) -> Vec<(String, Timestamp)>;
    /// Wall time, where the process runs.
    fn now(&self) -> Timestamp;
}

#[async_trait]
impl Bucket for S3Bucket {
    async fn get(&self, key: &str) -> Option<(Value, String)> {
        S3Bucket::get(self, key).await
    }

    async fn put(&self, key: &str, body: &[u8], condition: IfMatch<'_>) -> bool {
        S3Bucket::put(self, key, body, condition).await
    }

    async fn delete(&self, key: &str) {
        S3Bucket::delete(self, key).await;
    }

    async fn list(&self, prefix: &str) -> Vec<(String, Timestamp)> {
        S3Bucket::list(self, prefix).await
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[derive(Debug, Clone)]
pub struct S3WorkerSettings {
    /// `{prefix}/plugin=coordinator/namespace={namespace}`.
    pub folder: String,
    /// Its plugin's id, or that of the process itself if it begins with `gcs-`.
    pub worker_id: String,
    pub heartbeat: Duration,
    pub jitter: Duration,
    pub lease: Duration,
    pub worker_timeout: Duration,
    /// How wrong its clock is.
    pub skew: SignedDuration,
}

/// Gone when it is dropped, as by SIGKILL: nothing of it is taken back.
pub struct S3Worker {
    view: watch::Receiver<Option<(String, u64)>>,
    id: String,
    heartbeats: AbortHandle,
}

/// How much longer than its time it takes others for alive.
const GRACE: Duration = Duration::from_secs(5);

impl S3Worker {
    pub fn start(bucket: impl Bucket, settings: S3WorkerSettings) -> S3Worker {
        let (seen, view) = watch::channel(None);
        let id = settings.worker_id.clone();
        let mut process = Process { start_time: 0, epoch: 0, bucket, settings };
        process.start_time = process.now_ms();
        let heartbeats = tokio::spawn(async move {
            for number in 0_u64.. {
                let leader = process.heartbeat().await;
                process.epoch = leader.as_ref().map_or(process.epoch, |(_, epoch)| *epoch);
                let _ = seen.send(leader);
                tokio::time::sleep(process.settings.heartbeat + process.jitter(number)).await;
            }
        });
        S3Worker { view, id, heartbeats: heartbeats.abort_handle() }
    }

    /// Returns the leader and the epoch, as it sees them.
    pub fn leader(&self) -> Option<(String, u64)> {
        self.view.borrow().clone()
    }

    /// The epoch in which it believes to lead itself.
    pub fn leads(&self) -> Option<u64> {
        self.leader().filter(|(leader, _)| *leader == self.id).map(|(_, epoch)| epoch)
    }
}

impl Drop for S3Worker {
    fn drop(&mut self) {
        self.heartbeats.abort();
    }
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("a short time")
}

fn named(state: &Value) -> Option<(String, u64)> {
    Some((state["leaderId"].as_str()?.to_owned(), state["epoch"].as_u64()?))
}

fn is_service(id: &str) -> bool {
    id.starts_with("gcs-")
}

struct Process<B> {
    bucket: B,
    settings: S3WorkerSettings,
    start_time: i64,
    /// The last epoch that it saw.
    epoch: u64,
}

impl<B: Bucket> Process<B> {
    fn now_ms(&self) -> i64 {
        (self.bucket.now() + self.settings.skew).as_millisecond()
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.settings.folder)
    }

    /// As if at random, and the same in each run.
    fn jitter(&self, number: u64) -> Duration {
        let seed: u64 = self.settings.worker_id.bytes().map(u64::from).sum();
        let part = (number.wrapping_add(seed)).wrapping_mul(2_654_435_761) % 1_000;
        self.settings.jitter * u32::try_from(part).unwrap_or(0) / 1_000
    }

    async fn heartbeat(&self) -> Option<(String, u64)> {
        self.register().await;
        let (state, _) = self.state().await.unzip();
        let leader = state.as_ref().and_then(named);
        let now = self.now_ms();
        let is_over =
            state.as_ref().is_none_or(|state| state["leaseEnd"].as_i64().is_some_and(|end| end != 0 && now >= end));
        let gives_way = || async {
            leader.as_ref().is_some_and(|(leader, _)| is_service(leader))
                && self.candidates().await.iter().any(|id| !is_service(id))
        };
        if is_over || gives_way().await {
            return Some(self.elect(leader.map_or(self.epoch, |(_, epoch)| epoch)).await);
        }
        leader
    }

    /// All at once.
    async fn register(&self) {
        let (now, id) = (self.now_ms(), &self.settings.worker_id);
        let service = if is_service(id) { None } else { Some(format!("gcs-{id}")) };
        let files = service.iter().chain([id]).map(|id| async move {
            let plugin = if is_service(id) { "coordinator" } else { "plugin" };
            let file = json!({
                "workerId": id, "pluginName": plugin, "pod": "pod", "lastHeartbeat": now, "startTime": self.start_time,
                "namespace": "ns", "_expiresAt": now + ms(self.settings.worker_timeout),
            });
            let key = self.key(&format!("workers/worker={id}.json"));
            self.bucket.put(&key, file.to_string().as_bytes(), IfMatch::Any).await
        });
        join_all(files).await;
    }

    async fn state(&self) -> Option<(Value, String)> {
        let path = self.key("state.json");
        let (state, etag) = self.bucket.get(&path).await?;
        if state["_expiresAt"].as_i64().is_some_and(|end| self.now_ms() > end) {
            self.bucket.delete(&path).await;
            return None;
        }
        Some((state, etag))
    }

    /// The ids of all that were written lately, by its own clock.
    async fn candidates(&self) -> Vec<String> {
        let listed = self.bucket.list(&self.key("workers/")).await;
        let oldest = self.now_ms() - ms(self.settings.worker_timeout + GRACE);
        let recent = listed.into_iter().filter(|(_, modified)| modified.as_millisecond() > oldest);
        let ids = recent.filter_map(|(key, _)| {
            let name = key.rsplit('/').next()?.strip_prefix("worker=")?;
            Some(name.strip_suffix(".json")?.to_owned())
        });
        ids.collect()
    }

    /// Whom it would elect: of those that are no services, if there are any, who started first.
    async fn favourite(&self) -> String {
        let all = self.candidates().await;
        let has_others = all.iter().any(|id| !is_service(id));
        let eligible = all.into_iter().filter(|id| !has_others || !is_service(id));
        let ranked = join_all(eligible.map(|id| async move {
            let file = self.bucket.get(&self.key(&format!("workers/worker={id}.json"))).await;
            (file.and_then(|(worker, _)| worker["startTime"].as_i64()).unwrap_or(i64::MAX), id)
        }));
        ranked.await.into_iter().min().map_or_else(|| self.settings.worker_id.clone(), |(_, id)| id)
    }

    /// `decided_on` is the epoch of the state that was read before.
    async fn elect(&self, decided_on: u64) -> (String, u64) {
        let elected = self.favourite().await;
        let epoch = decided_on + 1;
        let now = self.now_ms();
        let lease_end = now + ms(self.settings.lease);
        let next = json!({
            "leaderId": elected, "leaderPod": "pod", "epoch": epoch, "leaseStart": now, "leaseEnd": lease_end,
            "electedBy": self.settings.worker_id, "electedAt": now, "_expiresAt": lease_end + 60_000,
        });
        let found = self.state().await;
        let condition = match &found {
            None => IfMatch::None,
            Some((state, _)) if state["leaderId"] == elected && state["leaseEnd"].as_i64() > Some(now) => {
                return named(state).unwrap_or((elected, epoch));
            }
            Some((_, etag)) => IfMatch::Tag(etag),
        };
        // Whether it was written makes no difference to it.
        self.bucket.put(&self.key("state.json"), next.to_string().as_bytes(), condition).await;
        (elected, epoch)
    }
}
