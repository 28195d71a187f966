//! Finds runs that were committed as dispatched and never picked up, and releases them.
//!
//! Their message was lost with the bus, or with a node that died between commit and publication. They become pending
//! and are dispatched again under a new execution id: if a worker has the old one after all, it can still run, but no
//! longer commit. While the bus still holds messages of a queue, or the inbox of their node, its runs are only waiting;
//! if no worker is left to take them, they are requeued.
//!
//! After a restart there is no need to wait: once every worker in the store has listed its runs, a run that no worker
//! lists was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use convoke_core::jobs::{Outcome, RunReport};
use convoke_core::ports::store::{InFlight, InFlightFilter};
use convoke_core::{NodeId, QueueName, Result, WorkerId};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::info;

use super::LeaderState;
use crate::election::Term;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::node::Node;
use crate::jobs::recorder;
use crate::jobs::views::in_flight;

/// A queue that is never empty must not hide a lost message for ever.
const PATIENCE: u32 = 10;

/// The reconciler sleeps this many times as long as it works.
const LOAD_SHARE: u32 = 20;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let LeaderState { node, term, .. } = &*leader;
    let stale_after = node.settings.worker.stale_after;
    let interval = super::silence_interval(stale_after);
    let began = Instant::now();
    let mut all_named = false;
    loop {
        if !all_named {
            all_named = began.elapsed() >= stale_after || have_all_workers_named_runs(&leader).await;
        }
        // Runs from before this term can be checked as soon as all workers have listed their runs, and not before: only
        // the leader that dispatched them knows how long ago that was. No run of this term is that old by then.
        let before = (node.now() - stale_after).max(leader.began_at);
        let started = Instant::now();
        let reconciled = async {
            if all_named {
                release_unclaimed(&leader, before).await?;
            }
            // A worker on the bus that came during a vacancy is known after its first heartbeat.
            if began.elapsed() < stale_after {
                return Ok(());
            }
            end_runs_of_unknown_workers(node, term).await
        };
        if let Err(error) = reconciled.await {
            run.failed("reconciler", &error);
        }
        // There may be many unclaimed runs. If reading them takes long, it is done less often.
        let pause = (started.elapsed() * LOAD_SHARE).clamp(interval, stale_after.max(interval));
        if !run.sleep(pause).await {
            return Ok(());
        }
    }
}

/// Returns whether every worker from before this term has listed its runs.
async fn have_all_workers_named_runs(LeaderState { node, bus_workers, .. }: &LeaderState) -> bool {
    let workers = node.store().workers().await;
    let has_named_runs = |id: &WorkerId| node.gateway.sessions.has_named_runs(id) || bus_workers.has_named_runs(id);
    workers.is_ok_and(|workers| workers.iter().all(|worker| has_named_runs(&worker.worker_id)))
}

async fn release_unclaimed(leader: &LeaderState, before: Timestamp) -> Result<()> {
    let LeaderState { node, term, bus_workers, group_readers, .. } = leader;
    let now = node.now();
    let stale_after = node.settings.worker.stale_after;
    let filter = InFlightFilter { unclaimed_before: Some(before), ..InFlightFilter::default() };
    let mut by_queue: BTreeMap<QueueName, Vec<InFlight>> = BTreeMap::new();
    for run in in_flight(node, filter).await? {
        by_queue.entry(run.queue.clone()).or_default().push(run);
    }
    // Runs that a worker on the bus took before it fell silent are lost with it if it is dead: they must not be
    // released here.
    let silent = bus_workers.queues_of_the_silent(stale_after / 2);
    by_queue.retain(|queue, _| !silent.contains(queue));
    // A worker that sends no heartbeats may have taken them, and shows it by acknowledging.
    let held = group_readers.queues_held();
    for (queue, runs) in by_queue {
        // A queue without a channel has no waiting messages.
        let on_bus = super::untaken(node, &queue).await?.unwrap_or(0) > 0 || held.contains(&queue);
        let hopeless = now - stale_after * PATIENCE;
        let in_inbox = leader.inboxes.lock().holders(&queue);
        let is_alive = |owner: &NodeId| node.ownership.peers.state_of(owner).is_some_and(|state| !state.is_gone());
        let waits = |run: &InFlight| {
            on_bus || run.owner.as_ref().is_some_and(|owner| in_inbox.contains(owner) && is_alive(owner))
        };
        let lost = runs.into_iter().filter(|run| !waits(run) || run.dispatched_at < hopeless);
        let lost: Vec<InFlight> = lost.collect();
        let named = bus_workers.named_among(lost.iter().map(|run| &run.execution));
        let reports: Vec<RunReport> = lost
            .into_iter()
            // A run that this node has just handed out, or that a worker has just taken, may not be written yet.
            .filter(|run| !node.gateway.sessions.has(&run.execution) && !named.contains(&run.execution))
            .filter(|run| !node.gateway.inbox.has(&run.execution))
            .map(|run| RunReport::of(run.job, run.execution).ended(now, Outcome::Released, node.fraction()))
            .collect();
        if !reports.is_empty() {
            info!(%queue, runs = reports.len(), "dispatched runs were never picked up: their jobs are pending again");
            recorder::end_as_leader(node, term.fence(), reports).await?;
        }
    }
    Ok(())
}

/// A worker that has runs and is not in the registry will never be declared dead: its runs are lost.
async fn end_runs_of_unknown_workers(node: &Node, term: &Term) -> Result<()> {
    let now = node.now();
    let horizon = now - node.settings.worker.stale_after;
    // Read before the registry: a worker is in the registry before it has runs.
    let mut workers = node.store().holders().await?.workers;
    if workers.is_empty() {
        return Ok(());
    }
    let known: BTreeSet<WorkerId> = node.store().workers().await?.into_iter().map(|worker| worker.worker_id).collect();
    workers.retain(|worker| !known.contains(worker));
    for worker in workers {
        let mut runs = in_flight(node, InFlightFilter { worker: Some(worker.clone()), ..Default::default() }).await?;
        runs.retain(|run| run.dispatched_at < horizon && !node.gateway.sessions.has(&run.execution));
        let lost = runs.into_iter().map(|run| {
            let outcome = Outcome::Lost { error: format!("worker {worker} is not known any more") };
            RunReport::of(run.job, run.execution).ended(now, outcome, node.fraction())
        });
        recorder::end_as_leader(node, term.fence(), lost.collect()).await?;
    }
    Ok(())
}
