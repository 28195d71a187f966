//! Hands out runs to a worker that polls for them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::link::{Assignment, Poll, Polled};
use convoke_core::jobs::wire::{Dispatch, RunRef};
use convoke_core::jobs::{Job, Outcome, RunReport, Status};
use convoke_core::limits::{POLL_JOBS_MAX, TAKE_BYTES_MAX};
use convoke_core::ports::store::Recorded;
use convoke_core::ports::{Consumer, Delivery};
use convoke_core::{Error, ExecutionId, Invalid, JobId, Result, WorkerId};
use tokio::time::Instant;

use super::reclaim;
use super::sessions::Sessions;
use crate::jobs::node::Node;
use crate::jobs::{intake, recorder, telemetry};

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
        let mut taken = reclaim::take(node, &turn.consumers, poll.max).await;
        if taken.is_empty() {
            taken = take(&turn.consumers, 0..turn.consumers.len(), poll.max).await?;
        }
        let jobs = hand_out(node, &poll.worker_id, taken).await?;
        if !jobs.is_empty() || !turn.cancel.is_empty() {
            return Ok(Polled { jobs, cancel: turn.cancel, drain: false });
        }
        let mut look = Instant::now() + reclaim::interval(node);
        // Only the wait can be cut short. A read that was begun is finished, or its entries would be hidden from other
        // workers.
        let taken = loop {
            let place = tokio::select! {
                biased;
                () = &mut wake => break Vec::new(),
                place = intake::ready(&turn.consumers, poll.max) => place?,
                () = tokio::time::sleep_until(deadline) => return Ok(Polled::default()),
                () = node.drain.begun.cancelled() => return Ok(Polled::default()),
                () = tokio::time::sleep_until(look) => {
                    look = Instant::now() + reclaim::interval(node);
                    match reclaim::take(node, &turn.consumers, poll.max).await {
                        taken if taken.is_empty() => continue,
                        taken => break taken,
                    }
                }
            };
            let order = std::iter::once(place).chain((0..turn.consumers.len()).filter(|other| *other != place));
            let taken = take(&turn.consumers, order, poll.max).await?;
            if !taken.is_empty() {
                break taken;
            }
        };
        let jobs = hand_out(node, &poll.worker_id, taken).await?;
        if !jobs.is_empty() {
            return Ok(Polled { jobs, ..Polled::default() });
        }
    }
}

pub type Taken = Vec<(Arc<dyn Consumer>, Vec<Delivery>)>;

