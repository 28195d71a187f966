//! Compares the runs that this node believes to own with the store: drops claims that ended, adds those that are
//! missing.
//!
//! A run may be ended by another node (cancelled, timed out, lost) or move to another node (its worker moved to that
//! node's gateway) without a message to this one. This node could not record events of such a run any more: the store
//! would reject them. But it would go on reading its channels, and count it as load.
//!
//! A run that was sent to this node's gateway is owned from its dispatch on, and is claimed when it is handed out. Until
//! then it is in the inbox, or on its way there: so a run without a worker is only missing if it was at the last pass
//! too.

use std::collections::BTreeSet;
use std::sync::Arc;

use convoke_core::jobs::wire::RunRef;
use convoke_core::ports::store::{InFlight, InFlightFilter};
use convoke_core::{ExecutionId, Result};
use tokio::time::Instant;
use tracing::debug;

use super::{Ownership, claims};
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::views::in_flight;

/// Runs once per heartbeat.
pub async fn audit_claims(node: Arc<Node>, mut run: DutyRun<Every>) -> Result<()> {
    let mut missing = BTreeSet::new();
    while run.next().await {
        if let Err(error) = audit(&node, &mut missing).await {
            run.failed("audit of claims", &error);
        }
    }
    Ok(())
}

async fn audit(node: &Node, missing: &mut BTreeSet<ExecutionId>) -> Result<()> {
    // Claims written after this moment may be missing from the result.
    let before = Instant::now() - std::time::Duration::from_secs(1);
    let held = owned(node).await?;
    let known: BTreeSet<_> = held.iter().map(|run| run.execution).collect();
    let unknown = node.ownership.claims.unknown_to(&known, before);
    if !unknown.is_empty() {
        debug!(runs = unknown.len(), "released runs that ended or moved to another node");
        claims::drop_claims(node, &node.ownership, unknown).await;
    }
    if !node.drain.begun.is_cancelled() {
        let before = std::mem::take(missing);
        let unclaimed = held
            .into_iter()
            .filter(|run| !node.ownership.claims.has(&run.execution) && !node.gateway.inbox.has(&run.execution));
        let (on_their_way, lasting): (Vec<InFlight>, Vec<InFlight>) =
            unclaimed.partition(|run| run.worker.is_none() && !before.contains(&run.execution));
        missing.extend(on_their_way.iter().map(|run| run.execution));
        claim_runs(node, &node.ownership, &lasting).await;
    }
    claims::listen_to_all(node, &node.ownership).await;
    Ok(())
}

/// Reads the runs that this node owned before it was restarted under the same id. Returns their number.
pub async fn recover_owned_runs(node: &Node) -> Result<usize> {
    let held = owned(node).await?;
    claim_runs(node, &node.ownership, &held).await;
    Ok(held.len())
}

async fn owned(node: &NodeBase) -> Result<Vec<InFlight>> {
    let owned = InFlightFilter { owner: Some(node.id.clone()), ..InFlightFilter::default() };
    in_flight(node, owned).await
}

async fn claim_runs(node: &NodeBase, ownership: &Ownership, held: &[InFlight]) {
    let missing = held.iter().filter(|run| !ownership.claims.has(&run.execution));
    let missing: Vec<RunRef> = missing.map(|run| RunRef { job_id: run.job, execution_id: run.execution }).collect();
    if !missing.is_empty() {
        ownership.claims.inherited(&missing, Instant::now());
        claims::listen(node, ownership).await;
    }
}
