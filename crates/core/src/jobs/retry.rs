//! When a failed attempt is tried again: exponential backoff, capped, with full jitter.
//!
//! Full jitter draws the delay evenly from zero to the backoff, which spreads a herd of jobs that failed together better
//! than adding a little noise to a common delay.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::DURATION_MAX;
use crate::error::Invalid;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    #[serde(with = "crate::duration", default = "default_initial_delay")]
    pub initial_delay: Duration,
    #[serde(default = "default_multiplier")]
    pub multiplier: f64,
    #[serde(with = "crate::duration", default = "default_max_delay")]
    pub max_delay: Duration,
    #[serde(default)]
    pub jitter: Jitter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Jitter {
    #[default]
    Full,
    None,
}

fn default_initial_delay() -> Duration {
    Duration::from_secs(10)
}

fn default_multiplier() -> f64 {
    2.0
}

fn default_max_delay() -> Duration {
    Duration::from_secs(600)
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            initial_delay: default_initial_delay(),
            multiplier: default_multiplier(),
            max_delay: default_max_delay(),
            jitter: Jitter::Full,
        }
    }
}

impl RetryPolicy {
    pub fn check(&self) -> Result<(), Invalid> {
        if !(1.0..=1_000.0).contains(&self.multiplier) {
            let message = format!("expected a number from 1 to 1000, got {}", self.multiplier);
            return Err(Invalid::new("retryPolicy.multiplier", message));
        }
        if self.max_delay < self.initial_delay {
            return Err(Invalid::senseless("retryPolicy.maxDelay", "expected at least initialDelay"));
        }
        Ok(())
    }

    /// The longest wait after the attempt numbered `tries` (from 1) has failed.
    pub fn backoff(&self, tries: u32) -> Duration {
        let exponent = i32::try_from(tries.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial_delay.as_secs_f64() * self.multiplier.powi(exponent);
        let cap = self.max_delay.min(DURATION_MAX);
        // Beyond the cap, and for what overflowed to infinity, the cap is the answer.
        if seconds < cap.as_secs_f64() { Duration::from_secs_f64(seconds) } else { cap }
    }

    /// The wait itself; `roll` in `[0, 1)`.
    pub fn delay(&self, tries: u32, roll: f64) -> Duration {
        match self.jitter {
            Jitter::Full => self.backoff(tries).mul_f64(roll.clamp(0.0, 1.0)),
            Jitter::None => self.backoff(tries),
        }
    }
}
