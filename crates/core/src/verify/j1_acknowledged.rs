//! J1: an acknowledged enqueue survives, with the type and the queue that were requested.
//!
//! Only an export of the whole store shows that a job is gone. A job may be gone for good reasons: it was purged, or its
//! retention has passed. And it may have been enqueued after the export began. If another process wrote the line, the order
//! of the two follows from their clocks, with [`SKEW`] to spare: the one place where clocks count.

use jiff::{SignedDuration, Timestamp};

use super::index::{Export, Index};
use super::{Record, Violation};
use crate::decisions::What;
use crate::ids::JobId;

const CODE: &str = "J1";
/// How far the clocks of two processes may be apart.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

pub fn check(index: &Index<'_>, notes: &mut Vec<String>) -> Vec<Violation> {
    let mut found = Vec::new();
    let retention = retention(index);
    for (job, lines) in &index.jobs {
        found.extend(changed(lines).filter(|_| !index.is_reused(*job)));
        found.extend(retention.and_then(|retention| stored_twice(index, *job, retention)));
    }
    let Some(export) = index.exports.last() else {
        notes.push("without an export of the store (convoke history export) no lost job is found".into());
        return found;
    };
    if index.is_fleeting {
        notes.push("the store does not outlive its process: jobs may be gone after a restart".into());
        return found;
    }
    if !export.is_complete() {
        notes.push("the export of the store is incomplete: no lost job is found".into());
        return found;
    }
    let Some(retention) = retention else {
        notes.push("no history of a node shows how long ended jobs are kept: no lost job is found".into());
        return found;
    };
    for (job, lines) in &index.jobs {
        if export.jobs.contains_key(job) || index.may_be_purged(*job) {
            continue;
        }
        let proves =
            |it: &&&Record| proves_stored(it) && was_stored_before(it, export) && is_kept(it, export, retention);
        if let Some(stored) = lines.iter().find(proves) {
            let proof = [export.begin, export.end].into_iter().flatten().chain([*stored]);
            found.push(Violation::of(CODE, format!("job {job} was acknowledged and is gone"), proof));
        }
    }
    found
}

/// Returns whether the job was stored.
fn proves_stored(record: &Record) -> bool {
    let decision = &record.decision;
    let is_stored = matches!(decision.what, What::ClientEnqueued | What::JobsEnqueue | What::JobsTick);
    is_stored && decision.is_accepted()
}

/// Returns the shortest time for which ended jobs are kept, by all starts of nodes.
fn retention(index: &Index<'_>) -> Option<SignedDuration> {
    let begins = index.boots.values().filter_map(|boot| boot.begin());
    let shortest = begins.filter_map(|begin| begin.decision.retention_s).min()?;
    Some(SignedDuration::from_secs(i64::try_from(shortest).unwrap_or(i64::MAX)))
}

fn was_stored_before(stored: &Record, export: &Export<'_>) -> bool {
    let Some(begin) = export.begin.map(|begin| &begin.decision) else { return false };
    let stored = &stored.decision;
    if (&stored.node, stored.boot) == (&begin.node, begin.boot) {
        return stored.seq <= begin.since;
    }
    later(stored.at, SKEW) < begin.at
}

/// Returns whether the job cannot have passed its retention, whenever it ended.
fn is_kept(stored: &Record, export: &Export<'_>, retention: SignedDuration) -> bool {
    let Some(end) = export.end else { return false };
    later(stored.decision.at, retention.saturating_sub(SKEW)) > end.decision.at
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// A job that was stored a second time before its retention can have passed.
fn stored_twice(index: &Index<'_>, job: JobId, retention: SignedDuration) -> Option<Violation> {
    let mut stored: Vec<&Record> = index.stored(job).collect();
    stored.sort_by_key(|record| record.decision.at);
    let kept = retention.saturating_sub(SKEW);
    let is_early = |pair: &&[&Record]| later(pair[0].decision.at, kept) > pair[1].decision.at;
    let twice = stored.windows(2).find(is_early).filter(|_| !index.may_be_purged(job) && !index.is_fleeting)?;
    Some(Violation::of(CODE, format!("job {job} was stored twice"), twice.iter().copied()))
}

/// A job that is another than the one that was requested.
fn changed(lines: &[&Record]) -> Option<Violation> {
    let describes = |it: &&&Record| it.decision.job_type.is_some() && it.decision.is_accepted();
    let mut described = lines.iter().filter(describes);
    let first = described.next()?;
    let of = |record: &Record| (record.decision.job_type.clone(), record.decision.queue.clone());
    let other = described.find(|it| of(it) != of(first))?;
    let job = first.decision.job?;
    Some(Violation::of(CODE, format!("job {job} has two types or queues"), [*first, *other]))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken, job};

    #[test]
    fn holds_while_every_acknowledged_job_is_in_the_store() {
        let mut world = World::new();
        world.retention("n1", 86_400).enqueued("client", 1).enqueued("client", 2).enqueue("n1", 1);
        world.export("client", &[(1, "completed"), (2, "pending")]);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_lost_job_is_found() {
        let mut world = World::new();
        world.retention("n1", 86_400).enqueued("client", 1).enqueued("client", 2).export("client", &[(2, "pending")]);
        let what = format!("job {} was acknowledged and is gone", job(1));
        assert_eq!(world.check(), broken("J1", &what, &["client:2", "client:4", "client:6"]));
    }

    #[test]
    fn a_job_that_a_node_stored_is_missed_by_the_clocks_and_only_if_they_are_far_enough_apart() {
        let mut world = World::new();
        world.retention("n1", 86_400).enqueue("n1", 1).export("client", &[]);
        assert_eq!(world.check(), [], "it may have been stored after the export");
        world.later("client", 120);
        assert_eq!(world.check().len(), 1);
    }

    #[test]
    fn a_job_may_be_gone_if_it_was_purged_or_its_retention_has_passed_or_it_came_later() {
        let lost = || {
            let mut world = World::new();
            world.retention("n1", 86_400).enqueued("client", 1);
            world
        };
        let mut purged = lost();
        purged.purge("n1", 1).export("client", &[]);
        assert_eq!(purged.check(), []);
        let mut old = World::new();
        old.retention("n1", 30).enqueued("client", 1).export("client", &[]);
        assert_eq!(old.check(), [], "it may be deleted already");
        let mut late = World::new();
        late.retention("n1", 86_400).export("client", &[]).enqueued("client", 1);
        assert_eq!(late.check(), []);
        let mut incomplete = lost();
        incomplete.export("client", &[(2, "pending")]).last("client").count = Some(2);
        assert_eq!(incomplete.check(), []);
    }

    #[test]
    fn a_job_that_is_stored_twice_is_found_unless_it_may_have_been_deleted() {
        let mut world = World::new();
        world.retention("n1", 86_400).enqueue("n1", 1).enqueue("n2", 1);
        let what = format!("job {} was stored twice", job(1));
        assert_eq!(world.check(), broken("J1", &what, &["n1:2", "n2:2"]));
        world.later("n2", 86_400);
        assert_eq!(world.check(), [], "its retention may have passed");
        world.later("n2", -86_400).purge("n1", 1);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_job_that_comes_back_as_another_is_found() {
        let mut world = World::new();
        world.enqueue("n1", 1).enqueued("client", 1);
        world.last("client").queue = Some(crate::QueueName::new("elsewhere").expect("a name"));
        let what = format!("job {} has two types or queues", job(1));
        assert_eq!(world.check(), broken("J1", &what, &["client:2", "n1:2"]));
    }
}
