//! The delay before a failed attempt is retried: exponential backoff, capped, with full jitter.
//!
//! Full jitter draws the delay evenly from zero to the backoff, which spreads jobs that failed together better than a
//! little noise around a common delay.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::{self, DURATION_MAX};
use crate::error::Invalid;
use crate::limits::RETRIES_MAX;
use crate::sections;

/// When a failed attempt is retried: after `initialDelay`, multiplied with each further failure, up to `maxDelay`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct RetryPolicy {
    /// The delay after the first failure.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "10s"))]
    #[serde(with = "crate::duration", default = "default_initial_delay")]
    pub initial_delay: Duration,
    /// The factor by which the delay grows with each failure.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000, example = 2.0))]
    #[serde(default = "default_multiplier")]
    pub multiplier: f64,
    /// The longest delay.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "10m"))]
    #[serde(with = "crate::duration", default = "default_max_delay")]
    pub max_delay: Duration,
    /// How the delay is varied.
    #[serde(default)]
    pub jitter: Jitter,
}

/// How a delay is varied: `full` draws it evenly from zero to the delay, `none` leaves it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Jitter {
    /// Draws the delay evenly from zero to the backoff.
    #[default]
    Full,
    /// Uses the backoff itself.
    None,
}

fn default_initial_delay() -> Duration {
    RetryPolicy::BUILT_IN.initial_delay
}

fn default_multiplier() -> f64 {
    RetryPolicy::BUILT_IN.multiplier
}

fn default_max_delay() -> Duration {
    RetryPolicy::BUILT_IN.max_delay
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::BUILT_IN
    }
}

impl RetryPolicy {
    /// The policy of a coordinator whose configuration sets none.
    pub const BUILT_IN: RetryPolicy = RetryPolicy {
        initial_delay: Duration::from_secs(10),
        multiplier: 2.0,
        max_delay: Duration::from_secs(600),
        jitter: Jitter::Full,
    };

    /// Rejects a multiplier that is out of bounds and a longest delay below the first.
    pub fn check(&self) -> Result<(), Invalid> {
        if !(1.0..=1_000.0).contains(&self.multiplier) {
            let message = format!("expected a number from 1 to 1000, got {}", self.multiplier);
            return Err(Invalid::new("retryPolicy.multiplier", message));
        }
        if self.max_delay < self.initial_delay {
            return Err(Invalid::unprocessable("retryPolicy.maxDelay", "expected at least initialDelay"));
        }
        Ok(())
    }

    /// Returns the longest delay after the failure of attempt `tries` (from 1).
    pub fn backoff(&self, tries: u32) -> Duration {
        // Zero times infinity would be NaN.
        if self.initial_delay.is_zero() {
            return Duration::ZERO;
        }
        let exponent = i32::try_from(tries.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial_delay.as_secs_f64() * self.multiplier.powi(exponent);
        let cap = self.max_delay.min(DURATION_MAX);
        // The cap also applies if the product overflowed to infinity.
        if seconds < cap.as_secs_f64() { Duration::from_secs_f64(seconds) } else { cap }
    }

    /// Returns the delay. `roll` is a random number in `[0, 1)`.
    pub fn delay(&self, tries: u32, roll: f64) -> Duration {
        match self.jitter {
            Jitter::Full => self.backoff(tries).mul_f64(roll.clamp(0.0, 1.0)),
            Jitter::None => self.backoff(tries),
        }
    }
}

sections! {
    /// The section `retry`: the retries of a job whose request does not set them. Documents of stores are written and
    /// read with its defaults.
    #[derive(Copy)]
    RetrySettings {
        /// How often a failed job is retried.
        max_retries: u32 = 3,
        /// The delay after the first failure.
        #[serde(with = "duration")]
        initial_delay: Duration = RetryPolicy::BUILT_IN.initial_delay,
        /// The factor by which the delay grows with each failure.
        multiplier: f64 = RetryPolicy::BUILT_IN.multiplier,
        /// The longest delay.
        #[serde(with = "duration")]
        max_delay: Duration = RetryPolicy::BUILT_IN.max_delay,
        /// How the delay is varied.
        jitter: Jitter = RetryPolicy::BUILT_IN.jitter,
    }
}

impl RetrySettings {
    /// Returns the policy that these keys describe.
    pub fn policy(&self) -> RetryPolicy {
        let RetrySettings { initial_delay, multiplier, max_delay, jitter, .. } = *self;
        RetryPolicy { initial_delay, multiplier, max_delay, jitter }
    }

