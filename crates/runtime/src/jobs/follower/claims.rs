//! The runs that this node records, and the delayed write of its claims.
//!
//! A claim is in memory first. A run that ends within [`WRITE_AFTER`] is written once, with its end; only a run that
//! goes on gets a row write with its owner and its worker. If the node dies in between, the run has no known owner or
//! worker, and the leader's reconciler makes its job pending again. While events wait for the store, the end of most
//! young runs is among them, and claims are written later: a write for each would delay the ends further.
//!
//! A run for a worker of this node's gateway has its owner from the dispatch on, and is claimed here when it is handed
//! out. Runs of workers on the bus are claimed by the node that reads their assignment; if another node was faster, that
//! is found when the claim is written, or by the [`audit`](super::audit).
//!
//! Claims are by run, channels by job: two runs of one job may be claimed at once, the ended one until this node learns of
//! its end. The channels of a job are read as long as one of its claims listens. They are added and removed one after the
//! other, so that the end of one claim cannot undo the beginning of another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_core::jobs::deadline;
use convoke_core::jobs::wire::RunRef;
use convoke_core::jobs::{Claim as Owner, RunReport};
use convoke_core::{ExecutionId, JobId, Result, WorkerId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Ownership;
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::recorder;

/// After this long a run's channels are read, unless it was handed out here: then its worker reports through the
/// gateway.
const LISTEN_AFTER: Duration = Duration::from_millis(50);
/// If an entry came by a channel lately, workers use the bus, and the channels of a run are read at once.
const LISTEN_AT_ONCE_FOR: Duration = Duration::from_secs(60);
/// After this long a claim is written.
const WRITE_AFTER: Duration = Duration::from_millis(200);
/// The same while events wait for the store; less if workers are soon declared dead.
const WRITE_AFTER_BEHIND: Duration = Duration::from_secs(1);
/// A claim is written within this part of `worker.stale_after`, after which runs without a claim are released.
const STALE_SHARE: u32 = 8;
/// How often claims are scanned.
pub const MAINTAIN_INTERVAL: Duration = Duration::from_millis(50);
const BATCH_MAX: usize = 1_000;

#[derive(Default)]
pub struct Claims {
    inner: Mutex<Inner>,
    released: Notify,
    /// Held while channels are added or removed.
    changing: tokio::sync::Mutex<()>,
    /// Events that were read wait for the store.
    is_behind: AtomicBool,
}

#[derive(Default)]
struct Inner {
    claims: BTreeMap<ExecutionId, Claim>,
    /// Claims that are not settled, oldest first. Claims that ended meanwhile are skipped.
    young: VecDeque<(Instant, ExecutionId)>,
    listening: VecDeque<(Instant, ExecutionId)>,
    /// The claims of each job that need its channels; none of them is empty.
    readers: BTreeMap<JobId, Vec<ExecutionId>>,
    /// Jobs whose channels are read although no claim needs them any more.
    unneeded: BTreeSet<JobId>,
    heard_channel_at: Option<Instant>,
}

struct Claim {
    job: JobId,
    worker: Option<WorkerId>,
    by_gateway: bool,
    since: Instant,
    handed_out: Option<Instant>,
    listens: bool,
    written: bool,
}

impl Claims {
    /// Claims the events of `runs`.
    pub fn assigned(&self, runs: &[RunRef], now: Instant) {
        let mut inner = self.inner.lock();
        for run in runs {
            inner.enter(run.execution_id, run.job_id, now);
        }
    }

    /// Records that this node's gateway gave `runs` to `worker`.
    pub fn handed_out(&self, worker: &WorkerId, runs: impl IntoIterator<Item = RunRef>, now: Instant) {
        let mut inner = self.inner.lock();
        for run in runs {
            let claim = inner.enter(run.execution_id, run.job_id, now);
            claim.worker = Some(worker.clone());
            claim.by_gateway = true;
            claim.handed_out = Some(now);
            // It was claimed without a worker before.
            if std::mem::take(&mut claim.written) {
                inner.young.push_back((now, run.execution_id));
            }
        }
    }

    /// Adds a claim that the store has already, of a run whose worker reports through this node's gateway: nothing is
    /// left to write.
    pub fn adopted(&self, run: RunRef, worker: WorkerId, now: Instant) {
        let mut inner = self.inner.lock();
        let claim = inner.enter(run.execution_id, run.job_id, now);
        (claim.worker, claim.by_gateway, claim.written) = (Some(worker), true, true);
    }

    /// Adds a claim that the store has already: taken from another node, or owned before a restart. Its channels are to
    /// be read.
    pub fn inherited(&self, runs: &[RunRef], now: Instant) {
        let mut inner = self.inner.lock();
        for run in runs {
            inner.enter(run.execution_id, run.job_id, now).written = true;
        }
    }

    /// Records that an entry came by a job's channel.
    pub fn mark_channel_read(&self, now: Instant) {
        self.inner.lock().heard_channel_at = Some(now);
    }

    /// Records whether events that were read wait for the store.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }

    /// Returns how old a claim is when it is written.
    fn write_after(&self, stale_after: Duration) -> Duration {
        if self.is_behind.load(Ordering::Relaxed) {
            WRITE_AFTER_BEHIND.min(stale_after / STALE_SHARE).max(WRITE_AFTER)
        } else {
            WRITE_AFTER
        }
    }

    /// Drops the claim of a run that has ended or belongs to another node.
    fn release(&self, execution: &ExecutionId) {
        let mut inner = self.inner.lock();
        let Some(claim) = inner.claims.remove(execution) else { return };
        if claim.listens {
            inner.stop_reading(claim.job, execution);
        }
        drop(inner);
        self.released.notify_waiters();
    }

    /// Returns the runs of a job whose claims need its channels.
    fn readers_of(&self, job: JobId) -> Vec<RunRef> {
        let inner = self.inner.lock();
        let readers = inner.readers.get(&job).into_iter().flatten();
        readers.map(|execution| RunRef { job_id: job, execution_id: *execution }).collect()
    }

    /// Returns the jobs whose channels this node reads.
    pub fn jobs_read(&self) -> Vec<JobId> {
        self.inner.lock().readers.keys().copied().collect()
    }

    fn has_unneeded(&self) -> bool {
        !self.inner.lock().unneeded.is_empty()
    }

    fn unneeded(&self) -> Vec<JobId> {
        self.inner.lock().unneeded.iter().copied().collect()
    }

    fn removed(&self, jobs: &[JobId]) {
        let mut inner = self.inner.lock();
        jobs.iter().for_each(|job| {
            inner.unneeded.remove(job);
        });
    }

    /// Completes when a claim was released after this was called.
    pub fn released(&self) -> tokio::sync::futures::Notified<'_> {
        self.released.notified()
    }

    pub fn len(&self) -> usize {
        self.inner.lock().claims.len()
    }

    pub fn has(&self, execution: &ExecutionId) -> bool {
        self.inner.lock().claims.contains_key(execution)
    }

    pub fn all(&self) -> Vec<RunRef> {
        self.inner.lock().refs(|_| true, usize::MAX)
    }

    /// Returns at most `max` runs that can be moved: written, and read from their channels.
    pub fn movable(&self, max: usize) -> Vec<RunRef> {
        self.inner.lock().refs(|claim| claim.written && !claim.by_gateway, max)
    }

    /// Returns written claims from before `before` that are not among those that the store has for this node.
    pub fn unknown_to(&self, held: &BTreeSet<ExecutionId>, before: Instant) -> Vec<RunRef> {
        let inner = self.inner.lock();
        let unknown = inner
            .claims
            .iter()
            .filter(|(execution, claim)| claim.written && claim.since < before && !held.contains(execution));
        unknown.map(|(execution, claim)| RunRef { job_id: claim.job, execution_id: *execution }).collect()
    }

    /// Returns claims that are due to be written, as reports.
    fn unwritten(&self, before: Instant, node: &Node) -> Vec<RunReport> {
        let mut inner = self.inner.lock();
        let mut reports = Vec::new();
        while reports.len() < BATCH_MAX && inner.young.front().is_some_and(|(at, _)| *at <= before) {
            let Some((_, execution)) = inner.young.pop_front() else { break };
            if let Some(claim) = inner.claims.get_mut(&execution).filter(|claim| !claim.written) {
                claim.written = true;
                let mut report = RunReport::of(claim.job, execution);
                report.worker = claim.worker.clone();
                let own = node.id.clone();
                report.owner = Some(if claim.by_gateway { Owner::Take(own) } else { Owner::IfFree(own) });
                let now = node.now();
                report.handed_out_at =
                    claim.handed_out.map(|at| deadline::happened_at(execution, now - at.elapsed(), now));
                reports.push(report);
            }
        }
        reports
    }

    /// Returns jobs whose channels should be read from now on.
    fn unsubscribed_jobs(&self, now: Instant) -> Vec<JobId> {
        let mut inner = self.inner.lock();
        let at_once = inner.heard_channel_at.is_some_and(|at| at + LISTEN_AT_ONCE_FOR > now);
        let before = if at_once { now } else { now - LISTEN_AFTER };
        let mut jobs = Vec::new();
        while inner.listening.front().is_some_and(|(at, _)| *at <= before) {
            let Some((_, execution)) = inner.listening.pop_front() else { break };
            let Inner { claims, readers, unneeded, .. } = &mut *inner;
            if let Some(claim) = claims.get_mut(&execution).filter(|claim| !claim.by_gateway && !claim.listens) {
                claim.listens = true;
                readers.entry(claim.job).or_default().push(execution);
                unneeded.remove(&claim.job);
                jobs.push(claim.job);
            }
        }
        jobs
    }

    /// Schedules another attempt for jobs whose channels could not be added.
    fn retry_subscribe(&self, jobs: &[JobId], now: Instant) {
        let mut inner = self.inner.lock();
        let Inner { claims, listening, readers, .. } = &mut *inner;
        for execution in jobs.iter().filter_map(|job| readers.remove(job)).flatten() {
            if let Some(claim) = claims.get_mut(&execution) {
                claim.listens = false;
                listening.push_back((now, execution));
            }
        }
    }

    /// Writing failed: retries with the next batch.
    fn unwrite(&self, reports: &[RunReport], now: Instant) {
        let mut inner = self.inner.lock();
        for report in reports {
            if let Some(claim) = inner.claims.get_mut(&report.execution) {
                claim.written = false;
                inner.young.push_back((now, report.execution));
            }
        }
    }
}

