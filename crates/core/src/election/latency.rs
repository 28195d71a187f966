use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long the last heartbeats took.
#[derive(Debug, Clone)]
pub struct LatencyWindow {
    samples: VecDeque<Duration>,
    samples_max: usize,
}

/// Percentiles of durations in milliseconds, by nearest rank. Zero if there is no sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The number of durations that they were computed from.
    #[cfg_attr(feature = "openapi", schema(format = Int64))]
    pub samples: usize,
}

impl LatencyWindow {
    /// Returns an empty window over the last `samples_max` samples.
    pub fn new(samples_max: usize) -> Self {
        LatencyWindow { samples: VecDeque::new(), samples_max: samples_max.max(1) }
    }

    /// Adds a sample; drops the oldest if the window is full.
    pub fn record(&mut self, sample: Duration) {
        if self.samples.len() == self.samples_max {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Computes the percentiles of the samples in the window.
    pub fn percentiles(&self) -> Percentiles {
        let mut sorted: Vec<Duration> = self.samples.iter().copied().collect();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).map_or(0.0, |sample| sample.as_secs_f64() * 1_000.0)
        };
        Percentiles { p50: at(50), p95: at(95), p99: at(99), samples: sorted.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_last_samples_only() {
        let mut window = LatencyWindow::new(100);
        assert_eq!(window.percentiles(), Percentiles::default());
        for ms in (1..=200).rev() {
            window.record(Duration::from_millis(ms));
        }
        assert_eq!(window.percentiles(), Percentiles { p50: 50.0, p95: 95.0, p99: 99.0, samples: 100 });
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let mut window = LatencyWindow::new(10);
        window.record(Duration::from_millis(7));
        assert_eq!(window.percentiles(), Percentiles { p50: 7.0, p95: 7.0, p99: 7.0, samples: 1 });
    }
}
