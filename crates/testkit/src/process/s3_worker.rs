//! A worker of the published system (s3db.js) in the same bucket, by our own hand: what it writes, what it reads, and how it
//! elects, faults included.
//!
//! It never renews: when a lease is over by its wall clock, it elects whoever of the listed started first, which may be
//! another, or the dead. Ids that begin with `gcs-` are elected only where there is no other. A state whose `_expiresAt` has
//! passed it deletes. A race that it lost it takes for won, until its next beat.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::s3::{IfMatch, S3Bucket};

#[derive(Debug, Clone)]
pub struct S3WorkerSettings {
    /// `{prefix}/plugin=coordinator/namespace={namespace}`.
    pub folder: String,
    pub worker_id: String,
    pub heartbeat: Duration,
    pub lease: Duration,
    pub worker_timeout: Duration,
    /// How wrong its clock is.
    pub skew: SignedDuration,
}

/// Gone when it is dropped, as by SIGKILL: nothing of it is taken back.
pub struct S3Worker {
    view: watch::Receiver<Option<(String, u64)>>,
    beating: AbortHandle,
}

/// How much longer than its time it takes others for alive.
const GRACE: Duration = Duration::from_secs(5);

impl S3Worker {
    pub fn start(bucket: S3Bucket, settings: S3WorkerSettings) -> S3Worker {
        let (seen, view) = watch::channel(None);
        let start_time = now_ms(&settings);
        let beating = tokio::spawn(async move {
            loop {
                let leader = beat(&bucket, &settings, start_time).await;
                let _ = seen.send(leader);
                tokio::time::sleep(settings.heartbeat).await;
            }
        });
        S3Worker { view, beating: beating.abort_handle() }
    }

    /// Who leads, and in which epoch, as it sees it.
    pub fn leader(&self) -> Option<(String, u64)> {
        self.view.borrow().clone()
    }
}

impl Drop for S3Worker {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

fn now_ms(settings: &S3WorkerSettings) -> i64 {
    (Timestamp::now() + settings.skew).as_millisecond()
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("a short time")
}

fn key(settings: &S3WorkerSettings, name: &str) -> String {
    format!("{}/{name}", settings.folder)
}

async fn beat(bucket: &S3Bucket, settings: &S3WorkerSettings, start_time: i64) -> Option<(String, u64)> {
    let now = now_ms(settings);
    let id = &settings.worker_id;
    let own = json!({
        "workerId": id, "pluginName": "coordinator", "pod": "pod", "lastHeartbeat": now, "startTime": start_time,
        "namespace": "ns", "_expiresAt": now + ms(settings.worker_timeout),
    });
    bucket.put(&key(settings, &format!("workers/worker={id}.json")), own.to_string().as_bytes(), IfMatch::Any).await;
    let (state, _) = state(bucket, settings).await.unzip();
    let leader = state.as_ref().and_then(named);
    let is_over =
        state.as_ref().is_none_or(|state| state["leaseEnd"].as_i64().is_some_and(|end| end != 0 && now >= end));
    let is_service = leader.as_ref().is_some_and(|(leader, _)| leader.starts_with("gcs-"));
    if is_over || (is_service && candidates(bucket, settings).await.iter().any(|id| !id.starts_with("gcs-"))) {
        return elect(bucket, settings, leader.map_or(0, |(_, epoch)| epoch)).await;
    }
    leader
}

fn named(state: &Value) -> Option<(String, u64)> {
    Some((state["leaderId"].as_str()?.to_owned(), state["epoch"].as_u64()?))
}

async fn state(bucket: &S3Bucket, settings: &S3WorkerSettings) -> Option<(Value, String)> {
    let path = key(settings, "state.json");
    let (state, etag) = bucket.get(&path).await?;
    if state["_expiresAt"].as_i64().is_some_and(|end| now_ms(settings) > end) {
        bucket.delete(&path).await;
        return None;
    }
    Some((state, etag))
}

/// The ids of all that were written lately, by its own clock.
async fn candidates(bucket: &S3Bucket, settings: &S3WorkerSettings) -> Vec<String> {
    let listed = bucket.list(&key(settings, "workers/")).await;
    let oldest = now_ms(settings) - ms(settings.worker_timeout + GRACE);
    let recent = listed.into_iter().filter(|(_, modified)| modified.as_millisecond() > oldest);
    let ids = recent.filter_map(|(key, _)| {
        let name = key.rsplit('/').next()?.strip_prefix("worker=")?;
        Some(name.strip_suffix(".json")?.to_owned())
    });
    ids.collect()
}

/// Whom it would elect: of those that are no services, where there are any, who started first.
async fn favourite(bucket: &S3Bucket, settings: &S3WorkerSettings) -> String {
    let all = candidates(bucket, settings).await;
    let has_others = all.iter().any(|id| !id.starts_with("gcs-"));
    let mut ranked = Vec::new();
    for id in all.into_iter().filter(|id| !has_others || !id.starts_with("gcs-")) {
        let file = bucket.get(&key(settings, &format!("workers/worker={id}.json"))).await;
        let started = file.and_then(|(worker, _)| worker["startTime"].as_i64()).unwrap_or(i64::MAX);
        ranked.push((started, id));
    }
    ranked.sort();
    ranked.into_iter().next().map_or_else(|| settings.worker_id.clone(), |(_, id)| id)
}

async fn elect(bucket: &S3Bucket, settings: &S3WorkerSettings, previous: u64) -> Option<(String, u64)> {
    let elected = favourite(bucket, settings).await;
    let found = state(bucket, settings).await;
    let now = now_ms(settings);
    let lease_end = now + ms(settings.lease);
    let known = found.as_ref().and_then(|(state, _)| named(state));
    let epoch = known.map_or(previous, |(_, epoch)| epoch.max(previous)) + 1;
    let next = json!({
        "leaderId": elected, "leaderPod": "pod", "epoch": epoch, "leaseStart": now, "leaseEnd": lease_end,
        "electedBy": settings.worker_id, "electedAt": now, "_expiresAt": lease_end + 60_000,
    });
    let condition = match &found {
        None => IfMatch::None,
        Some((state, _)) if state["leaderId"] == elected && state["leaseEnd"].as_i64() > Some(now) => {
            return named(state);
        }
        Some((_, etag)) => IfMatch::Tag(etag),
    };
    // Whether it was written makes no difference to it.
    bucket.put(&key(settings, "state.json"), next.to_string().as_bytes(), condition).await;
    Some((elected, epoch))
}
