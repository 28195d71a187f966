//! Which runs this node records, and the lazy writing down of it.
//!
//! A claim is first only remembered. A run that ends within [`WRITE_AFTER`] is written once, with its end; only one that
//! goes on gets a row write that says who owns it and which worker has it. Should the node die in between, the run is
//! one that nobody is known to have picked up, and the leader's reconciler gives it another.
//!
//! Of a run that another node's gateway handed out, the claim is dropped as soon as that node says so: it owns the run. What
//! is heard too late is found when the claim is written, or by the [`audit`](super::audit).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::RunRef;
use convoke_core::jobs::{Claim as Owner, RunReport};
use convoke_core::{ExecutionId, JobId, WorkerId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::jobs::node::Node;
use crate::jobs::recorder;

/// After so long a run's channels are listened to, unless it was handed out here: then it speaks through the gateway.
const LISTEN_AFTER: Duration = Duration::from_millis(50);
/// Where something came by a channel lately, workers speak the bus, and runs are listened to at once.
const LISTEN_AT_ONCE_FOR: Duration = Duration::from_secs(60);
/// After so long a claim is written down.
const WRITE_AFTER: Duration = Duration::from_millis(200);
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);
const BATCH_MAX: usize = 1_000;
/// How long it is remembered that another node has a run whose assignment may still be on its way here.
const TAKEN_FOR: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Claims {
    inner: Mutex<Inner>,
    released: Notify,
}

#[derive(Default)]
struct Inner {
    claims: HashMap<ExecutionId, Claim>,
    /// Claims that are not settled, oldest first. Those that ended meanwhile are skipped.
    young: VecDeque<(Instant, ExecutionId)>,
    listening: VecDeque<(Instant, ExecutionId)>,
    /// Runs that other nodes' gateways handed out.
    taken: HashSet<ExecutionId>,
    taken_since: VecDeque<(Instant, ExecutionId)>,
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
    /// This node owns the events of `runs`, where no other has them.
    pub fn assigned(&self, runs: &[RunRef], now: Instant) {
        let mut inner = self.inner.lock();
        for run in runs {
            if !inner.taken.contains(&run.execution_id) {
                inner.enter(run.execution_id, run.job_id, now);
            }
        }
    }

    /// This node's gateway gave `runs` to `worker`.
    pub fn handed_out(&self, worker: &WorkerId, runs: impl IntoIterator<Item = RunRef>, now: Instant) {
        let mut inner = self.inner.lock();
        for run in runs {
            let claim = inner.enter(run.execution_id, run.job_id, now);
            claim.worker = Some(worker.clone());
            claim.by_gateway = true;
            claim.handed_out = Some(now);
            // It waited on the bus for so long that it was written down without a worker.
            if std::mem::take(&mut claim.written) {
                inner.young.push_back((now, run.execution_id));
            }
        }
    }

    /// The store has it already, and its worker speaks through this node's gateway: nothing is left to write.
    pub fn adopted(&self, run: RunRef, worker: WorkerId, now: Instant) {
        let mut inner = self.inner.lock();
        let claim = Claim { worker: Some(worker), by_gateway: true, written: true, ..Claim::new(run.job_id, now) };
        inner.claims.insert(run.execution_id, claim);
    }

    /// The store has it already: taken from another node, or owned before a restart. Its channels are to be listened to.
    pub fn inherited(&self, runs: &[RunRef], now: Instant) {
        let mut inner = self.inner.lock();
        for run in runs {
            inner.enter(run.execution_id, run.job_id, now).written = true;
        }
    }

    /// Another node's gateway handed these out.
    pub fn taken_elsewhere(&self, executions: &[ExecutionId], now: Instant) {
        let mut inner = self.inner.lock();
        while inner.taken_since.front().is_some_and(|(at, _)| *at + TAKEN_FOR < now) {
            if let Some((_, execution)) = inner.taken_since.pop_front() {
                inner.taken.remove(&execution);
            }
        }
        for execution in executions {
            // One that is listened to or written has to be let go of with more care: the audit does.
            if inner.claims.get(execution).is_some_and(|claim| !claim.by_gateway && !claim.written && !claim.listens) {
                inner.claims.remove(execution);
            }
            inner.taken.insert(*execution);
            inner.taken_since.push_back((now, *execution));
        }
    }

    /// Something came by a job's channel.
    pub fn heard_channel(&self, now: Instant) {
        self.inner.lock().heard_channel_at = Some(now);
    }

