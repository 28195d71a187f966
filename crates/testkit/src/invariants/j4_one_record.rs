//! J4: exactly one terminal record of a job. All readers of its end see the same one, and its history has no other.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::jobs::Status;

use super::chronicle::jobs;
use super::seen::TERMINAL;
use super::{Broken, Entries, Entry, Row, Seen, SeenJob};

pub fn check(entries: &Entries, seen: &Seen) -> Vec<Broken> {
    let mut found = Vec::new();
    for (id, job) in &seen.jobs {
        if let Some(what) = of(job) {
            found.push(Broken { invariant: "J4", what: format!("job {id} {what}") });
        }
        let reported = entries.ends.get(id).map(Vec::as_slice).unwrap_or_default();
        if !job.redriven && (reported.len() > 1 || reported.first().is_some_and(|reported| *reported != job.status)) {
            let what = format!("job {id} is {} and was seen to end as {reported:?}", job.status);
            found.push(Broken { invariant: "J4", what });
        }
    }
    found
}

/// Returns the breaches of a job's own records.
fn of(job: &SeenJob) -> Option<String> {
    let terminal = TERMINAL.contains(&job.status.as_str());
    if terminal != job.ended {
        return Some(format!("is {} and has an end: {}", job.status, job.ended));
    }
    let runs: BTreeSet<&str> = job.history.iter().map(|run| run.execution.as_str()).collect();
    if runs.len() != job.history.len() {
        return Some(format!("has a run twice in its history: {:?}", job.history));
    }
    let completed: Vec<_> = job.history.iter().filter(|run| run.status == "completed").collect();
    let expected = usize::from(job.status == "completed");
    if completed.len() != expected {
        return Some(format!("is {} and has {} completed runs: {:?}", job.status, completed.len(), job.history));
    }
    if completed.iter().any(|run| job.execution.as_deref() != Some(&run.execution)) {
        return Some(format!("was completed by another than its current run {:?}: {:?}", job.execution, job.history));
    }
    let open = job.history.iter().find(|run| matches!(run.status.as_str(), "dispatched" | "running"));
    match open {
        Some(run) if terminal => Some(format!("is {} and its run {} is {}", job.status, run.execution, run.status)),
        _ => None,
    }
}

/// Checks the whole history: a job ends once, and its outcome stays. A job that is redriven begins again.
pub fn check_history(entries: &[Entry]) -> Vec<Broken> {
    let mut found = Vec::new();
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    for (writer, id, before, after) in jobs(entries) {
        let Some(after) = after else { continue };
        let had_ended = before.is_some_and(|before| !before.status.is_live());
        match (had_ended, after.status.is_live()) {
            (false, false) => *ends.entry(id).or_default() += 1,
            (true, true) if before.is_some_and(|before| before.status.to(after.status).is_ok()) => {
                ends.remove(id);
            }
            (true, true) => found.push(format!("job {id} was {before:?} and was made {:?} by {writer}", after.status)),
            (true, false) if before.map(end) != Some(end(after)) => {
                found.push(format!("job {id} had ended as {before:?} and was made {after:?} by {writer}"));
            }
            (true, false) | (false, true) => {}
        }
    }
    let again = ends.into_iter().filter(|(_, times)| *times > 1);
    found.extend(again.map(|(id, times)| format!("job {id} ended {times} times")));
    found.into_iter().map(|what| Broken { invariant: "J4", what }).collect()
}

/// The part of a row that may never change once the job has ended.
fn end(row: &Row) -> (Status, Option<&str>, Option<&str>, u64) {
    (row.status, row.execution.as_deref(), row.result.as_deref(), row.attempt)
}

#[cfg(test)]
mod tests {
    use super::super::Observations;
    use super::super::chronicle::{life, row};
    use super::super::seen::{job, seen};
    use super::*;

    fn broken(job: SeenJob) -> usize {
        check(&Entries::default(), &seen([("a", job)])).len()
    }

    #[test]
    fn holds_for_every_honest_end() {
        assert_eq!(broken(job("completed", &[("1", "failed"), ("2", "lost"), ("3", "completed")])), 0);
        assert_eq!(broken(job("failed", &[("1", "failed"), ("2", "failed")])), 0);
        assert_eq!(broken(job("cancelled", &[])), 0);
        assert_eq!(broken(job("running", &[("1", "running")])), 0);
    }

    #[test]
    fn two_completed_runs_are_found() {
        assert_eq!(broken(job("completed", &[("1", "completed"), ("2", "completed")])), 1);
    }

    #[test]
    fn a_completion_without_a_run_or_by_an_old_one_is_found() {
        assert_eq!(broken(job("completed", &[("1", "failed")])), 1);
        assert_eq!(broken(job("completed", &[("1", "completed"), ("2", "lost")])), 1);
    }

    #[test]
    fn a_run_listed_twice_or_left_open_is_found() {
        assert_eq!(broken(job("failed", &[("1", "failed"), ("1", "failed")])), 1);
        assert_eq!(broken(job("failed", &[("1", "running")])), 1);
    }

    #[test]
    fn an_end_without_its_time_is_found() {
        assert_eq!(broken(SeenJob { ended: false, ..job("completed", &[("1", "completed")]) }), 1);
    }

    #[test]
    fn an_end_that_changed_is_found() {
        let observations = Observations::default();
        observations.ended("a", "failed");
        let seen = seen([("a", job("completed", &[("1", "completed")]))]);
        assert_eq!(check(&observations.entries(), &seen).len(), 1);
        let observations = Observations::default();
        observations.ended("a", "completed");
        observations.ended("a", "completed");
        assert_eq!(check(&observations.entries(), &seen), []);
    }

    #[test]
    fn a_history_holds_with_one_end_and_one_more_for_each_redrive() {
        let steps = [
            ("n1", row(Status::Running, None)),
            ("n1", row(Status::Failed, None)),
            ("n2", row(Status::Pending, None)),
            ("n2", row(Status::Dispatched, None)),
            ("n2", row(Status::Completed, None)),
            ("n2", Row { owner: Some("n2".into()), ..row(Status::Completed, None) }),
        ];
        assert_eq!(check_history(&life("a", &steps)), []);
    }

    #[test]
    fn an_end_that_was_rewritten_or_undone_is_found_although_it_was_repaired() {
        let completed = row(Status::Completed, None);
        for broken in [
            row(Status::Failed, None),
            row(Status::Running, None),
            Row { result: Some("42".into()), ..completed.clone() },
            Row { execution: Some("2".into()), ..completed.clone() },
        ] {
            let steps = [
                ("n1", row(Status::Running, None)),
                ("n1", completed.clone()),
                ("n2", broken),
                ("n2", completed.clone()),
            ];
            assert!(!check_history(&life("a", &steps)).is_empty(), "{steps:?}");
        }
    }
}
