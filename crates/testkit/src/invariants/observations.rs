//! The responses that clients and workers got, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::process::PATIENCE;

/// Shared by the clients and workers of a test.
#[derive(Clone, Default)]
pub struct Observations {
    entries: Arc<Mutex<Entries>>,
    grown: Arc<Notify>,
}

#[derive(Debug, Clone, Default)]
pub struct Entries {
    /// Jobs whose enqueue succeeded.
    pub acknowledged: BTreeMap<String, Acknowledged>,
    /// Runs that a worker was given.
    pub runs: Vec<Run>,
    /// The events that workers reported, with their results.
    pub reports: Vec<Reported>,
    /// Terminal states that somebody saw of a job, in order, repetitions left out.
    pub ends: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    pub job_type: String,
    pub queue: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub job: String,
    pub execution: String,
    pub attempt: u64,
    pub worker: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    pub job: String,
    pub execution: String,
    pub kind: String,
    /// False: refused as stale.
    pub accepted: bool,
}

impl Observations {
    pub fn entries(&self) -> Entries {
        self.entries.lock().clone()
    }

    /// Records an enqueue that succeeded.
    pub fn acknowledged(&self, job: &str, job_type: &str, queue: &str) {
        let acknowledged = Acknowledged { job_type: job_type.into(), queue: queue.into() };
        self.entries.lock().acknowledged.insert(job.into(), acknowledged);
        self.grown.notify_waiters();
    }

    /// A worker was given a run.
    pub fn ran(&self, job: &str, execution: &str, attempt: u64, worker: &str) {
        let run = Run { job: job.into(), execution: execution.into(), attempt, worker: worker.into() };
        self.entries.lock().runs.push(run);
        self.grown.notify_waiters();
    }

    /// Records the result of a worker's event.
    pub fn reported(&self, job: &str, execution: &str, kind: &str, accepted: bool) {
        let reported = Reported { job: job.into(), execution: execution.into(), kind: kind.into(), accepted };
        self.entries.lock().reports.push(reported);
        self.grown.notify_waiters();
    }

    /// Somebody saw that the job had ended so.
    pub fn ended(&self, job: &str, status: &str) {
        let mut entries = self.entries.lock();
        let ends = entries.ends.entry(job.into()).or_default();
        if ends.last().is_none_or(|last| last != status) {
            ends.push(status.into());
        }
    }

    /// Waits until `enough` holds of the entries. Panics where that never comes.
    #[track_caller]
    pub fn until(&self, enough: impl Fn(&Entries) -> bool) -> impl Future<Output = ()> {
        let asked_at = std::panic::Location::caller();
        async move {
            if tokio::time::timeout(PATIENCE, self.grows_until(enough)).await.is_err() {
                let entries = self.entries.lock();
                let (acknowledged, runs, reports) =
                    (entries.acknowledged.len(), entries.runs.len(), entries.reports.len());
                panic!(
                    "{asked_at}: the ledger did not grow as expected within {PATIENCE:?}: it has {acknowledged} jobs, \
                     {runs} runs, {reports} reports"
                );
            }
        }
    }

    async fn grows_until(&self, enough: impl Fn(&Entries) -> bool) {
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            // Subscribes before it compares, so that no change in between is missed.
            grown.as_mut().enable();
            if enough(&self.entries.lock()) {
                return;
            }
            grown.await;
        }
    }
}
