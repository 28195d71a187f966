//! Declares silent nodes dead: their runs are offered to the others, and they are struck off the registry.
//!
//! A node is silent while its heartbeat in the registry does not change, as this leader has seen on its monotonic clock. What
//! the heartbeat says of the time is the other node's clock, and is not compared with this one's. A node that was only
//! paused finds out by itself: what it says of runs that another has taken is refused.

use std::sync::Arc;

use convoke_core::jobs::event::{Happening, NodeChange};
use convoke_core::jobs::wire::{HandoffReason, RunRef};
use convoke_core::ports::store::InFlightFilter;
use convoke_core::{NodeId, Result};
use tracing::warn;

use crate::election::Term;
use crate::jobs::follower::read_registry;
use crate::jobs::handoff::{self, Offer};
use crate::jobs::node::Node;
use crate::jobs::views::in_flight;

pub async fn run(node: Arc<Node>, term: Term) {
    let interval = node.settings.cluster.dead_node_timeout / 6;
    while term.sleep(interval).await {
        if let Err(error) = strike(&node, &term).await {
            super::note(&node, &term, "dead nodes", &error);
        }
    }
}

async fn strike(node: &Node, term: &Term) -> Result<()> {
    let timeout = node.settings.cluster.dead_node_timeout;
    for other in read_registry(node).await? {
        let silent = node.peers.unchanged_for(&other.node_id);
        if other.node_id != node.id && silent > timeout {
            // Offered first: should this leader die in between, the next one finds the node again.
            let runs = offer_runs_of(node, &other.node_id).await?;
            let silent_for = convoke_core::duration::format(silent);
            warn!(dead_node = %other.node_id, runs, silent_for, "node declared dead");
            node.store().remove_node(Some(term.fence()), &other.node_id).await?;
            node.cache.node_changed(&other.node_id);
            node.tell(Happening::Node { change: NodeChange::Dead, node_id: other.node_id });
        }
    }
    Ok(())
}

async fn offer_runs_of(node: &Node, dead: &NodeId) -> Result<usize> {
    let owned = InFlightFilter { owner: Some(dead.clone()), ..InFlightFilter::default() };
    let runs = in_flight(node, owned).await?.into_iter();
    let offers = runs.map(|run| Offer {
        run: RunRef { job_id: run.job, execution_id: run.execution },
        from_node: dead.clone(),
        reason: HandoffReason::NodeCrash,
        tries: 1,
    });
    let offers: Vec<Offer> = offers.collect();
    let count = offers.len();
    handoff::publish(node, offers).await?;
    Ok(count)
}
