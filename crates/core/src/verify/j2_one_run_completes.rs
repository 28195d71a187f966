//! J2: of all runs of a job at most one completes it, and a run ends once.
//!
//! A completed job is never made pending again, so the order of lines does not matter here.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Record, Violation};
use crate::decisions::What;
use crate::ids::ExecutionId;
use crate::jobs::{ExecutionStatus, Status};

const CODE: &str = "J2";

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut found: Vec<Violation> = index.runs.iter().flat_map(|(run, lines)| ended_twice(*run, lines)).collect();
    let jobs = index.jobs.iter().filter(|(job, _)| !index.is_reused(**job));
    found.extend(jobs.filter_map(|(_, lines)| completed_twice(lines)));
    found
}

/// Lines by which the store ended a run.
fn ends(record: &Record) -> bool {
    let decision = &record.decision;
    let ends = match decision.what {
        What::RunReport | What::RunEnd => decision.end.is_some(),
        // A cancellation that names a run has ended it.
        What::JobsCancel => true,
        _ => false,
    };
    ends && decision.is_accepted()
}

fn ended_twice(run: ExecutionId, lines: &[&Record]) -> Vec<Violation> {
    let mut found = Vec::new();
    let ended: Vec<&Record> = lines.iter().copied().filter(|record| ends(record)).collect();
    if ended.len() > 1 {
        found.push(Violation::of(CODE, format!("run {run} was ended {} times", ended.len()), ended.iter().copied()));
    }
    // Of two different ends a worker's report is accepted for one: the same one may be reported again.
    let accepted = |it: &&&Record| it.decision.what == What::ClientReported && it.decision.is_accepted();
    let mut kinds: BTreeMap<u8, &Record> = BTreeMap::new();
    for record in lines.iter().filter(accepted).copied().chain(ended) {
        if let Some(end) = record.decision.end {
            kinds.entry(end.code()).or_insert(record);
        }
    }
    if kinds.len() > 1 {
        found.push(Violation::of(
            CODE,
            format!("run {run} was accepted as ended in {} ways", kinds.len()),
            kinds.into_values(),
        ));
    }
    found
}

fn completed_twice(lines: &[&Record]) -> Option<Violation> {
    let mut completed: BTreeMap<ExecutionId, &Record> = BTreeMap::new();
    for record in lines {
        let decision = &record.decision;
        let completes = match decision.what {
            What::RunReport | What::ClientReported => decision.end == Some(ExecutionStatus::Completed),
            What::StoreJob => decision.status == Some(Status::Completed),
            _ => false,
        };
        if let Some(run) = decision.run.filter(|_| completes && decision.is_accepted()) {
            completed.entry(run).or_insert(record);
        }
    }
    if completed.len() < 2 {
        return None;
    }
    let job = lines.iter().find_map(|record| record.decision.job)?;
    let what = format!("job {job} was completed by {} runs", completed.len());
    Some(Violation::of(CODE, what, completed.into_values()))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken, job, run};
    use crate::decisions::Outcome;
    use crate::jobs::ExecutionStatus::*;

    #[test]
    fn holds_where_the_later_run_completes_and_the_earlier_is_refused() {
        let mut world = World::new();
        world.seal("n1", 1).dispatch("n1", 1, 1, 1).end_as_leader("n1", 1, 1, 1).dispatch("n1", 1, 1, 2);
        world.report("n2", 1, 2, Completed).report_as("n2", 1, 1, Completed, Outcome::Stale);
        world.report_as("n3", 1, 2, Completed, Outcome::Duplicate);
        world.reported("worker", 1, 2, Completed).reported("worker", 1, 2, Completed);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn two_runs_that_complete_one_job_are_found() {
        let mut world = World::new();
        world.report("n1", 1, 1, Completed).report("n2", 1, 2, Completed);
        let what = format!("job {} was completed by 2 runs", job(1));
        assert_eq!(world.check()[0], broken("J2", &what, &["n1:2", "n2:2"])[0]);
    }

    #[test]
    fn a_completion_that_a_worker_saw_accepted_and_that_another_replaced_is_found() {
        let mut world = World::new();
        world.reported("worker", 1, 1, Completed).export("client", &[(1, "completed")]);
        world.exported_run("client", 2);
        let what = format!("job {} was completed by 2 runs", job(1));
        assert_eq!(world.check(), broken("J2", &what, &["client:3", "worker:2"]));
    }

    #[test]
    fn a_run_that_ends_twice_is_found() {
        let mut world = World::new();
        world.report("n1", 1, 1, Lost).report("n2", 1, 1, Lost);
        let what = format!("run {} was ended 2 times", run(1));
        assert_eq!(world.check(), broken("J2", &what, &["n1:2", "n2:2"]));
    }

    #[test]
    fn a_run_whose_worker_saw_two_ends_accepted_is_found() {
        let mut world = World::new();
        world.reported("worker", 1, 1, Failed).reported("worker", 1, 1, Completed);
        let what = format!("run {} was accepted as ended in 2 ways", run(1));
        assert_eq!(world.check(), broken("J2", &what, &["worker:2", "worker:3"]));
    }
}
