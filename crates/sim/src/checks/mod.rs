//! The checks: what must be true of a world that has ended, one file for each kind of owned thing.
//!
//! [`violations`] is the only way in, so that other checks of the same history can take their place.

mod jobs;
mod leaders;
mod schedules;

use serde::Serialize;

use crate::world::Ended;

/// Something that must not be, with the invariant that it violates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The id of the invariant, as in `docs/invariants.md`; `panic` if a task panicked.
    pub invariant: &'static str,
    pub what: String,
}

impl Violation {
    fn new(invariant: &'static str, what: String) -> Self {
        Violation { invariant, what }
    }
}

/// Returns everything that a world violates.
pub fn violations(ended: &Ended) -> Vec<Violation> {
    let mut found = leaders::check(&ended.records);
    found.extend(jobs::check_history(&ended.records));
    found.extend(jobs::check_end(ended));
    found.extend(schedules::check(&ended.records));
    found.extend(ended.panics.iter().map(|message| Violation::new("panic", message.clone())));
    found
}

/// For the tests of the checks: records by one process, a millisecond apart.
#[cfg(test)]
fn records(entries: impl IntoIterator<Item = (&'static str, crate::history::Entry)>) -> Vec<crate::history::Record> {
    let record = |((by, what), at_ms)| crate::history::Record { at_ms, by: std::sync::Arc::from(by), what };
    entries.into_iter().zip(0..).map(record).collect()
}
