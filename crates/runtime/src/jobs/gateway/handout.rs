//! Hands out runs to a worker that polls for them.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke_core::jobs::link::{Assignment, Poll, Polled};
use convoke_core::jobs::wire::{Dispatch, RunRef};
use convoke_core::jobs::{Job, Outcome, RunReport, Status};
use convoke_core::limits::POLL_JOBS_MAX;
use convoke_core::ports::store::Recorded;
use convoke_core::{Error, ExecutionId, Invalid, JobId, Result, WorkerId};
use tokio::time::Instant;

use super::inbox::Taken;
use super::sessions::Sessions;
use crate::jobs::node::Node;
use crate::jobs::recorder;

/// A longer wait would outlive proxies; a worker polls again anyway.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A run younger than this is handed out without a check in the store.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Returns runs, a notice for the worker, or nothing once its wait is over.
pub async fn poll(node: &Node, poll: Poll) -> Result<Polled> {
    if poll.max > POLL_JOBS_MAX {
        let message = format!("expected 0 to {POLL_JOBS_MAX}, got {}", poll.max);
        return Err(Invalid::new("max", message).into());
    }
    // A poll that was waiting when the drain began returns nothing; a later one must go to another node.
    node.ensure_accepting()?;
    let deadline = Instant::now() + poll.wait.min(WAIT_MAX);
    loop {
        super::link::ensure_known(node, &poll.worker_id).await?;
        let unknown = || Error::not_found("worker", &poll.worker_id);
        // Armed before any state is read, so that a cancellation that comes now is not missed.
        let bell = node.gateway.sessions.bell(&poll.worker_id).ok_or_else(unknown)?;
        let wake = bell.notified();
        tokio::pin!(wake);
        wake.as_mut().enable();
        let turn = node.gateway.sessions.turn(&poll.worker_id, poll.max).ok_or_else(unknown)?;
        let _parked = Parked { sessions: &node.gateway.sessions, worker: &poll.worker_id, max: poll.max };
        let jobs = hand_out(node, &poll.worker_id, node.gateway.inbox.take(&turn.queues, poll.max)).await?;
        if !jobs.is_empty() || !turn.cancel.is_empty() {
            return Ok(Polled { jobs, cancel: turn.cancel, drain: false });
        }
        loop {
            // The runs that wait here are released.
            if node.drain.begun.is_cancelled() {
                return Ok(Polled::default());
            }
            // Entered before it takes, so that a run that comes in between wakes it.
            let waiting = node.gateway.inbox.poll(&turn.queues, poll.max);
            let taken = node.gateway.inbox.take(&turn.queues, poll.max);
            if !taken.is_empty() {
                let jobs = hand_out(node, &poll.worker_id, taken).await?;
                if !jobs.is_empty() {
                    return Ok(Polled { jobs, ..Polled::default() });
                }
                continue;
            }
            tokio::select! {
                biased;
                () = &mut wake => break,
                () = waiting.woken() => {}
                () = tokio::time::sleep_until(deadline) => return Ok(Polled::default()),
                () = node.drain.begun.cancelled() => return Ok(Polled::default()),
            }
        }
    }
}

