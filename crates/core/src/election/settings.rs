//! What can be set of an elector, and what is refused: times that would let a lease end between two heartbeats.

use std::time::Duration;

use super::Policy;
use crate::error::Invalid;

/// How an elector behaves. Every duration can be made small, so that a test of failover takes a second.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub policy: Policy,
    pub heartbeat_interval: Duration,
    /// Each heartbeat comes later than its interval by up to this much, so that a fleet does not beat in step.
    pub heartbeat_jitter: Duration,
    /// For how long a term holds without a renewal.
    pub lease_timeout: Duration,
    /// For how long a member counts as present without a heartbeat.
    pub worker_timeout: Duration,
    /// The first heartbeat waits for a random time between these two.
    pub startup_jitter_min: Duration,
    pub startup_jitter_max: Duration,
    pub contention: ContentionSettings,
    pub breaker: BreakerSettings,
    pub epoch_fencing: bool,
    /// For how long tasks of the term before are still admitted after a change.
    pub epoch_grace_period: Duration,
    /// How many heartbeats the percentiles are of.
    pub metrics_buffer_size: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContentionSettings {
    pub enabled: bool,
    /// How many times its interval a heartbeat must take.
    pub threshold: f64,
    /// The shortest time between two complaints.
    pub rate_limit: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    pub failure_threshold: u32,
    pub reset_timeout: Duration,
    pub half_open_max_attempts: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            policy: Policy::default(),
            heartbeat_interval: Duration::from_secs(5),
            heartbeat_jitter: Duration::from_secs(1),
            lease_timeout: Duration::from_secs(15),
            worker_timeout: Duration::from_secs(20),
            startup_jitter_min: Duration::ZERO,
            startup_jitter_max: Duration::from_secs(5),
            contention: ContentionSettings::default(),
            breaker: BreakerSettings::default(),
            epoch_fencing: true,
            epoch_grace_period: Duration::from_secs(5),
            metrics_buffer_size: 100,
        }
    }
}

impl Default for ContentionSettings {
    fn default() -> Self {
        ContentionSettings { enabled: true, threshold: 2.0, rate_limit: Duration::from_secs(30) }
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        BreakerSettings { failure_threshold: 5, reset_timeout: Duration::from_secs(30), half_open_max_attempts: 1 }
    }
}

/// Shorter leases than this end before an answer to their renewal can come.
const LEASE_MIN: Duration = Duration::from_millis(20);
/// Longer than any lease that is meant, short enough to be added to any instant.
const DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);
const BUFFER_MAX: usize = 1_000_000;

impl Settings {
    /// The other times in the proportion to the lease that the defaults have.
    pub fn with_ttl(ttl: Duration) -> Self {
        let beat = ttl / 3;
        Settings {
            heartbeat_interval: beat,
            heartbeat_jitter: beat / 5,
            lease_timeout: ttl,
            worker_timeout: ttl.saturating_add(beat),
            startup_jitter_max: beat,
            ..Settings::default()
        }
    }

    pub fn check(&self) -> Result<(), Invalid> {
        let longest = self.heartbeat_interval.saturating_add(self.heartbeat_jitter);
        let complaint = if self.heartbeat_interval.is_zero() {
            ("heartbeat_interval", "expected more than nothing".to_owned())
        } else if self.lease_timeout < LEASE_MIN {
            ("lease_timeout", format!("expected at least {LEASE_MIN:?}, got {:?}", self.lease_timeout))
        } else if self.lease_timeout.max(self.worker_timeout).max(self.breaker.reset_timeout) > DURATION_MAX {
            ("lease_timeout", "expected times of at most a year".to_owned())
        } else if self.lease_timeout <= longest {
            (
                "lease_timeout",
                format!("expected more than {longest:?}, the longest heartbeat, got {:?}", self.lease_timeout),
            )
        } else if self.worker_timeout <= longest {
            (
                "worker_timeout",
                format!("expected more than {longest:?}, the longest heartbeat, got {:?}", self.worker_timeout),
            )
        } else if self.startup_jitter_max < self.startup_jitter_min {
            ("startup_jitter_max", format!("expected at least {:?}, the least", self.startup_jitter_min))
        } else if !(self.contention.threshold > 1.0 && self.contention.threshold.is_finite()) {
            ("contention.threshold", format!("expected a number above 1, got {}", self.contention.threshold))
        } else if self.breaker.failure_threshold == 0 || self.breaker.half_open_max_attempts == 0 {
            ("circuit_breaker", "expected at least one failure and one attempt".to_owned())
        } else if self.metrics_buffer_size == 0 || self.metrics_buffer_size > BUFFER_MAX {
            ("metrics_buffer_size", format!("expected 1 to {BUFFER_MAX}, got {}", self.metrics_buffer_size))
        } else {
            return Ok(());
        };
        Err(Invalid::senseless(complaint.0, complaint.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check_and_so_do_those_of_any_lease() {
        Settings::default().check().expect("defaults");
        for ms in [20, 100, 500, 15_000, 3_600_000] {
            Settings::with_ttl(Duration::from_millis(ms)).check().expect("in proportion");
        }
    }

    #[test]
    fn a_lease_that_ends_between_two_heartbeats_is_refused() {
        let settings = Settings { lease_timeout: Duration::from_secs(6), ..Settings::default() };
        assert_eq!(settings.check().expect_err("too short").field, "lease_timeout");
        let settings = Settings { worker_timeout: Duration::from_secs(6), ..Settings::default() };
        assert_eq!(settings.check().expect_err("too short").field, "worker_timeout");
        let nan = ContentionSettings { threshold: f64::NAN, ..ContentionSettings::default() };
        let settings = Settings { contention: nan, ..Settings::default() };
        assert_eq!(settings.check().expect_err("not a number").field, "contention.threshold");
    }
}
