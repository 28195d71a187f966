//! Measures how fast jobs are enqueued.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::wire::Target;
use crate::run::Run;

/// Connections that send batches: enough that one batch is written while another is committed.
const BATCH_CONNECTIONS: u64 = 4;

pub const JOB_TYPE: &str = "bench.noop";

/// A job whose arguments are 100 bytes of JSON. `number` has a fixed width, so that it can be overwritten.
pub fn job(queue: &str, number: u64) -> String {
    format!(r#"{{"type":"{JOB_TYPE}","queue":"{queue}","args":{{"n":"{number:012}","fill":"{}"}}}}"#, "x".repeat(70))
}

/// Sends one job per request, one request at a time on each connection.
pub async fn single(target: &Target, queue: &str, count: u64, connections: u16) -> Result<Run> {
    let request = target.request("POST", "/v1/jobs", &job(queue, 0));
    repeat(target, request, count, u64::from(connections)).await
}

/// Sends batches of jobs on a few connections.
pub async fn batches(target: &Target, queue: &str, count: u64, batch: u16) -> Result<Run> {
    let jobs = vec![job(queue, 0); usize::from(batch)].join(",");
    let request = target.request("POST", "/v1/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#));
    let whole = repeat(target, request, count / u64::from(batch), BATCH_CONNECTIONS).await?;
    let rest = count % u64::from(batch);
    if rest > 0 {
        let jobs = vec![job(queue, 0); usize::try_from(rest)?].join(",");
        let request = target.request("POST", "/v1/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#));
        let last = repeat(target, request, 1, 1).await?;
        return Ok(Run { count, elapsed: whole.elapsed + last.elapsed, latencies_us: whole.latencies_us });
    }
    Ok(Run { count, ..whole })
}

/// Sends the same request `count` times.
pub async fn repeat(target: &Target, request: Vec<u8>, count: u64, connections: u64) -> Result<Run> {
    let (request, left) = (Arc::new(request), Arc::new(AtomicU64::new(count)));
    let mut senders = JoinSet::new();
    let mut open = Vec::new();
    for _ in 0..connections.min(count) {
        open.push(target.connect().await?);
    }
    let started = Instant::now();
    for mut connection in open {
        let (request, left) = (request.clone(), left.clone());
        senders.spawn(async move {
            let mut latencies_us = Vec::new();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let sent = Instant::now();
                connection.exchange(&request).await?;
                latencies_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            anyhow::Ok(latencies_us)
        });
    }
    let mut latencies_us = Vec::new();
    while let Some(done) = senders.join_next().await {
        latencies_us.extend(done??);
    }
    let elapsed = started.elapsed();
    latencies_us.sort_unstable();
    Ok(Run { count, elapsed, latencies_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_a_hundred_bytes_of_arguments() {
        let job: serde_json::Value = serde_json::from_str(&job("q", 7)).expect("JSON");
        assert_eq!(job["args"].to_string().len(), 100);
    }
}
