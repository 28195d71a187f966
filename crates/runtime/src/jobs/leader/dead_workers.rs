//! Declares silent workers dead and their runs lost: each counts as an attempt, and runs again at once if it may.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::event::{ClusterEvent, WorkerChange};
use convoke_core::jobs::unlisted::lost_reports;
use convoke_core::jobs::wire::{WorkerHeartbeat, WorkerState};
use convoke_core::mutant::mutant;
use convoke_core::ports::store::WorkerRecord;
use convoke_core::{Result, WorkerId};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::warn;

use super::LeaderState;
use super::bus_workers::last_taken;
use super::group_readers::is_reader;
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::gateway::runs_of;
use crate::jobs::recorder;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<Every>) -> Result<()> {
    let (stale_after, interval) = (leader.node.settings.worker.stale_after, run.interval());
    let (mut since, mut checked) = (Instant::now(), Instant::now());
    let mut signs = Signs::default();
    while run.next().await {
        // A process that was paused must first receive the messages of its workers.
        if checked.elapsed() > interval + stale_after / 3 {
            since = Instant::now();
        }
        checked = Instant::now();
        if let Err(error) = declare_dead_workers(&leader, since, stale_after, &mut signs).await {
            run.failed("dead workers", &error);
        }
    }
    Ok(())
}

/// When the leader saw a worker's last sign of life in the store change. Nodes write it by their own clocks, which may
/// be minutes apart: it is compared with itself, never with the time.
#[derive(Default)]
struct Signs(BTreeMap<WorkerId, (Timestamp, Instant)>);

impl Signs {
    /// Records the present workers; forgets the others.
    fn see(&mut self, workers: &[WorkerRecord]) {
        let (mut before, now) = (std::mem::take(&mut self.0), Instant::now());
        for WorkerRecord { worker_id, last_heartbeat_at, .. } in workers {
            let known = before.remove(worker_id).filter(|(at, _)| at == last_heartbeat_at);
            self.0.insert(worker_id.clone(), known.unwrap_or((*last_heartbeat_at, now)));
        }
    }

    fn unchanged_for(&self, worker: &WorkerId) -> Duration {
        self.0.get(worker).map_or(Duration::ZERO, |(_, seen)| seen.elapsed())
    }
}

async fn declare_dead_workers(
    leader: &LeaderState,
    since: Instant,
    stale_after: Duration,
    signs: &mut Signs,
) -> Result<()> {
    let LeaderState { node, bus_workers, .. } = leader;
    let now = node.now();
    let workers = node.store().workers().await?;
    signs.see(&workers);
    // A worker had no leader to send heartbeats to during a vacancy: its silence counts from the start of the term at
    // the earliest.
    if since.elapsed() < stale_after {
        return Ok(());
    }
    for worker in workers {
        let written = signs.unchanged_for(&worker.worker_id);
        let silent = match node.gateway.sessions.silent_for(&worker.worker_id) {
            // The silence of a worker on the bus counts only while the leader could receive its heartbeats.
            _ if worker.via.is_none() => bus_workers.silent_for(&worker.worker_id),
            // It may be connected to another node by now.
            Some(silent) => silent.min(written),
            None => written,
        };
        if silent > bus_workers.silence_limit(&worker.worker_id, stale_after) {
            let _barred = node.gateway.sessions.bar(&worker.worker_id);
            declare_dead(leader, worker, now).await?;
        }
    }
    Ok(())
}

async fn declare_dead(leader: &LeaderState, worker: WorkerRecord, now: Timestamp) -> Result<()> {
    let LeaderState { node, term, bus_workers, group_readers, .. } = leader;
    let id = worker.worker_id.clone();
    let mut runs = runs_of(node, &id).await?;
    if let Some((own, _)) = node.gateway.sessions.leave(&id, now) {
        runs.extend(own);
    }
    bus_workers.forget(&id);
    group_readers.leave(&id);
    if worker.via.is_none() {
        runs.extend(last_taken(leader, &worker).await?);
    }
    runs.sort_by_key(|run| run.execution_id);
    runs.dedup();
    warn!(worker = %id, runs = runs.len(), last_heartbeat_at = %worker.last_heartbeat_at, "worker declared dead");
    // Before its runs are lost, or they would be dispatched to its slots again.
    node.gateway.hints.gone(WorkerHeartbeat {
        v: Default::default(),
        worker_id: id.clone(),
        queues: worker.queues.clone(),
        running: 0,
        free: 0,
        state: WorkerState::Gone,
        at: now,
        name: None,
        concurrency: None,
        via: worker.via.clone(),
        executions: None,
        inbox: None,
    });
    let silence = if is_reader(&worker) { "reading" } else { "sending heartbeats" };
    if mutant("lost runs run again") {
        runs.clear();
    }
    let reports = lost_reports(&id, runs, &format!("worker {id} stopped {silence}"), now, || node.fraction());
    recorder::end_as_leader(node, term.fence(), reports).await?;
    let _writing = node.gateway.sessions.registry.lock().await;
    node.store().remove_workers(Some(term.fence()), std::slice::from_ref(&id)).await?;
    node.views.cache.worker_changed(&id);
    node.publish_event(ClusterEvent::Worker { change: WorkerChange::Dead, worker_id: id });
    Ok(())
}
