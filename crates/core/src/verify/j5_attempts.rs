//! J5: attempts stay within their limit and add up.
//!
//! A run that was released does not count, and its number is used again. A redriven job has all its retries again while its
//! attempts continue, so that the limit says nothing about it.

use std::collections::BTreeMap;

use super::index::{Export, Index};
use super::{Record, Violation};
use crate::decisions::What;
use crate::ids::JobId;
use crate::jobs::{ExecutionStatus, Status};

const CODE: &str = "J5";

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    let knows_redrives = index.silent_nodes().is_empty() && index.boots.values().all(|boot| boot.is_contiguous());
    let mut found = Vec::new();
    for (job, lines) in index.jobs.iter().filter(|(job, _)| !index.is_reused(**job)) {
        found.extend(numbered_twice(*job, lines));
        if knows_redrives && index.redrives(*job) == 0 {
            found.extend(beyond_limit(*job, lines));
        }
    }
    for export in &index.exports {
        let ended = export.jobs.iter().filter(|(_, job)| job.decision.status.is_some_and(|status| !status.is_live()));
        found.extend(
            ended
                .filter(|(job, _)| index.redrives(**job) == 0)
                .filter_map(|(id, job)| does_not_add_up(*id, job, export)),
        );
    }
    found
}

/// Two runs that count and have one number.
fn numbered_twice(job: JobId, lines: &[&Record]) -> Option<Violation> {
    let mut numbers: BTreeMap<u32, &Record> = BTreeMap::new();
    for record in lines {
        let decision = &record.decision;
        let ends = matches!(decision.what, What::RunReport | What::RunEnd) && decision.is_accepted();
        let counts = decision.end.is_some_and(|end| end != ExecutionStatus::Released);
        let Some(attempt) = decision.attempt.filter(|_| ends && counts) else { continue };
        let first = *numbers.entry(attempt).or_insert(record);
        if first.decision.run != decision.run {
            let what = format!("job {job} has two runs that count as attempt {attempt}");
            return Some(Violation::of(CODE, what, [first, record]));
        }
    }
    None
}

fn beyond_limit(job: JobId, lines: &[&Record]) -> Option<Violation> {
    let dispatched = |it: &&&Record| it.decision.what == What::JobsDispatch && it.decision.is_accepted();
    lines.iter().filter(dispatched).find_map(|record| {
        let (attempt, limit) = (record.decision.attempt?, record.decision.attempts_max?);
        (attempt > limit).then(|| {
            Violation::of(CODE, format!("job {job} was dispatched for attempt {attempt} of at most {limit}"), [*record])
        })
    })
}

/// An ended job whose history has other attempts than it shows.
fn does_not_add_up(id: JobId, job: &Record, export: &Export<'_>) -> Option<Violation> {
    let attempts = job.decision.attempt?;
    // Runs are exported with their job, or not at all.
    let runs = export.runs.get(&id)?;
    let counted = || runs.iter().filter(|run| run.decision.end.is_some_and(|end| end != ExecutionStatus::Released));
    let numbers: Vec<u32> = counted().filter_map(|run| run.decision.attempt).collect();
    let lines = || counted().copied().chain([job]);
    if !numbers.iter().copied().eq(1..=attempts) {
        let what = format!("job {id} shows {attempts} attempts and has runs that count as {numbers:?}");
        return Some(Violation::of(CODE, what, lines()));
    }
    let limit = job.decision.attempts_max?;
    if attempts > limit {
        return Some(Violation::of(CODE, format!("job {id} had {attempts} attempts of at most {limit}"), lines()));
    }
    let completed = counted().filter(|run| run.decision.end == Some(ExecutionStatus::Completed)).count();
    let expected = usize::from(job.decision.status == Some(Status::Completed));
    (completed != expected).then(|| {
        let status = job.decision.status.map_or("", Status::as_str);
        Violation::of(CODE, format!("job {id} is {status} and has {completed} completed runs"), lines())
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken, job};
    use crate::jobs::ExecutionStatus::*;

    #[test]
    fn holds_while_runs_that_count_are_numbered_on() {
        let mut world = World::new();
        world.seal("n1", 1).dispatch("n1", 1, 1, 1).report("n1", 1, 1, Lost).last("n1").attempt = Some(1);
        world.dispatch("n1", 1, 1, 2).report("n1", 1, 2, Released).last("n1").attempt = Some(2);
        world.dispatch("n1", 1, 1, 3).last("n1").attempt = Some(2);
        world.report("n1", 1, 3, Completed).last("n1").attempt = Some(2);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn two_runs_of_one_number_are_found() {
        let mut world = World::new();
        world.report("n1", 1, 1, Lost).last("n1").attempt = Some(1);
        world.report("n1", 1, 2, Completed).last("n1").attempt = Some(1);
        let what = format!("job {} has two runs that count as attempt 1", job(1));
        assert!(world.check().contains(&broken("J5", &what, &["n1:2", "n1:3"])[0]));
    }

    #[test]
    fn an_attempt_too_many_is_found_unless_the_job_was_redriven() {
        let mut world = World::new();
        world.seal("n1", 1).dispatch("n1", 1, 1, 4).last("n1").attempts_max = Some(3);
        let what = format!("job {} was dispatched for attempt 4 of at most 3", job(1));
        assert_eq!(world.check(), broken("J5", &what, &["n1:3"]));
        world.redrive("n1", 1);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn an_export_whose_attempts_do_not_add_up_is_found() {
        let mut world = World::new();
        world.export_runs("client", 1, "completed", 2, &[(1, Failed), (2, Completed)]);
        assert_eq!(world.check(), []);
        let mut world = World::new();
        world.export_runs("client", 1, "completed", 3, &[(1, Failed), (2, Completed)]);
        let what = format!("job {} shows 3 attempts and has runs that count as [1, 2]", job(1));
        assert_eq!(world.check(), broken("J5", &what, &["client:3", "client:4", "client:5"]));
        let mut world = World::new();
        world.export_runs("client", 1, "failed", 2, &[(1, Failed), (2, Completed)]);
        assert_eq!(world.check()[0].what, format!("job {} is failed and has 1 completed runs", job(1)));
    }
}
