//! J6: at most one node owns a job at any time; after a handoff or a crash somebody does.
//!
//! The store has one owner in a row, so two cannot stand there at once. The row can name one owner while
//! another acts: a node records a run that is not its own, or a job is given to a node that did not take it and may never
//! receive it. Both show in the [chronicle](super::Entry), since each node writes under its own name.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::jobs::{Ownership, Status};

use super::chronicle::jobs;
use super::{Broken, Entry, Row};

/// Of the whole history: every owner took the job itself, only the owner recorded it, and no change is missing.
pub fn check(entries: &[Entry]) -> Vec<Broken> {
    let mut found = Vec::new();
    let mut last: BTreeMap<&str, Option<&Row>> = BTreeMap::new();
    for (writer, id, before, after) in jobs(entries) {
        if last.insert(id, after).is_some_and(|known| known != before) {
            found.push(broken(format!("job {id} was changed behind the chronicle's back: it is suddenly {before:?}")));
        }
        let Some(after) = after else { continue };
        let what = incoherent(after).or_else(|| taken_for_another(writer, before, after));
        let what = what.or_else(|| recorded_by_another(writer, before, after));
        found.extend(what.map(|what| broken(format!("job {id} {what}"))));
    }
    found
}

/// Of the present rows, once the cluster has healed: each run under way has an owner that lives. A run that was dispatched
/// only just now may have none yet.
pub fn owners_live(rows: &BTreeMap<String, Row>, live: &BTreeSet<String>) -> Vec<Broken> {
    let cared_for = |row: &Row| match row.owned_by() {
        Some(owner) => row.ownership == Ownership::Owned && live.contains(owner),
        None => row.status == Status::Dispatched,
    };
    let astray = rows.iter().filter(|(_, row)| row.in_flight() && !cared_for(row));
    astray.map(|(id, row)| broken(format!("job {id} is under way and nobody alive owns it: {row:?}"))).collect()
}

fn broken(what: String) -> Broken {
    Broken { invariant: "J6", what }
}

/// A run under way is owned by somebody or not at all. Of one that has ended the owner stays as a record.
fn incoherent(row: &Row) -> Option<String> {
    let owned = row.ownership != Ownership::Unowned;
    let wrong = if row.in_flight() { owned != row.owner.is_some() } else { owned };
    wrong.then(|| format!("is owned incoherently: {row:?}"))
}

/// Nobody is made the owner by another, except by the dispatch: the leader addresses a new run to a node.
fn taken_for_another(writer: &str, before: Option<&Row>, after: &Row) -> Option<String> {
    let owner = after.owner.as_deref()?;
    let known = before.and_then(|before| before.owner.as_deref());
    let is_addressed = after.status == Status::Dispatched
        && after.ownership == Ownership::Owned
        && before.is_some_and(|before| before.status == Status::Pending && before.execution != after.execution);
    (known != Some(owner) && owner != writer && !is_addressed)
        .then(|| format!("was given to {owner} by {writer}; before, it had {known:?}"))
}

/// Only a run's owner records that it runs or has completed, or the receiver of the report while it has no owner: the gateway of a
/// node that drains makes no claim. The leader or a client may also record that a run failed or was cancelled.
fn recorded_by_another(writer: &str, before: Option<&Row>, after: &Row) -> Option<String> {
    let recorded = matches!(after.status, Status::Running | Status::Completed);
    let news = before.is_none_or(|before| before.status != after.status || before.execution != after.execution);
    let owner = after.owner.as_deref()?;
    (recorded && news && owner != writer)
        .then(|| format!("was recorded as {:?} by {writer} while {owner} owned it", after.status))
}

#[cfg(test)]
mod tests {
    use convoke_core::jobs::Ownership::*;
    use convoke_core::jobs::Status::*;

    use super::super::Change;
    use super::super::chronicle::{life, row};
    use super::*;

    fn owned(status: Status, owner: &str) -> Row {
        row(status, Some((owner, Owned)))
    }

    /// Ended: unowned, with the owner as the record of who wrote it.
    fn ended(status: Status, owner: &str) -> Row {
        row(status, Some((owner, Unowned)))
    }

