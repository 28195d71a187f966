//! Many workers by hand in this process: they register, beat, take what they are told, and count it.

use std::sync::Arc;
use std::time::Duration;

use convoke_testkit::process::HandDealer;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Connections that are made at once; a listener's queue is not endless.
const CONNECTING_MAX: usize = 256;

/// What a worker was told.
#[derive(Debug, Clone, Default)]
pub struct Told {
    pub shards: Option<Vec<u32>>,
    pub version: u64,
    /// Answers to its beats.
    pub answers: u64,
    /// Assignments that came by themselves.
    pub news: u64,
}

pub struct Crowd {
    service: &'static str,
    shards: u32,
    beat: Duration,
    address: String,
    connecting: Arc<Semaphore>,
    workers: Vec<(Arc<Mutex<Told>>, JoinHandle<()>)>,
}

impl Crowd {
    pub fn new(address: &str, service: &'static str, shards: u32, beat: Duration) -> Crowd {
        let connecting = Arc::new(Semaphore::new(CONNECTING_MAX));
        Crowd { service, shards, beat, address: address.to_owned(), connecting, workers: Vec::new() }
    }

    pub fn join(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.workers.len();
            let told = Arc::new(Mutex::new(Told::default()));
            let who = json!({
                "serviceName": self.service, "workerId": format!("worker-{number:05}"), "maxShardCount": self.shards,
            });
            // Spread over the interval, as a fleet's beats are.
            let first = self.beat.mul_f64((number % 97) as f64 / 97.0) + self.beat;
            let work = work(self.address.clone(), who, first, self.beat, told.clone(), self.connecting.clone());
            self.workers.push((told, tokio::spawn(work)));
        }
    }

    /// The last `count` are gone, without a word.
    pub fn kill(&mut self, count: usize) {
        for (_, task) in self.workers.drain(self.workers.len() - count..) {
            task.abort();
        }
    }

    pub fn told(&self) -> Vec<Told> {
        self.workers.iter().map(|(told, _)| told.lock().clone()).collect()
    }

    /// Assignments that came by themselves, to all of them together.
    pub fn news(&self) -> u64 {
        self.workers.iter().map(|(told, _)| told.lock().news).sum()
    }

    /// Whether they know of every shard as one's own, spread evenly.
    pub fn is_balanced(&self) -> bool {
        let mut owned = vec![false; self.shards as usize];
        let (mut fewest, mut most) = (usize::MAX, 0);
        for (told, _) in &self.workers {
            let told = told.lock();
            let Some(shards) = &told.shards else { return false };
            (fewest, most) = (fewest.min(shards.len()), most.max(shards.len()));
            for shard in shards {
                if std::mem::replace(&mut owned[*shard as usize], true) {
                    return false;
                }
            }
        }
        most - fewest <= 1 && owned.iter().all(|owned| *owned)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.kill(self.workers.len());
    }
}

async fn work(
    address: String,
    mut who: Value,
    first: Duration,
    beat: Duration,
    told: Arc<Mutex<Told>>,
    connecting: Arc<Semaphore>,
) {
    let mut dealer = {
        let _turn = connecting.acquire().await.expect("it is never closed");
        HandDealer::connect(&address).await.expect("the coordinator takes it")
    };
    let say = |kind: &str, data: &Value| json!({"type": kind, "data": data}).to_string();
    dealer.send(say("register", &who).as_bytes()).await.expect("it is connected");
    let mut beats = interval_at(Instant::now() + first, beat);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0;
    loop {
        tokio::select! {
            message = dealer.receive() => hear(&message.expect("it stays connected"), &mut told.lock()),
            _ = beats.tick() => {
                number += 1;
                who["beat"] = json!(number);
                who["assignedShards"] = json!(told.lock().shards.clone().unwrap_or_default());
                dealer.send(say("heartbeat", &who).as_bytes()).await.expect("it stays connected");
            }
        }
    }
}

fn hear(frames: &[bytes::Bytes], told: &mut Told) {
    let message: Value = serde_json::from_slice(&frames[0]).expect("JSON");
    assert_eq!(message["type"], "assignment", "{message}");
    let data = &message["data"];
    if data["beat"].is_null() {
        told.news += 1;
    } else {
        told.answers += 1;
    }
    let version = data["version"].as_u64().expect("a version");
    assert!(version >= told.version, "version {version} came after {}", told.version);
    told.version = version;
    told.shards = Some(serde_json::from_value(data["assignedShards"].clone()).expect("shards"));
}
