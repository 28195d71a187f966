//! Finds runs whose events no node records, and offers them to all nodes.
//!
//! These are runs that a draining node could not hand off, runs of a node that is gone, and runs that have had no owner
//! for a while since their dispatch, because their assignment was lost with the bus. Taking one is a compare-and-set,
//! so that offering too many does no harm; while the last offers still wait, no more are made. Runs that a node left
//! before a worker had them are [released](super::ownerless) instead.

use std::collections::BTreeSet;
use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::Ownership;
use convoke_core::jobs::wire::HandoffReason;
use convoke_core::ports::store::{InFlight, InFlightFilter};
use tracing::info;

use super::LeaderState;
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::node::COORDINATORS;
use crate::jobs::views::in_flight;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<Every>) -> Result<()> {
    while run.next().await {
        if let Err(error) = offer_orphans(&leader).await {
            run.failed("orphans", &error);
        }
    }
    Ok(())
}

async fn offer_orphans(leader: &LeaderState) -> Result<()> {
    let node = &leader.node;
    if node.bus().backlog(&node.channels.handoff(), COORDINATORS).await? > 0 {
        return Ok(());
    }
    // Read before the registry: a node is in the registry before it owns anything.
    let owners = node.store().holders().await?.owners;
    let nodes = node.store().nodes().await?.into_iter().filter(|node| !node.state.is_gone());
    let nodes: BTreeSet<_> = nodes.map(|node| node.node_id).collect();
    let mut orphans = in_flight(node, InFlightFilter { moving: true, ..InFlightFilter::default() }).await?;
    let is_known = |run: &InFlight| run.owner.as_ref().is_some_and(|owner| nodes.contains(owner));
    orphans.retain(|run| run.ownership == Ownership::OrphanPending && is_known(run));
    for owner in owners.into_iter().filter(|owner| !nodes.contains(owner)) {
        orphans.extend(in_flight(node, InFlightFilter { owner: Some(owner), ..InFlightFilter::default() }).await?);
    }
    // An assignment that is on its way is no orphan yet.
    let unowned_before = Some(node.now() - node.settings.cluster.orphan_check_interval);
    orphans.extend(in_flight(node, InFlightFilter { unowned_before, ..InFlightFilter::default() }).await?);
    let count = super::ownerless::release_or_offer(leader, orphans, HandoffReason::Orphan).await?;
    if count > 0 {
        info!(runs = count, "orphaned runs offered to other nodes");
    }
    Ok(())
}