impl Claim {
    fn new(job: JobId, now: Instant) -> Self {
        Claim { job, worker: None, by_gateway: false, since: now, handed_out: None, listens: false, written: false }
    }
}

impl Inner {
    fn enter(&mut self, execution: ExecutionId, job: JobId, now: Instant) -> &mut Claim {
        let Inner { claims, young, listening, .. } = self;
        claims.entry(execution).or_insert_with(|| {
            young.push_back((now, execution));
            listening.push_back((now, execution));
            Claim::new(job, now)
        })
    }

    fn stop_reading(&mut self, job: JobId, execution: &ExecutionId) {
        let Some(readers) = self.readers.get_mut(&job) else { return };
        readers.retain(|reader| reader != execution);
        if readers.is_empty() {
            self.readers.remove(&job);
            self.unneeded.insert(job);
        }
    }

    fn refs(&self, which: impl Fn(&Claim) -> bool, max: usize) -> Vec<RunRef> {
        let chosen = self.claims.iter().filter(|(_, claim)| which(claim)).take(max);
        chosen.map(|(execution, claim)| RunRef { job_id: claim.job, execution_id: *execution }).collect()
    }
}

/// Writes the claims of runs that last, and reads their channels; at the end writes the remaining ones.
pub async fn maintain_claims(node: Arc<Node>, mut run: DutyRun<Every>) -> Result<()> {
    loop {
        let goes_on = run.next().await;
        listen(&node, &node.ownership).await;
        let write_after = node.ownership.claims.write_after(node.settings.worker.stale_after);
        persist_claims(&node, if goes_on { write_after } else { Duration::ZERO }).await;
        if !goes_on {
            return Ok(());
        }
    }
}

