//! Requeues runs that were dispatched to a queue that no worker serves any more, or that was paused.
//!
//! The dispatcher runs a little ahead of the workers. When the last of a queue's workers on the bus leaves or dies, the
//! runs that it did not receive lie on the bus for the next worker, and would count as dispatched until then, however
//! long that is; a later job of higher priority could not overtake them, and no gateway reads them. So the leader reads
//! these messages itself, as any worker could, and releases their runs: the jobs are pending again, and no attempt is
//! counted. It also takes over messages that a dead worker received and did not acknowledge. If it dies in between, the
//! reconciler finds the runs; if a worker comes in between, the jobs are dispatched to it anew.
//!
//! If a queue is paused, the same is done at once, and the nodes in whose inboxes runs of the queue wait are asked to
//! [release](recall) them: a run that no worker has taken yet does not start. Runs in the inbox of a node that has no
//! worker for them are released by that node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::{self, Dispatch, Inbox, V1};
use convoke_core::jobs::{Outcome, RunReport, Status};
use convoke_core::ports::{Consumer, Delivery};
use convoke_core::{NodeId, QueueName, Result};
use tokio::time::Instant;
use tracing::info;

use super::LeaderState;
use crate::election::Term;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::intake::WORKERS;
use crate::jobs::node::Node;
use crate::jobs::{gateway, recorder, telemetry};

/// How long the bus may take to respond; it does not respond if nothing is left.
const PATIENCE: Duration = Duration::from_millis(250);
/// Upper bound of the runs that one write releases.
const BATCH_MAX: usize = 1_000;
/// How often messages of dead workers are read from a queue, until it has been without workers for `stale_after`
/// this many times.
const TAKE_OVERS: u32 = 4;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let mut unserved = Unserved::default();
    while run.wait(tokio::time::timeout(super::LOOK_INTERVAL, leader.paused.notified())).await.is_some() {
        if let Err(error) = requeue_unserved(&leader, &mut unserved).await {
            run.failed("recall", &error);
        }
    }
    Ok(())
}

/// Queues that may have messages on the bus and that no worker on the bus serves.
#[derive(Default)]
struct Unserved {
    has_begun: bool,
    since: BTreeMap<QueueName, UnservedQueue>,
}

struct UnservedQueue {
    since: Instant,
    /// When messages of dead workers were last read.
    checked: Instant,
}

/// Requeues the runs of queues that are paused or that no worker serves. A queue must have had no worker at the last
/// pass either: a worker that has just come may not be in the registry yet.
async fn requeue_unserved(leader: &LeaderState, unserved: &mut Unserved) -> Result<()> {
    let LeaderState { node, term, inboxes, bus_queues, .. } = leader;
    let queues = node.store().queues().await?;
    let dispatched: Vec<_> = queues.into_iter().filter(|queue| queue.counts.get(Status::Dispatched) > 0).collect();
    if !unserved.has_begun {
        // A former leader may have published runs of any of them.
        bus_queues.lock().extend(dispatched.iter().map(|queue| queue.name.clone()));
        unserved.has_begun = true;
    }
    for queue in dispatched.into_iter().filter(|queue| queue.paused).map(|queue| queue.name) {
        let holders = inboxes.lock().holders(&queue);
        for holder in holders.into_iter().chain([node.id.clone()]) {
            recall(leader, &holder, &queue).await?;
        }
        if bus_queues.lock().contains(&queue) {
            requeue_queue(node, term, &queue).await?;
        }
    }
    let on_bus: Vec<QueueName> = bus_queues.lock().iter().cloned().collect();
    if on_bus.is_empty() {
        return Ok(());
    }
    let served = super::served_by_bus(node).await?;
    let stale_after = node.settings.worker.stale_after;
    unserved.since.retain(|queue, _| !served.contains(queue));
    for queue in on_bus.into_iter().filter(|queue| !served.contains(queue)) {
        let now = Instant::now();
        let Some(known) = unserved.since.get_mut(&queue) else {
            unserved.since.insert(queue, UnservedQueue { since: now, checked: now });
            continue;
        };
        requeue_queue(node, term, &queue).await?;
        if known.checked.elapsed() >= stale_after / 2 {
            known.checked = now;
            take_over(node, term, &queue).await?;
            if known.since.elapsed() >= stale_after * TAKE_OVERS {
                bus_queues.lock().remove(&queue);
                unserved.since.remove(&queue);
            }
        }
    }
    Ok(())
}

