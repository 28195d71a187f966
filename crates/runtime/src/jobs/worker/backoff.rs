//! The delay before a retry: longer each time, and not in step with other workers.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(5);

/// The jitter is drawn from a seed, so that a simulation repeats itself; workers differ by the seed of their ids.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    failures: u32,
    state: u64,
}

impl Backoff {
    pub fn new(seed: u64) -> Self {
        Backoff { failures: 0, state: seed }
    }

    /// Resets the delay after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns a delay between half and the whole of one that doubles up to [`MAX`].
    pub fn next_delay(&mut self) -> Duration {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(10)).min(MAX);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(0.5 + self.roll() / 2.0)
    }

    /// Returns the next number in `[0, 1)`, by SplitMix64.
    fn roll(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_cap_and_stay_within_their_half() {
        let mut backoff = Backoff::new(7);
        for n in 0..20 {
            let ceiling = FIRST.saturating_mul(1 << n.min(10)).min(MAX);
            let delay = backoff.next_delay();
            assert!(delay >= ceiling / 2 && delay <= ceiling, "{n}: {delay:?} of {ceiling:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= FIRST);
    }

    #[test]
    fn workers_are_not_in_step() {
        assert_ne!(Backoff::new(1).next_delay(), Backoff::new(2).next_delay());
    }
}
