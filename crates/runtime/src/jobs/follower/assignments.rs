//! Competes for the ownership of dispatched jobs.

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::wire::Assigned;
use convoke_core::ports::Delivery;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claims;
use super::competition::compete;
use crate::jobs::node::Node;
use crate::jobs::telemetry;

/// Takes from `job.assigned` until `leave`: a node that drains wants no more.
pub async fn consume_assignments(node: Arc<Node>, leave: CancellationToken) {
    let (_always, open) = watch::channel(true);
    let queue = node.channels.assigned();
    compete(node, &queue, open, leave, claim).await;
}

/// The claims are only remembered as yet. Should the node die before they are written, the reconciler finds runs that nobody
/// picked up: acknowledging late would gain nothing.
async fn claim(node: Arc<Node>, deliveries: Vec<Delivery>) -> Result<()> {
    let now = Instant::now();
    for delivery in deliveries {
        match serde_json::from_slice::<Assigned>(&delivery.body) {
            Ok(assigned) => node.claims.assigned(&assigned.jobs, now),
            Err(error) => telemetry::poison(&node, node.channels.assigned(), delivery.body, &error).await,
        }
    }
    claims::listen(&node).await;
    Ok(())
}
