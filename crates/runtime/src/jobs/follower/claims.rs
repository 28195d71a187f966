//! Which runs this node records, and the lazy writing down of it.
//!
//! A claim is first only remembered. A run that ends within [`WRITE_AFTER`] is written once, with its end; only one that
//! goes on gets a row write that says who owns it and which worker has it. Should the node die in between, the run is
//! one that nobody is known to have picked up, and the leader's reconciler gives it another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::RunRef;
use convoke_core::jobs::{Claim as Owner, RunReport};
use convoke_core::{ExecutionId, JobId, WorkerId};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::jobs::node::Node;
use crate::jobs::recorder;

/// After so long a run's channels are listened to, unless it was handed out here: then it speaks through the gateway.
const LISTEN_AFTER: Duration = Duration::from_millis(50);
/// After so long a claim is written down.
const WRITE_AFTER: Duration = Duration::from_millis(200);
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);
const BATCH_MAX: usize = 1_000;

#[derive(Default)]
pub struct Claims {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    claims: HashMap<ExecutionId, Claim>,
    /// Claims that are not settled, oldest first. Those that ended meanwhile are skipped.
    young: VecDeque<(Instant, ExecutionId)>,
    listening: VecDeque<(Instant, ExecutionId)>,
}

struct Claim {
    job: JobId,
    worker: Option<WorkerId>,
    by_gateway: bool,
    handed_out: Option<Instant>,
    listens: bool,
    written: bool,
}

impl Claims {
    /// This node owns the events of `runs`.
    pub fn assigned(&self, runs: &[RunRef], now: Instant) {
        let mut inner = self.inner.lock();
        for run in runs {
            inner.enter(run.execution_id, run.job_id, now);
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

    /// The store has it already: nothing is left to write.
    pub fn adopted(&self, run: RunRef, worker: WorkerId) {
        let mut inner = self.inner.lock();
        let (job, worker) = (run.job_id, Some(worker));
        let claim = Claim { job, worker, by_gateway: true, handed_out: None, listens: false, written: true };
        inner.claims.insert(run.execution_id, claim);
    }

    /// Its run is over. Answers whether its channels were listened to.
    pub fn release(&self, execution: &ExecutionId) -> bool {
        self.inner.lock().claims.remove(execution).is_some_and(|claim| claim.listens)
    }

    pub fn len(&self) -> usize {
        self.inner.lock().claims.len()
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
    fn unheard(&self, before: Instant) -> Vec<JobId> {
        let mut inner = self.inner.lock();
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

impl Inner {
    fn enter(&mut self, execution: ExecutionId, job: JobId, now: Instant) -> &mut Claim {
        let Inner { claims, young, listening } = self;
        claims.entry(execution).or_insert_with(|| {
            young.push_back((now, execution));
            listening.push_back((now, execution));
            Claim { job, worker: None, by_gateway: false, handed_out: None, listens: false, written: false }
        })
    }
}

/// Writes down claims of runs that last, and listens to their channels, until `stop`; then writes what is left.
pub async fn settle_claims(node: Arc<Node>, stop: CancellationToken) {
    loop {
        let stopping = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(SETTLE_INTERVAL) => false,
        };
        let now = Instant::now();
        let unheard = node.claims.unheard(now - LISTEN_AFTER);
        if !unheard.is_empty() {
            let queues = node.channels.of_jobs(&unheard);
            if let Err(error) = node.job_channels.add(&queues).await {
                warn!(%error, "cannot listen to jobs' channels");
            }
        }
        let before = if stopping { now } else { now - WRITE_AFTER };
        loop {
            let reports = node.claims.unwritten(before, &node);
            if reports.is_empty() {
                break;
            }
            if let Err(error) = recorder::record(&node, reports.clone()).await {
                warn!(%error, claims = reports.len(), "cannot write down who owns which run");
                node.claims.unwrite(&reports, Instant::now());
                break;
            }
        }
        if stopping {
            return;
        }
    }
}
