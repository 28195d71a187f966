//! L2: no write of a leader is accepted below the sealed epoch, and none before its own epoch was sealed.
//!
//! Lines of different processes have no common order. What shows a late write all the same: its own process had learned
//! before that a higher epoch was sealed (it was rejected, or read the seal); the job that it changes was dispatched, or
//! made, in a later term; an earlier attempt of the job was dispatched in a later term.

use std::collections::BTreeMap;

use super::index::Index;
use super::l1_one_leader::has_sealed;
use super::{Record, Violation};
use crate::decisions::What;
use crate::ids::Epoch;

const CODE: &str = "L2";

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for boot in index.boots.values() {
        let is_whole = boot.begin().is_some() && boot.is_contiguous();
        for record in boot.lines.values().copied() {
            let Some(epoch) = written_in(record) else { continue };
            if let Some((highest, proof)) = boot.sealed_before(record.decision.since).filter(|it| it.0 > epoch) {
                let what =
                    format!("{} wrote as leader of epoch {epoch} after {highest} was sealed", record.decision.node);
                found.push(Violation::of(CODE, what, [proof, record]));
            } else if is_whole && !has_sealed(index, record, epoch) {
                let what =
                    format!("{} wrote as leader of epoch {epoch}, which it had not sealed", record.decision.node);
                found.push(Violation::of(CODE, what, [record]));
            }
        }
    }
    let jobs = index.jobs.iter().filter(|(job, _)| !index.is_reused(**job));
    found.extend(jobs.flat_map(|(_, lines)| late_for_job(lines)));
    found
}

/// The epoch of an accepted write of a leader.
fn written_in(record: &Record) -> Option<Epoch> {
    let decision = &record.decision;
    decision.epoch.filter(|_| decision.what.is_leaders() && decision.is_accepted())
}

/// Writes that changed a job after a write of a later term had.
fn late_for_job(lines: &[&Record]) -> Vec<Violation> {
    let mut found = Vec::new();
    let of = |kind: What| {
        lines.iter().filter(move |it| it.decision.what == kind).filter_map(|it| Some((*it, written_in(it)?)))
    };
    let mut compare = |before: (&Record, Epoch), after: (&Record, Epoch), what: &str| {
        if after.1 < before.1 {
            let text = format!("{what} in epoch {}, although {} was sealed by then", after.1, before.1);
            found.push(Violation::of(CODE, text, [before.0, after.0]));
        }
    };
    // A job is made by its tick, then dispatched.
    let made = of(What::JobsTick).next();
    // The dispatches, in the order of their attempts. A released run does not count: its number is used again.
    let mut dispatches: BTreeMap<u32, Vec<(&Record, Epoch)>> = BTreeMap::new();
    for dispatch in of(What::JobsDispatch) {
        dispatches.entry(dispatch.0.decision.attempt.unwrap_or_default()).or_default().push(dispatch);
        if let Some(made) = made {
            compare(made, dispatch, "a job was dispatched");
        }
    }
    let mut latest: Option<(&Record, Epoch)> = None;
    for attempt in dispatches.values() {
        if let Some(latest) = latest {
            attempt.iter().for_each(|dispatch| compare(latest, *dispatch, "a later attempt of a job was dispatched"));
        }
        latest = attempt.iter().copied().chain(latest).max_by_key(|(_, epoch)| *epoch);
    }
    for end in of(What::RunEnd) {
        let run = end.0.decision.run;
        let dispatched = dispatches.values().flatten().find(|(it, _)| it.decision.run == run);
        if let Some(dispatched) = dispatched {
            compare(*dispatched, end, "a run was ended by a leader");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken, refused};
    use crate::decisions::{Outcome, What};

    #[test]
    fn holds_while_former_leaders_are_refused() {
        let mut world = World::new();
        world.seal("n1", 1).dispatch("n1", 1, 1, 1).seal("n2", 2).dispatch("n2", 2, 1, 2);
        world.write_as("n1", refused(What::JobsDispatch, 1, Outcome::Fenced));
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_write_after_its_own_refusal_is_found() {
        let mut world = World::new();
        world.seal("n1", 1).write_as("n1", refused(What::JobsPromote, 1, Outcome::Fenced)).dispatch("n1", 1, 1, 1);
        let what = "n1 wrote as leader of epoch 1 after 2 was sealed";
        assert_eq!(world.check(), broken("L2", what, &["n1:3", "n1:4"]));
        world.last("n1").since = 2;
        assert_eq!(world.check(), [], "it may have been committed before the other was refused");
    }

    #[test]
    fn a_write_without_a_seal_is_found_unless_lines_are_missing() {
        let mut world = World::new();
        world.dispatch("n1", 3, 1, 1);
        let what = "n1 wrote as leader of epoch 3, which it had not sealed";
        assert_eq!(world.check(), broken("L2", what, &["n1:2"]));
        world.gap("n1");
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_late_dispatch_is_found_by_the_attempts_of_its_job() {
        let mut world = World::new();
        world.seal("n1", 1).seal("n2", 2).dispatch("n2", 2, 1, 1).dispatch("n1", 1, 1, 2);
        let what = "a later attempt of a job was dispatched in epoch 1, although 2 was sealed by then";
        assert_eq!(world.check(), broken("L2", what, &["n1:3", "n2:3"]));
    }

    #[test]
    fn a_leader_that_ends_a_run_of_its_successor_is_found() {
        let mut world = World::new();
        world.seal("n1", 1).seal("n2", 2).dispatch("n2", 2, 1, 1).end_as_leader("n1", 1, 1, 1);
        let what = "a run was ended by a leader in epoch 1, although 2 was sealed by then";
        assert_eq!(world.check(), broken("L2", what, &["n1:3", "n2:3"]));
    }

    #[test]
    fn a_job_of_a_later_tick_that_is_dispatched_late_is_found() {
        let mut world = World::new();
        world.seal("n1", 1).seal("n2", 2).tick("n2", 2, 1, 5).dispatch("n1", 1, 1, 1);
        let what = "a job was dispatched in epoch 1, although 2 was sealed by then";
        assert_eq!(world.check(), broken("L2", what, &["n1:3", "n2:3"]));
    }
}
