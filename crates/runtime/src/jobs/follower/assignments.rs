//! Competes for the ownership of dispatched jobs.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::jobs::wire::Assigned;
use convoke_core::ports::{Consumer, Delivery};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::jobs::node::{COORDINATORS, Node};
use crate::jobs::telemetry;

const BATCH_MAX: usize = 64;

/// Takes from `job.assigned` until `stop`.
pub async fn consume_assignments(node: Arc<Node>, stop: CancellationToken) {
    let queue = node.channels.assigned();
    while !stop.is_cancelled() {
        let served = tokio::select! {
            () = stop.cancelled() => return,
            served = serve(&node, &queue) => served,
        };
        if let Err(error) = served {
            warn!(%error, "cannot take assignments");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

async fn serve(node: &Node, queue: &str) -> Result<()> {
    let consumer = node.bus().consumer(queue, COORDINATORS, node.id.as_str()).await?;
    let idle = node.settings.cluster.dead_node_timeout;
    let mut orphans = tokio::time::interval(idle);
    loop {
        tokio::select! {
            taken = consumer.take(BATCH_MAX) => claim(node, &*consumer, taken?).await?,
            _ = orphans.tick() => {
                let taken = consumer.take_over(idle, BATCH_MAX).await?;
                claim(node, &*consumer, taken).await?;
            }
        }
    }
}

async fn claim(node: &Node, consumer: &dyn Consumer, deliveries: Vec<Delivery>) -> Result<()> {
    let now = Instant::now();
    let mut done = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        match serde_json::from_slice::<Assigned>(&delivery.body) {
            Ok(assigned) => node.claims.assigned(&assigned.jobs, now),
            Err(error) => telemetry::poison(node, node.channels.assigned(), delivery.body, &error).await,
        }
        done.push(delivery.id);
    }
    // The claims are only remembered as yet. Should the node die before they are written, the reconciler finds runs that
    // nobody picked up: acknowledging late would gain nothing.
    consumer.ack(&done).await
}
