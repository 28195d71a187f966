//! Competes for runs that lost their owner, or are about to.
//!
//! Whoever takes an entry from `job.handoff` tries to become the owner, by compare-and-set on the one it comes from; it listens
//! to the job's channels and only then acknowledges to that node. A run that somebody has already, or that is over, is
//! acknowledged too: an acknowledgement may have been lost, and the node that waits for it need not wait longer.

use std::sync::Arc;

use convoke_core::jobs::wire::{self, Handoff, HandoffAck, HandoffReason, RunRef, V1};
use convoke_core::ports::Delivery;
use convoke_core::ports::store::{Handover, Reassign, Reassigned};
use convoke_core::{NodeId, Result};
use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::claims;
use super::competition::compete;
use crate::jobs::node::Node;
use crate::jobs::telemetry;

/// Takes from `job.handoff` until `leave`, but not while this node has more than its share.
pub async fn consume_handoffs(node: Arc<Node>, leave: CancellationToken) {
    let queue = node.channels.handoff();
    let open = node.peers.has_room();
    compete(node, &queue, open, leave, take).await;
}

async fn take(node: Arc<Node>, deliveries: Vec<Delivery>) -> Result<()> {
    let mut offers = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        match serde_json::from_slice::<Handoff>(&delivery.body) {
            // Its own, taken in the moment in which it began to offer: it will offer it again.
            Ok(offer) if offer.from_node == node.id && is_given_away(offer.reason) => {}
            Ok(offer) => offers.push(offer),
            Err(error) => telemetry::poison(&node, node.channels.handoff(), delivery.body, &error).await,
        }
    }
    let changes = offers.iter().map(|offer| Reassign {
        job: offer.job_id,
        execution: offer.execution_id,
        from: offer.from_node.clone(),
        to: Handover::Take(node.id.clone()),
    });
    let answers = node.store().reassign(changes.collect()).await?;
    let mut taken = Vec::with_capacity(offers.len());
    let mut acks = Vec::with_capacity(offers.len());
    for (offer, answer) in offers.into_iter().zip(answers) {
        let run = RunRef { job_id: offer.job_id, execution_id: offer.execution_id };
        let new_owner = match answer {
            Reassigned::Done => {
                taken.push(run);
                node.id.clone()
            }
            Reassigned::OwnedBy(Some(owner)) => {
                // Taken before, by this node, which then failed to acknowledge the entry.
                if owner == node.id && !node.claims.has(&run.execution_id) {
                    taken.push(run);
                }
                owner
            }
            Reassigned::OwnedBy(None) | Reassigned::Over => node.id.clone(),
        };
        debug!(job = %offer.job_id, from = %offer.from_node, reason = offer.reason.as_str(), %new_owner, "handoff accepted");
        acks.push((offer.from_node, HandoffAck { v: V1, job_id: offer.job_id, new_owner }));
    }
    if !taken.is_empty() {
        info!(runs = taken.len(), "took over runs of another node");
        node.claims.inherited(&taken, Instant::now());
        claims::listen(&node).await;
    }
    acknowledge(&node, acks).await;
    Ok(())
}

/// Whether the node that offers a run is there to see it through.
fn is_given_away(reason: HandoffReason) -> bool {
    matches!(reason, HandoffReason::Shutdown | HandoffReason::Rebalance)
}

async fn acknowledge(node: &Node, acks: Vec<(NodeId, HandoffAck)>) {
    let acks = acks.into_iter().filter(|(from, _)| *from != node.id).map(|(from, ack)| async move {
        let topic = node.channels.handoff_ack(&from);
        if let Err(error) = node.bus().publish(&topic, wire::encode(&ack)).await {
            // It will offer the run again, and is told then.
            debug!(%error, %from, "acknowledging a handoff failed");
        }
    });
    join_all(acks).await;
}
