//! The leader's view of runs: due, in flight, overdue.

use convoke_core::election::Fence;
use convoke_core::jobs::{Documents, Ownership, Status};
use convoke_core::ports::store::{
    Handover, Holders, InFlight, InFlightFilter, Overdue, Promoted, Reassign, Reassigned,
};
use convoke_core::{JobId, NodeId, WorkerId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::catalog::{QueueId, WriteTx};
use super::columns::columns;
use super::epoch;
use super::failure::Result;
use super::rows::{definition, get, micros};
use crate::statement::{build, build_with, sql};

columns!(IN_FLIGHT: InFlightColumns {
    id, execution_id, attempt, state, worker, owner, ownership, dispatched_at, deadline, document,
});

pub(super) fn promote(tx: &mut WriteTx<'_>, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted> {
    epoch::hold(tx, fence, "promote")?;
    let db = tx.db;
    let mut statement = db.prepare_cached(sql!(include_str!("sql/promote.sql")))?;
    let mut rows = statement.query(params![micros(now), limit as i64])?;
    let mut promoted = Promoted::default();
    let mut queues: Vec<QueueId> = Vec::new();
    while let Some(row) = rows.next()? {
        let queue = QueueId(get(row, "queue_id")?);
        tx.catalog.moved(queue, Some(Status::Scheduled), Some(Status::Pending));
        promoted.count += 1;
        queues.push(queue);
    }
    queues.sort_unstable();
    queues.dedup();
    promoted.queues = queues.into_iter().map(|queue| tx.catalog.queue(queue).name.clone()).collect();
    let next = sql!("select min(due_at) as at from jobs indexed by jobs_scheduled where state = {scheduled}");
    promoted.next_due_at = db.prepare_cached(next)?.query_row([], |row| get(row, "at"))?;
    Ok(promoted)
}

/// Moves the ownership of runs: the present owner is in the `where` of the statement that writes.
pub(super) fn reassign(tx: &WriteTx<'_>, changes: &[Reassign]) -> Result<Vec<Reassigned>> {
    let mut write = tx.db.prepare_cached(sql!(include_str!("sql/reassign.sql")))?;
    let text = sql!("select owner from jobs where id = ?1 and execution_id = ?2 and state in ({in_flight})");
    let mut read = tx.db.prepare_cached(text)?;
    let mut reassigned = Vec::with_capacity(changes.len());
    for change in changes {
        let (job, execution) = (change.job.0.as_bytes(), change.execution.0.as_bytes());
        let (taker, ownership) = match &change.to {
            Handover::Offer => (None, Ownership::HandingOff),
            Handover::Keep => (None, Ownership::Owned),
            Handover::Orphan => (None, Ownership::OrphanPending),
            Handover::Take(node) => (Some(node.as_str()), Ownership::Owned),
        };
        let written = write.execute(params![job, execution, change.from.as_str(), taker, ownership.code()])?;
        reassigned.push(if written > 0 {
            Reassigned::Done
        } else {
            let owner = read.query_row(params![job, execution], |row| get(row, "owner")).optional()?;
            owner.map_or(Reassigned::Over, Reassigned::OwnedBy)
        });
    }
    Ok(reassigned)
}

/// The part of `jobs_in_flight` with runs that lack a worker or an owner, and the rest.
const UNHELD: &str = "(worker is not null and owner is not null) = 0";
const HELD: &str = "(worker is not null and owner is not null) = 1";

const MOVING: &str = "ownership in ({handing_off}, {orphan_pending})";

pub(super) fn in_flight(
    db: &Connection,
    filter: &InFlightFilter,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<InFlight>> {
    let part = |by: By| read_in_flight(db, filter, after, limit, by);
    match index_of(filter) {
        Some(by) => part(by),
        None => {
            let mut runs = part(("jobs_in_flight", UNHELD))?;
            runs.extend(part(("jobs_in_flight", HELD))?);
            runs.sort_by_key(|run| run.job);
            runs.truncate(limit);
            Ok(runs)
        }
    }
}

/// An index, and the part of it to read.
type By = (&'static str, &'static str);

/// Returns the index that serves a filter. `None`: all runs in flight are read.
fn index_of(filter: &InFlightFilter) -> Option<By> {
    Some(match filter {
        InFlightFilter { worker: Some(_), .. } => ("jobs_of_worker", "worker = ?2"),
        InFlightFilter { owner: Some(_), .. } => ("jobs_of_owner", "owner = ?3"),
        InFlightFilter { moving: true, .. } => ("jobs_moving", MOVING),
        InFlightFilter { without_worker: true, .. }
        | InFlightFilter { unclaimed_before: Some(_), .. }
        | InFlightFilter { unowned_before: Some(_), .. } => ("jobs_in_flight", UNHELD),
        _ => return None,
    })
}

fn read_in_flight(
    db: &Connection,
    filter: &InFlightFilter,
    after: Option<JobId>,
    limit: usize,
    (index, key): By,
) -> Result<Vec<InFlight>> {
    let names = [("columns", IN_FLIGHT.list.into()), ("index", index.into()), ("key", build(key))];
    let mut statement = db.prepare_cached(&build_with(include_str!("sql/in_flight.sql"), &names.into()))?;
    let executions: Vec<String> = filter.executions.iter().map(|id| format!("{:X}", id.0.simple())).collect();
    let executions = (!executions.is_empty()).then(|| format!("[\"{}\"]", executions.join("\",\"")));
    // The empty blob sorts before every id.
    let after = after.map(|id| id.0.into_bytes().to_vec()).unwrap_or_default();
    let runs = statement.query_map(
        params![
            after,
            filter.worker.as_ref().map(WorkerId::as_str),
            filter.owner.as_ref().map(NodeId::as_str),
            filter.unclaimed_before.map(micros),
            filter.unowned_before.map(micros),
            filter.moving,
            executions,
            limit as i64,
            filter.without_worker
        ],
        read_run,
    )?;
    Ok(runs.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn holders(db: &Connection) -> Result<Holders> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/holders.sql")))?;
    let mut rows = statement.query([])?;
    let mut holders = Holders::default();
    while let Some(row) = rows.next()? {
        if get(row, "is_worker")? {
            holders.workers.push(get(row, "name")?);
        } else {
            holders.owners.push(get(row, "name")?);
        }
    }
    Ok(holders)
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<InFlight> {
    let mut documents = Documents::default();
    let definition = definition(&mut documents, row, IN_FLIGHT.document)?;
    Ok(InFlight {
        job: get(row, IN_FLIGHT.id)?,
        execution: get(row, IN_FLIGHT.execution_id)?,
        job_type: definition.job_type.clone(),
        queue: definition.queue.clone(),
        attempt: get(row, IN_FLIGHT.attempt)?,
        status: get(row, IN_FLIGHT.state)?,
        worker: get(row, IN_FLIGHT.worker)?,
        owner: get(row, IN_FLIGHT.owner)?,
        ownership: get(row, IN_FLIGHT.ownership)?,
        dispatched_at: get(row, IN_FLIGHT.dispatched_at)?,
        deadline: None,
    })
}

pub(super) fn overdue(db: &Connection, now: Timestamp, limit: usize) -> Result<Overdue> {
    let text = sql!(
        "select {run} from jobs indexed by jobs_deadline where deadline is not null order by deadline limit ?1",
        run = IN_FLIGHT.list
    );
    let mut statement = db.prepare_cached(text)?;
    let mut rows = statement.query([limit as i64 + 1])?;
    let mut overdue = Overdue::default();
    while let Some(row) = rows.next()? {
        let deadline = get(row, IN_FLIGHT.deadline)?;
        if deadline > now || overdue.runs.len() == limit {
            overdue.next_at = Some(deadline);
            break;
        }
        overdue.runs.push(InFlight { deadline: Some(deadline), ..read_run(row)? });
    }
    Ok(overdue)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sqlite_file::runs_of_a_worker_or_an_owner_are_found_by_index` tests the plans of these.
    #[test]
    fn every_filter_of_a_duty_is_served_by_an_index() {
        let none = InFlightFilter::default;
        let now = Some(Timestamp::UNIX_EPOCH);
        let worker = WorkerId::new("w").ok();
        let owner = NodeId::new("n").ok();
        for (filter, expected) in [
            (InFlightFilter { worker, ..none() }, ("jobs_of_worker", "worker = ?2")),
            (InFlightFilter { owner, ..none() }, ("jobs_of_owner", "owner = ?3")),
            (InFlightFilter { moving: true, ..none() }, ("jobs_moving", MOVING)),
            (InFlightFilter { without_worker: true, ..none() }, ("jobs_in_flight", UNHELD)),
            (InFlightFilter { unclaimed_before: now, ..none() }, ("jobs_in_flight", UNHELD)),
            (InFlightFilter { unowned_before: now, ..none() }, ("jobs_in_flight", UNHELD)),
        ] {
            assert_eq!(index_of(&filter), Some(expected), "{filter:?}");
        }
        assert_eq!(index_of(&none()), None);
    }
}
