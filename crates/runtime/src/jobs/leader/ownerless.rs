//! The runs of a node that is dead or has left.
//!
//! A run that a worker has goes on: it is offered to the other nodes. A run that the node had not handed out is
//! released, and its job runs elsewhere at the same attempt. In a queue that workers on the bus serve too, a run without
//! a known worker may be one of theirs, and is offered; if no worker has it after all, the reconciler releases it.

use convoke_core::Result;
use convoke_core::jobs::wire::{HandoffReason, RunRef};
use convoke_core::jobs::{Outcome, RunReport, Status};
use convoke_core::ports::store::InFlight;
use tracing::info;

use super::LeaderState;
use crate::jobs::handoff::{self, Offer};
use crate::jobs::recorder;

/// Releases or offers runs whose owner is gone. Returns how many were offered.
pub async fn release_or_offer(leader: &LeaderState, runs: Vec<InFlight>, reason: HandoffReason) -> Result<usize> {
    let LeaderState { node, term, bus_workers, .. } = leader;
    let (waiting, mut held): (Vec<InFlight>, Vec<InFlight>) = runs
        .into_iter()
        .partition(|run| run.owner.is_some() && run.worker.is_none() && run.status == Status::Dispatched);
    if !waiting.is_empty() {
        let of_bus = super::served_by_bus(node).await?;
        let named = bus_workers.named_among(waiting.iter().map(|run| &run.execution));
        // A worker may have moved to this node, and report the run here.
        let is_held = |run: &InFlight| {
            of_bus.contains(&run.queue) || named.contains(&run.execution) || node.gateway.sessions.has(&run.execution)
        };
        let (kept, lost): (Vec<InFlight>, Vec<InFlight>) = waiting.into_iter().partition(is_held);
        held.extend(kept);
        let now = node.now();
        let reports: Vec<RunReport> = lost
            .into_iter()
            .map(|run| RunReport::of(run.job, run.execution).ended(now, Outcome::Released, node.fraction()))
            .collect();
        if !reports.is_empty() {
            info!(runs = reports.len(), "their node is gone and no worker has them: runs are pending again");
            recorder::end_as_leader(node, term.fence(), reports).await?;
        }
    }
    let offers = held.into_iter().map(|run| Offer {
        run: RunRef { job_id: run.job, execution_id: run.execution },
        from_node: run.owner.unwrap_or_else(|| node.id.clone()),
        reason,
        tries: 1,
    });
    let offers: Vec<Offer> = offers.collect();
    let count = offers.len();
    handoff::publish(node, offers).await?;
    Ok(count)
}
