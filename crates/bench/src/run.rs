//! The result of a measurement: a number of operations, and how long each took.

use std::time::Duration;

/// How many operations, how long in total, and how long each took.
pub struct Run {
    pub count: u64,
    pub elapsed: Duration,
    /// Sorted, in microseconds.
    pub latencies_us: Vec<u32>,
}

impl Run {
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    /// In milliseconds.
    pub fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.latencies_us, percent)
    }
}

/// Returns the value below which `percent` of the sorted samples (microseconds) lie, in milliseconds.
pub fn percentile(sorted_us: &[u32], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted_us.len() as f64).ceil() as usize;
    sorted_us.get(rank.clamp(1, sorted_us.len().max(1)) - 1).map_or(f64::NAN, |us| f64::from(*us) / 1_000.0)
}

/// Returns the median; of an even number the upper of the two in the middle.
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let samples: Vec<u32> = (1..=100).map(|n| n * 1_000).collect();
        assert_eq!([50.0, 99.0, 100.0].map(|percent| percentile(&samples, percent)), [50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[5_000], 50.0), 5.0);
        assert!(percentile(&[], 50.0).is_nan());
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&mut [9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 9.0]), 4.0);
        assert!(median(&mut []).is_nan());
    }
}
