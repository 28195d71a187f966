//! The shard coordinator of this server: who may connect, and what is said of where it listens.

use std::sync::Arc;

use anyhow::{Result, bail};
use convoke::connect;
use convoke_core::NodeId;
use convoke_core::shards::Settings;
use convoke_http::Shards;
use convoke_runtime::election::Duty;
use convoke_runtime::jobs::{Coordinator, Ports};
use convoke_runtime::shards::{ShardsDuty, ShardsRelay, ShardsState};

use crate::cli::Usage;
use crate::config::Config;
use crate::serve::resolve;

/// `is_wanted` says whether somebody asked for this address.
pub async fn prepare(
    config: &Config,
    bind: &str,
    is_wanted: bool,
    node: &NodeId,
    ports: &Ports,
) -> Result<(Shards, Arc<dyn Duty>)> {
    let security = config.shards.security().map_err(|invalid| Usage(invalid.to_string()))?;
    let is_encrypted = matches!(security, connect::ZmqSecurity::Curve { .. });
    if is_wanted && !is_encrypted && !is_local(bind).await? {
        tracing::warn!(
            bind,
            "shard workers are heard from other machines, and nothing they say is encrypted: \
            set shards.curve (`convoke shards keys` makes keys)"
        );
    }
    let binding = connect::shard_router(bind, security).map_err(|error| Usage(format!("shards.bind: {error}")))?;
    let settings = Settings {
        heartbeat_timeout: config.shards.heartbeat_timeout,
        check_interval: config.shards.check_interval,
        strategy: config.shards.strategy,
        ..Settings::default()
    };
    let duty = ShardsDuty::new(binding, settings, epochs_last(config), ports.clock.clone());
    let relay = ShardsRelay::new(node.clone(), ports.bus.clone(), &config.bus.prefix, duty.view());
    Ok((Shards { view: duty.view(), relay: Arc::new(relay), is_wanted }, Arc::new(duty)))
}

/// Whether epochs count terms and outlive this process: they are sealed in the store, or kept by leases that lose nothing. A
/// Redis takes them from its clock where nobody seals them.
fn epochs_last(config: &Config) -> bool {
    let leases = config.leases.url.as_deref().unwrap_or(&config.bus.url);
    let may_lose = |url: &str| connect::is_in_memory(url) || url.starts_with("redis");
    !connect::is_in_memory(&config.store.url) || !may_lose(leases)
}

async fn is_local(bind: &str) -> Result<bool> {
    let address = bind.strip_prefix("tcp://").unwrap_or(bind);
    if address.starts_with('*') {
        return Ok(false);
    }
    Ok(resolve("shards.bind", address).await?.iter().all(|address| address.ip().is_loopback()))
}

/// Waits until the node is ready and, where it leads, listens for shard workers. What to say of that.
pub async fn ready(shards: Option<&Shards>, coordinator: &Coordinator) -> Result<String> {
    coordinator.ready().await;
    let Some(shards) = shards else { return Ok("off".into()) };
    let mut state = shards.view.watch();
    while coordinator.cluster().is_me && *state.borrow_and_update() == ShardsState::Standby {
        state.changed().await?;
    }
    match shards.view.state() {
        ShardsState::Listening(address) => Ok(address),
        ShardsState::Standby => Ok("standby: the node that leads listens".into()),
        ShardsState::Refused(why) if shards.is_wanted => {
            bail!("{why}: stop what listens there, or name another address with --shards, or say --shards off")
        }
        ShardsState::Refused(why) => Ok(format!("not listening: {why}")),
    }
}
