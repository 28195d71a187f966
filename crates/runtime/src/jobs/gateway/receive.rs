//! Receives the runs that another node's leader sent to this one, and releases runs that no worker of this node will
//! take.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::{Inbox, RunRef};
use convoke_core::ports::{Consumer, Delivery};
use convoke_core::{QueueName, Result};
use tracing::{debug, info};

use super::handout::release_runs;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::node::{COORDINATORS, Node};
use crate::jobs::telemetry;

/// How many messages are read at once.
const BATCH_MAX: usize = 16;
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// Reads `job.inbox.{nodeId}`. A message is acknowledged when its runs are in the inbox: this node owns them, and if it
/// dies the leader finds them in the store.
pub async fn receive_runs(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    // No other node can send anything over a bus in this process.
    if node.bus().is_in_process() {
        return Ok(());
    }
    let queue = node.channels.inbox(&node.id);
    while !run.must_stop() {
        // A new name each time, as the bus requires of its consumers.
        let name = format!("{}.{}", node.id, node.unique_word());
        let served = match node.bus().consumer(&queue, COORDINATORS, &name).await {
            Ok(consumer) => {
                let served = serve(&node, &mut run, &*consumer).await;
                if let Err(error) = consumer.leave().await {
                    debug!(%error, queue, "leaving the inbox's group failed");
                }
                served
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            run.failed("inbox", &error);
            run.sleep(RETRY_AFTER.mul_f64(1.0 + node.fraction())).await;
        }
    }
    Ok(())
}

async fn serve(node: &Node, run: &mut DutyRun<WokenBy>, consumer: &dyn Consumer) -> Result<()> {
    // Entries that were delivered before a restart and not acknowledged: their runs are checked in the store, for they are old.
    let mut deliveries = consumer.take_over(Duration::ZERO, BATCH_MAX).await?;
    loop {
        while !deliveries.is_empty() {
            let ids: Vec<String> = deliveries.iter().map(|delivery| delivery.id.clone()).collect();
            receive(node, deliveries).await?;
            consumer.ack(&ids).await?;
            deliveries = consumer.take_now(BATCH_MAX).await?;
        }
        match run.wait(consumer.take(BATCH_MAX)).await {
            Some(taken) => deliveries = taken?,
            None => return Ok(()),
        }
    }
}

async fn receive(node: &Node, deliveries: Vec<Delivery>) -> Result<()> {
    let mut back: Vec<RunRef> = Vec::new();
    let mut queues: BTreeSet<QueueName> = BTreeSet::new();
    for delivery in deliveries {
        match serde_json::from_slice::<Inbox>(&delivery.body) {
            Ok(Inbox { epoch, seq, runs, recalled, .. }) => {
                for run in &runs {
                    if !queues.contains(&run.input.queue) {
                        queues.insert(run.input.queue.clone());
                    }
                }
                back.extend(node.gateway.inbox.put(runs));
                node.gateway.inbox.received(epoch, seq);
                if !recalled.is_empty() {
                    back.extend(node.gateway.inbox.recall(|queue| recalled.contains(queue)));
                    queues.extend(recalled);
                }
            }
            Err(error) => telemetry::poison(node, node.channels.inbox(&node.id), delivery.body, &error).await,
        }
    }
    if node.drain.begun.is_cancelled() {
        back.extend(node.gateway.inbox.recall(|_| true));
    }
    // The leader learns from a heartbeat what has arrived.
    if let Some(worker) = node.gateway.sessions.server_of(&queues) {
        node.gateway.hints.slots(&worker);
    }
    release_runs(node, back).await
}

/// Releases the runs that no poll has taken, because this node drains.
pub async fn release_waiting(node: &Node) {
    let runs = node.gateway.inbox.recall(|_| true);
    if runs.is_empty() {
        return;
    }
    info!(runs = runs.len(), "node drains: runs that no worker has taken are pending again");
    if let Err(error) = release_runs(node, runs).await {
        // The leader finds them: no worker has them.
        node.outages.failed("runs that no worker has taken", &error);
    }
}

/// Releases runs of queues that no worker of this node serves. A queue must have had no worker at the last pass either
/// (`unserved`): a worker may register again at once.
pub(super) async fn release_unserved(node: &Node, unserved: &mut BTreeSet<QueueName>) -> Result<()> {
    let waiting: BTreeSet<QueueName> = node.gateway.inbox.all_waiting().into_keys().collect();
    if waiting.is_empty() {
        unserved.clear();
        return Ok(());
    }
    let now = node.gateway.sessions.unserved(waiting);
    let lasting: BTreeSet<&QueueName> = now.intersection(unserved).collect();
    let runs = if lasting.is_empty() { Vec::new() } else { node.gateway.inbox.recall(|queue| lasting.contains(queue)) };
    *unserved = now;
    if runs.is_empty() {
        return Ok(());
    }
    info!(runs = runs.len(), "no worker of this node serves their queue any more: runs are pending again");
    release_runs(node, runs).await
}
