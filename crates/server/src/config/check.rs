//! What a value must be beyond its type. Every refusal names the key and what was expected of it.

use convoke_core::Invalid;

use super::{Config, Limits, Schedules};
use convoke_http::PublicPaths;

impl Config {
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_http()?;
        self.check_names()?;
        self.check_durations()?;
        self.check_numbers()?;
        self.check_fixed()?;
        self.election.settings().check().map_err(|invalid| invalid.within("election"))?;
        self.settings().check().map_err(as_key)
    }

    fn check_http(&self) -> Result<(), Invalid> {
        host_and_port(&self.http.bind).map_err(|message| Invalid::new("http.bind", message))?;
        self.http.public.parse::<PublicPaths>().map_err(|message| Invalid::new("http.public", message))?;
        for (index, name) in self.http.hosts.iter().enumerate() {
            let is_name =
                |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
            if !is_name(name) {
                let message = format!("expected a host name without a port, such as \"jobs.internal\", got {name:?}");
                return Err(Invalid::new(format!("http.hosts[{index}]"), message));
            }
        }
        for (index, token) in self.http.tokens.iter().enumerate() {
            if token.token.is_empty() || !token.token.bytes().all(|byte| byte.is_ascii_graphic()) {
                let message = "expected printable ASCII characters without spaces";
                return Err(Invalid::new(format!("http.tokens[{index}].token"), message));
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), Invalid> {
        if let Some(id) = &self.node.id {
            convoke_core::NodeId::new(id).map_err(|invalid| Invalid::new("node.id", invalid.message))?;
        }
        let prefix = &self.bus.prefix;
        if prefix.is_empty() || prefix.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(Invalid::new("bus.prefix", format!("expected a word without spaces, got {prefix:?}")));
        }
        self.shards.security()?;
        let bind = &self.shards.bind;
        let listens = bind.strip_prefix("tcp://").map(host_and_port);
        if bind != "off" && !matches!(listens, Some(Ok(_))) {
            let message = format!("expected \"tcp://host:port\" or \"off\", got {bind:?}");
            return Err(Invalid::new("shards.bind", message));
        }
        Ok(())
    }

    fn check_durations(&self) -> Result<(), Invalid> {
        let cluster = &self.cluster;
        let positive = [
            ("cluster.handoff_ack_timeout", cluster.handoff_ack_timeout),
            ("cluster.handoff_orphan_wait", cluster.handoff_orphan_wait),
            ("cluster.handoff_hard_timeout", cluster.handoff_hard_timeout),
            ("cluster.orphan_check_interval", cluster.orphan_check_interval),
            ("shards.check_interval", self.shards.check_interval),
            ("shards.heartbeat_timeout", self.shards.heartbeat_timeout),
        ];
        for (key, value) in positive {
            if value.is_zero() {
                return Err(Invalid::new(key, "expected a duration longer than zero, got \"0s\""));
            }
        }
        self.mesh_settings().check()
    }

    fn check_numbers(&self) -> Result<(), Invalid> {
        let ratio = self.cluster.rebalance_ratio;
        if !(ratio > 1.0 && ratio.is_finite()) {
            return Err(Invalid::new("cluster.rebalance_ratio", format!("expected a number above 1, got {ratio}")));
        }
        let retries_max = convoke_core::limits::RETRIES_MAX;
        if self.retry.max_retries > retries_max {
            let message = format!("expected 0 to {retries_max}, got {}", self.retry.max_retries);
            return Err(Invalid::new("retry.max_retries", message));
        }
        Ok(())
    }

    /// A key that would change nothing must not look as if it did.
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

/// The runtime names a retry policy's fields as a request does.
fn as_key(invalid: Invalid) -> Invalid {
    let field = match invalid.field.as_str() {
        "retryPolicy.multiplier" => "retry.multiplier".into(),
        "retryPolicy.maxDelay" => "retry.max_delay".into(),
        "retryPolicy.initialDelay" => "retry.initial_delay".into(),
        _ => invalid.field,
    };
    Invalid { field, message: invalid.message.replace("initialDelay", "retry.initial_delay"), kind: invalid.kind }
}

/// Splits `host:port`; the host may be a name, an IPv4 address, or an IPv6 one in brackets.
pub fn host_and_port(text: &str) -> Result<(&str, u16), String> {
    let expected = || format!("expected \"host:port\" such as \"127.0.0.1:3000\", got {text:?}");
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || bare_ipv6 || host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(expected());
    }
    Ok((host, port.parse().map_err(|_| expected())?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What is said about a configuration with one thing changed.
    fn refusal(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.check().expect_err("refused").to_string()
    }

    #[test]
    fn a_refusal_names_the_key_and_what_was_expected() {
        let said = refusal(|config| config.http.public = "all".into());
        assert_eq!(said, r#"http.public: expected health, metrics or both with a comma between, got "all""#);
        let said = refusal(|config| config.http.hosts = vec!["a:80".into()]);
        assert_eq!(said, r#"http.hosts[0]: expected a host name without a port, such as "jobs.internal", got "a:80""#);
        let said = refusal(|config| config.http.bind = "3000".into());
        assert_eq!(said, r#"http.bind: expected "host:port" such as "127.0.0.1:3000", got "3000""#);
        let said = refusal(|config| config.shards.bind = "0.0.0.0:5555".into());
        assert_eq!(said, r#"shards.bind: expected "tcp://host:port" or "off", got "0.0.0.0:5555""#);
        let said = refusal(|config| config.mesh.node_ttl = Duration::from_secs(5));
        assert_eq!(said, r#"mesh.node_ttl: expected more than mesh.heartbeat_interval (5s), got "5s""#);
        let said = refusal(|config| config.election.contention.threshold = f64::NAN);
        assert_eq!(said, "election.contention.threshold: expected a number above 1, got NaN");
        let said = refusal(|config| config.election.lease_timeout = Duration::from_millis(6_100));
        assert_eq!(
            said,
            r#"election.lease_timeout: expected nine tenths of it to be more than heartbeat_interval + heartbeat_jitter (6s), got "6s100ms""#
        );
        let said = refusal(|config| config.election.worker_timeout = Duration::from_secs(6));
        assert!(said.starts_with("election.worker_timeout: expected more than "), "{said}");
        let said = refusal(|config| config.cluster.lease_duration = Duration::from_secs(11));
        assert!(said.starts_with("cluster.lease_duration: expected nine tenths"), "{said}");
        let said = refusal(|config| config.limits.queues_max = 5);
        assert_eq!(said, "limits.queues_max: expected 10000, which is built in, got 5");
        let said = refusal(|config| config.node.id = Some(String::new()));
        assert!(said.starts_with("node.id: expected a name"), "{said}");
    }

    #[test]
    fn the_runtime_s_refusals_come_by_the_names_of_the_configuration() {
        let said = refusal(|config| config.retry.multiplier = 0.5);
        assert!(said.starts_with("retry.multiplier: expected"), "{said}");
        let said = refusal(|config| config.retry.max_delay = Duration::from_secs(1));
        assert_eq!(said, "retry.max_delay: expected at least retry.initial_delay");
        let said = refusal(|config| config.worker.stale_after = Duration::from_secs(1));
        assert!(said.starts_with("worker.stale_after: expected more than worker.heartbeat_interval"), "{said}");
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:0", "[::1]:3000", "localhost:65535", "0.0.0.0:80"] {
            host_and_port(good).expect(good);
        }
        for bad in ["", "3000", ":3000", "::1:3000", "host:", "host:65536", "http://host:80", "a b:1"] {
            host_and_port(bad).expect_err(bad);
        }
    }
}
