//! Carries the leader's view of the shards to the other nodes, over the bus.
//!
//! Only the leader knows the shards, and a client behind a load balancer cannot choose its node. So any node asks the
//! leader: it publishes a request on `shards.ask` and waits for the reply on a topic of its own. A request or a reply
//! may be lost: after [`PATIENCE`] the caller returns which node coordinates, and the client retries.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::wire;
use convoke_core::ports::Bus;
use convoke_core::shards::relay::{ShardsAsk, ShardsReply};
use convoke_core::{Error, NodeId, Result, ServiceName};
use serde_json::Value;
use tokio::sync::Semaphore;
use tracing::debug;

use super::view::{ShardsState, ShardsView};

/// How long to wait for a reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause before subscribing again after a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// Requests of one node that may be pending at once.
const ASKS_MAX: usize = 8;
const REPLY_BYTES_MAX: usize = 4 << 20;

/// Sends and serves requests for the leader's view of the shards.
pub struct ShardsRelay {
    node: NodeId,
    bus: Arc<dyn Bus>,
    channels: Channels,
    view: ShardsView,
    asking: Semaphore,
}

impl ShardsRelay {
    /// Creates the relay of `node`; `bus_prefix` is the prefix of its channels.
    pub fn new(node: NodeId, bus: Arc<dyn Bus>, bus_prefix: &str, view: ShardsView) -> Self {
        ShardsRelay { node, bus, channels: Channels::new(bus_prefix), view, asking: Semaphore::new(ASKS_MAX) }
    }

    /// Returns the view of the node that coordinates shards. `Unavailable` if none replies in time.
    pub async fn ask(&self, service: Option<&ServiceName>) -> Result<ShardsReply> {
        let silent = || Error::unavailable("the shard coordinator", "it did not reply");
        if self.bus.is_in_process() {
            return Err(silent());
        }
        let reply = tokio::time::timeout(PATIENCE, async {
            // Never closed.
            let _turn = self.asking.acquire().await;
            let ask = ShardsAsk { ask: crate::machine::id(), service: service.cloned() };
            let mut replies = self.bus.subscribe(&[self.channels.shards_reply(ask.ask)]).await?;
            self.bus.publish(&self.channels.shards_ask(), wire::encode(&ask)).await?;
            loop {
                if let Some(message) = replies.next().await?
                    && let Ok(reply) = serde_json::from_slice(&message.body)
                {
                    return Ok(reply);
                }
            }
        });
        reply.await.unwrap_or_else(|_| Err(silent()))
    }

    /// Replies to other nodes while this one coordinates. Never returns.
    pub async fn reply_to_nodes(&self) {
        if self.bus.is_in_process() {
            return;
        }
        loop {
            // The heartbeat logs that the bus is unavailable.
            if let Err(error) = self.reply().await {
                debug!(%error, "replying to other nodes about shards failed");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn reply(&self) -> Result<()> {
        let mut asks = self.bus.subscribe(&[self.channels.shards_ask()]).await?;
        loop {
            // A client retries a request that was missed.
            let Some(message) = asks.next().await? else { continue };
            let Ok(ask) = serde_json::from_slice::<ShardsAsk>(&message.body) else { continue };
            if matches!(self.view.state(), ShardsState::Listening(_)) {
                let reply = self.known(ask.service.as_ref());
                self.bus.publish(&self.channels.shards_reply(ask.ask), reply).await?;
            }
        }
    }

    fn known(&self, service: Option<&ServiceName>) -> bytes::Bytes {
        let services = match service {
            Some(service) => self.view.service(service).into_iter().collect(),
            None => self.view.services(),
        };
        let services: Vec<Value> = services.iter().filter_map(|service| serde_json::to_value(service).ok()).collect();
        let reply = ShardsReply { node_id: self.node.clone(), services, is_too_large: false };
        let text = wire::encode(&reply);
        if text.len() <= REPLY_BYTES_MAX {
            return text;
        }
        wire::encode(&ShardsReply { services: Vec::new(), is_too_large: true, ..reply })
    }
}
