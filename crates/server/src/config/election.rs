use convoke_core::election::{BreakerSettings, ContentionSettings, Settings};

use super::Election;

impl Election {
    /// What an elector is given.
    pub fn settings(&self) -> Settings {
        let (contention, breaker) = (&self.contention, &self.circuit_breaker);
        Settings {
            heartbeat_interval: self.heartbeat_interval,
            heartbeat_jitter: self.heartbeat_jitter,
            lease_timeout: self.lease_timeout,
            worker_timeout: self.worker_timeout,
            startup_jitter_min: self.startup_jitter_min,
            startup_jitter_max: self.startup_jitter_max,
            contention: ContentionSettings {
                enabled: contention.enabled,
                threshold: contention.threshold,
                rate_limit: contention.rate_limit,
            },
            breaker: BreakerSettings {
                failure_threshold: breaker.failure_threshold,
                reset_timeout: breaker.reset_timeout,
                half_open_max_attempts: breaker.half_open_max_attempts,
            },
            epoch_fencing: self.epoch_fencing,
            epoch_grace_period: self.epoch_grace_period,
            metrics_buffer_size: self.metrics_buffer_size,
            yield_to_foreign: self.yield_to_foreign,
            ..Settings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_rules() {
        assert_eq!(Election::default().settings(), Settings::default());
        Election::default().settings().check().expect("defaults");
    }
}
