//! Measures how fast jobs are run and recorded: from the first poll to the last commit.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::JobsArgs;
use super::enqueue;
use super::wire::Target;
use super::workers::Workers;

/// A phase without progress for this long has failed.
const STUCK_AFTER: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns jobs a second if all of them are pending from the start.
pub async fn backlog(target: &Target, queue: &str, count: u64, concurrency: u32) -> Result<f64> {
    let started = Instant::now();
    let workers = Workers::start(target, queue, concurrency, |_| {})?;
    finish(target, queue, count, started, workers).await
}

/// Like [`backlog`], with a bare poller.
pub async fn raw(target: &Target, queue: &str, count: u64) -> Result<f64> {
    let started = Instant::now();
    let workers = Workers::start_raw(target, queue)?;
    finish(target, queue, count, started, workers).await
}

/// Returns jobs a second from the first enqueue to the last end, while they are enqueued in batches.
pub async fn live(target: &Target, queue: &str, count: u64, args: &JobsArgs) -> Result<f64> {
    let workers = Workers::start(target, queue, args.concurrency, |_| {})?;
    let started = Instant::now();
    enqueue::batches(target, queue, count, args.batch).await?;
    finish(target, queue, count, started, workers).await
}

async fn finish(target: &Target, queue: &str, count: u64, started: Instant, workers: Workers) -> Result<f64> {
    let recorded = wait_until_recorded(target, queue, count, &workers).await;
    let elapsed = started.elapsed();
    workers.stop().await?;
    recorded?;
    Ok(count as f64 / elapsed.as_secs_f64())
}

/// Waits until every job has started and the server has recorded the end of each.
async fn wait_until_recorded(target: &Target, queue: &str, count: u64, workers: &Workers) -> Result<()> {
    let (mut before, mut since) = (0, Instant::now());
    while tokio::time::timeout(Duration::from_secs(1), workers.tally.reaches(count)).await.is_err() {
        let begun = workers.tally.begun();
        if begun != before {
            (before, since) = (begun, Instant::now());
        } else if since.elapsed() > STUCK_AFTER {
            bail!("only {begun} of {count} jobs were begun");
        }
    }
    let mut connection = target.connect().await?;
    let request = target.request("GET", &format!("/v1/queues/{queue}"), "");
    let since = Instant::now();
    loop {
        let queue: Value = serde_json::from_slice(connection.exchange(&request).await?)?;
        let live = ["created", "pending", "scheduled", "dispatched", "running"];
        let left: u64 = live.iter().filter_map(|status| queue["counts"][status].as_u64()).sum();
        if left == 0 {
            return Ok(());
        }
        if since.elapsed() > STUCK_AFTER {
            bail!("{left} of {count} jobs have not ended");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