    /// Its run is over, or another node's. Answers whether its channels were listened to.
    pub fn release(&self, execution: &ExecutionId) -> bool {
        let released = self.inner.lock().claims.remove(execution);
        if released.is_some() {
            self.released.notify_waiters();
        }
        released.is_some_and(|claim| claim.listens)
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

    /// At most `max` runs that can be moved: written down, and heard by their channels.
    pub fn movable(&self, max: usize) -> Vec<RunRef> {
        self.inner.lock().refs(|claim| claim.written && !claim.by_gateway, max)
    }

    /// Written claims from before `before` that are not among those the store knows as this node's.
    pub fn unknown_to(&self, held: &HashSet<ExecutionId>, before: Instant) -> Vec<RunRef> {
        let inner = self.inner.lock();
        let unknown = inner
            .claims
            .iter()
            .filter(|(execution, claim)| claim.written && claim.since < before && !held.contains(execution));
        unknown.map(|(execution, claim)| RunRef { job_id: claim.job, execution_id: *execution }).collect()
    }

    /// Claims that are due to be written, as reports.
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
                report.handed_out_at = claim.handed_out.map(|at| node.now() - at.elapsed());
                reports.push(report);
            }
        }
        reports
    }

    /// Jobs whose channels should be listened to from now on.
    fn unheard(&self, now: Instant) -> Vec<JobId> {
        let mut inner = self.inner.lock();
        let at_once = inner.heard_channel_at.is_some_and(|at| at + LISTEN_AT_ONCE_FOR > now);
        let before = if at_once { now } else { now - LISTEN_AFTER };
        let mut jobs = Vec::new();
        while inner.listening.front().is_some_and(|(at, _)| *at <= before) {
            let Some((_, execution)) = inner.listening.pop_front() else { break };
            if let Some(claim) = inner.claims.get_mut(&execution).filter(|claim| !claim.by_gateway) {
                claim.listens = true;
                jobs.push(claim.job);
            }
        }
        jobs
    }

    /// Listening failed: try again.
    fn unhear(&self, jobs: &[JobId], now: Instant) {
        let jobs: HashSet<&JobId> = jobs.iter().collect();
        let mut inner = self.inner.lock();
        let Inner { claims, listening, .. } = &mut *inner;
        for (execution, claim) in claims.iter_mut().filter(|(_, claim)| claim.listens && jobs.contains(&claim.job)) {
            claim.listens = false;
            listening.push_back((now, *execution));
        }
    }

    /// Writing failed: try again with the next batch.
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

    fn refs(&self, which: impl Fn(&Claim) -> bool, max: usize) -> Vec<RunRef> {
        let chosen = self.claims.iter().filter(|(_, claim)| which(claim)).take(max);
        chosen.map(|(execution, claim)| RunRef { job_id: claim.job, execution_id: *execution }).collect()
    }
}

/// Writes down claims of runs that last, and listens to their channels, until `stop`; then writes what is left.
pub async fn settle_claims(node: Arc<Node>, stop: CancellationToken) {
    loop {
        let stopping = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(SETTLE_INTERVAL) => false,
        };
        listen(&node).await;
        write_down(&node, if stopping { Duration::ZERO } else { WRITE_AFTER }).await;
        if stopping {
            return;
        }
    }
}

/// Writes down which runs this node has had for `after`.
pub async fn write_down(node: &Node, after: Duration) {
    let before = Instant::now() - after;
    loop {
        let reports = node.claims.unwritten(before, node);
        if reports.is_empty() {
            return;
        }
        if let Err(error) = recorder::record(node, reports.clone()).await {
            node.outages.failed("run ownership", &error);
            node.claims.unwrite(&reports, Instant::now());
            return;
        }
    }
}

/// Listens to the channels of runs for which it is time.
pub async fn listen(node: &Node) {
    let now = Instant::now();
    let jobs = node.claims.unheard(now);
    if jobs.is_empty() {
        return;
    }
    if let Err(error) = node.job_channels.add(&node.channels.of_jobs(&jobs)).await {
        node.outages.failed("job channels", &error);
        node.claims.unhear(&jobs, now);
    }
}

/// Lets go of runs that are over, or another node's by now.
pub async fn let_go(node: &Node, runs: impl IntoIterator<Item = RunRef>) {
    let listened = runs.into_iter().filter(|run| node.claims.release(&run.execution_id));
    let listened: Vec<JobId> = listened.map(|run| run.job_id).collect();
    if listened.is_empty() {
        return;
    }
    if let Err(error) = node.job_channels.remove(&node.channels.of_jobs(&listened)).await {
        node.outages.failed("job channels", &error);
    }
}
