//! Strikes silent nodes off the registry.

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::event::{Happening, NodeChange};
use tracing::warn;

use crate::election::Term;
use crate::jobs::node::Node;

pub async fn run(node: Arc<Node>, term: Term) {
    let interval = node.settings.cluster.dead_node_timeout / 3;
    while term.sleep(interval).await {
        if let Err(error) = strike(&node, &term).await {
            super::note(&term, "dead nodes", &error);
        }
    }
}

async fn strike(node: &Node, term: &Term) -> Result<()> {
    let horizon = node.now() - node.settings.cluster.dead_node_timeout;
    for other in node.store().nodes().await? {
        if other.node_id != node.id && other.last_heartbeat_at < horizon {
            warn!(node = %other.node_id, "a node is dead");
            node.store().remove_node(Some(term.fence()), &other.node_id).await?;
            node.cache.node_changed(&other.node_id);
            node.tell(Happening::Node { change: NodeChange::Dead, node_id: other.node_id });
        }
    }
    Ok(())
}
