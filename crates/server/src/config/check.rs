//! Checks of values beyond their type. Every error names the key and the expected values.

use convoke::coordinator::check_shards;
use convoke_core::{Invalid, NodeId};
use convoke_http::{Site, host_and_port};

use super::{Config, Limits, Schedules};

impl Config {
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_http()?;
        self.check_node()?;
        check_shards(&self.shards)?;
        self.mesh.check()?;
        self.check_fixed()?;
        self.coordinator.check()
    }

    fn check_http(&self) -> Result<(), Invalid> {
        host_and_port(&self.http.bind).map_err(|message| Invalid::new("http.bind", message))?;
        self.http.access()?.check()?;
        let site = Site { base_path: self.http.base_path.clone(), dashboard: self.dashboard.clone() };
        site.check()
    }

    fn check_node(&self) -> Result<(), Invalid> {
        let id = self.node.id.as_ref().map(NodeId::new).transpose();
        id.map(drop).map_err(|invalid| Invalid::new("node.id", invalid.message))?;
        if self.node.history.as_deref() == Some("") {
            return Err(Invalid::new("node.history", "expected the path of a file, got an empty text"));
        }
        Ok(())
    }

    /// Rejects keys that have no effect.
    fn check_fixed(&self) -> Result<(), Invalid> {
        let (built_in, limits) = (Limits::default(), &self.limits);
        let fixed = [
            ("limits.args_bytes_max", limits.args_bytes_max, built_in.args_bytes_max),
            ("limits.result_bytes_max", limits.result_bytes_max, built_in.result_bytes_max),
            ("limits.log_line_bytes_max", limits.log_line_bytes_max, built_in.log_line_bytes_max),
            ("limits.batch_jobs_max", limits.batch_jobs_max, built_in.batch_jobs_max),
            ("limits.batch_bytes_max", limits.batch_bytes_max, built_in.batch_bytes_max),
            ("limits.name_bytes_max", limits.name_bytes_max, built_in.name_bytes_max),
            ("limits.queues_max", limits.queues_max, built_in.queues_max),
        ];
        for (key, value, built_in) in fixed {
            if value != built_in {
                return Err(Invalid::new(key, format!("expected {built_in}, which is built in, got {value}")));
            }
        }
        if self.schedules != Schedules::default() {
            let message = "expected missed \"latest\", overlap \"skip\" and every_min \"100ms\", which are built in; \
                           set missed and overlap on the schedule itself";
            return Err(Invalid::new("schedules", message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the error of a configuration with one change.
    fn refusal(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.check().expect_err("refused").to_string()
    }

    #[test]
    fn a_refusal_names_the_key_and_what_was_expected() {
        let error = refusal(|config| config.http.public = "all".into());
        assert_eq!(error, r#"http.public: expected health, metrics or both with a comma between, got "all""#);
        let error = refusal(|config| config.http.hosts = vec!["a:80".into()]);
        assert_eq!(error, r#"http.hosts[0]: expected a host name without a port, such as "jobs.internal", got "a:80""#);
        let error = refusal(|config| config.http.bind = "3000".into());
        assert_eq!(error, r#"http.bind: expected "host:port" such as "127.0.0.1:3000", got "3000""#);
        let error = refusal(|config| config.shards.bind = "0.0.0.0:5555".into());
        assert_eq!(error, r#"shards.bind: expected "tcp://host:port" or "off", got "0.0.0.0:5555""#);
        let error = refusal(|config| config.mesh.node_ttl = Duration::from_secs(5));
        assert_eq!(error, r#"mesh.node_ttl: expected more than mesh.heartbeat_interval (5s), got "5s""#);
        let error = refusal(|config| config.coordinator.election.contention.threshold = f64::NAN);
        assert_eq!(error, "election.contention.threshold: expected a number above 1, got NaN");
        let error = refusal(|config| config.coordinator.election.lease_timeout = Duration::from_millis(6_100));
        assert_eq!(
            error,
            r#"election.lease_timeout: expected nine tenths of it to be more than heartbeat_interval + heartbeat_jitter (6s), got "6s100ms""#
        );
        let error = refusal(|config| config.coordinator.election.worker_timeout = Duration::from_secs(6));
        assert!(error.starts_with("election.worker_timeout: expected more than "), "{error}");
        let error = refusal(|config| config.coordinator.cluster.lease_duration = Duration::from_secs(11));
        assert!(error.starts_with("cluster.lease_duration: expected nine tenths"), "{error}");
        let error = refusal(|config| config.limits.queues_max = 5);
        assert_eq!(error, "limits.queues_max: expected 10000, which is built in, got 5");
        let error = refusal(|config| config.node.id = Some(String::new()));
        assert!(error.starts_with("node.id: expected a name"), "{error}");
    }

    #[test]
    fn the_runtime_s_refusals_come_by_the_names_of_the_configuration() {
        let error = refusal(|config| config.coordinator.retry.multiplier = 0.5);
        assert!(error.starts_with("retry.multiplier: expected"), "{error}");
        let error = refusal(|config| config.coordinator.retry.max_delay = Duration::from_secs(1));
        assert_eq!(error, "retry.max_delay: expected at least retry.initial_delay");
        let error = refusal(|config| config.coordinator.worker.stale_after = Duration::from_secs(1));
        assert!(error.starts_with("worker.stale_after: expected more than worker.heartbeat_interval"), "{error}");
    }
}
