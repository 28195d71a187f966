//! Finds runs that were handed out to a worker that does not have them: the response to its poll was lost, or it was
//! restarted under its id.
//!
//! A worker that sends heartbeats lists its runs, and a run that two of its heartbeats do not list is lost. For a
//! worker that only polls and reports, these are the rules:
//!
//! | what it did | which of its runs are lost |
//! | --- | --- |
//! | it registered again | those handed out before that, and named by no report or heartbeat for `stale_after` since |
//! | its polls ask for as many runs as it has slots | those not named for `stale_after` |
//!
//! Runs that another node handed out are known from the store, which is read when a worker comes to this node.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke_core::jobs::unlisted::lost_reports;
use convoke_core::jobs::wire::RunRef;
use convoke_core::ports::store::InFlightFilter;
use convoke_core::{ExecutionId, Result, WorkerId};
use tokio::time::Instant;
use tracing::info;

use super::{Inner, Session, Sessions};
use crate::jobs::gateway::runs_of;
use crate::jobs::node::Node;
use crate::jobs::recorder;
use crate::jobs::views::in_flight;

impl Session {
    /// Returns the time now if its polls ask for as many runs as it has slots. A worker that sends heartbeats lists its
    /// runs itself.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.last_heartbeat.is_none() && self.asked >= self.record.concurrency as usize;
        is_idle.then(Instant::now)
    }
}

impl Sessions {
    /// Ends the time in which polls count as heartbeats of these workers.
    pub fn expect_heartbeats<'a>(&self, workers: impl IntoIterator<Item = &'a WorkerId>) {
        let mut inner = self.inner.lock();
        for worker in workers {
            if let Some(session) = inner.workers.get_mut(worker) {
                session.last_heartbeat.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Returns the worker of this node that has the run.
    pub fn worker_of(&self, execution: &ExecutionId) -> Option<WorkerId> {
        self.inner.lock().runs.get(execution).map(|run| run.worker.clone())
    }

    /// Records that a worker reports on these runs.
    pub fn name(&self, worker: &WorkerId, executions: impl Iterator<Item = ExecutionId>) {
        let mut inner = self.inner.lock();
        let Inner { workers, runs, .. } = &mut *inner;
        let Some(session) = workers.get(worker) else { return };
        for execution in executions {
            if let Some(run) = runs.get_mut(&execution).filter(|run| run.worker == *worker) {
                (run.named, run.registration) = (Instant::now(), session.registrations);
            }
        }
    }

    /// Enters runs that were handed out to a worker before it last registered.
    fn expect(&self, worker: &WorkerId, expected: &[RunRef]) {
        self.hand_out(worker, expected, Instant::now());
        let mut inner = self.inner.lock();
        let Inner { workers, runs, .. } = &mut *inner;
        let Some(session) = workers.get(worker) else { return };
        for expected in expected {
            if let Some(run) = runs.get_mut(&expected.execution_id) {
                run.registration = session.registrations.saturating_sub(1);
            }
        }
    }

    /// Returns runs that their workers do not have, by worker.
    fn unnamed(&self, stale_after: Duration) -> Vec<(WorkerId, Vec<RunRef>)> {
        let inner = self.inner.lock();
        let mut unnamed = Vec::new();
        for (worker, session) in &inner.workers {
            let idle_at = session.idle_since().or(session.idle_at.filter(|_| session.last_heartbeat.is_none()));
            let had_time = session.registered.elapsed() >= stale_after;
            let runs = session.runs.iter().filter_map(|execution| {
                let run = inner.runs.get(execution)?;
                let left_behind = had_time && run.registration < session.registrations;
                let never_came = idle_at.is_some_and(|idle_at| idle_at >= run.named + stale_after);
                (left_behind || never_came).then_some(RunRef { job_id: run.job, execution_id: *execution })
            });
            let runs: Vec<RunRef> = runs.collect();
            if !runs.is_empty() {
                unnamed.push((worker.clone(), runs));
            }
        }
        unnamed
    }
}

/// Enters the runs that a worker has by the store and that this node does not know of.
pub async fn expect_stored(node: &Node, worker: &WorkerId) -> Result<()> {
    let mut runs = runs_of(node, worker).await?;
    runs.retain(|run| !node.gateway.sessions.has(&run.execution_id));
    node.gateway.sessions.expect(worker, &runs);
    Ok(())
}

pub(super) async fn lose_unnamed(node: &Node) -> Result<()> {
    for (worker, runs) in node.gateway.sessions.unnamed(node.settings.worker.stale_after) {
        lose(node, &worker, runs).await?;
    }
    Ok(())
}

/// Ends runs of a worker that registered anew with another node, and that no other node has taken over.
pub(super) async fn lose_left_behind(node: &Node, worker: &WorkerId, runs: &[RunRef]) -> Result<()> {
    let filter = InFlightFilter { worker: Some(worker.clone()), owner: Some(node.id.clone()), ..Default::default() };
    let stored: BTreeSet<ExecutionId> = in_flight(node, filter).await?.into_iter().map(|run| run.execution).collect();
    let left: Vec<RunRef> = runs.iter().filter(|run| stored.contains(&run.execution_id)).copied().collect();
    if left.is_empty() { Ok(()) } else { lose(node, worker, left).await }
}

async fn lose(node: &Node, worker: &WorkerId, runs: Vec<RunRef>) -> Result<()> {
    info!(%worker, runs = runs.len(), "worker does not list runs that it was given");
    let error =
        format!("worker {worker} lost the run: it registered again or polled for all its slots without naming it");
    recorder::record(node, lost_reports(worker, runs, &error, node.now(), || node.fraction())).await.map(|_| ())
}
