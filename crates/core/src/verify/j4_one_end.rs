//! J4: a job has one end, and everybody who sees it sees the same one.
//!
//! A job that ended without completing may be redriven and end again; each redrive is announced in the history before it is
//! made. Without the histories of all nodes one of them may be missing, and then only ends that no redrive explains are
//! found.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Record, Violation};
use crate::decisions::What;
use crate::ids::JobId;
use crate::jobs::Status;

const CODE: &str = "J4";

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    // Another node may have redriven the job.
    let knows_redrives = index.silent_nodes().is_empty() && index.boots.values().all(|boot| boot.is_contiguous());
    let of = |(job, lines): (&JobId, &Vec<&Record>)| {
        let redrives = index.redrives(*job);
        let many = ended_too_often(*job, lines, redrives).filter(|_| knows_redrives);
        many.or_else(|| left_completed(*job, lines))
            .or_else(|| seen_as_two(*job, lines).filter(|_| knows_redrives && redrives == 0))
    };
    index.jobs.iter().filter(|(job, _)| !index.is_reused(**job)).filter_map(of).collect()
}

/// The end of the job by this line, as the store accepted it.
fn ended_as(record: &Record) -> Option<Status> {
    let decision = &record.decision;
    let ends = matches!(decision.what, What::RunReport | What::RunEnd | What::JobsCancel) && decision.is_accepted();
    decision.status.filter(|status| ends && !status.is_live())
}

fn ended_too_often(job: JobId, lines: &[&Record], redrives: usize) -> Option<Violation> {
    let ends: Vec<&Record> = lines.iter().copied().filter(|record| ended_as(record).is_some()).collect();
    (ends.len() > redrives + 1).then(|| {
        let what = format!("job {job} ended {} times and was redriven {redrives} times", ends.len());
        Violation::of(CODE, what, ends)
    })
}

/// A completed job that ended otherwise, or was cancelled, after all: nothing leaves `completed`.
fn left_completed(job: JobId, lines: &[&Record]) -> Option<Violation> {
    let completed = lines.iter().find(|record| ended_as(record) == Some(Status::Completed))?;
    let attempt = completed.decision.attempt?;
    let later = lines.iter().find(|record| {
        ended_as(record).is_some_and(|status| status != Status::Completed)
            && record.decision.attempt.is_some_and(|it| it > attempt)
    })?;
    Some(Violation::of(CODE, format!("job {job} ended again after it was completed"), [*completed, *later]))
}

/// Two ends of a job that was never redriven, whoever saw them.
fn seen_as_two(job: JobId, lines: &[&Record]) -> Option<Violation> {
    let mut seen: BTreeMap<u8, (Status, &Record)> = BTreeMap::new();
    for record in lines {
        let decision = &record.decision;
        let shown = match decision.what {
            What::ClientEnded | What::StoreJob => decision.status.filter(|status| !status.is_live()),
            _ => ended_as(record),
        };
        if let Some(status) = shown {
            seen.entry(status.code()).or_insert((status, record));
        }
    }
    if seen.len() < 2 {
        return None;
    }
    let names: Vec<&str> = seen.values().map(|(status, _)| status.as_str()).collect();
    let what = format!("job {job} ended as {}", names.join(" and as "));
    Some(Violation::of(CODE, what, seen.into_values().map(|(_, record)| record)))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken, job};
    use crate::jobs::ExecutionStatus::*;

    #[test]
    fn holds_with_one_end_and_one_more_for_each_redrive() {
        let mut world = World::new();
        world.report("n1", 1, 1, Failed).redrive("n2", 1).report("n1", 1, 2, Completed);
        world.ended("client", 1, "failed").ended("client", 1, "completed").export("client", &[(1, "completed")]);
        world.exported_run("client", 2);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_second_end_without_a_redrive_is_found() {
        let mut world = World::new();
        world.report("n1", 1, 1, Failed).report("n2", 1, 2, Failed);
        let what = format!("job {} ended 2 times and was redriven 0 times", job(1));
        assert_eq!(world.check(), broken("J4", &what, &["n1:2", "n2:2"]));
        world.takes("n1", 9, 9, "n3");
        assert_eq!(world.check(), [], "n3, whose history is missing, may have redriven it");
    }

    #[test]
    fn an_end_after_a_completion_is_found_whatever_is_missing() {
        let mut world = World::new();
        world.report("n1", 1, 1, Completed).last("n1").attempt = Some(1);
        world.report("n2", 1, 2, Failed).last("n2").attempt = Some(2);
        world.takes("n1", 9, 9, "n3");
        let what = format!("job {} ended again after it was completed", job(1));
        assert_eq!(world.check(), broken("J4", &what, &["n1:2", "n2:2"]));
    }

    #[test]
    fn an_end_that_differs_from_what_a_client_saw_is_found() {
        let mut world = World::new();
        world.ended("client", 1, "failed").export("other", &[(1, "cancelled")]);
        let what = format!("job {} ended as failed and as cancelled", job(1));
        assert_eq!(world.check(), broken("J4", &what, &["client:2", "other:3"]));
    }
}
