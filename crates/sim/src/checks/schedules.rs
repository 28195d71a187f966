//! C1: one job for each tick of a schedule.

use std::collections::BTreeMap;

use convoke_core::ScheduleName;
use jiff::Timestamp;

use super::Violation;
use crate::history::{Entry, Record};

pub fn check(records: &[Record]) -> Vec<Violation> {
    let mut made: BTreeMap<(ScheduleName, Timestamp), convoke_core::JobId> = BTreeMap::new();
    let mut found = Vec::new();
    for record in records {
        let Entry::Changed { before: None, after: Some(job), what: "tick", .. } = &record.what else { continue };
        let Some(tick) = job.schedule.clone().zip(job.scheduled_at) else { continue };
        let (name, at) = (tick.0.clone(), tick.1);
        if let Some(other) = made.insert(tick, job.id) {
            found.push(Violation::new("C1", format!("tick {at} of {name} made {other} and {}", job.id)));
        }
    }
    found
}
