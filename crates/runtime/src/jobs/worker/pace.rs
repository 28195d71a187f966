//! How far to fetch ahead.
//!
//! A slot that ends a run every few microseconds would idle for the length of a poll if no run were waiting for it. So
//! a worker fetches as many runs as its slots would end within [`HORIZON`], estimated from the duration of recent runs.
//! If runs are long it fetches none ahead: another worker may have a free slot for them.

use std::time::Duration;

/// About the round trip of a poll, with room to spare.
const HORIZON: Duration = Duration::from_millis(10);
pub(super) const PREFETCH_MAX: usize = 1_000;
/// Below this a run's length is noise.
const SHORTEST: Duration = Duration::from_micros(10);

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Moving mean of how long runs took, in seconds. `None` until one has ended.
    mean_s: Option<f64>,
}

impl Pace {
    pub fn ended(&mut self, took: Duration) {
        let took = took.max(SHORTEST).as_secs_f64();
        let mean = self.mean_s.get_or_insert(took);
        // The estimate rises fast and falls slowly: a run that was fetched too early only waits, one that was fetched
        // too late costs a poll.
        let weight = if took > *mean { 0.25 } else { 1.0 / 16.0 };
        *mean += (took - *mean) * weight;
    }

    /// Records that a run that was fetched ahead found no slot in time.
    pub fn was_too_fast(&mut self) {
        self.mean_s = Some(self.mean_s.unwrap_or(0.0).max(1.0));
    }

    /// Returns how many runs to have waiting beside those that run.
    pub fn prefetch(&self, concurrency: usize) -> usize {
        let Some(mean) = self.mean_s else { return 0 };
        let ended_within = concurrency as f64 * HORIZON.as_secs_f64() / mean;
        (ended_within as usize).min(PREFETCH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(took: &[Duration]) -> Pace {
        let mut pace = Pace::default();
        took.iter().for_each(|took| pace.ended(*took));
        pace
    }

    #[test]
    fn nothing_is_fetched_ahead_before_a_run_has_shown_its_length() {
        assert_eq!(Pace::default().prefetch(100), 0);
    }

    #[test]
    fn short_runs_are_fetched_ahead_and_long_ones_are_not() {
        assert_eq!(pace(&[Duration::ZERO]).prefetch(10), PREFETCH_MAX);
        assert_eq!(pace(&[Duration::from_millis(1)]).prefetch(10), 100);
        assert_eq!(pace(&[Duration::from_secs(1)]).prefetch(10), 0);
    }

    #[test]
    fn a_few_long_runs_stop_it_and_many_short_ones_start_it_again() {
        let mut pace = pace(&[Duration::from_micros(20); 100]);
        (0..3).for_each(|_| pace.ended(Duration::from_secs(1)));
        assert_eq!(pace.prefetch(10), 0);
        (0..100).for_each(|_| pace.ended(Duration::from_micros(20)));
        assert!(pace.prefetch(10) > 0);
    }
}
