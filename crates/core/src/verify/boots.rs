//! The lines of one start of one process: their order, and whether all of them are there.

use std::collections::BTreeMap;

use super::Record;
use crate::decisions::What;
use crate::ids::Epoch;

/// The lines of one start of a process, by their numbers.
#[derive(Debug, Default)]
pub struct Boot<'a> {
    /// By number. A line that was read twice is there once.
    pub lines: BTreeMap<u64, &'a Record>,
    /// Lines that show a gap.
    pub gaps: Vec<&'a Record>,
    /// The highest epoch that is known to be sealed once these lines were complete, with its proof: rising by number.
    floors: Vec<(u64, Epoch, &'a Record)>,
}

impl<'a> Boot<'a> {
    pub fn add(&mut self, record: &'a Record) {
        if record.decision.what == What::Gap {
            self.gaps.push(record);
        } else {
            self.lines.entry(record.decision.seq).or_insert(record);
        }
    }

    /// Derives what the lines prove, once all are added.
    pub fn finish(&mut self) {
        let mut highest = Epoch::default();
        for (seq, record) in &self.lines {
            let Some(floor) = proves_sealed(record) else { continue };
            if floor > highest {
                highest = floor;
                self.floors.push((*seq, floor, record));
            }
        }
    }

    /// Returns the highest epoch that was sealed before an operation with this `since` began, with its proof.
    pub fn sealed_before(&self, since: u64) -> Option<(Epoch, &'a Record)> {
        let known = self.floors.partition_point(|(seq, ..)| *seq <= since);
        let (_, epoch, record) = self.floors.get(known.checked_sub(1)?)?;
        Some((*epoch, record))
    }

    /// Returns the line of its begin, if it is there.
    pub fn begin(&self) -> Option<&'a Record> {
        let (_, first) = self.lines.first_key_value()?;
        (first.decision.what == What::ProcessBegin).then_some(first)
    }

    /// Returns whether it stopped cleanly. Otherwise its last lines may be missing.
    pub fn has_ended(&self) -> bool {
        self.lines.last_key_value().is_some_and(|(_, last)| last.decision.what == What::ProcessEnd)
    }

    /// Returns the number of lines that are missing between its first and its last.
    pub fn missing(&self) -> u64 {
        let (Some((first, _)), Some((last, _))) = (self.lines.first_key_value(), self.lines.last_key_value()) else {
            return 0;
        };
        // A boot begins with line 1.
        let before = first.saturating_sub(1);
        (last - first + 1).saturating_sub(self.lines.len() as u64) + before
    }

    /// Returns whether no line from the first to the last is missing.
    pub fn is_contiguous(&self) -> bool {
        self.gaps.is_empty() && self.missing() == 0
    }
}

/// Returns the epoch that was sealed at the latest when this operation ended.
fn proves_sealed(record: &Record) -> Option<Epoch> {
    use crate::decisions::Outcome;
    let decision = &record.decision;
    let after = || decision.after.as_ref().and_then(|mark| mark.number()).map(Epoch);
    match (decision.what, decision.outcome) {
        // A seal is rejected if the sealed epoch is as high already.
        (What::EpochSeal, Outcome::Accepted | Outcome::Fenced) | (What::EpochRead, Outcome::Accepted) => after(),
        (what, Outcome::Accepted) if what.is_leaders() => decision.epoch,
        (what, Outcome::Fenced) if what.is_leaders() => decision.epoch.map(Epoch::next),
        _ => None,
    }
}
