//! The settings of an elector. Times that would let a lease expire between two heartbeats are rejected.

use std::time::Duration;

use super::{Policy, certain_for};
use crate::duration;
use crate::error::Invalid;
use crate::ports::leases::TTL_MAX;
use crate::sections;

sections! {
    /// The section `election`: the behaviour of an elector. Every duration can be made small, so that a test of
    /// failover takes a second.
    Settings {
        /// Which members stand if there is no leader. Set by code only.
        #[serde(skip)]
        policy: Policy = Policy::default(),
        /// The time between two heartbeats.
        #[serde(with = "duration")]
        heartbeat_interval: Duration = seconds(5),
        /// Upper bound of the random delay of each heartbeat, so that members do not send in step.
        #[serde(with = "duration")]
        heartbeat_jitter: Duration = seconds(1),
        /// How long a term lasts without a renewal.
        #[serde(with = "duration")]
        lease_timeout: Duration = seconds(15),
        /// How long a member counts as present without a heartbeat.
        #[serde(with = "duration")]
        worker_timeout: Duration = seconds(20),
        /// Lower bound of the random delay of the first heartbeat.
        #[serde(with = "duration")]
        startup_jitter_min: Duration = Duration::ZERO,
        /// Upper bound of the random delay of the first heartbeat.
        #[serde(with = "duration")]
        startup_jitter_max: Duration = seconds(5),
        /// Whether tasks of former terms are rejected.
        epoch_fencing: bool = true,
        /// How long tasks of the previous term are still admitted after a change.
        #[serde(with = "duration")]
        epoch_grace_period: Duration = seconds(5),
        /// The number of heartbeats that the latency percentiles are computed from.
        metrics_buffer_size: usize = 100,
        /// Whether members of another system (on S3: s3db.js) lead while there are any. Without such members it has no
        /// effect.
        yield_to_foreign: bool = true,
        /// When slow heartbeats are reported.
        contention: ContentionSettings = ContentionSettings::default(),
        /// When heartbeats to a failing backend are skipped.
        circuit_breaker: BreakerSettings = BreakerSettings::default(),
    }
    /// The section `election.contention`: when slow heartbeats are reported.
    #[derive(Copy)]
    ContentionSettings {
        /// Whether they are reported at all.
        enabled: bool = true,
        /// A heartbeat is slow if it takes longer than its interval times this.
        threshold: f64 = 2.0,
        /// The shortest time between two reports.
        #[serde(with = "duration")]
        rate_limit: Duration = seconds(30),
    }
    /// The section `election.circuit_breaker`: when heartbeats to a failing backend are skipped.
    #[derive(Copy, Eq)]
    BreakerSettings {
        /// Failures in a row after which it opens.
        failure_threshold: u32 = 5,
        /// How long it stays open.
        #[serde(with = "duration")]
        reset_timeout: Duration = seconds(30),
        /// Attempts while it is half-open.
        half_open_max_attempts: u32 = 1,
    }
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A shorter lease would expire before the reply to its renewal can arrive.
const LEASE_MIN: Duration = Duration::from_millis(20);
const BUFFER_MAX: usize = 1_000_000;

impl Settings {
    /// Sets the lease timeout, and scales the other times as in the defaults.
    pub fn with_ttl(self, ttl: Duration) -> Self {
        let interval = ttl / 3;
        Settings {
            heartbeat_interval: interval,
            heartbeat_jitter: interval / 5,
            lease_timeout: ttl,
            worker_timeout: ttl.saturating_add(interval),
            startup_jitter_min: Duration::ZERO,
            startup_jitter_max: interval,
            ..self
        }
    }

    /// Rejects settings that cannot work.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_times()?;
        self.check_proportions()?;
        let (contention, breaker) = (self.contention.threshold, self.circuit_breaker);
        if !(contention > 1.0 && contention.is_finite()) {
            return Err(Invalid::new("contention.threshold", format!("expected a number above 1, got {contention}")));
        }
        for (field, count) in [
            ("circuit_breaker.failure_threshold", breaker.failure_threshold),
            ("circuit_breaker.half_open_max_attempts", breaker.half_open_max_attempts),
        ] {
            if count == 0 {
                return Err(Invalid::new(field, "expected at least 1, got 0"));
            }
        }
        if self.metrics_buffer_size == 0 || self.metrics_buffer_size > BUFFER_MAX {
            let message = format!("expected 1 to {BUFFER_MAX}, got {}", self.metrics_buffer_size);
            return Err(Invalid::new("metrics_buffer_size", message));
        }
        Ok(())
    }

    /// Checks each time by itself.
    fn check_times(&self) -> Result<(), Invalid> {
        for (field, least, time) in [
            ("lease_timeout", LEASE_MIN, self.lease_timeout),
            ("heartbeat_interval", Duration::from_nanos(1), self.heartbeat_interval),
            ("heartbeat_jitter", Duration::ZERO, self.heartbeat_jitter),
            ("worker_timeout", Duration::ZERO, self.worker_timeout),
            ("startup_jitter_min", Duration::ZERO, self.startup_jitter_min),
            ("startup_jitter_max", Duration::ZERO, self.startup_jitter_max),
            ("circuit_breaker.reset_timeout", Duration::from_nanos(1), self.circuit_breaker.reset_timeout),
        ] {
            if time < least {
                let least = if least < LEASE_MIN { "a duration longer than zero".into() } else { at_least(least) };
                return Err(Invalid::new(field, format!("expected {least}, got {:?}", duration::format(time))));
            }
            if time > TTL_MAX {
                let message = format!("expected at most a year, got {:?}", duration::format(time));
                return Err(Invalid::new(field, message));
            }
        }
        Ok(())
    }

    /// Checks the times against each other.
    fn check_proportions(&self) -> Result<(), Invalid> {
        let longest = self.heartbeat_interval.saturating_add(self.heartbeat_jitter);
        let interval = format!("heartbeat_interval + heartbeat_jitter ({})", duration::format(longest));
        let complaint = if certain_for(self.lease_timeout, self.lease_timeout) <= longest {
            // The holder acts on the lease for that long.
            ("lease_timeout", format!("nine tenths of it to be more than {interval}"), self.lease_timeout)
        } else if self.worker_timeout <= longest {
            ("worker_timeout", format!("more than {interval}"), self.worker_timeout)
        } else if self.startup_jitter_max < self.startup_jitter_min {
            let least = format!("at least startup_jitter_min ({})", duration::format(self.startup_jitter_min));
            ("startup_jitter_max", least, self.startup_jitter_max)
        } else {
            return Ok(());
        };
        let (field, expected, got) = complaint;
        Err(Invalid::unprocessable(field, format!("expected {expected}, got {:?}", duration::format(got))))
    }
}