    /// Rejects values that cannot work, by the name of the key.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.max_retries > RETRIES_MAX {
            let message = format!("expected 0 to {RETRIES_MAX}, got {}", self.max_retries);
            return Err(Invalid::new("retry.max_retries", message));
        }
        // The errors of the policy name the fields of a request.
        self.policy().check().map_err(|invalid| Invalid {
            field: invalid.field.replace("retryPolicy.", "retry.").replace("maxDelay", "max_delay"),
            message: invalid.message.replace("initialDelay", "retry.initial_delay"),
            kind: invalid.kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::InvalidKind;

    fn policy(initial_ms: u64, multiplier: f64, max_ms: u64, jitter: Jitter) -> RetryPolicy {
        let (initial_delay, max_delay) = (Duration::from_millis(initial_ms), Duration::from_millis(max_ms));
        RetryPolicy { initial_delay, multiplier, max_delay, jitter }
    }

    #[test]
    fn the_backoff_grows_exponentially_up_to_the_cap() {
        let default = RetryPolicy::default();
        let seconds = [10, 20, 40, 80, 160, 320, 600, 600];
        for (tries, expected) in (1..).zip(seconds) {
            assert_eq!(default.backoff(tries), Duration::from_secs(expected), "after attempt {tries}");
        }
        assert_eq!(default.backoff(0), Duration::from_secs(10));
        let constant = policy(250, 1.0, 60_000, Jitter::None);
        assert_eq!(
            (constant.backoff(1), constant.backoff(1_000_000)),
            (constant.initial_delay, constant.initial_delay)
        );
    }

    #[test]
    fn what_overflows_is_the_cap() {
        let steep = policy(1, 1_000.0, 600_000, Jitter::None);
        for tries in [100, 1_000, u32::MAX] {
            assert_eq!(steep.backoff(tries), steep.max_delay);
        }
        let endless = RetryPolicy { max_delay: Duration::MAX, ..steep };
        assert_eq!(endless.backoff(u32::MAX), DURATION_MAX);
        let none = policy(0, 1_000.0, 600_000, Jitter::None);
        assert_eq!(none.backoff(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn without_jitter_the_die_does_not_matter() {
        let policy = policy(100, 3.0, 600_000, Jitter::None);
        for roll in [0.0, 0.5, 0.999, f64::NAN] {
            assert_eq!(policy.delay(3, roll), Duration::from_millis(900));
        }
    }

    #[test]
    fn full_jitter_is_spread_evenly_from_nothing_to_the_backoff() {
        let policy = policy(1_000, 2.0, 600_000, Jitter::Full);
        for (roll, ms) in [(0.0, 0), (0.25, 500), (0.5, 1_000), (1.0, 2_000), (7.0, 2_000), (-1.0, 0)] {
            assert_eq!(policy.delay(2, roll), Duration::from_millis(ms), "{roll}");
        }
    }

    #[test]
    fn json_has_defaults_for_what_is_left_out_and_refuses_what_is_unknown() {
        let read = |text| serde_json::from_str::<RetryPolicy>(text);
        assert_eq!(read("{}").expect("reads"), RetryPolicy::default());
        let short = read(r#"{"initialDelay":"1s","multiplier":3,"maxDelay":"1m","jitter":"none"}"#).expect("reads");
        assert_eq!(short, policy(1_000, 3.0, 60_000, Jitter::None));
        assert_eq!(
            serde_json::to_string(&RetryPolicy::default()).expect("serialises"),
            r#"{"initialDelay":"10s","multiplier":2.0,"maxDelay":"10m","jitter":"full"}"#
        );
        for (text, named) in [(r#"{"delay":"1s"}"#, "delay"), (r#"{"maxDelay":"soon"}"#, "expected a duration")] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_policy_that_makes_no_sense_is_refused_by_its_field() {
        for multiplier in [0.0, 0.99, -1.0, 1_000.1, f64::NAN, f64::INFINITY] {
            let refused = policy(1, multiplier, 1, Jitter::Full).check().expect_err("senseless");
            assert_eq!((refused.field.as_str(), refused.kind), ("retryPolicy.multiplier", InvalidKind::Argument));
        }
        let refused = policy(2, 1.0, 1, Jitter::Full).check().expect_err("senseless");
        assert_eq!((refused.field.as_str(), refused.kind), ("retryPolicy.maxDelay", InvalidKind::Unprocessable));
        assert_eq!(RetryPolicy::default().check(), Ok(()));
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_the_backoff_and_no_backoff_the_cap(
            initial_ms in 0..10_000_000u64,
            multiplier in 1.0..=1_000.0f64,
            more_ms in 0..10_000_000u64,
            tries: u32,
            roll in 0.0..1.0f64,
        ) {
            let policy = policy(initial_ms, multiplier, initial_ms + more_ms, Jitter::Full);
            prop_assert_eq!(policy.check(), Ok(()));
            let backoff = policy.backoff(tries);
            prop_assert!(backoff <= policy.max_delay);
            prop_assert!(policy.backoff(tries.saturating_add(1)) >= backoff);
            prop_assert!(policy.delay(tries, roll) <= backoff);
            prop_assert!(policy.delay(tries, roll / 2.0) <= policy.delay(tries, roll));
        }
    }
}
