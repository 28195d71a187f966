//! The settings of the shard coordinator, and the limits of what peers can make it store.

use std::time::Duration;

use super::Strategy;
use crate::limits::{SHARD_SERVICES_MAX, SHARD_WORKERS_MAX, SHARDS_TOTAL_MAX};
use crate::{Secret, duration, sections};

/// The value of a key that switches something off.
pub const OFF: &str = "off";
/// The value of `curve_clients` that admits every key.
pub const ANY: &str = "any";

sections! {
    /// The section `shards`: how a node coordinates shards while it leads. The rules read the times and the strategy;
    /// the address and the credentials are for the code that listens. An address alone is enough:
    /// `"tcp://127.0.0.1:5555".into()`.
    Settings {
        /// `tcp://host:port`, or `off`; the host may be `*`.
        bind: String = "tcp://127.0.0.1:5555".into(),
        /// The time without a heartbeat after which a worker is dead.
        #[serde(with = "duration")]
        heartbeat_timeout: Duration = Duration::from_secs(15),
        /// The time between two checks for dead workers.
        #[serde(with = "duration")]
        check_interval: Duration = Duration::from_secs(5),
        /// How shards are spread over workers.
        strategy: Strategy = Strategy::default(),
        /// Credentials of the clients that may connect, as `user:password,user:password`, or `off`.
        plain: Secret = OFF.into(),
        /// The coordinator's secret CURVE key, 40 characters of Z85, or `off`.
        curve: Secret = OFF.into(),
        /// The public keys of the workers that may connect, separated by commas, or `any`.
        curve_clients: String = ANY.into(),
        /// Whether a node that cannot listen on its address is unhealthy.
        #[serde(skip)]
        required: bool = true,
        /// The time without changes after which a service is rebalanced.
        #[serde(skip)]
        settle: Duration = Duration::from_millis(20),
        /// Upper bound of the delay of a rebalance.
        #[serde(skip)]
        settle_max: Duration = Duration::from_millis(100),
        /// Upper bounds of what peers can make it store.
        #[serde(skip)]
        limits: Limits = Limits::default(),
    }
}

impl<T: Into<String>> From<T> for Settings {
    fn from(bind: T) -> Self {
        Settings { bind: bind.into(), ..Settings::default() }
    }
}

impl Settings {
    /// Returns whether the node coordinates shards at all.
    pub fn is_on(&self) -> bool {
        self.bind != OFF
    }
}

/// Upper bounds of what peers can make a coordinator store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Services.
    pub services_max: usize,
    /// Workers of all services together.
    pub workers_max: usize,
    /// Shards of all services together.
    pub shards_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { services_max: SHARD_SERVICES_MAX, workers_max: SHARD_WORKERS_MAX, shards_max: SHARDS_TOTAL_MAX }
    }
}
