//! The configuration: its keys, its sources, and its validation.
//!
//! There is one [`Config`]. A value comes from the command line, else the environment, else the file, else its default
//! ([`load`]). An unknown key or an invalid value stops the start with its name, its value, its source and the expected
//! values, so that a typing error does not silently become a default in production. Keys of features that this version
//! does not have yet are accepted and checked, so that one file serves every version of a fleet.

mod check;
mod environment;
mod load;
mod sections;

pub use environment::{Surroundings, variables};
pub use load::{Flags, Load};
pub use sections::*;

use convoke::connect;
use convoke::coordinator::{DashboardSettings, ShardSettings};
use convoke::mesh::MeshSettings;
use convoke_runtime::jobs::Settings;
use figment::Figment;
use serde::{Deserialize, Serialize};

/// All settings of a coordinator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Config {
    pub node: Node,
    pub http: Http,
    pub dashboard: DashboardSettings,
    /// The sections that the coordinator of jobs reads. [`Config::read`] reads them separately: with a flattened field,
    /// serde could not report the key of an error.
    #[serde(flatten, skip_deserializing)]
    pub coordinator: Settings,
    pub mesh: MeshSettings,
    pub shards: ShardSettings,
    pub schedules: Schedules,
    pub limits: Limits,
}

impl Config {
    /// Reads all sections. The caller rejects unknown keys.
    fn read(figment: &Figment) -> Result<Self, Box<figment::Error>> {
        Ok(Config { coordinator: figment.extract()?, ..figment.extract()? })
    }

    /// Returns the effective configuration as TOML, with every secret masked.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        let mut shown = self.clone();
        for token in &mut shown.http.tokens {
            token.token = "***".into();
        }
        let Settings { store, bus, cache, leases, .. } = &mut shown.coordinator;
        bus.url.get_or_insert_with(|| connect::default_bus(&store.url).into());
        let meshes = &mut shown.dashboard.mesh;
        for url in [&mut store.url, &mut cache.url].into_iter().chain(&mut bus.url).chain(&mut leases.url).chain(meshes)
        {
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
    use figment::providers::{Format as _, Toml};

    #[test]
    fn the_defaults_pass_their_own_checks() {
        Config::default().check().expect("defaults are valid");
    }

    #[test]
    fn what_is_printed_can_be_read_back_and_holds_no_secret() {
        let mut config = Config::default();
        config.http.tokens.push(Token {
            token: "hush-hush".into(),
            role: Role::Admin,
            name: Some("ada".into()),
            payloads: Payloads::Hidden,
        });
        config.coordinator.store.url = "postgres://ann:hush-hush@db:5432/jobs?sslmode=require".into();
        config.coordinator.leases.url = Some("postgres://db/jobs?user=ann&password=hush-hush".into());
        config.coordinator.bus.url = Some("redis://:hush-hush@redis".into());
        config.coordinator.cache.url = "redis://:hush-hush@redis".into();
        config.shards.plain = "ann:hush-hush".into();
        config.shards.curve = "hush-hush".into();
        let text = config.to_toml().expect("serialises");
        assert!(!text.contains("hush-hush"), "{text}");
        let read = Config::read(&Figment::from(Toml::string(&text))).expect("parses");
        assert_eq!(read.coordinator.cluster, config.coordinator.cluster);
        assert_eq!(read.http.tokens, [Token { token: "***".into(), ..config.http.tokens[0].clone() }]);
    }

    /// A password is masked at any position, even if the address cannot be parsed.
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
