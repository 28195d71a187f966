//! Takes from a queue for which all nodes compete: each entry goes to one of them.
//!
//! An entry is acknowledged after its work. A node that fails at it leaves the group, so that another, or itself, is given the
//! entry again; what a dead node was given is taken over once it has been silent for as long as a dead node is.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::ports::{Consumer, Delivery};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use crate::jobs::node::{COORDINATORS, Node};

const BATCH_MAX: usize = 64;
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// Works on the entries of `queue` until `stop`, except while `open` says no.
pub async fn compete<F: Future<Output = Result<()>>>(
    node: Arc<Node>,
    queue: &str,
    mut open: watch::Receiver<bool>,
    stop: CancellationToken,
    work: impl Fn(Arc<Node>, Vec<Delivery>) -> F,
) {
    while !stop.is_cancelled() {
        // A name of its own each time: what was left under an older one is taken over.
        let name = format!("{}.{}", node.id, Uuid::now_v7().simple());
        let served = match node.bus().consumer(queue, COORDINATORS, &name).await {
            Ok(consumer) => {
                let served = tokio::select! {
                    () = stop.cancelled() => Ok(()),
                    served = serve(&node, &*consumer, &mut open, &work) => served,
                };
                if let Err(error) = consumer.leave().await {
                    debug!(%error, queue, "leaving a consumer group failed: another node takes over what is pending");
                }
                served
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            node.outages.failed("assignments", &error);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY_AFTER.mul_f64(1.0 + rand::random::<f64>())) => {}
            }
        }
    }
}

async fn serve<F: Future<Output = Result<()>>>(
    node: &Arc<Node>,
    consumer: &dyn Consumer,
    open: &mut watch::Receiver<bool>,
    work: &impl Fn(Arc<Node>, Vec<Delivery>) -> F,
) -> Result<()> {
    let idle = node.settings.cluster.dead_node_timeout;
    let mut look = tokio::time::interval(idle);
    loop {
        if !*open.borrow_and_update() {
            if open.changed().await.is_err() {
                return std::future::pending().await;
            }
            continue;
        }
        let taken = tokio::select! {
            changed = open.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return std::future::pending().await,
            },
            taken = consumer.take(BATCH_MAX) => taken?,
            _ = look.tick() => consumer.take_over(idle, BATCH_MAX).await?,
        };
        if taken.is_empty() {
            continue;
        }
        let ids: Vec<String> = taken.iter().map(|delivery| delivery.id.clone()).collect();
        work(node.clone(), taken).await?;
        consumer.ack(&ids).await?;
    }
}