/// Gives runs to a worker. If it fails, or if the poll is dropped meanwhile, they go back to the inbox.
async fn hand_out(node: &Node, worker: &WorkerId, taken: Taken<'_>) -> Result<Vec<Assignment>> {
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let now = node.now();
    let early: Vec<RunRef> = taken
        .iter()
        .filter(|(run, _)| !node.gateway.pace.admits(&run.input.queue, run.rate_limit, now))
        .map(|(run, _)| RunRef { job_id: run.job_id, execution_id: run.execution_id })
        .collect();
    let mut dropped: BTreeSet<ExecutionId> = early.iter().map(|run| run.execution_id).collect();
    release_runs(node, early).await?;
    let stale = stale(node, worker, taken.iter().filter(|(run, _)| !dropped.contains(&run.execution_id))).await?;
    dropped.extend(stale);
    // Before they leave the inbox: the leader must not count these slots as free.
    let now = Instant::now();
    let kept = taken.iter().map(|(run, _)| RunRef { job_id: run.job_id, execution_id: run.execution_id });
    let kept: Vec<RunRef> = kept.filter(|run| !dropped.contains(&run.execution_id)).collect();
    if !node.gateway.sessions.hand_out(worker, &kept, now) {
        return Err(Error::not_found("worker", worker));
    }
    node.ownership.claims.handed_out(worker, kept, now);
    let jobs = taken.hand_out().into_iter().filter(|run| !dropped.contains(&run.execution_id)).map(Assignment::from);
    let jobs = jobs.collect();
    node.gateway.hints.slots(worker);
    // From here on the runs are the worker's: if the response is lost, its heartbeats will not list them.
    Ok(jobs)
}

/// Claims runs in the store that waited for a while, because they may have been cancelled or released meanwhile, and
/// returns those that the store rejects. The same for doubtful ones. A run that comes fresh from the leader is not
/// checked.
async fn stale(
    node: &Node,
    worker: &WorkerId,
    runs: impl Iterator<Item = (&Dispatch, bool)>,
) -> Result<BTreeSet<ExecutionId>> {
    let fresh_since = node.now() - FRESH_FOR;
    let is_fresh = |run: ExecutionId| run.minted_at().is_some_and(|at| at >= fresh_since);
    let runs: Vec<(RunRef, bool)> = runs
        .map(|(run, is_doubtful)| (RunRef { job_id: run.job_id, execution_id: run.execution_id }, is_doubtful))
        .collect();
    let over = node.gateway.sessions.over(runs.iter().map(|(run, _)| run.execution_id));
    let is_old = |(run, is_doubtful): &(RunRef, bool)| {
        *is_doubtful || !is_fresh(run.execution_id) || over.contains(&run.execution_id)
    };
    let old: Vec<RunRef> = runs.into_iter().filter(is_old).map(|(run, _)| run).collect();
    if old.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ids: Vec<JobId> = old.iter().map(|run| run.job_id).collect();
    let stored = node.store().get(&ids).await?;
    let is_free = |job: &Job, execution| {
        job.execution_id == Some(execution)
            && job.status == Status::Dispatched
            && job.worker_id.as_ref().is_none_or(|holder| holder == worker)
    };
    let (free, taken): (Vec<_>, Vec<_>) = old
        .into_iter()
        .zip(stored)
        .partition(|(run, job)| job.as_ref().is_some_and(|job| is_free(job, run.execution_id)));
    let mut stale: BTreeSet<ExecutionId> = taken.iter().map(|(run, _)| run.execution_id).collect();
    let claims = free.iter().map(|(run, _)| {
        let mut claim = RunReport::of(run.job_id, run.execution_id);
        claim.worker = Some(worker.clone());
        claim.owner = node.takes();
        claim
    });
    let recorded = recorder::record(node, claims.collect()).await?;
    let refused = free.iter().zip(recorded).filter(|(_, recorded)| !matches!(recorded, Recorded::Applied(_)));
    stale.extend(refused.map(|((run, _), _)| run.execution_id));
    Ok(stale)
}

/// Releases runs that no worker of this node will finish: they run again at once, and no attempt is counted.
pub async fn release_runs(node: &Node, runs: impl IntoIterator<Item = RunRef>) -> Result<()> {
    let now = node.now();
    let back = runs.into_iter();
    let back =
        back.map(|run| RunReport::of(run.job_id, run.execution_id).ended(now, Outcome::Released, node.fraction()));
    recorder::record(node, back.collect()).await.map(|_| ())
}

/// Counts a poll as waiting until it is dropped, also if its connection is cut.
struct Parked<'a> {
    sessions: &'a Sessions,
    worker: &'a WorkerId,
    max: usize,
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.sessions.unpark(self.worker, self.max);
    }
}
