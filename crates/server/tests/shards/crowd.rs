//! Many workers by hand in this process: they register, send heartbeats, take their shards, and count the messages.

use std::sync::Arc;
use std::time::Duration;

use convoke_testkit::process::HandDealer;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Connections that are made at once; a listener's queue is not endless.
const CONNECTING_MAX: usize = 64;
const CONNECT_AGAIN: Duration = Duration::from_millis(50);

/// The messages that a worker received.
#[derive(Debug, Clone, Default)]
pub struct Received {
    pub shards: Option<Vec<u32>>,
    pub version: u64,
    /// Replies to its heartbeats.
    pub responses: u64,
    /// Assignments that came by themselves.
    pub news: u64,
}

pub struct Crowd {
    service: &'static str,
    shards: u32,
    interval: Duration,
    address: String,
    connecting: Arc<Semaphore>,
    workers: Vec<(Arc<Mutex<Received>>, JoinHandle<()>)>,
}

impl Crowd {
    pub fn new(address: &str, service: &'static str, shards: u32, interval: Duration) -> Crowd {
        let connecting = Arc::new(Semaphore::new(CONNECTING_MAX));
        Crowd { service, shards, interval, address: address.to_owned(), connecting, workers: Vec::new() }
    }

    pub fn join(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.workers.len();
            let received = Arc::new(Mutex::new(Received::default()));
            let (service, shards) = (self.service, self.shards);
            let who = format!(r#""serviceName":"{service}","workerId":"worker-{number:05}","maxShardCount":{shards}"#);
            // Spread over the interval, as the heartbeats of a fleet are.
            let first = self.interval.mul_f64((number % 97) as f64 / 97.0) + self.interval;
            let work = work(self.address.clone(), who, first, self.interval, received.clone(), self.connecting.clone());
            self.workers.push((received, tokio::spawn(work)));
        }
    }

    /// Drops the last `count` without a message.
    pub fn kill(&mut self, count: usize) {
        for (_, task) in self.workers.drain(self.workers.len() - count..) {
            task.abort();
        }
    }

    pub fn received(&self) -> Vec<Received> {
        self.workers.iter().map(|(received, _)| received.lock().clone()).collect()
    }

    /// Assignments that came by themselves, to all of them together.
    pub fn news(&self) -> u64 {
        self.workers.iter().map(|(received, _)| received.lock().news).sum()
    }

    /// Returns the shards that they have together.
    pub fn census(&self) -> Census {
        let mut owners = vec![0; self.shards as usize];
        let (mut assigned, mut fewest, mut most) = (0, usize::MAX, 0);
        for (received, _) in &self.workers {
            let received = received.lock();
            let shards = received.shards.as_deref().unwrap_or_default();
            assigned += usize::from(received.shards.is_some());
            (fewest, most) = (fewest.min(shards.len()), most.max(shards.len()));
            shards.iter().for_each(|shard| owners[*shard as usize] += 1);
        }
        let count = |wanted: fn(usize) -> bool| owners.iter().filter(|owners| wanted(**owners)).count();
        Census { assigned, unowned: count(|it| it == 0), doubled: count(|it| it > 1), is_even: most <= fewest + 1 }
    }

    /// The census when all is well.
    pub fn balanced(&self) -> Census {
        Census { assigned: self.workers.len(), unowned: 0, doubled: 0, is_even: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    assigned: usize,
    unowned: usize,
    doubled: usize,
    is_even: bool,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.kill(self.workers.len());
    }
}

async fn work(
    address: String,
    who: String,
    first: Duration,
    interval: Duration,
    received: Arc<Mutex<Received>>,
    connecting: Arc<Semaphore>,
) {
    let mut dealer = {
        let _turn = connecting.acquire().await.expect("it is never closed");
        connect(&address).await
    };
    let register = format!(r#"{{"type":"register","data":{{{who}}}}}"#);
    dealer.send(register.as_bytes()).await.expect("it is connected");
    let mut ticks = interval_at(Instant::now() + first, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0;
    loop {
        tokio::select! {
            message = dealer.receive() => on_frames(&message.expect("it stays connected"), &mut received.lock()),
            _ = ticks.tick() => {
                number += 1;
                let shards = format!("{:?}", received.lock().shards.as_deref().unwrap_or_default());
                let data = format!(r#"{who},"beat":{number},"assignedShards":{shards}"#);
                let heartbeat = format!(r#"{{"type":"heartbeat","data":{{{data}}}}}"#);
                dealer.send(heartbeat.as_bytes()).await.expect("it stays connected");
            }
        }
    }
}

/// As any ZeroMQ library does, it tries again: a listener that sees hundreds at once sends some of them away.
async fn connect(address: &str) -> HandDealer {
    loop {
        match HandDealer::connect(address).await {
            Ok(dealer) => return dealer,
            Err(_) => tokio::time::sleep(CONNECT_AGAIN).await,
        }
    }
}

#[derive(Deserialize)]
struct Message {
    r#type: String,
    data: Assignment,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assignment {
    assigned_shards: Vec<u32>,
    version: u64,
    beat: Option<u64>,
}

fn on_frames(frames: &[bytes::Bytes], received: &mut Received) {
    let Message { r#type, data } = serde_json::from_slice(&frames[0]).expect("an assignment");
    assert_eq!(r#type, "assignment");
    match data.beat {
        None => received.news += 1,
        Some(_) => received.responses += 1,
    }
    assert!(data.version >= received.version, "version {} came after {}", data.version, received.version);
    received.version = data.version;
    received.shards = Some(data.assigned_shards);
}
