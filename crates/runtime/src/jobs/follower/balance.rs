//! Evens out the load: a node that owns far more runs than the idlest node offers half of the difference to the others.
//!
//! Consumer groups spread new runs, and heartbeats show how many each node owns. If the busiest still has more than
//! `rebalance_ratio` times as many as the idlest, it hands runs off; until it is done it takes none itself. Only runs
//! that are read from their channels can move: a run that a gateway handed out is owned by the node of its worker.

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::wire::HandoffReason;
use tracing::info;

use super::Ownership;
use super::offers::offer_runs;
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::node::Node;

/// Returns how many runs a node with `own` should hand off if the others have `others`: the busiest half of the
/// difference to the idlest, if it has more than `ratio` times as many.
fn surplus(own: u64, others: &[u64], ratio: f64) -> u64 {
    let (Some(idlest), Some(busiest)) = (others.iter().min(), others.iter().max()) else { return 0 };
    let overloaded = own >= *busiest && own as f64 > *idlest as f64 * ratio;
    if overloaded { (own - idlest) / 2 } else { 0 }
}

/// Runs once per heartbeat.
pub async fn balance_load(node: Arc<Node>, mut run: DutyRun<Every>) -> Result<()> {
    let cluster = &node.settings.cluster;
    let Ownership { claims, peers, .. } = &node.ownership;
    if !cluster.rebalance {
        return Ok(());
    }
    while run.next().await {
        let loads = peers.loads(cluster.dead_node_timeout);
        let surplus = surplus(claims.len() as u64, &loads, cluster.rebalance_ratio);
        let runs = claims.movable(usize::try_from(surplus).unwrap_or(usize::MAX));
        if runs.is_empty() {
            continue;
        }
        let idlest = loads.iter().min().copied();
        info!(runs = runs.len(), owned = claims.len(), idlest, "rebalancing: runs are offered to other nodes");
        peers.set_room(false);
        let stop = run.stop();
        tokio::select! {
            biased;
            () = stop.due() => {}
            _ = offer_runs(&node, runs, HandoffReason::Rebalance) => {}
        }
        peers.set_room(true);
        // The others must have published their new counts first, or it would hand off the runs that they just received.
        run.sleep(cluster.heartbeat_interval * 2).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::surplus;

    #[test]
    fn the_busiest_gives_half_the_difference_to_the_idlest_and_nobody_else_gives() {
        assert_eq!(surplus(100, &[20], 2.0), 40);
        assert_eq!(surplus(100, &[20, 60], 2.0), 40);
        assert_eq!(surplus(60, &[20, 100], 2.0), 0, "not the busiest");
        assert_eq!(surplus(40, &[20], 2.0), 0, "twice is not more than twice");
        assert_eq!(surplus(41, &[20], 2.0), 10);
        assert_eq!(surplus(2, &[0], 2.0), 1);
        assert_eq!(surplus(1, &[0], 2.0), 0, "a half is none");
        assert_eq!(surplus(100, &[], 2.0), 0, "nobody to give to");
    }
}
