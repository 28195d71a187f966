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

const MOVING: &str = "ownership in ({handing_off}, {orphan_pending})";

/// The runs of an owner that lack a worker, and those that have one.
const UNHELD: &str = "owner is ?3 and (worker is not null) = 0";
const HELD: &str = "owner is ?3 and (worker is not null) = 1";

/// A part of an index: its name, the condition of the part, and the owner of its runs if the part is that of an owner.
struct Part {
    index: &'static str,
    key: &'static str,
    owner: Option<NodeId>,
}

pub(super) fn in_flight(
    db: &Connection,
    filter: &InFlightFilter,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<InFlight>> {
    let mut runs: Vec<InFlight> = Vec::new();
    for part in parts(filter, || owners(db))? {
        runs.extend(read_in_flight(db, filter, after, limit, &part)?);
    }
    runs.sort_by_key(|run| run.job);
    runs.truncate(limit);
    Ok(runs)
}

/// Returns the parts of indexes that have the runs of the filter. `owners` returns all owners of runs in flight.
fn parts(filter: &InFlightFilter, owners: impl FnOnce() -> Result<Vec<NodeId>>) -> Result<Vec<Part>> {
    let of_owner = |owner: &Option<NodeId>, key| Part { index: "jobs_in_flight", key, owner: owner.clone() };
    Ok(match filter {
        InFlightFilter { worker: Some(_), owner, .. } => {
            vec![Part { index: "jobs_of_worker", key: "worker = ?2", owner: owner.clone() }]
        }
        InFlightFilter { moving: true, owner, .. } => {
            vec![Part { index: "jobs_moving", key: MOVING, owner: owner.clone() }]
        }
        filter => {
            let owners: Vec<Option<NodeId>> = match &filter.owner {
                Some(owner) => vec![Some(owner.clone())],
                None if filter.unowned_before.is_some() => vec![None],
                None => std::iter::once(None).chain(owners()?.into_iter().map(Some)).collect(),
            };
            let has_no_worker = filter.without_worker || filter.unclaimed_before.is_some();
            let keys: &[&'static str] = if has_no_worker { &[UNHELD] } else { &[UNHELD, HELD] };
            owners.iter().flat_map(|owner| keys.iter().map(move |key| of_owner(owner, key))).collect()
        }
    })
}

fn read_in_flight(
    db: &Connection,
    filter: &InFlightFilter,
    after: Option<JobId>,
    limit: usize,
    part: &Part,
) -> Result<Vec<InFlight>> {
    let names = [("columns", IN_FLIGHT.list.into()), ("index", part.index.into()), ("key", build(part.key))];
    let mut statement = db.prepare_cached(&build_with(include_str!("sql/in_flight.sql"), &names.into()))?;
    let executions: Vec<String> = filter.executions.iter().map(|id| format!("{:X}", id.0.simple())).collect();
    let executions = (!executions.is_empty()).then(|| format!("[\"{}\"]", executions.join("\",\"")));
    // The empty blob sorts before every id.
    let after = after.map(|id| id.0.into_bytes().to_vec()).unwrap_or_default();
    let runs = statement.query_map(
        params![
            after,
            filter.worker.as_ref().map(WorkerId::as_str),
            part.owner.as_ref().map(NodeId::as_str),
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

fn owners(db: &Connection) -> Result<Vec<NodeId>> {
    holders(db).map(|holders| holders.owners)
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
        let (worker, node) = (WorkerId::new("w").ok(), NodeId::new("n").ok());
        let owner = node.clone();
        let of = |filter: &InFlightFilter| {
            let parts = parts(filter, || Ok(node.clone().into_iter().collect())).expect("read");
            parts.into_iter().map(|part| (part.index, part.key, part.owner.is_some())).collect::<Vec<_>>()
        };
        for (filter, expected) in [
            (InFlightFilter { worker, ..none() }, vec![("jobs_of_worker", "worker = ?2", false)]),
            (InFlightFilter { moving: true, ..none() }, vec![("jobs_moving", MOVING, false)]),
            (
                InFlightFilter { owner, ..none() },
                vec![("jobs_in_flight", UNHELD, true), ("jobs_in_flight", HELD, true)],
            ),
            (
                InFlightFilter { unowned_before: now, ..none() },
                vec![("jobs_in_flight", UNHELD, false), ("jobs_in_flight", HELD, false)],
            ),
        ] {
            assert_eq!(of(&filter), expected, "{filter:?}");
        }
        let unheld = [("jobs_in_flight", UNHELD, false), ("jobs_in_flight", UNHELD, true)];
        assert_eq!(of(&InFlightFilter { without_worker: true, ..none() }), unheld);
        assert_eq!(of(&InFlightFilter { unclaimed_before: now, ..none() }), unheld);
        assert_eq!(of(&none()).len(), 4, "with and without a worker, with and without an owner");
    }
}