/// Makes a node release the runs of a queue that wait in its inbox.
pub async fn recall(leader: &LeaderState, holder: &NodeId, queue: &QueueName) -> Result<()> {
    let LeaderState { node, term, inboxes, .. } = leader;
    if *holder == node.id {
        let runs = node.gateway.inbox.recall(|waiting| waiting == queue);
        if !runs.is_empty() {
            info!(%queue, runs = runs.len(), "runs that no worker has taken are pending again");
        }
        return gateway::release_runs(node, runs).await;
    }
    let seq = inboxes.lock().send(holder, Default::default(), node.now());
    let epoch = term.fence().epoch();
    let message = Inbox { v: V1, epoch, seq, runs: Vec::new(), recalled: vec![queue.clone()] };
    node.bus().push(vec![(node.channels.inbox(holder), wire::encode(&message))]).await
}

async fn requeue_queue(node: &Node, term: &Term, queue: &QueueName) -> Result<()> {
    // No more than lie there now: a released job may be dispatched again at once, to a worker that has just come.
    let waiting = super::untaken(node, queue).await?.unwrap_or(0);
    if waiting == 0 {
        return Ok(());
    }
    let consumer = consumer(node, queue).await?;
    let taken = take_back(node, term, queue, &*consumer, usize::try_from(waiting).unwrap_or(usize::MAX)).await;
    // Entries whose runs could not be released can be taken by others at once.
    consumer.leave().await?;
    taken
}

/// Releases the runs of messages that a dead worker received. Most have ended with it, and are only acknowledged.
async fn take_over(node: &Node, term: &Term, queue: &QueueName) -> Result<()> {
    let consumer = consumer(node, queue).await?;
    let taken = async {
        loop {
            let deliveries = consumer.take_over(node.settings.worker.stale_after, BATCH_MAX).await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            release(node, term, queue, &*consumer, deliveries).await?;
        }
    };
    let taken = taken.await;
    consumer.leave().await?;
    taken
}

/// A new name each time, as the bus requires of its consumers.
async fn consumer(node: &Node, queue: &QueueName) -> Result<Box<dyn Consumer>> {
    let name = format!("{}-recall-{}", node.id, node.unique_word());
    node.bus().consumer(&node.channels.dispatch(queue), WORKERS, &name).await
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
        waiting = waiting.saturating_sub(release(node, term, queue, consumer, deliveries?).await?);
    }
    Ok(())
}

async fn release(
    node: &Node,
    term: &Term,
    queue: &QueueName,
    consumer: &dyn Consumer,
    deliveries: Vec<Delivery>,
) -> Result<usize> {
    let (now, mut reports, mut ids) = (node.now(), Vec::new(), Vec::new());
    for delivery in deliveries {
        match serde_json::from_slice::<Dispatch>(&delivery.body) {
            Ok(run) => {
                let report = RunReport::of(run.job_id, run.execution_id);
                reports.push(report.ended(now, Outcome::Released, node.fraction()));
            }
            Err(error) => telemetry::poison(node, "job.dispatch".into(), delivery.body, &error).await,
        }
        ids.push(delivery.id);
    }
    info!(%queue, runs = reports.len(), "queue is paused or has no worker on the bus: dispatched jobs are pending again");
    recorder::end_as_leader(node, term.fence(), reports).await?;
    consumer.ack(&ids).await?;
    Ok(ids.len())
}
