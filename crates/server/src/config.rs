//! What can be set, where it comes from, and what is refused.
//!
//! There is one [`Config`]. A value comes from the command line, else the environment, else the file, else its default
//! ([`load`]). An unknown key or a bad value stops the start with its name, its value, where it was set and what was
//! expected: a typing error must not become a default in production. Keys of capabilities that this version does not
//! have yet are accepted and checked, so that one file serves every version of a fleet.

mod check;
mod environment;
mod load;
mod sections;

pub use environment::{Surroundings, variables};
pub use load::{Flags, Load};
pub use sections::*;

use convoke::connect;
use convoke::coordinator::ShardSettings;
use convoke::mesh::MeshSettings;
use convoke_core::election;
use convoke_runtime::jobs::{
    BusSettings, CacheSettings, ChannelSettings, ClusterSettings, LeaseSettings, RateLimitSettings, RetentionSettings,
    RetrySettings, Settings, StoreSettings, WorkerSettings,
};
use serde::{Deserialize, Serialize};

/// All that can be set of a coordinator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub node: Node,
    pub http: Http,
    pub store: StoreSettings,
    pub bus: BusSettings,
    pub leases: LeaseSettings,
    pub cluster: ClusterSettings,
    pub channels: ChannelSettings,
    pub cache: CacheSettings,
    pub retry: RetrySettings,
    pub rate_limit: RateLimitSettings,
    pub election: election::Settings,
    pub mesh: MeshSettings,
    pub shards: ShardSettings,
    pub worker: WorkerSettings,
    pub retention: RetentionSettings,
    pub schedules: Schedules,
    pub limits: Limits,
}

impl Config {
    /// The sections that the coordinator of jobs reads.
    pub fn settings(&self) -> Settings {
        Settings {
            store: self.store.clone(),
            bus: self.bus.clone(),
            leases: self.leases.clone(),
            cluster: self.cluster,
            channels: self.channels.clone(),
            cache: self.cache.clone(),
            retry: self.retry.clone(),
            rate_limit: self.rate_limit.clone(),
            election: self.election.clone(),
            worker: self.worker.clone(),
            retention: self.retention.clone(),
        }
    }

    /// The effective configuration as TOML, with every secret masked.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        let mut shown = self.clone();
        for token in &mut shown.http.tokens {
            token.token = "***".into();
        }
        let urls = [&mut shown.store.url, &mut shown.bus.url, &mut shown.cache.url];
        for url in urls.into_iter().chain(&mut shown.leases.url) {
            *url = connect::shown(url).into();
        }
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
