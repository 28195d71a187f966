//! Declares silent nodes dead: their runs are released or [offered](super::ownerless) to the others. They stay in the registry as dead for an hour,
//! like nodes that left, so that an operator can see them.
//!
//! A node is silent while its heartbeat in the registry does not change, as this leader observes on its monotonic
//! clock. The timestamp of the heartbeat is by the other node's clock, and is not compared with this one's. A node that
//! was only paused finds out by itself: its writes about runs that another node has taken are rejected.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::jobs::event::{ClusterEvent, NodeChange};
use convoke_core::jobs::liveness::forgettable;
use convoke_core::jobs::wire::{HandoffReason, NodeState};
use convoke_core::ports::store::InFlightFilter;
use tracing::warn;

use super::LeaderState;
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::follower::read_registry;
use crate::jobs::views::in_flight;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<Every>) -> Result<()> {
    while run.next().await {
        if let Err(error) = declare_dead_nodes(&leader).await {
            run.failed("dead nodes", &error);
        }
    }
    Ok(())
}

async fn declare_dead_nodes(leader: &LeaderState) -> Result<()> {
    let LeaderState { node, term, inboxes, .. } = leader;
    let timeout = node.settings.cluster.dead_node_timeout;
    let nodes = read_registry(node, &node.ownership.peers).await?;
    let forgettable = forgettable(&nodes, node.now());
    if !forgettable.is_empty() {
        node.store().forget_nodes(term.fence(), &forgettable).await?;
        forgettable.iter().for_each(|id| node.views.cache.node_changed(id));
        // Nobody reads its inbox again: its runs were released long ago.
        let inboxes: Vec<String> = forgettable.iter().map(|id| node.channels.inbox(id)).collect();
        node.bus().close(&node.bus().ends(&inboxes).await?).await?;
    }
    for other in nodes.into_iter().filter(|other| other.node_id != node.id && !other.state.is_gone()) {
        let silent = node.ownership.peers.unchanged_for(&other.node_id);
        if silent > timeout {
            // Offered first: if this leader dies in between, the next one finds the node again.
            let owned = InFlightFilter { owner: Some(other.node_id.clone()), ..InFlightFilter::default() };
            let runs = in_flight(node, owned).await?;
            let runs = super::ownerless::release_or_offer(leader, runs, HandoffReason::NodeCrash).await?;
            inboxes.lock().forget(&other.node_id);
            let silent_for = convoke_core::duration::format(Duration::from_millis(silent.as_millis() as u64));
            warn!(dead_node = %other.node_id, runs, silent_for, "node declared dead");
            node.store().retire_node(Some(term.fence()), &other.node_id, NodeState::Dead, node.now()).await?;
            node.views.cache.node_changed(&other.node_id);
            node.publish_event(ClusterEvent::Node { change: NodeChange::Dead, node_id: other.node_id });
        }
    }
    Ok(())
}
