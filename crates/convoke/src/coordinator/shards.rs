//! The shard coordinator of a node: where it listens, and who may connect.

use std::sync::Arc;

use convoke_core::shards::Settings;
use convoke_core::{Invalid, NodeId};
use convoke_http::{Shards, host_and_port, resolve};
use convoke_runtime::election::Duty;
use convoke_runtime::jobs::Ports;
use convoke_runtime::shards::{ShardsDuty, ShardsRelay};

use crate::connect::{self, Addresses, ZmqSecurity};
use crate::error::Result;

/// Where a node coordinates shards while it leads. An address alone will do: `"tcp://127.0.0.1:5555".into()`.
#[derive(Clone)]
pub struct ShardOptions {
    /// `tcp://host:port`; the host may be `*`.
    pub bind: String,
    /// Whether [`Coordinator::ready`](super::Coordinator::ready) and `/health` fail if the address cannot be listened on.
    pub required: bool,
    /// The credentials that workers must present. Default: none.
    pub security: ZmqSecurity,
    /// Timeouts, strategy and limits.
    pub settings: Settings,
}

impl ShardOptions {
    /// Returns the default options at this address.
    pub fn new(bind: impl Into<String>) -> Self {
        ShardOptions {
            bind: bind.into(),
            required: true,
            security: ZmqSecurity::default(),
            settings: Settings::default(),
        }
    }

    /// Rejects what cannot work, by the name of the key.
    pub fn check(&self) -> Result<(), Invalid> {
        if !matches!(self.bind.strip_prefix("tcp://").map(host_and_port), Some(Ok(_))) {
            let message = format!("expected \"tcp://host:port\" or \"off\", got {:?}", self.bind);
            return Err(Invalid::new("shards.bind", message));
        }
        let positive = [
            ("shards.check_interval", self.settings.check_interval),
            ("shards.heartbeat_timeout", self.settings.heartbeat_timeout),
        ];
        match positive.into_iter().find(|(_, value)| value.is_zero()) {
            Some((key, _)) => Err(Invalid::new(key, "expected a duration longer than zero, got \"0s\"")),
            None => Ok(()),
        }
    }
}

impl<T: Into<String>> From<T> for ShardOptions {
    fn from(bind: T) -> Self {
        ShardOptions::new(bind)
    }
}

/// Prepares the duty of the node that leads, and what the HTTP API shows of it.
pub(super) async fn prepare(
    options: &ShardOptions,
    addresses: Addresses<'_>,
    node: &NodeId,
    ports: &Ports,
) -> Result<(Shards, Arc<dyn Duty>)> {
    let ShardOptions { bind, required, security, settings } = options.clone();
    let is_encrypted = matches!(security, ZmqSecurity::Curve { .. });
    if required && !is_encrypted && !is_local(&bind).await? {
        tracing::warn!(
            bind,
            "shard workers can connect from other machines, and their messages are not encrypted: set shards.curve \
             (`convoke shards keys` makes keys)"
        );
    }
    let binding = connect::shard_router(&bind, security).map_err(|error| match error {
        convoke_core::Error::Invalid(invalid) => Invalid::new("shards.bind", invalid.to_string()).into(),
        error => error,
    })?;
    let mut duty = ShardsDuty::new(binding, settings, epochs_last(addresses), ports.clock.clone());
    if ports.store.is_lasting() {
        duty = duty.listing_workers(ports.store.clone());
    }
    let relay = ShardsRelay::new(node.clone(), ports.bus.clone(), addresses.bus_prefix, duty.view());
    Ok((Shards { view: duty.view(), relay: Arc::new(relay), is_wanted: required }, Arc::new(duty)))
}

/// Whether epochs count terms and outlive this process: they are sealed in the store, or kept by leases that lose nothing. A
/// Redis takes them from its clock where nobody seals them.
fn epochs_last(addresses: Addresses<'_>) -> bool {
    let leases = addresses.leases.unwrap_or(addresses.bus);
    let may_lose = |url: &str| connect::is_in_memory(url) || url.starts_with("redis");
    !connect::is_in_memory(addresses.store) || !may_lose(leases)
}

async fn is_local(bind: &str) -> Result<bool> {
    let address = bind.strip_prefix("tcp://").unwrap_or(bind);
    if address.starts_with('*') {
        return Ok(false);
    }
    Ok(resolve(address).await?.iter().all(|address| address.ip().is_loopback()))
}
