//! The settings of an instance. The defaults are those of the existing system.

use std::time::Duration;

use convoke_core::election::certain_for;
use convoke_core::{Invalid, duration, sections};

/// Upper bound of a time (one year), so that it can be added to any instant.
const TIME_MAX: Duration = Duration::from_secs(86_400 * 365);

sections! {
    /// The section `mesh`.
    #[derive(Eq)]
    Settings {
        /// How often an instance sends a heartbeat.
        #[serde(with = "duration")]
        heartbeat_interval: Duration = Duration::from_secs(5),
        /// How long after its last heartbeat an instance counts as dead.
        #[serde(with = "duration")]
        node_ttl: Duration = Duration::from_secs(15),
        /// How long a call waits for a reply or a heartbeat.
        #[serde(with = "duration")]
        request_timeout: Duration = Duration::from_secs(10),
        /// How long the leader's lock lasts if it is not renewed.
        #[serde(with = "duration")]
        leader_ttl: Duration = Duration::from_secs(30),
        /// How often the leader renews its lock.
        #[serde(with = "duration")]
        leader_renew_interval: Duration = Duration::from_secs(10),
        /// How often an instance that does not lead requests the lock.
        #[serde(with = "duration")]
        leader_retry_delay: Duration = Duration::from_secs(5),
        /// How many handlers may run at once.
        handlers_max: usize = 1024,
        /// How long handlers may run after the instance began to stop.
        #[serde(skip)]
        stop_grace: Duration = Duration::from_secs(5),
    }
}

impl Settings {
    /// Rejects times that are zero or do not fit together.
    pub fn check(&self) -> Result<(), Invalid> {
        let positive = [
            ("mesh.heartbeat_interval", self.heartbeat_interval),
            ("mesh.node_ttl", self.node_ttl),
            ("mesh.request_timeout", self.request_timeout),
            ("mesh.leader_ttl", self.leader_ttl),
            ("mesh.leader_renew_interval", self.leader_renew_interval),
            ("mesh.leader_retry_delay", self.leader_retry_delay),
        ];
        for (field, value) in positive {
            if !(Duration::from_millis(1)..=TIME_MAX).contains(&value) {
                let (longest, value) = (duration::format(TIME_MAX), duration::format(value));
                return Err(Invalid::new(field, format!("expected 1ms to {longest}, got {value:?}")));
            }
        }
        if self.heartbeat_interval >= self.node_ttl {
            let (interval, ttl) = (duration::format(self.heartbeat_interval), duration::format(self.node_ttl));
            let message = format!("expected more than mesh.heartbeat_interval ({interval}), got {ttl:?}");
            return Err(Invalid::unprocessable("mesh.node_ttl", message));
        }
        if self.leader_renew_interval >= certain_for(self.leader_ttl, self.leader_ttl) {
            let (renewal, ttl) = (duration::format(self.leader_renew_interval), duration::format(self.leader_ttl));
            let than = "expected nine tenths of it to be more than mesh.leader_renew_interval";
            return Err(Invalid::unprocessable("mesh.leader_ttl", format!("{than} ({renewal}), got {ttl:?}")));
        }
        if self.handlers_max == 0 {
            return Err(Invalid::new("mesh.handlers_max", "expected 1 or more, got 0"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_make_sense_and_nonsense_is_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let spoil = |field: &str, it: &mut Settings| match field {
            "mesh.request_timeout" => it.request_timeout = Duration::ZERO,
            "mesh.heartbeat_interval" => it.heartbeat_interval = Duration::ZERO,
            "mesh.node_ttl" => it.node_ttl = it.heartbeat_interval,
            "mesh.leader_ttl" => it.leader_ttl = it.leader_renew_interval * 10 / 9,
            "mesh.leader_retry_delay" => it.leader_retry_delay = Duration::MAX,
            _ => it.handlers_max = 0,
        };
        let fields =
            ["request_timeout", "heartbeat_interval", "node_ttl", "leader_ttl", "leader_retry_delay", "handlers_max"];
        for field in fields.map(|name| format!("mesh.{name}")) {
            let mut settings = Settings::default();
            spoil(&field, &mut settings);
            assert_eq!(settings.check().expect_err(&field).field, field);
        }
    }
}