/// Writes the claims that are at least `after` old.
pub async fn persist_claims(node: &Node, after: Duration) {
    let before = Instant::now() - after;
    loop {
        let reports = node.ownership.claims.unwritten(before, node);
        if reports.is_empty() {
            return;
        }
        if let Err(error) = recorder::record(node, reports.clone()).await {
            node.outages.failed("run ownership", &error);
            node.ownership.claims.unwrite(&reports, Instant::now());
            return;
        }
    }
}

/// Adds the channels of runs that are due, and removes those that no claim needs.
pub async fn listen(node: &NodeBase, ownership: &Ownership) {
    let _changing = ownership.claims.changing.lock().await;
    // Removed first: a job that runs again is then read from the beginning.
    stop_listening(node, ownership).await;
    let now = Instant::now();
    let jobs = ownership.claims.unsubscribed_jobs(now);
    if jobs.is_empty() {
        return;
    }
    if let Err(error) = ownership.job_channels.add(&node.channels.of_jobs(&jobs)).await {
        node.outages.failed("job channels", &error);
        ownership.claims.retry_subscribe(&jobs, now);
    }
}

/// Adds the channels of every run that needs them once more, which changes nothing for those that are read already.
pub async fn listen_to_all(node: &NodeBase, ownership: &Ownership) {
    listen(node, ownership).await;
    let _changing = ownership.claims.changing.lock().await;
    if let Err(error) = ownership.job_channels.add(&node.channels.of_jobs(&ownership.claims.jobs_read())).await {
        node.outages.failed("job channels", &error);
    }
}

