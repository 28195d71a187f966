//! Drains a node from any node: it hands its runs over and exits, as on SIGTERM.
//!
//! The request is a message on a topic, which may be lost, so it is repeated until the node's heartbeats or the
//! registry show that it drains. A node that the bus does not reach cannot be drained; it is declared dead soon.

use std::time::Duration;

use convoke_core::jobs::wire::{self, DrainRequest, NodeState, V1};
use convoke_core::{Error, NodeId, Result};
use tokio::time::Instant;

use super::coordinator::Coordinator;
use super::follower::read_registry;
use super::node::Node;

/// How long a node may take to confirm.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the request is repeated, and the registry read.
const REPEAT_INTERVAL: Duration = Duration::from_millis(500);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl Coordinator {
    /// Completes when this node was requested to drain. Its process then hands over and exits.
    pub async fn drain_requested(&self) {
        self.node().drain.requested.cancelled().await;
    }

    /// Requests a node, which may be this one, to drain. Returns once it does. `Conflict` if it is gone already.
    pub async fn request_drain(&self, id: &NodeId) -> Result<()> {
        let node = self.node();
        if registered(node, id).await? == NodeState::Draining {
            return Ok(());
        }
        if *id == node.id {
            node.begin_draining();
            node.drain.requested.cancel();
            return Ok(());
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let request = wire::encode(&DrainRequest { v: V1, node_id: id.clone() });
            node.bus().publish(&node.channels.drain(), request).await?;
            let repeat = Instant::now() + REPEAT_INTERVAL;
            while Instant::now() < repeat {
                if node.ownership.peers.state_of(id) == Some(NodeState::Draining) {
                    node.views.cache.node_changed(id);
                    return Ok(());
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            // It may have drained and left before its heartbeat was received.
            match registered(node, id).await {
                Ok(NodeState::Draining) | Err(Error::Conflict(_)) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        let message =
            format!("{id} has not confirmed within {PATIENCE:?} that it drains: it cannot be reached by the bus");
        Err(Error::unavailable("node", message))
    }
}

/// Returns the state of a node by the registry. `NotFound` if it is not there, `Conflict` if it is gone.
async fn registered(node: &Node, id: &NodeId) -> Result<NodeState> {
    let nodes = read_registry(node, &node.ownership.peers).await?;
    let record = nodes.into_iter().find(|record| record.node_id == *id).ok_or_else(|| Error::not_found("node", id))?;
    match record.state {
        NodeState::Dead => {
            Err(Error::Conflict(format!("node {id} is dead since {}: there is nothing to drain", record.since)))
        }
        NodeState::Left => {
            Err(Error::Conflict(format!("node {id} left at {}: there is nothing to drain", record.since)))
        }
        state => Ok(state),
    }
}
