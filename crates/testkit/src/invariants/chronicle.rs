//! All writes of the store, in their order, with their writers.
//!
//! The final state that a coordinator returns does not show what was true for a moment in between. The store itself can
//! keep a record of every change (see [`Chronicler`](crate::process::Chronicler)); the checks of ownership, epochs and
//! terminal records read it whole, so that a breach that lasted a millisecond and was repaired is still found.

use convoke_core::jobs::{Ownership, Status};

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The connection that wrote: a node's id, or the name of another client of the store.
    pub writer: String,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The sealed epoch became this.
    Sealed(u64),
    /// A job's row. No `before`: it is new; no `after`: it was deleted.
    Job { id: String, before: Option<Row>, after: Option<Row> },
}

/// The fields of a job's row that the invariants are about.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub status: Status,
    pub execution: Option<String>,
    pub owner: Option<String>,
    pub ownership: Ownership,
    pub attempt: u64,
    /// The outcome: its result or its error, as text.
    pub result: Option<String>,
}

impl Row {
    /// Whether a run of it is under way.
    pub fn in_flight(&self) -> bool {
        matches!(self.status, Status::Dispatched | Status::Running)
    }

    /// The present owner, if any.
    pub fn owned_by(&self) -> Option<&str> {
        self.owner.as_deref().filter(|_| self.ownership != Ownership::Unowned)
    }
}

/// The changes of jobs: who wrote, which job, what it was, what it became.
pub(super) fn jobs(entries: &[Entry]) -> impl Iterator<Item = (&str, &str, Option<&Row>, Option<&Row>)> {
    entries.iter().filter_map(|entry| match &entry.change {
        Change::Job { id, before, after } => {
            Some((entry.writer.as_str(), id.as_str(), before.as_ref(), after.as_ref()))
        }
        Change::Sealed(_) => None,
    })
}

/// For the tests of the checks: the life of one job, each step by its writer, each beginning where the last one ended.
#[cfg(test)]
pub(super) fn life(id: &str, steps: &[(&str, Row)]) -> Vec<Entry> {
    let mut before = None;
    let step = |(writer, after): &(&str, Row)| {
        let change = Change::Job { id: id.into(), before: before.replace(after.clone()), after: Some(after.clone()) };
        Entry { writer: (*writer).into(), change }
    };
    steps.iter().map(step).collect()
}

/// For the tests of the checks: run 1 of a job, or none, owned so by `owner`, or by nobody.
#[cfg(test)]
pub(super) fn row(status: Status, owner: Option<(&str, Ownership)>) -> Row {
    Row {
        status,
        execution: (!matches!(status, Status::Pending | Status::Scheduled)).then(|| "1".into()),
        owner: owner.map(|(owner, _)| owner.into()),
        ownership: owner.map_or(Ownership::Unowned, |(_, ownership)| ownership),
        attempt: 1,
        result: None,
    }
}
