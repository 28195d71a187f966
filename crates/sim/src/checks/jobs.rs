//! J1 to J6 and B1: what is promised of jobs, their runs, their owners and their channels.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::jobs::{Claim, ExecutionStatus, Job, Ownership, Status};
use convoke_core::{JobId, NodeId};

use super::Violation;
use crate::history::{Entry, Record, Reported};
use crate::world::Ended;

/// Checks every change.
pub fn check_history(records: &[Record]) -> Vec<Violation> {
    let mut found = Vec::new();
    for Record { by, what, .. } in records {
        match what {
            Entry::Changed { what, before: Some(before), after, report } => {
                let after = after.as_deref();
                let wrong = report.as_ref().and_then(|report| reported_wrongly(before, report));
                let wrong = wrong.or_else(|| ended_twice(what, before, after));
                let wrong = wrong.or_else(|| taken_wrongly(by, what, before, after?, report.as_ref()));
                found.extend(wrong.map(|(invariant, text)| {
                    Violation::new(invariant, format!("job {}: {what} of {by} {text}", before.id))
                }));
            }
            Entry::Accepted { job, execution, kind, is_stored: false } => {
                let text =
                    format!("{by} was sent that `{}` of run {execution} of job {job} is recorded", kind.as_str());
                found.push(Violation::new("J2", format!("{text}, and it was not")));
            }
            Entry::Shown { job, is_stored: false } => {
                let text = format!("an event of {by} showed the end of job {job} before the store had it");
                found.push(Violation::new("J4", text));
            }
            _ => {}
        }
    }
    found
}

/// J2: only the present run of a job changes it.
fn reported_wrongly(before: &Job, report: &Reported) -> Option<(&'static str, String)> {
    if before.execution_id != Some(report.execution) {
        let present = before.execution_id.map_or("none".into(), |run| run.to_string());
        return Some(("J2", format!("recorded run {} while {present} was present", report.execution)));
    }
    if let (Some(from), Some(owner)) = (&report.from, &before.owner_node)
        && from != owner
        && before.ownership != Ownership::OrphanPending
    {
        return Some(("J6", format!("took from {from} what {owner} owned")));
    }
    match (&report.claim, before.ownership, &before.owner_node) {
        (Some(Claim::IfFree(node)), owned, Some(owner)) if owned != Ownership::Unowned && owner != node => {
            Some(("J6", format!("recorded for {node} while {owner} owned the run")))
        }
        _ => None,
    }
}

/// J4: an end stays as it is. Only an operator makes a job run again.
fn ended_twice(what: &str, before: &Job, after: Option<&Job>) -> Option<(&'static str, String)> {
    let Some(after) = after else {
        let is_live = before.status.is_live();
        return is_live.then(|| ("J1", "deleted it before it had ended".into()));
    };
    let end = |job: &Job| (job.status, job.completed_at, job.error.clone());
    (!before.status.is_live() && end(before) != end(after) && what != "redrive")
        .then(|| ("J4", format!("changed its end from {:?} to {:?}", end(before), end(after))))
}

/// J6: a node takes a run for itself, and only one that its owner offers or has left.
fn taken_wrongly(
    by: &str,
    what: &str,
    before: &Job,
    after: &Job,
    report: Option<&Reported>,
) -> Option<(&'static str, String)> {
    let owner = after.owner_node.as_ref()?;
    if before.owner_node.as_ref() == Some(owner) || before.execution_id != after.execution_id {
        return None;
    }
    if owner.as_str() != by {
        return Some(("J6", format!("gave it to {owner}")));
    }
    let was_free = |other: &NodeId| {
        let is_offered =
            matches!(before.ownership, Ownership::HandingOff | Ownership::OrphanPending | Ownership::Unowned);
        is_offered || report.is_some_and(|report| matches!(report.claim, Some(Claim::Take(_)))) || other == owner
    };
    // The leader offers the runs of a dead node, which still stands there as their owner.
    let is_offer_of_the_dead = what == "reassign";
    let other = before.owner_node.as_ref()?;
    (!was_free(other) && !is_offer_of_the_dead).then(|| ("J6", format!("took it from {other}, which owned it")))
}

/// Checks what is left in the end.
pub fn check_end(ended: &Ended) -> Vec<Violation> {
    let mut found = Vec::new();
    let deleted: BTreeSet<JobId> = deleted_after_the_end(&ended.records);
    let there: BTreeMap<JobId, &Job> = ended.jobs.iter().map(|job| (job.id, job)).collect();
    for record in &ended.records {
        if let Entry::Acknowledged { job, .. } = record.what
            && !there.contains_key(&job)
            && !deleted.contains(&job)
            && !ended.excused.contains(&job)
        {
            found.push(Violation::new("J1", format!("job {job} was acknowledged to {} and is gone", record.by)));
        }
    }
    let redriven: BTreeSet<JobId> = redriven(&ended.records);
    for (job, runs) in ended.jobs.iter().zip(&ended.runs) {
        if job.status.is_live() {
            found.push(Violation::new(
                "J3",
                format!("job {} has not ended: {:?} for {:?}", job.id, job.status, job.owner_node),
            ));
        }
        let counted = runs.iter().filter(|run| run.status != ExecutionStatus::Released).count();
        if counted != job.attempt as usize {
            let what = format!("job {} shows {} attempts and has {counted} runs that count", job.id, job.attempt);
            found.push(Violation::new("J5", what));
        }
        if job.attempt > job.definition.max_retries + 1 && !redriven.contains(&job.id) {
            let most = job.definition.max_retries + 1;
            found.push(Violation::new("J5", format!("job {} had {} attempts of at most {most}", job.id, job.attempt)));
        }
        let completed = runs.iter().filter(|run| run.status == ExecutionStatus::Completed).count();
        if completed > 1 {
            found.push(Violation::new("J4", format!("job {} completed {completed} times", job.id)));
        }
        if job.status == Status::Completed && completed == 0 {
            found.push(Violation::new("J4", format!("job {} is completed and none of its runs is", job.id)));
        }
    }
    found.extend(ended.open_channels.iter().map(|queue| Violation::new("B1", format!("{queue} is still open"))));
    found
}

/// Jobs that the retention may have deleted: they had ended.
fn deleted_after_the_end(records: &[Record]) -> BTreeSet<JobId> {
    let ended = records.iter().filter_map(|record| match &record.what {
        Entry::Changed { after: Some(after), .. } if !after.status.is_live() => Some(after.id),
        _ => None,
    });
    ended.collect()
}

fn redriven(records: &[Record]) -> BTreeSet<JobId> {
    let changed = records.iter().filter_map(|record| match &record.what {
        Entry::Changed { what: "redrive", after: Some(after), .. } => Some(after.id),
        _ => None,
    });
    changed.collect()
}
