//! J2: of all runs of a job at most one can complete it, and that is its current one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Broken, Entries, Seen};

pub fn check(entries: &Entries, seen: &Seen) -> Vec<Broken> {
    let broken = |what| Broken { invariant: "J2", what };
    let mut found = Vec::new();
    let mut completed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut ends: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for report in entries.reports.iter().filter(|it| it.accepted) {
        if report.kind == "completed" {
            completed.entry(&report.job).or_default().insert(&report.execution);
        }
        if !matches!(report.kind.as_str(), "started" | "progress" | "log") {
            ends.entry(&report.execution).or_default().insert(&report.kind);
        }
    }
    for (execution, kinds) in ends.iter().filter(|(_, kinds)| kinds.len() > 1) {
        found.push(broken(format!("run {execution} was accepted as ended in several ways: {kinds:?}")));
    }
    for (job, executions) in completed {
        if executions.len() > 1 {
            found.push(broken(format!("job {job} was completed by several runs: {executions:?}")));
        }
        let Some(now) = seen.jobs.get(job).filter(|job| !job.redriven) else { continue };
        let current = now.execution.as_deref();
        if now.status != "completed" || current.is_none_or(|current| !executions.contains(current)) {
            let status = &now.status;
            found.push(broken(format!(
                "job {job} was accepted as completed by {executions:?} and is {status} by {current:?}"
            )));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Observations;
    use super::super::seen::{job, seen};
    use super::*;

    fn reports(all: &[(&str, &str, bool)]) -> Entries {
        let observations = Observations::default();
        for (execution, kind, accepted) in all {
            observations.reported("a", execution, kind, *accepted);
        }
        observations.entries()
    }

    #[test]
    fn holds_where_the_later_run_completes_and_the_earlier_is_refused() {
        let entries = reports(&[
            ("1", "started", true),
            ("2", "completed", true),
            ("2", "completed", true),
            ("1", "completed", false),
        ]);
        assert_eq!(check(&entries, &seen([("a", job("completed", &[("1", "lost"), ("2", "completed")]))])), []);
    }

    #[test]
    fn two_runs_that_both_complete_are_found() {
        let entries = reports(&[("1", "completed", true), ("2", "completed", true)]);
        let found = check(&entries, &seen([("a", job("completed", &[("1", "lost"), ("2", "completed")]))]));
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_run_that_ended_twice_otherwise_is_found() {
        let entries = reports(&[("1", "failed", true), ("1", "cancelled", true)]);
        assert_eq!(check(&entries, &seen([("a", job("failed", &[("1", "failed")]))])).len(), 1);
    }

    #[test]
    fn a_completion_that_was_accepted_and_did_not_stand_is_found() {
        let entries = reports(&[("1", "completed", true)]);
        assert_eq!(check(&entries, &seen([("a", job("failed", &[("1", "lost"), ("2", "failed")]))])).len(), 1);
        assert_eq!(check(&entries, &seen([("a", job("completed", &[("1", "lost"), ("2", "completed")]))])).len(), 1);
    }
}
