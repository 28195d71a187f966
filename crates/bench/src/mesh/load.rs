//! Round trips, a fixed number at a time, each begun when the one before it has ended.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use crate::run::Run;

/// `round_trip` receives its slot number, which no other has at the same time.
pub async fn run<F, Fut>(in_flight: usize, during: Duration, round_trip: F) -> Result<Run>
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<()>> + Send,
{
    let mut places = JoinSet::new();
    let started = Instant::now();
    for place in 0..in_flight {
        let round_trip = round_trip.clone();
        places.spawn(async move {
            let mut latencies_us = Vec::new();
            while started.elapsed() < during {
                let began = Instant::now();
                round_trip(place).await?;
                latencies_us.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            anyhow::Ok(latencies_us)
        });
    }
    let mut latencies_us = Vec::new();
    while let Some(done) = places.join_next().await {
        latencies_us.extend(done??);
    }
    let elapsed = started.elapsed();
    latencies_us.sort_unstable();
    Ok(Run { count: latencies_us.len() as u64, elapsed, latencies_us })
}
