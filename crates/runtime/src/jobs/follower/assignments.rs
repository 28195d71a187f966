//! Competes for the ownership of dispatched jobs.

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::wire::Assigned;
use convoke_core::ports::Delivery;
use tokio::time::Instant;

use super::claims;
use crate::jobs::competition::{BATCH_MAX, Intake, compete};
use crate::jobs::duty::{Consumes, DutyRun};
use crate::jobs::node::Node;
use crate::jobs::telemetry;

/// Reads `job.assigned`, unless the node drains.
pub async fn consume_assignments(node: Arc<Node>, run: DutyRun<Consumes>) -> Result<()> {
    compete(run, Intake { batch_max: BATCH_MAX, open: None }, |deliveries| claim(&node, deliveries)).await;
    Ok(())
}

/// The claims are only in memory as yet. If the node dies before they are written, the reconciler finds runs that no
/// worker picked up: acknowledging later would gain nothing.
async fn claim(node: &Node, deliveries: Vec<Delivery>) -> Result<()> {
    let now = Instant::now();
    for delivery in deliveries {
        match serde_json::from_slice::<Assigned>(&delivery.body) {
            Ok(assigned) => node.ownership.claims.assigned(&assigned.jobs, now),
            Err(error) => telemetry::poison(node, node.channels.assigned(), delivery.body, &error).await,
        }
    }
    claims::listen(node, &node.ownership).await;
    Ok(())
}