    #[test]
    fn holds_for_a_job_that_is_handed_from_node_to_node() {
        let history = life(
            "a",
            &[
                ("client", row(Pending, None)),
                ("leader", row(Dispatched, None)),
                ("n1", owned(Running, "n1")),
                ("n1", row(Running, Some(("n1", HandingOff)))),
                ("n2", owned(Running, "n2")),
                ("n2", row(Running, Some(("n2", HandingOff)))),
                ("n2", row(Running, Some(("n2", OrphanPending)))),
                ("n3", owned(Running, "n3")),
                ("n3", ended(Completed, "n3")),
            ],
        );
        assert_eq!(check(&history), []);
    }

    #[test]
    fn holds_where_the_leader_or_a_client_ends_what_another_owns() {
        for end in [Failed, TimedOut, Cancelled] {
            let history = life(
                "a",
                &[("leader", row(Dispatched, None)), ("n1", owned(Running, "n1")), ("leader", ended(end, "n1"))],
            );
            assert_eq!(check(&history), [], "{end:?}");
        }
        let retried = life("a", &[("n1", owned(Running, "n1")), ("leader", row(Pending, None))]);
        assert_eq!(check(&retried), []);
    }

    #[test]
    fn holds_where_the_leader_addresses_a_new_run_to_a_node() {
        let addressed = Row { execution: Some("e1".into()), ..owned(Dispatched, "n1") };
        let ended = Row { execution: Some("e1".into()), ..ended(Completed, "n1") };
        let history = life("a", &[("client", row(Pending, None)), ("leader", addressed.clone()), ("n1", ended)]);
        assert_eq!(check(&history), []);
        let another = Row { owner: Some("n2".into()), ..addressed.clone() };
        assert_eq!(
            check(&life("a", &[("leader", addressed), ("leader", another)])).len(),
            2,
            "not once it is dispatched"
        );
    }

    #[test]
    fn an_owner_that_another_wrote_is_found() {
        let history = life("a", &[("n1", owned(Running, "n1")), ("vandal", owned(Running, "n2"))]);
        assert_eq!(check(&history).len(), 1);
    }

    #[test]
    fn a_record_by_another_than_the_owner_is_found() {
        let completed = life("a", &[("n1", owned(Running, "n1")), ("n2", ended(Completed, "n1"))]);
        assert_eq!(check(&completed).len(), 1);
        let started = life("a", &[("n1", owned(Dispatched, "n1")), ("n2", owned(Running, "n1"))]);
        assert_eq!(check(&started).len(), 1);
    }

    #[test]
    fn holds_where_a_node_that_drains_records_what_nobody_owns() {
        assert_eq!(check(&life("a", &[("leader", row(Dispatched, None)), ("n1", row(Completed, None))])), []);
    }

    #[test]
    fn a_row_that_contradicts_itself_is_found() {
        let nobodys = Row { owner: None, ..owned(Dispatched, "n1") };
        assert_eq!(check(&life("a", &[("leader", nobodys)])).len(), 1);
        assert_eq!(check(&life("a", &[("n1", owned(Completed, "n1"))])).len(), 1, "an ended job is still owned");
        assert_eq!(check(&life("a", &[("n1", ended(Running, "n1"))])).len(), 1, "a running job with an owner is not");
    }

    #[test]
    fn a_change_that_the_chronicle_did_not_see_is_found() {
        let mut history = life("a", &[("n1", owned(Running, "n1")), ("n1", ended(Completed, "n1"))]);
        let Change::Job { before, .. } = &mut history[1].change else { panic!("a job's change") };
        *before = Some(owned(Running, "n2"));
        let found = check(&history);
        assert!(found.iter().any(|it| it.what.contains("behind")), "{found:?}");
    }

    #[test]
    fn a_running_job_whose_owner_is_dead_or_leaving_is_found() {
        let live = BTreeSet::from(["n1".to_owned()]);
        let broken = |row: Row| owners_live(&BTreeMap::from([("a".to_owned(), row)]), &live).len();
        assert_eq!(broken(owned(Running, "n1")), 0);
        assert_eq!(broken(row(Dispatched, None)), 0, "it waits for its worker, and for an owner");
        assert_eq!(broken(ended(Completed, "n2")), 0);
        assert_eq!(broken(owned(Running, "n2")), 1);
        assert_eq!(broken(owned(Dispatched, "n2")), 1);
        assert_eq!(broken(row(Running, Some(("n1", OrphanPending)))), 1);
        assert_eq!(broken(row(Running, None)), 1);
    }
}
