//! Measures the time from the moment when a job should be sent to the moment when its handler runs.
//!
//! The load is open: a job is sent at its time, whether or not the previous requests have completed, and each is
//! measured from the time at which it was *meant* to be sent. So a stall of the server counts for every job that it
//! delayed, and not only for the first. A sleeping thread is the clock of the load: timers of the runtime are too
//! coarse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use convoke_core::Json;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::enqueue::job;
use super::wire::Target;
use super::workers::Workers;
use crate::run::percentile;

const CONNECTIONS: usize = 16;
/// Jobs at the start that are not counted, so that neither side measures its own warm-up.
const WARM_UP: u64 = 50;
const LAST_WAIT: Duration = Duration::from_secs(30);

pub struct Latency {
    start_us: Vec<u32>,
    acknowledged_us: Vec<u32>,
}

impl Latency {
    /// From intended send to start, in milliseconds.
    pub fn start(&self, percent: f64) -> f64 {
        percentile(&self.start_us, percent)
    }

    /// From intended send to the response, in milliseconds.
    pub fn acknowledged(&self, percent: f64) -> f64 {
        percentile(&self.acknowledged_us, percent)
    }
}

/// When each job was meant to be sent, and when it started and completed.
struct Schedule {
    began: Instant,
    gap: Duration,
    started_us: Vec<AtomicU32>,
    acknowledged_us: Vec<AtomicU32>,
}

impl Schedule {
    fn due(&self, number: usize) -> Instant {
        self.began + self.gap.mul_f64(number as f64)
    }

    fn store_time(&self, cells: &[AtomicU32], number: usize) {
        let us = Instant::now().saturating_duration_since(self.due(number)).as_micros();
        if let Some(cell) = cells.get(number) {
            // Zero means not seen; a second run of the same job does not make it faster.
            let us = u32::try_from(us).unwrap_or(u32::MAX).max(1);
            let _ = cell.compare_exchange(0, us, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

pub async fn measure(target: &Target, queue: &str, rate: u32, during: Duration) -> Result<Latency> {
    let count = WARM_UP + (during.as_secs_f64() * f64::from(rate)).ceil() as u64;
    let cells = || (0..count).map(|_| AtomicU32::new(0)).collect();
    let schedule = Arc::new(Schedule {
        // Time for the worker to register and to park its poll.
        began: Instant::now() + Duration::from_millis(500),
        gap: Duration::from_secs(1) / rate,
        started_us: cells(),
        acknowledged_us: cells(),
    });
    let seen = schedule.clone();
    let workers = Workers::start(target, queue, 100, move |args| {
        if let Some(number) = number_of(args) {
            seen.store_time(&seen.started_us, number);
        }
    })?;
    let sent = send(target, queue, count, &schedule).await;
    let all = tokio::time::timeout(LAST_WAIT, workers.tally.reaches(count)).await;
    let begun = workers.tally.begun();
    workers.stop().await?;
    sent?;
    if all.is_err() {
        bail!("only {begun} of {count} jobs were begun");
    }
    let sorted = |cells: &[AtomicU32]| {
        let mut all: Vec<u32> = cells.iter().skip(WARM_UP as usize).map(|cell| cell.load(Ordering::Relaxed)).collect();
        all.sort_unstable();
        all
    };
    Ok(Latency { start_us: sorted(&schedule.started_us), acknowledged_us: sorted(&schedule.acknowledged_us) })
}

fn number_of(args: &Json) -> Option<usize> {
    #[derive(serde::Deserialize)]
    struct Args<'a> {
        n: &'a str,
    }
    serde_json::from_str::<Args<'_>>(args.as_str()).ok()?.n.parse().ok()
}

async fn send(target: &Target, queue: &str, count: u64, schedule: &Arc<Schedule>) -> Result<()> {
    let (due, next) = mpsc::unbounded_channel::<u64>();
    let next = Arc::new(Mutex::new(next));
    let mut senders = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (target, queue, next, schedule) = (target.clone(), queue.to_owned(), next.clone(), schedule.clone());
        let mut connection = target.connect().await?;
        senders.spawn(async move {
            loop {
                let number = next.lock().await.recv().await;
                let Some(number) = number else { return anyhow::Ok(()) };
                connection.exchange(&target.request("POST", "/v1/jobs", &job(&queue, number))).await?;
                schedule.store_time(&schedule.acknowledged_us, usize::try_from(number)?);
            }
        });
    }
    let clock = schedule.clone();
    let clock = std::thread::spawn(move || {
        for number in 0..count {
            let wait = clock.due(number as usize).saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
            if due.send(number).is_err() {
                return;
            }
        }
    });
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    match clock.join() {
        Ok(()) => Ok(()),
        Err(_) => bail!("the clock of the load panicked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_carries_its_number() {
        let job: serde_json::Value = serde_json::from_str(&job("q", 1234)).expect("JSON");
        let args = Json::of(&job["args"]).expect("JSON");
        assert_eq!(number_of(&args), Some(1234));
    }
}
