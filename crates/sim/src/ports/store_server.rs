//! The store of a world. It writes the history at the step in which it decides, before any other process can act.

use std::sync::Arc;

use convoke_adapters::memory::MemoryStore;
use convoke_core::election::Fence;
use convoke_core::jobs::{Job, Outcome, RunReport};
use convoke_core::ports::store::{EpochStore, Handover, JobStore, Reassign, Reassigned, Recorded, RunStore};
use convoke_core::{Epoch, Error, JobId, Result};

use super::now;
use crate::branches::BRANCHES;
use crate::history::{Entry, Reported};
use crate::network::Network;

/// The store itself.
pub struct StoreServer {
    pub store: MemoryStore,
    pub(super) network: Arc<Network>,
}

pub(super) type By = Arc<str>;

impl StoreServer {
    pub fn new(network: Arc<Network>) -> Arc<Self> {
        Arc::new(StoreServer { store: MemoryStore::new(), network })
    }

    pub(super) fn add(&self, by: &By, what: Entry) {
        self.network.history.add(self.network.now_ms(), by, what);
    }

    /// Returns a job as it is now.
    pub fn job(&self, id: JobId) -> Option<Job> {
        now(self.store.get(&[id])).ok()?.into_iter().next().flatten()
    }

    fn sealed(&self) -> u64 {
        now(self.store.sealed()).unwrap_or_default().0
    }

    pub(super) fn raise_seal(&self, by: &By, epoch: Epoch) -> Result<()> {
        let before = self.sealed();
        let result = now(self.store.raise_seal(epoch));
        match result {
            Ok(()) => self.add(by, Entry::Sealed { epoch: epoch.0, before }),
            Err(_) => self.network.history.reach("seal refused"),
        }
        result
    }

    pub(super) fn fenced<T>(
        &self,
        by: &By,
        what: &'static str,
        fence: Fence,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (epoch, sealed) = (fence.epoch().0, self.sealed());
        let result = act();
        let is_refused = matches!(result, Err(Error::Fenced { .. }));
        if is_refused && let Some(branch) = refusal(what) {
            self.network.history.reach(branch);
        }
        self.add(by, Entry::Fenced { what, epoch, sealed, is_refused });
        result
    }

    /// Records how a write changed these jobs.
    pub(super) fn changing<T>(
        &self,
        by: &By,
        what: &'static str,
        jobs: &[JobId],
        report: impl Fn(usize) -> Option<Reported>,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = now(self.store.get(jobs))?;
        let result = act()?;
        let after = now(self.store.get(jobs))?;
        for (place, (before, after)) in before.into_iter().zip(after).enumerate() {
            if before != after {
                self.network.note_of(by, || format!("{what}: {}", change_line(before.as_ref(), after.as_ref())));
                let (before, after) = (before.map(Box::new), after.map(Box::new));
                self.add(by, Entry::Changed { what, before, after, report: report(place) });
            }
        }
        Ok(result)
    }

    pub(super) fn record(
        &self,
        by: &By,
        what: &'static str,
        reports: Vec<RunReport>,
        act: impl Fn(Vec<RunReport>) -> Result<Vec<Recorded>>,
    ) -> Result<Vec<Recorded>> {
        // One at a time, so that each change has its report. The store promises that each stands alone.
        let mut all = Vec::with_capacity(reports.len());
        for report in reports {
            let asked = Reported {
                execution: report.execution,
                claim: report.owner.clone(),
                ends: report.end.is_some(),
                from: None,
            };
            let (jobs, lost) = ([report.job], is_lost(&report));
            let recorded = self.changing(by, what, &jobs, |_| Some(asked.clone()), || act(vec![report]))?;
            match recorded.first() {
                Some(Recorded::Stale) => self.rejected(by, what, "report of a former run refused"),
                Some(Recorded::NotOwner) => {
                    self.rejected(by, what, "report of a node that does not own the run refused")
                }
                Some(Recorded::Duplicate) => self.network.history.reach("report sent again"),
                Some(Recorded::Applied(_)) if lost => self.network.history.reach("lost run ended by the leader"),
                _ => {}
            }
            all.extend(recorded);
        }
        Ok(all)
    }

    fn rejected(&self, by: &By, what: &'static str, reason: &'static str) {
        self.network.history.reach(reason);
        self.add(by, Entry::Rejected { what, reason });
    }

    pub(super) fn reassign(&self, by: &By, changes: Vec<Reassign>) -> Result<Vec<Reassigned>> {
        let mut all = Vec::with_capacity(changes.len());
        for change in changes {
            let (jobs, to) = ([change.job], change.to.clone());
            let (execution, from) = (change.execution, Some(change.from.clone()));
            let asked = Reported { execution, claim: None, ends: false, from };
            let result = self.changing(
                by,
                "reassign",
                &jobs,
                |_| Some(asked.clone()),
                || now(self.store.reassign(vec![change])),
            )?;
            let branch = match (&to, result.first()) {
                (Handover::Take(_), Some(Reassigned::Done)) => "handoff: taken",
                (Handover::Take(node), Some(Reassigned::OwnedBy(Some(owner)))) if owner == node => {
                    "handoff: taken before"
                }
                (Handover::Take(_), Some(Reassigned::OwnedBy(_))) => "handoff: another was first",
                (Handover::Take(_), Some(Reassigned::Over)) => "handoff: the run is over",
                (Handover::Offer, Some(Reassigned::Done)) => "handoff: offered",
                (Handover::Orphan, Some(Reassigned::Done)) => "handoff: left as an orphan",
                (Handover::Keep, Some(Reassigned::Done)) => "handoff: kept",
                _ => "handoff: refused",
            };
            self.network.history.reach(branch);
            all.extend(result);
        }
        Ok(all)
    }
}

/// Returns a change of a job in one line.
pub(super) fn change_line(before: Option<&Job>, after: Option<&Job>) -> String {
    let short = |id: String| id[id.len().saturating_sub(6)..].to_owned();
    let state = |job: Option<&Job>| match job {
        None => "nothing".to_owned(),
        Some(job) => {
            let run = job.execution_id.map_or("-".into(), |run| short(run.to_string()));
            let owner = job.owner_node.as_ref().map_or("-", |owner| owner.as_str());
            let worker = job.worker_id.as_ref().map_or("-", |worker| worker.as_str());
            format!("{:?} run {run} attempt {} of {worker}, {:?} by {owner}", job.status, job.attempt, job.ownership)
        }
    };
    let id = after.or(before).map_or_else(String::new, |job| short(job.id.to_string()));
    format!("job {id}: {} → {}", state(before), state(after))
}

/// Returns the branch of a refused write of a leader.
fn refusal(what: &str) -> Option<&'static str> {
    let is_meant = |branch: &&str| branch.strip_suffix(" refused") == Some(what);
    BRANCHES.iter().map(|(branch, _)| *branch).find(is_meant)
}

fn is_lost(report: &RunReport) -> bool {
    report.end.as_ref().is_some_and(|end| matches!(end.outcome, Outcome::Lost { .. }))
}