/// Reads what the queues hold now, one after the other, until it has `max` runs or the bytes of one read.
async fn take(consumers: &[Arc<dyn Consumer>], mut order: impl Iterator<Item = usize>, max: usize) -> Result<Taken> {
    let (mut taken, mut count, mut bytes) = (Taken::new(), 0, 0);
    while bytes < TAKE_BYTES_MAX {
        match intake::take_from_first(consumers, order.by_ref(), max - count).await {
            Ok(Some((place, deliveries))) => {
                count += deliveries.len();
                bytes += deliveries.iter().map(|delivery| delivery.body.len()).sum::<usize>();
                taken.push((consumers[place].clone(), deliveries));
            }
            // The runs of the other queues are handed out all the same.
            Err(error) if taken.is_empty() => return Err(error),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(taken)
}

async fn hand_out(node: &Node, worker: &WorkerId, taken: Taken) -> Result<Vec<Assignment>> {
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let mut jobs: Vec<Assignment> = Vec::with_capacity(taken.iter().map(|(_, deliveries)| deliveries.len()).sum());
    let (mut early, mut unreadable, mut again) = (Vec::new(), Vec::new(), HashSet::new());
    let mut done = Vec::with_capacity(taken.len());
    for (consumer, deliveries) in taken {
        let mut ids = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            match serde_json::from_slice::<Dispatch>(&delivery.body) {
                Ok(Dispatch { rate_limit, input, job_id, execution_id, .. })
                    if !node.gateway.pace.admits(&input.queue, rate_limit, node.now()) =>
                {
                    early.push(RunRef { job_id, execution_id });
                }
                Ok(dispatch) => {
                    if delivery.deliveries > 1 {
                        again.insert(dispatch.execution_id);
                    }
                    jobs.push(dispatch.into());
                }
                Err(error) => unreadable.push((delivery.body, error)),
            }
            ids.push(delivery.id);
        }
        done.push((consumer, ids));
    }
    release_runs(node, early).await?;
    let jobs = drop_stale(node, worker, jobs, &again).await?;
    // Before anything that waits: the leader must not count these slots as free.
    let now = Instant::now();
    let runs: Vec<RunRef> =
        jobs.iter().map(|job| RunRef { job_id: job.job_id, execution_id: job.execution_id }).collect();
    let known = node.gateway.sessions.hand_out(worker, &runs, now);
    if known {
        node.gateway.hints.taken(runs.iter().map(|run| run.execution_id));
        node.ownership.claims.handed_out(worker, runs, now);
        node.gateway.hints.slots(worker);
    } else {
        release_runs(node, runs).await?;
    }
    for (consumer, ids) in done {
        // From here on the run is the worker's: if the response is lost, its heartbeats will not list it. An entry that
        // could not be acknowledged comes again, and is dropped then because the run has a worker.
        if let Err(error) = consumer.ack(&ids).await {
            node.outages.failed("acknowledging dispatched runs", &error);
        }
    }
    for (body, error) in unreadable {
        telemetry::poison(node, "job.dispatch".into(), body, &error).await;
    }
    if known { Ok(jobs) } else { Err(Error::not_found("worker", worker)) }
}

/// Claims runs in the store that lay on the bus for a while, because they may have been cancelled or released
/// meanwhile, and drops those that the store rejects. The same for a run that was delivered `again`. A run that comes
/// fresh from the leader is not checked.
async fn drop_stale(
    node: &Node,
    worker: &WorkerId,
    mut jobs: Vec<Assignment>,
    again: &HashSet<ExecutionId>,
) -> Result<Vec<Assignment>> {
    let fresh_since = node.now() - FRESH_FOR;
    let over = node.gateway.sessions.over(jobs.iter().map(|job| job.execution_id));
    let is_fresh = |run: ExecutionId| run.minted_at().is_some_and(|at| at >= fresh_since);
    let is_old = |run| !is_fresh(run) || over.contains(&run) || again.contains(&run);
    let old: Vec<&Assignment> = jobs.iter().filter(|job| is_old(job.execution_id)).collect();
    if old.is_empty() {
        return Ok(jobs);
    }
    let ids: Vec<JobId> = old.iter().map(|job| job.job_id).collect();
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
    let mut stale: HashSet<ExecutionId> = taken.iter().map(|(run, _)| run.execution_id).collect();
    let claims = free.iter().map(|(run, _)| {
        let mut claim = RunReport::of(run.job_id, run.execution_id);
        claim.worker = Some(worker.clone());
        claim.owner = node.takes();
        claim
    });
    let recorded = recorder::record(node, claims.collect()).await?;
    let refused = free.iter().zip(recorded).filter(|(_, recorded)| !matches!(recorded, Recorded::Applied(_)));
    stale.extend(refused.map(|((run, _), _)| run.execution_id));
    jobs.retain(|job| !stale.contains(&job.execution_id));
    Ok(jobs)
}

/// Releases unfinished runs of a worker that is gone: they run again at once, and no attempt is counted.
pub async fn release_runs(node: &Node, runs: impl IntoIterator<Item = RunRef>) -> Result<()> {
    let now = node.now();
    let back = runs.into_iter();
    let back =
        back.map(|run| RunReport::of(run.job_id, run.execution_id).ended(now, Outcome::Released, rand::random()));
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
