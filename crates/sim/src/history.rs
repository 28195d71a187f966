//! What happened to the owned things of a world: every decision of the store and the leases, with who asked for it.
//!
//! The checks read it when the world has ended. It is written at the step that decides, so that a breach that lasted for a
//! moment and was repaired is there too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use convoke_core::jobs::link::EventKind;
use convoke_core::jobs::{Claim, Job};
use convoke_core::{ExecutionId, JobId, NodeId};
use parking_lot::Mutex;

/// One entry.
#[derive(Debug, Clone)]
pub struct Record {
    pub at_ms: u64,
    /// The process that asked for it.
    pub by: Arc<str>,
    pub what: Entry,
}

#[derive(Debug, Clone)]
pub enum Entry {
    /// A lease was granted or renewed until then.
    Granted { epoch: u64, until_ms: u64, is_new: bool },
    /// A lease was resigned.
    Resigned { epoch: u64 },
    /// An epoch was sealed in the store.
    Sealed { epoch: u64, before: u64 },
    /// A leader began a write. `lease_until_ms`: until when the leases have granted its epoch; `None`: they forgot it.
    Acts { what: &'static str, epoch: u64, lease_until_ms: Option<u64> },
    /// The store decided about a leader's write.
    Fenced { what: &'static str, epoch: u64, sealed: u64, is_refused: bool },
    /// A write changed a job. No `after`: it was deleted.
    Changed { what: &'static str, before: Option<Box<Job>>, after: Option<Box<Job>>, report: Option<Reported> },
    /// The store rejected a report.
    Rejected { what: &'static str, reason: &'static str },
    /// A client was sent the confirmation of its enqueue.
    Acknowledged { job: JobId, by_bus: bool },
    /// A worker was sent that the end of its run is recorded. `is_stored`: the store had it then.
    Accepted { job: JobId, execution: ExecutionId, kind: EventKind, is_stored: bool },
    /// An event showed the end of a job. `is_stored`: the store had it then.
    Shown { job: JobId, is_stored: bool },
}

/// What a report asked for.
#[derive(Debug, Clone)]
pub struct Reported {
    pub execution: ExecutionId,
    pub claim: Option<Claim>,
    pub ends: bool,
    /// The owner from whom a node takes the run over.
    pub from: Option<NodeId>,
}

/// The history of a world, and how often each branch was reached.
#[derive(Default)]
pub struct History {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: Vec<Record>,
    reached: BTreeMap<&'static str, u64>,
    /// Until when each epoch is granted.
    leases: BTreeMap<u64, u64>,
    /// Enqueues that the bus lost: those that it had, and no node had read.
    excused: BTreeSet<JobId>,
    panics: Vec<String>,
}

impl History {
    pub fn add(&self, at_ms: u64, by: &Arc<str>, what: Entry) {
        let mut state = self.state.lock();
        match &what {
            Entry::Granted { epoch, until_ms, .. } => _ = state.leases.insert(*epoch, *until_ms),
            Entry::Resigned { epoch } => _ = state.leases.remove(epoch),
            _ => {}
        }
        state.records.push(Record { at_ms, by: by.clone(), what });
    }

    /// Returns until when an epoch is granted, as the leases know it.
    pub fn lease_until(&self, epoch: u64) -> Option<u64> {
        self.state.lock().leases.get(&epoch).copied()
    }

    /// The leases forgot everything.
    pub fn leases_forgotten(&self) {
        self.state.lock().leases.clear();
    }

    /// Counts that a branch was reached.
    pub fn reach(&self, branch: &'static str) {
        *self.state.lock().reached.entry(branch).or_default() += 1;
    }

    /// An acknowledged enqueue need not be there any more.
    pub fn excuse(&self, jobs: impl IntoIterator<Item = JobId>) {
        self.state.lock().excused.extend(jobs);
    }

    pub fn is_excused(&self, job: &JobId) -> bool {
        self.state.lock().excused.contains(job)
    }

    /// Returns whether a job was run again after it had ended.
    pub fn is_redriven(&self, job: &JobId) -> bool {
        self.state.lock().records.iter().any(|record| match &record.what {
            Entry::Changed { what: "redrive", after: Some(after), .. } => after.id == *job,
            _ => false,
        })
    }

    pub fn panicked(&self, message: String) {
        self.state.lock().panics.push(message);
    }

    pub fn panics(&self) -> Vec<String> {
        self.state.lock().panics.clone()
    }

    pub fn reached(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().reached.clone()
    }

    /// Calls `read` with all records, in order.
    pub fn read<T>(&self, read: impl FnOnce(&[Record]) -> T) -> T {
        read(&self.state.lock().records)
    }
}
