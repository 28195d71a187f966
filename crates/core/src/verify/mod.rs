//! Checks histories against the invariants: what [`decisions`](crate::decisions) of any number of processes prove.
//!
//! Lines may come in any order, and the clocks of their processes may differ: nothing is concluded from `at`, with one
//! exception that is named where it is (`j1_acknowledged`). Order follows from numbers: an operation began after
//! another of its process had ended (`since`), a later attempt of a job comes after an earlier one, the end of a run
//! after its dispatch.
//!
//! A check finds nothing where lines may be missing and another explanation is left. A process that was killed has lost
//! its last lines, and that is normal; a gap, an unreadable line or a node without a history is not, and a
//! [`Report`] that has one is never [complete](Report::is_complete). What a check needs and does not find it lists among
//! the [notes](Report::notes), so that nobody takes it for a proof.

mod boots;
mod c1_ticks;
mod index;
mod j1_acknowledged;
mod j2_one_run_completes;
mod j3_all_end;
mod j4_one_end;
mod j5_attempts;
mod j6_one_owner;
mod l1_one_leader;
mod l2_sealed;
mod s1_shards;
#[cfg(test)]
mod samples;
mod summary;

use std::fmt;
use std::sync::Arc;

use crate::decisions::Decision;
use index::Index;
pub use summary::Summary;

/// Where a line is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Place {
    /// The file, or the address that it was read from.
    pub file: Arc<str>,
    /// The number of the line, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A line with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where it is.
    pub place: Place,
    /// What it records.
    pub decision: Decision,
}

/// One breach of an invariant, with the lines that prove it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// The code of the invariant, such as `J2`.
    pub invariant: &'static str,
    /// What is wrong, in words.
    pub what: String,
    /// The lines that prove it.
    pub proof: Vec<Place>,
}

impl Violation {
    fn of<'a>(invariant: &'static str, what: String, proof: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut proof: Vec<Place> = proof.into_iter().map(|record| record.place.clone()).collect();
        proof.sort();
        proof.dedup();
        Violation { invariant, what, proof }
    }
}

/// The lines of any number of processes.
#[derive(Debug, Clone, Default)]
pub struct History {
    records: Vec<Record>,
    /// Lines that a killed process left incomplete.
    torn: Vec<Place>,
}

/// What a history must show beyond the invariants that always hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expectations {
    /// All work had ended before the store was exported (J3).
    pub drained: bool,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The breaches, by invariant.
    pub violations: Vec<Violation>,
    /// What was checked.
    pub summary: Summary,
    /// Why something could not be checked.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns whether no line is known to be missing, but the last ones of killed processes, and there was something to
    /// check.
    pub fn is_complete(&self) -> bool {
        let Summary { decisions, gaps, missing_nodes, .. } = self.summary;
        decisions > 0 && gaps == 0 && missing_nodes == 0
    }

    /// Returns whether no invariant was broken and nothing is missing.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.is_complete()
    }
}

impl History {
    /// Adds a line of a file. An incomplete line, which a killed process leaves, is counted and left out; any other line
    /// that is no decision is an error, as text.
    pub fn read_line(&mut self, place: Place, text: &str) -> Result<(), String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        match Decision::read_line(text) {
            Ok(decision) => self.add(place, decision),
            Err(_) if text.starts_with("{\"v\":") && !text.ends_with('}') => self.torn.push(place),
            Err(error) => return Err(format!("{place}: expected a decision of a history: {error}")),
        }
        Ok(())
    }

    /// Adds a decision.
    pub fn add(&mut self, place: Place, decision: Decision) {
        self.records.push(Record { place, decision });
    }

    /// Adds the decisions of one process or file, numbered from 1.
    pub fn extend(&mut self, file: &str, decisions: impl IntoIterator<Item = Decision>) {
        let file: Arc<str> = file.into();
        for (line, decision) in (1..).zip(decisions) {
            self.add(Place { file: file.clone(), line }, decision);
        }
    }

    /// Returns the decision at a place, if it is there.
    pub fn decision(&self, place: &Place) -> Option<&Decision> {
        self.records.iter().find(|record| record.place == *place).map(|record| &record.decision)
    }

    /// Checks all invariants.
    pub fn check(&self, expectations: Expectations) -> Report {
        let index = Index::of(self);
        let mut notes = index.notes();
        let mut violations = l1_one_leader::check(&index);
        violations.extend(l2_sealed::check(&index));
        violations.extend(j1_acknowledged::check(&index, &mut notes));
        violations.extend(j2_one_run_completes::check(&index));
        violations.extend(j3_all_end::check(&index, expectations, &mut notes));
        violations.extend(j4_one_end::check(&index));
        violations.extend(j5_attempts::check(&index));
        violations.extend(j6_one_owner::check(&index));
        violations.extend(c1_ticks::check(&index));
        violations.extend(s1_shards::check(&index));
        Report { violations, summary: index.summary(), notes }
    }
}
