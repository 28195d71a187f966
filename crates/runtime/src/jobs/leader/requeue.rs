//! Requeues runs that were dispatched to a queue that no worker serves any more, or that was paused.
//!
//! The dispatcher runs a little ahead of the workers. When the last of a queue's workers leaves or dies, the runs that
//! it did not receive lie on the bus for the next worker, and would count as dispatched until then, however long that
//! is; a later job of higher priority could not overtake them. So the leader reads these messages itself, as any worker
//! could, and releases their runs: the jobs are pending again, and no attempt is counted. If it dies in between, the
//! reconciler finds the runs; if a worker comes in between, the jobs are dispatched to it anew. If a queue is paused,
//! the same is done at once: a run that no worker has taken yet does not start.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{Outcome, RunReport, Status};
use convoke_core::ports::Consumer;
use convoke_core::{QueueName, Result};
use tracing::info;
use uuid::Uuid;

use super::LeaderState;
use crate::election::Term;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::node::{Node, WORKERS};
use crate::jobs::{recorder, telemetry};

/// How long the bus may take to respond; it does not respond if nothing is left.
const PATIENCE: Duration = Duration::from_millis(250);
/// Upper bound of the runs that one write releases.
const BATCH_MAX: usize = 1_000;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let mut unserved = HashSet::new();
    while run.wait(tokio::time::timeout(super::LOOK_INTERVAL, leader.paused.notified())).await.is_some() {
        if let Err(error) = requeue_unserved(&leader.node, &leader.term, &mut unserved).await {
            run.failed("recall", &error);
        }
    }
    Ok(())
}

/// Requeues the runs of queues that are paused or that no worker serves. A queue must have had no worker at the last pass
/// either (`unserved`): a worker that has just come may not be in the registry yet.
async fn requeue_unserved(node: &Node, term: &Term, unserved: &mut HashSet<QueueName>) -> Result<()> {
    let before = std::mem::take(unserved);
    let queues = node.store().queues().await?;
    let mut dispatched = queues.into_iter().filter(|queue| queue.counts.get(Status::Dispatched) > 0).peekable();
    if dispatched.peek().is_none() {
        return Ok(());
    }
    let (paused, dispatched): (Vec<_>, Vec<_>) = dispatched.partition(|queue| queue.paused);
    for queue in paused {
        requeue_queue(node, term, &queue.name).await?;
    }
    let served = super::served(node).await?;
    for queue in dispatched.into_iter().filter(|queue| !served.contains(&queue.name)) {
        if before.contains(&queue.name) {
            requeue_queue(node, term, &queue.name).await?;
        }
        unserved.insert(queue.name);
    }
    Ok(())
}

async fn requeue_queue(node: &Node, term: &Term, queue: &QueueName) -> Result<()> {
    let channel = node.channels.dispatch(queue);
    // No more than lie there now: a released job may be dispatched again at once, to a worker that has just come.
    let waiting = super::untaken(node, queue).await?.unwrap_or(0);
    if waiting == 0 {
        return Ok(());
    }
    // A new name each time, as the bus requires of its consumers.
    let name = format!("{}-recall-{}", node.id, Uuid::now_v7().simple());
    let consumer = node.bus().consumer(&channel, WORKERS, &name).await?;
    let taken = take_back(node, term, queue, &*consumer, usize::try_from(waiting).unwrap_or(usize::MAX)).await;
    // Entries whose runs could not be released can be taken by others at once.
    consumer.leave().await?;
    taken
}

async fn take_back(
    node: &Node,
    term: &Term,
    queue: &QueueName,
    consumer: &dyn Consumer,
    mut waiting: usize,
) -> Result<()> {
    while waiting > 0
        && let Ok(deliveries) = tokio::time::timeout(PATIENCE, consumer.take(BATCH_MAX.min(waiting))).await
    {
        let (now, mut reports, mut ids) = (node.now(), Vec::new(), Vec::new());
        for delivery in deliveries? {
            match serde_json::from_slice::<Dispatch>(&delivery.body) {
                Ok(run) => {
                    let report = RunReport::of(run.job_id, run.execution_id);
                    reports.push(report.ended(now, Outcome::Released, rand::random()));
                }
                Err(error) => telemetry::poison(node, "job.dispatch".into(), delivery.body, &error).await,
            }
            ids.push(delivery.id);
        }
        info!(%queue, runs = reports.len(), "queue is paused or has no worker: dispatched jobs are pending again");
        recorder::end_as_leader(node, term.fence(), reports).await?;
        consumer.ack(&ids).await?;
        waiting = waiting.saturating_sub(ids.len());
    }
    Ok(())
}