fn at_least(least: Duration) -> String {
    format!("at least {}", duration::format(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check_and_so_do_those_of_any_lease() {
        Settings::default().check().expect("defaults");
        for ms in [20, 100, 500, 15_000, 3_600_000] {
            Settings::default().with_ttl(Duration::from_millis(ms)).check().expect("in proportion");
        }
    }

    #[test]
    fn a_lease_that_ends_between_two_heartbeats_is_refused() {
        for ms in [6_000, 6_100, 6_666] {
            let settings = Settings { lease_timeout: Duration::from_millis(ms), ..Settings::default() };
            let refused = settings.check().expect_err("not certain for as long as the longest heartbeat");
            assert_eq!(refused.field, "lease_timeout");
        }
        Settings { lease_timeout: Duration::from_millis(6_700), ..Settings::default() }.check().expect("long enough");
        let settings = Settings { worker_timeout: Duration::from_secs(6), ..Settings::default() };
        assert_eq!(settings.check().expect_err("too short").field, "worker_timeout");
        let nan = ContentionSettings { threshold: f64::NAN, ..ContentionSettings::default() };
        let settings = Settings { contention: nan, ..Settings::default() };
        assert_eq!(settings.check().expect_err("not a number").field, "contention.threshold");
    }

    #[test]
    fn a_time_too_long_to_be_added_to_any_is_refused_by_its_name() {
        let long = Duration::MAX;
        for (settings, field) in [
            (Settings { startup_jitter_max: long, ..Settings::default() }, "startup_jitter_max"),
            (Settings { worker_timeout: long, ..Settings::default() }, "worker_timeout"),
            (Settings { heartbeat_jitter: long, ..Settings::default() }, "heartbeat_jitter"),
            (Settings::default().with_ttl(long), "lease_timeout"),
        ] {
            assert_eq!(settings.check().expect_err("too long").field, field);
        }
    }

    #[test]
    fn a_ttl_moves_the_times_and_nothing_else() {
        let before = Settings { policy: Policy::LowestId, metrics_buffer_size: 7, ..Settings::default() };
        let after = before.clone().with_ttl(Duration::from_secs(3));
        assert_eq!((after.policy, after.metrics_buffer_size), (Policy::LowestId, 7));
        assert_eq!(after.with_ttl(Duration::from_secs(15)), before, "the defaults' proportion");
    }
}
