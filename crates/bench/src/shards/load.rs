//! Workers that send the next heartbeat as soon as they receive a reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use convoke::connect::{self, ZmqCredentials};
use convoke_core::ports::Dealer;
use futures_util::future::try_join_all;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const SHARDS_OF_ONE: u32 = 10;
/// A worker without a reply for this long never receives one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects `workers`, keeps `in_flight` heartbeats of each pending, and counts replies for a while.
pub async fn heartbeats_per_second(address: &str, workers: u32, in_flight: u32, span: Duration) -> Result<f64> {
    let (replies, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
    let mut senders = Vec::new();
    let dealers = try_join_all((0..workers).map(|number| connected(address, number, workers))).await?;
    for (number, mut dealer) in (0..workers).zip(dealers) {
        let heartbeat = message("heartbeat", number, workers);
        let (replies, stop) = (replies.clone(), stop.clone());
        senders.push(tokio::spawn(async move {
            let worked = work(&mut *dealer, heartbeat, in_flight, &replies);
            stop.run_until_cancelled(worked).await.unwrap_or(Ok(()))
        }));
    }
    // Until all are at full speed.
    tokio::time::sleep(span / 4).await;
    let (before, began) = (replies.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(span).await;
    let (count, took) = (replies.load(Ordering::Relaxed) - before, began.elapsed());
    stop.cancel();
    for one in senders {
        one.await??;
    }
    Ok(count as f64 / took.as_secs_f64())
}

/// A worker that has received its first reply.
pub async fn connected(address: &str, number: u32, workers: u32) -> Result<Box<dyn Dealer>> {
    let mut dealer = connect::shard_dealer(ZmqCredentials::Open).connect(address).await?;
    dealer.send(message("register", number, workers)).await?;
    tokio::time::timeout(PATIENCE, dealer.receive()).await.context("a worker got no reply")??;
    Ok(dealer)
}

async fn work(dealer: &mut dyn Dealer, heartbeat: Bytes, in_flight: u32, replies: &AtomicU64) -> Result<()> {
    for _ in 0..in_flight {
        dealer.send(heartbeat.clone()).await?;
    }
    loop {
        tokio::time::timeout(PATIENCE, dealer.receive()).await.context("a heartbeat got no reply")??;
        replies.fetch_add(1, Ordering::Relaxed);
        dealer.send(heartbeat.clone()).await?;
    }
}

fn message(kind: &str, number: u32, workers: u32) -> Bytes {
    let mut data = json!({
        "serviceName": "bench",
        // Their order is that of their numbers, and they report the shards that they have.
        "workerId": format!("worker-{number:05}"),
        "maxShardCount": workers * SHARDS_OF_ONE,
    });
    if kind == "heartbeat" {
        let shards: Vec<u32> = (number * SHARDS_OF_ONE..(number + 1) * SHARDS_OF_ONE).collect();
        data["assignedShards"] = json!(shards);
    }
    json!({ "type": kind, "data": data }).to_string().into()
}
