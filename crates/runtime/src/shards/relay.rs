//! Carries the leader's view of the shards to the other nodes, over the bus.
//!
//! Only the node that leads knows the shards, and a client behind a load balancer cannot choose its node. So any node asks the leader:
//! it publishes a question on `shards.ask` and waits for the reply on a topic of its own. A question or a reply may be lost:
//! after [`PATIENCE`] the caller says which node coordinates, and the client asks again.

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
use uuid::Uuid;

use super::view::{ShardsState, ShardsView};

/// How long a reply is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Before subscribing again after a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// Questions of one node that wait at the same time.
const ASKS_MAX: usize = 8;
const REPLY_BYTES_MAX: usize = 4 << 20;

/// What a node needs to ask and to reply.
pub struct ShardsRelay {
    node: NodeId,
    bus: Arc<dyn Bus>,
    channels: Channels,
    view: ShardsView,
    asking: Semaphore,
}

impl ShardsRelay {
    pub fn new(node: NodeId, bus: Arc<dyn Bus>, bus_prefix: &str, view: ShardsView) -> Self {
        ShardsRelay { node, bus, channels: Channels::new(bus_prefix), view, asking: Semaphore::new(ASKS_MAX) }
    }

    /// Returns what the node that coordinates shards knows. `Unavailable` if none replies in time.
    pub async fn ask(&self, service: Option<&ServiceName>) -> Result<ShardsReply> {
        let silent = || Error::unavailable("the shard coordinator", "it did not reply");
        if self.bus.is_in_process() {
            return Err(silent());
        }
        let reply = tokio::time::timeout(PATIENCE, async {
            // Never closed.
            let _turn = self.asking.acquire().await;
            let ask = ShardsAsk { ask: Uuid::now_v7(), service: service.cloned() };
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

    /// Replies to other nodes while this one coordinates, for ever.
    pub async fn reply_to_nodes(&self) {
        if self.bus.is_in_process() {
            return;
        }
        loop {
            // The heartbeat logs that the bus is away.
            if let Err(error) = self.reply().await {
                debug!(%error, "replying to other nodes about shards failed");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn reply(&self) -> Result<()> {
        let mut asks = self.bus.subscribe(&[self.channels.shards_ask()]).await?;
        loop {
            // A question that was missed is asked again by its client.
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
