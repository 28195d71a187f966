//! Declares silent workers dead and their runs lost: each counts as an attempt, and runs again at once if it may.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::jobs::event::{Happening, WorkerChange};
use convoke_core::jobs::wire::{WorkerHeartbeat, WorkerState};
use convoke_core::jobs::{Outcome, RunReport};
use convoke_core::ports::store::WorkerRecord;
use jiff::Timestamp;
use tracing::warn;

use crate::election::Term;
use crate::jobs::gateway::runs_of;
use crate::jobs::node::Node;
use crate::jobs::recorder;

pub async fn run(node: Arc<Node>, term: Term) {
    let stale_after = node.settings.worker.stale_after;
    let interval = (stale_after / 10).clamp(Duration::from_millis(20), super::LOOK_INTERVAL);
    let since = node.now();
    while term.sleep(interval).await {
        if let Err(error) = bury_the_dead(&node, &term, since, stale_after).await {
            super::note(&term, "dead workers", &error);
        }
    }
}

async fn bury_the_dead(node: &Node, term: &Term, since: Timestamp, stale_after: Duration) -> Result<()> {
    let now = node.now();
    for worker in node.store().workers().await? {
        // A worker had nobody to beat to while nobody led: its silence counts from this term's beginning at the earliest.
        let heard = worker.last_heartbeat_at.max(since);
        if heard + stale_after < now && !node.sessions.is_alive(&worker.worker_id, stale_after) {
            let id = worker.worker_id.clone();
            node.sessions.bar(&id);
            let buried = bury(node, term, worker, now).await;
            node.sessions.unbar(&id);
            buried?;
        }
    }
    Ok(())
}

async fn bury(node: &Node, term: &Term, worker: WorkerRecord, now: Timestamp) -> Result<()> {
    let id = worker.worker_id.clone();
    let mut runs = runs_of(node, &id).await?;
    if let Some((own, _)) = node.sessions.leave(&id, now) {
        runs.extend(own);
        runs.sort_by_key(|run| run.execution_id);
        runs.dedup();
    }
    warn!(worker = %id, runs = runs.len(), last_heartbeat_at = %worker.last_heartbeat_at, "a worker is dead");
    // Before its runs are lost, or they would be dispatched to its slots again.
    node.hints.gone(WorkerHeartbeat {
        v: Default::default(),
        worker_id: id.clone(),
        queues: worker.queues.clone(),
        running: 0,
        free: 0,
        state: WorkerState::Gone,
        at: now,
    });
    let lost = || Outcome::Lost { error: format!("worker {id} stopped beating") };
    let reports = runs.into_iter().map(|run| {
        let mut report = RunReport::of(run.job_id, run.execution_id).ended(now, lost(), rand::random());
        report.worker = Some(id.clone());
        report
    });
    recorder::judge(node, term.fence(), reports.collect()).await?;
    node.store().remove_workers(Some(term.fence()), std::slice::from_ref(&id)).await?;
    node.tell(Happening::Worker { change: WorkerChange::Dead, worker_id: id });
    Ok(())
}
