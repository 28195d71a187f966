//! Runs that need another owner, as they are put on `job.handoff`.

use convoke_core::jobs::wire::{Handoff, HandoffReason, RunRef, V1};
use convoke_core::{NodeId, Result};

use super::node::NodeBase;

/// A run and the node that offers it.
#[derive(Debug, Clone)]
pub struct Offer {
    pub run: RunRef,
    pub from_node: NodeId,
    pub reason: HandoffReason,
    /// Counts from 1.
    pub tries: u32,
}

/// Offers runs to all nodes, in one batch.
pub async fn publish(node: &NodeBase, offers: Vec<Offer>) -> Result<()> {
    if offers.is_empty() {
        return Ok(());
    }
    let queue = node.channels.handoff();
    let entries = offers.into_iter().map(|Offer { run: RunRef { job_id, execution_id }, from_node, reason, tries }| {
        let (execution_id, from_node) = (Some(execution_id), Some(from_node));
        let offer = Handoff { v: V1, job_id, execution_id, from_node, reason, tries };
        (queue.clone(), node.settings.bus.format().encode(&offer))
    });
    node.bus().push(entries.collect()).await
}