/// Drops the claims of runs that have ended, or that another node owns by now.
pub async fn drop_claims(node: &NodeBase, ownership: &Ownership, runs: impl IntoIterator<Item = RunRef>) {
    runs.into_iter().for_each(|run| ownership.claims.release(&run.execution_id));
    if ownership.claims.has_unneeded() {
        let _changing = ownership.claims.changing.lock().await;
        stop_listening(node, ownership).await;
    }
}

/// Drops all claims of jobs that another node owns: their runs have ended. Entries of such a job that were read and
/// left for its owner are read again if this node comes to own it.
pub async fn drop_claims_of_jobs(node: &NodeBase, ownership: &Ownership, jobs: impl IntoIterator<Item = JobId>) {
    let runs: Vec<RunRef> = jobs.into_iter().flat_map(|job| ownership.claims.readers_of(job)).collect();
    drop_claims(node, ownership, runs).await;
}

async fn stop_listening(node: &NodeBase, ownership: &Ownership) {
    let jobs = ownership.claims.unneeded();
    if jobs.is_empty() {
        return;
    }
    match ownership.job_channels.remove(&node.channels.of_jobs(&jobs)).await {
        Ok(()) => ownership.claims.removed(&jobs),
        Err(error) => node.outages.failed("job channels", &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_events_wait_for_the_store_claims_are_written_later_but_before_runs_count_as_unclaimed() {
        let claims = Claims::default();
        let stale_after = Duration::from_secs(30);
        assert_eq!(claims.write_after(stale_after), WRITE_AFTER);
        claims.set_behind(true);
        assert_eq!(claims.write_after(stale_after), WRITE_AFTER_BEHIND);
        assert_eq!(claims.write_after(Duration::from_secs(4)), Duration::from_millis(500));
        assert_eq!(claims.write_after(Duration::from_millis(500)), WRITE_AFTER, "never earlier than usual");
        claims.set_behind(false);
        assert_eq!(claims.write_after(stale_after), WRITE_AFTER);
    }
}
