//! What can be set, where it comes from, and what is refused.
//!
//! There is one [`Config`]. A value comes from the command line, else the environment, else the file, else its default
//! ([`load`]). An unknown key or a bad value stops the start with its name, its value, where it was set and what was
//! expected: a typing error must not become a default in production. Keys of capabilities that this version does not
//! have yet are accepted and checked, so that one file serves every version of a fleet.

mod check;
mod environment;
mod load;
mod rate_limit;
mod sections;
mod shards;

pub use environment::{Surroundings, variables};
pub use load::{Flags, Load};
pub use sections::*;

use convoke::connect;
use convoke::mesh::MeshSettings;
use convoke_core::election;
use convoke_core::jobs::wire::seed::Format;
use convoke_runtime::jobs::Settings;
use serde::{Deserialize, Serialize};

/// All that can be set of a coordinator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub node: Node,
    pub http: Http,
    pub store: Store,
    pub bus: Bus,
    pub leases: Leases,
    pub cluster: Cluster,
    pub channels: Channels,
    pub cache: Cache,
    pub retry: Retry,
    pub rate_limit: RateLimit,
    pub election: election::Settings,
    pub mesh: MeshSettings,
    pub shards: Shards,
    pub worker: Worker,
    pub retention: Retention,
    pub schedules: Schedules,
    pub limits: Limits,
}

impl Config {
    /// The part that the coordinator of jobs is given.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.bus_prefix.clone_from(&self.bus.prefix);
        settings.bus_format = if self.bus.seed_format { Format::Orchestrix } else { Format::Convoke };
        settings.cluster.heartbeat_interval = self.cluster.heartbeat_interval;
        settings.cluster.dead_node_timeout = self.cluster.dead_node_timeout;
        settings.cluster.lease_duration = self.cluster.lease_duration;
        settings.cluster.renew_interval = self.cluster.renew_interval;
        settings.cluster.handoff.ack_timeout = self.cluster.handoff_ack_timeout;
        settings.cluster.handoff.max_retries = self.cluster.handoff_max_retries;
        settings.cluster.handoff.orphan_wait = self.cluster.handoff_orphan_wait;
        settings.cluster.handoff.hard_timeout = self.cluster.handoff_hard_timeout;
        settings.cluster.orphan_check_interval = self.cluster.orphan_check_interval;
        settings.cluster.rebalance = self.cluster.rebalance;
        settings.cluster.rebalance_ratio = self.cluster.rebalance_ratio;
        settings.channels.cleanup_delay = self.channels.cleanup_delay;
        settings.channels.scan_interval = self.channels.scan_interval;
        settings.channels.batch_size = self.channels.batch_size;
        settings.cache.job_ttl = self.cache.job_ttl;
        settings.cache.worker_ttl = self.cache.worker_ttl;
        settings.cache.node_ttl = self.cache.node_ttl;
        settings.retry.max_retries = self.retry.max_retries;
        settings.retry.retry_policy.initial_delay = self.retry.initial_delay;
        settings.retry.retry_policy.multiplier = self.retry.multiplier;
        settings.retry.retry_policy.max_delay = self.retry.max_delay;
        settings.retry.retry_policy.jitter = self.retry.jitter;
        settings.rate_limit = self.rate_limit.settings();
        settings.worker.heartbeat_interval = self.worker.heartbeat_interval;
        settings.worker.stale_after = self.worker.stale_after;
        settings.retention.completed = self.retention.completed;
        settings.retention.cancelled = self.retention.cancelled;
        settings.retention.dead = self.retention.dead;
        settings.election = self.election.clone();
        settings
    }

    /// The effective configuration as TOML, with every secret masked.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        let mut shown = self.clone();
        for token in &mut shown.http.tokens {
            token.token = "***".into();
        }
        shown.store.url = connect::shown(&shown.store.url);
        shown.bus.url = connect::shown(&shown.bus.url);
        shown.cache.url = connect::shown(&shown.cache.url);
        shown.leases.url = shown.leases.url.as_deref().map(connect::shown);
        for secret in [&mut shown.shards.plain, &mut shown.shards.curve] {
            if *secret != "off" {
                *secret = "***".into();
            }
        }
        Ok(toml::to_string(&shown)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_http::Role;

    #[test]
    fn the_defaults_are_those_of_the_runtime() {
        assert_eq!(format!("{:?}", Config::default().settings()), format!("{:?}", Settings::default()));
    }

    #[test]
    fn the_defaults_pass_their_own_checks() {
        Config::default().check().expect("defaults are valid");
    }

    #[test]
    fn what_is_printed_can_be_read_back_and_holds_no_secret() {
        let mut config = Config::default();
        config.http.tokens.push(Token { token: "hush-hush".into(), role: Role::Admin });
        config.store.url = "postgres://ann:hush-hush@db:5432/jobs?sslmode=require".into();
        config.leases.url = Some("postgres://db/jobs?user=ann&password=hush-hush".into());
        config.bus.url = "redis://:hush-hush@redis".into();
        config.cache.url = "redis://:hush-hush@redis".into();
        config.shards.plain = "ann:hush-hush".into();
        config.shards.curve = "hush-hush".into();
        let text = config.to_toml().expect("serialises");
        assert!(!text.contains("hush-hush"), "{text}");
        let read: Config = toml::from_str(&text).expect("parses");
        assert_eq!(read.cluster, config.cluster);
        assert_eq!(read.http.tokens[0].role, Role::Admin);
    }

    /// Wherever a password stands, also where the address cannot be read for it.
    #[test]
    fn of_an_address_only_what_was_understood_is_shown() {
        for (url, shown) in [
            ("redis://:secret@host:6379/0", "redis://host:6379"),
            ("rediss://ann:secret@host/2?ca=/secret.pem", "rediss://host:6379/2"),
            ("redis+sentinel://:secret@a,b:1/main/2", "redis+sentinel://a:26379,b:1/main/2"),
            ("redis://:se/secret@host", "redis:…"),
            ("redis://host/secret", "redis:…"),
            ("postgres://ann:se@secret@db/jobs", "postgres:…"),
            ("postgres://ann:se%40secret@db/jobs", "postgres://db:5432/jobs"),
            ("postgres://ann@db/jobs?password=secret", "postgres://db:5432/jobs"),
            ("postgresql://db:1,db2:2/jobs?user=ann&password=secret&sslmode=require", "postgres://db:1,db2:2/jobs"),
            ("postgres://db/jobs?pasword=secret", "postgres:…"),
            ("s3://bucket/folder", "s3://bucket/folder"),
            ("s3://key:secret@bucket/folder", "s3:…"),
            ("http://secret@host", "http:…"),
            ("secret", "…"),
            ("sqlite:convoke.db", "sqlite:convoke.db"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(connect::shown(url), shown, "{url}");
        }
    }
}
