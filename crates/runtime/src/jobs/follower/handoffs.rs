//! Competes for runs that lost their owner, or are about to.
//!
//! The node that reads an entry from `job.handoff` tries to become the owner, by compare-and-set on the previous one;
//! it adds the job's channels and only then acknowledges to that node. A run that already has a new owner, or that has
//! ended, is acknowledged too: an acknowledgement may have been lost, and the offering node need not wait longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_core::history::HandoffRecord;
use convoke_core::jobs::Job;
use convoke_core::jobs::handoff::may_take_unnamed;
use convoke_core::jobs::wire::{Handoff, HandoffAck, HandoffReason, RunRef, V1};
use convoke_core::ports::Delivery;
use convoke_core::ports::store::{Handover, Reassign, Reassigned};
use convoke_core::{JobId, NodeId, Result};
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::{debug, info};

use super::claims;
use crate::jobs::competition::{BATCH_MAX, Intake, compete};
use crate::jobs::duty::{Consumes, DutyRun};
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::telemetry;

/// Reads `job.handoff`, but not while this node has more than its share.
pub async fn consume_handoffs(node: Arc<Node>, run: DutyRun<Consumes>) -> Result<()> {
    let open = Some(node.ownership.peers.has_room());
    compete(run, Intake { batch_max: BATCH_MAX, open }, |deliveries| take(&node, deliveries)).await;
    Ok(())
}

async fn take(node: &Node, deliveries: Vec<Delivery>) -> Result<()> {
    let mut offers = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        match serde_json::from_slice::<Handoff>(&delivery.body) {
            Ok(offer) => offers.push(offer),
            Err(error) => telemetry::poison(node, node.channels.handoff(), delivery.body, &error).await,
        }
    }
    let mut offers = complete(node, offers).await?;
    // Its own offer, read as it began to offer: it will offer the run again.
    offers.retain(|offer| offer.from != node.id || !is_given_away(offer.reason));
    let changes = offers.iter().map(|offer| Reassign {
        job: offer.run.job_id,
        execution: offer.run.execution_id,
        from: offer.from.clone(),
        to: Handover::Take(node.id.clone()),
    });
    let results = node.store().reassign(changes.collect()).await?;
    let mut taken = Vec::with_capacity(offers.len());
    let mut acks = Vec::with_capacity(offers.len());
    for (offer, result) in offers.into_iter().zip(results) {
        let Offered { run, from, reason } = offer;
        let new_owner = match result {
            Reassigned::Done => {
                taken.push(run);
                node.history.handoff(HandoffRecord {
                    at: node.now(),
                    job_id: run.job_id,
                    execution_id: run.execution_id,
                    from_node: from.clone(),
                    to_node: Some(node.id.clone()),
                    reason,
                    case: None,
                    tries: None,
                    duration: None,
                });
                node.id.clone()
            }
            Reassigned::OwnedBy(Some(owner)) => {
                // This node took it before, and then failed to acknowledge the entry.
                if owner == node.id && !node.ownership.claims.has(&run.execution_id) {
                    taken.push(run);
                }
                owner
            }
            Reassigned::OwnedBy(None) | Reassigned::Over => node.id.clone(),
        };
        debug!(job = %run.job_id, %from, reason = reason.as_str(), %new_owner, "handoff accepted");
        acks.push((from, HandoffAck { v: V1, job_id: run.job_id, new_owner }));
    }
    if !taken.is_empty() {
        info!(runs = taken.len(), "took over runs of another node");
        node.ownership.claims.inherited(&taken, Instant::now());
        claims::listen(node, &node.ownership).await;
    }
    acknowledge(node, acks).await;
    Ok(())
}

/// A run and the node that offers it.
struct Offered {
    run: RunRef,
    from: NodeId,
    reason: HandoffReason,
}

/// Reads from the store what an offer leaves out: the job's present run, and its present owner. An offer that does not
/// name the owner does not take a run from a live node that did not offer it.
async fn complete(node: &Node, offers: Vec<Handoff>) -> Result<Vec<Offered>> {
    let is_short = |offer: &&Handoff| offer.execution_id.is_none() || offer.from_node.is_none();
    let short: Vec<JobId> = offers.iter().filter(is_short).map(|offer| offer.job_id).collect();
    let stored = if short.is_empty() { Vec::new() } else { node.store().get(&short).await? };
    let stored: BTreeMap<JobId, Job> = stored.into_iter().flatten().map(|job| (job.id, job)).collect();
    let timeout = node.settings.cluster.dead_node_timeout;
    let complete = |offer: Handoff| {
        let Handoff { job_id, execution_id, from_node, reason, .. } = offer;
        if let (Some(execution_id), Some(from)) = (execution_id, &from_node) {
            return Some(Offered { run: RunRef { job_id, execution_id }, from: from.clone(), reason });
        }
        let job = stored.get(&job_id).filter(|job| job.status.is_in_flight())?;
        let owner = job.owner_node.as_ref();
        let is_silent = owner.is_none_or(|owner| node.ownership.peers.silent_for(owner) > timeout);
        if from_node.is_none() && !may_take_unnamed(job.ownership, is_silent) {
            debug!(job = %job_id, reason = reason.as_str(), "handoff passed over: its owner is alive and did not offer it");
            return None;
        }
        let run = RunRef { job_id, execution_id: execution_id.or(job.execution_id)? };
        Some(Offered { run, from: from_node.or_else(|| owner.cloned()).unwrap_or_else(|| node.id.clone()), reason })
    };
    Ok(offers.into_iter().filter_map(complete).collect())
}

/// Returns whether the node that offers a run is alive to complete the handoff.
fn is_given_away(reason: HandoffReason) -> bool {
    matches!(reason, HandoffReason::Shutdown | HandoffReason::Rebalance)
}

async fn acknowledge(node: &NodeBase, acks: Vec<(NodeId, HandoffAck)>) {
    let acks = acks.into_iter().filter(|(from, _)| *from != node.id).map(|(from, ack)| async move {
        let topic = node.channels.handoff_ack(&from);
        if let Err(error) = node.bus().publish(&topic, node.settings.bus.format().encode(&ack)).await {
            // It will offer the run again, and then receive the acknowledgement.
            debug!(%error, %from, "acknowledging a handoff failed");
        }
    });
    join_all(acks).await;
}
