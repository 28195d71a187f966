//! J4: exactly one terminal record of a job. Whoever saw its end saw the same one, and its history has no other.

use std::collections::BTreeSet;

use super::seen::TERMINAL;
use super::{Broken, Entries, Seen, SeenJob};

pub fn check(entries: &Entries, seen: &Seen) -> Vec<Broken> {
    let mut found = Vec::new();
    for (id, job) in &seen.jobs {
        if let Some(what) = of(job) {
            found.push(Broken { invariant: "J4", what: format!("job {id} {what}") });
        }
        let told = entries.ends.get(id).map(Vec::as_slice).unwrap_or_default();
        if !job.redriven && (told.len() > 1 || told.first().is_some_and(|told| *told != job.status)) {
            let what = format!("job {id} is {} and was seen to end as {told:?}", job.status);
            found.push(Broken { invariant: "J4", what });
        }
    }
    found
}

/// What is wrong with a job's own records.
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

#[cfg(test)]
mod tests {
    use super::super::Ledger;
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
        let ledger = Ledger::default();
        ledger.ended("a", "failed");
        let seen = seen([("a", job("completed", &[("1", "completed")]))]);
        assert_eq!(check(&ledger.entries(), &seen).len(), 1);
        let ledger = Ledger::default();
        ledger.ended("a", "completed");
        ledger.ended("a", "completed");
        assert_eq!(check(&ledger.entries(), &seen), []);
    }
}
