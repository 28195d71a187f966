//! Compares the runs that this node believes to own with the store: drops claims that ended, adds those that are
//! missing.
//!
//! A run may be ended by another node (cancelled, timed out, lost) or move to another node (its worker moved to that
//! node's gateway) without a message to this one. This node could not record events of such a run any more: the store
//! would reject them. But it would go on reading its channels, and count it as load.

use std::collections::HashSet;
use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::wire::RunRef;
use convoke_core::ports::store::InFlightFilter;
use tokio::time::Instant;
use tracing::debug;

use super::{Ownership, claims};
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::views::in_flight;

/// Runs once per heartbeat.
pub async fn audit_claims(node: Arc<Node>, mut run: DutyRun<Every>) -> Result<()> {
    while run.next().await {
        if let Err(error) = audit(&node).await {
            run.failed("audit of claims", &error);
        }
    }
    Ok(())
}

async fn audit(node: &Node) -> Result<()> {
    // Claims written after this moment may be missing from the result.
    let before = Instant::now() - std::time::Duration::from_secs(1);
    let held = owned(node).await?;
    let known: HashSet<_> = held.iter().map(|run| run.execution_id).collect();
    let unknown = node.ownership.claims.unknown_to(&known, before);
    if !unknown.is_empty() {
        debug!(runs = unknown.len(), "released runs that ended or moved to another node");
        claims::drop_claims(node, &node.ownership, unknown).await;
    }
    if !node.drain.begun.is_cancelled() {
        claim_runs(node, &node.ownership, &held).await;
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

async fn owned(node: &NodeBase) -> Result<Vec<RunRef>> {
    let owned = InFlightFilter { owner: Some(node.id.clone()), ..InFlightFilter::default() };
    let runs = in_flight(node, owned).await?.into_iter();
    Ok(runs.map(|run| RunRef { job_id: run.job, execution_id: run.execution }).collect())
}

async fn claim_runs(node: &NodeBase, ownership: &Ownership, held: &[RunRef]) {
    let missing: Vec<RunRef> = held.iter().filter(|run| !ownership.claims.has(&run.execution_id)).copied().collect();
    if !missing.is_empty() {
        ownership.claims.inherited(&missing, Instant::now());
        claims::listen(node, ownership).await;
    }
}
