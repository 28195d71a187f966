//! The leader's view of runs: due, in flight, overdue; and their owners.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use convoke_core::election::Fence;
use convoke_core::jobs::{Documents, JobDefinition, Ownership, Status};
use convoke_core::ports::store::{
    Handover, Holders, InFlight, InFlightFilter, Overdue, Promoted, Reassign, Reassigned,
};
use convoke_core::{JobId, NodeId, QueueName, WorkerId};
use deadpool_postgres::{Client, GenericClient};
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::counts::{self, Moves, SHARED_SLOT};
use super::epoch::{commit, fence_number, hold};
use super::failure::Result;
use super::rows::{
    code, definition, execution_id, get, instant, instant_option, job_id, micros, name, name_option, number, small,
    wide,
};
use super::sql::{column, params};
use crate::statement::{Statement, compose, sql};

/// Limit of the rows of counts that one promotion merges.
const FOLDED_MAX: i64 = 10_000;

/// Limit of the executions by which runs as they were dispatched are searched.
const NAMED_MAX: usize = 100;

/// The age from which on a run has a row of its own.
const LASTING: Duration = Duration::from_secs(1);

/// The run of a job as it was dispatched.
pub(super) const FLIGHT: &str = include_str!("sql/flight.sql");

/// Returns the statement that moves runs of these jobs to `convoke_runs`.
pub(super) fn give_rows_sql() -> &'static str {
    static FOUND: Statement = Statement::new(|| compose(include_str!("sql/runs_of_jobs.sql"), &[("flight", FLIGHT)]));
    sql!(include_str!("sql/give_rows.sql"), found = &*FOUND)
}

/// Moves runs of an owner, of dispatches before a time, or of these executions to `convoke_runs`.
async fn give_rows(
    db: &impl GenericClient,
    owner: Option<&str>,
    before: Option<Timestamp>,
    executions: &[Uuid],
) -> Result<()> {
    let give_rows = sql!(include_str!("sql/give_rows.sql"), found = include_str!("sql/runs_of_flights.sql"));
    let statement = db.prepare_cached(give_rows).await?;
    db.execute(&statement, &[&owner, &before.map(micros), &executions]).await?;
    Ok(())
}

/// Returns the result of a promotion that would change nothing. An idle leader promotes every second, and this is one
/// statement instead of eight.
async fn promote_nothing(db: &Client, fence: Fence, now: Timestamp) -> Result<Option<Promoted>> {
    let statement = db.prepare_cached(include_str!("sql/promote_look.sql")).await?;
    // Without a row the transaction decides whether the leader is a former one.
    let Some(row) = db.query_opt(&statement, &[&fence_number(fence, "promote")?]).await? else { return Ok(None) };
    let next_due_at = instant_option(&row, "next_due_at")?;
    let is_due = get(&row, "has_work")? || next_due_at.is_some_and(|next| next <= now);
    Ok((!is_due).then(|| Promoted { next_due_at, ..Promoted::default() }))
}

pub(super) async fn promote(db: &mut Client, fence: Fence, now: Timestamp, most: usize) -> Result<Promoted> {
    if let Some(promoted) = promote_nothing(db, fence, now).await? {
        return Ok(promoted);
    }
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "promote").await?;
    let statement = transaction.prepare_cached(sql!(include_str!("sql/promote.sql"))).await?;
    let mut promoted = Promoted::default();
    let mut moves = Moves::default();
    for row in transaction.query(&statement, &[&micros(now), &wide(most)]).await? {
        let count: i64 = get(&row, "count")?;
        moves.moved(get(&row, "queue_id")?, Some(Status::Scheduled), Some(Status::Pending), count);
        promoted.count += usize::try_from(count).unwrap_or(0);
        promoted.queues.push(name(&row, "name", QueueName::new)?);
    }
    counts::count(&transaction, &moves).await?;
    let statement = transaction.prepare_cached(sql!(include_str!("sql/merge_counts.sql"))).await?;
    transaction.execute(&statement, &[&SHARED_SLOT, &FOLDED_MAX]).await?;
    let statement = transaction.prepare_cached(include_str!("sql/delete_ended_flights.sql")).await?;
    transaction.execute(&statement, &[&FOLDED_MAX]).await?;
    // A run that was dispatched a while ago and has not ended lasts.
    give_rows(&transaction, None, Some(now.saturating_sub(LASTING).unwrap_or(Timestamp::MIN)), &[]).await?;
    let next = "select min(due_at) as next_due_at from convoke_waiting where scheduled";
    let next = transaction.query_one(&transaction.prepare_cached(next).await?, &[]).await?;
    promoted.next_due_at = instant_option(&next, "next_due_at")?;
    commit(transaction).await?;
    Ok(promoted)
}

/// Moves the ownership of runs: the present owner is in the `where` of the statement that writes.
pub(super) async fn reassign(db: &mut Client, changes: &[Reassign]) -> Result<Vec<Reassigned>> {
    let mut ids: Vec<Uuid> = changes.iter().map(|change| change.job.0).collect();
    ids.sort_unstable();
    // Commits by itself, so that no job is locked while runs are.
    db.execute(&db.prepare_cached(give_rows_sql()).await?, &[&ids]).await?;
    let transaction = db.transaction().await?;
    let write = transaction.prepare_cached(sql!(include_str!("sql/reassign.sql"))).await?;
    let read = "select id, execution_id, owner from convoke_runs where id = any ($1::uuid[])";
    let read = transaction.prepare_cached(read).await?;
    let mut reassigned = vec![Reassigned::Over; changes.len()];
    for round in rounds(changes) {
        let of = |at: &usize| &changes[*at];
        let ids: Vec<Uuid> = round.iter().map(|at| of(at).job.0).collect();
        let columns = [
            column(&round, |at| of(at).job.0),
            column(&round, |at| of(at).execution.0),
            column(&round, |at| of(at).from.as_str()),
            column(&round, |at| taker(&of(at).to)),
            column(&round, |at| i16::from(ownership(&of(at).to).code())),
            column(&round, |at| wide(*at)),
        ];
        let written = transaction.query(&write, &params(&columns)).await?;
        for row in transaction.query(&read, &[&ids]).await? {
            let (id, execution) = (job_id(&row)?, execution_id(&row, "execution_id")?);
            let owner = name_option(&row, "owner", NodeId::new)?;
            for at in round.iter().filter(|at| of(at).job == id && of(at).execution == execution) {
                reassigned[*at] = Reassigned::OwnedBy(owner.clone());
            }
        }
        for row in written {
            if let Some(result) = reassigned.get_mut(number::<usize>(&row, "ord")?) {
                *result = Reassigned::Done;
            }
        }
    }
    commit(transaction).await?;
    Ok(reassigned)
}

fn taker(to: &Handover) -> Option<&str> {
    match to {
        Handover::Take(node) => Some(node.as_str()),
        Handover::Offer | Handover::Keep | Handover::Orphan => None,
    }
}

fn ownership(to: &Handover) -> Ownership {
    match to {
        Handover::Offer => Ownership::HandingOff,
        Handover::Keep | Handover::Take(_) => Ownership::Owned,
        Handover::Orphan => Ownership::OrphanPending,
    }
}

/// Returns places of changes, a job at most once in each round, ordered by job: the same for every writer.
fn rounds(changes: &[Reassign]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut seen: HashMap<JobId, usize> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        let round = seen.entry(change.job).and_modify(|round| *round += 1).or_insert(0);
        if rounds.len() == *round {
            rounds.push(Vec::new());
        }
        rounds[*round].push(at);
    }
    for round in &mut rounds {
        round.sort_unstable_by_key(|at| changes[*at].job);
    }
    rounds
}

pub(super) async fn in_flight(
    db: &Client,
    filter: &InFlightFilter,
    after: Option<JobId>,
    most: usize,
) -> Result<Vec<InFlight>> {
    let from = match after {
        None => Uuid::nil(),
        Some(JobId(last)) if last.is_max() => return Ok(Vec::new()),
        Some(JobId(last)) => Uuid::from_u128(last.as_u128() + 1),
    };
    let worker = filter.worker.as_ref().map(WorkerId::as_str);
    let owner = filter.owner.as_ref().map(NodeId::as_str);
    let (unclaimed, unowned) = (filter.unclaimed_before.map(micros), filter.unowned_before.map(micros));
    let executions: Vec<Uuid> = filter.executions.iter().map(|execution| execution.0).collect();
    // A run as it was dispatched has no worker and is in no handoff.
    if after.is_none() && worker.is_none() && !filter.moving {
        let before = filter.unclaimed_before.into_iter().chain(filter.unowned_before).min();
        // Each is compared with each run: for many it is less work to move all.
        let named: &[Uuid] = if executions.len() <= NAMED_MAX { &executions } else { &[] };
        give_rows(db, owner, before, named).await?;
    }
    let statement = db.prepare_cached(&in_flight_sql(filter)).await?;
    let params: [&(dyn ToSql + Sync); 9] = [
        &from,
        &worker,
        &owner,
        &unclaimed,
        &unowned,
        &filter.moving,
        &executions,
        &wide(most),
        &filter.without_worker,
    ];
    let mut documents = Documents::default();
    db.query(&statement, &params).await?.iter().map(|row| read_run(row, &mut documents)).collect()
}

/// Returns the statement for a filter, by the index that serves it. The order is written so that no other index has it:
/// else the server might walk through all runs in flight by id, on the estimate that it finds enough soon.
pub(super) fn in_flight_sql(filter: &InFlightFilter) -> String {
    let (range, order) = match filter {
        InFlightFilter { worker: Some(_), .. } => ("(r.worker, r.id) >= ($2, $1) and r.worker <= $2", "r.worker, r.id"),
        InFlightFilter { owner: Some(_), .. } => ("(r.owner, r.id) >= ($3, $1) and r.owner <= $3", "r.owner, r.id"),
        InFlightFilter { moving: true, .. } => ("r.ownership >= {handing_off} and r.id >= $1", "r.id"),
        InFlightFilter { without_worker: true, .. } | InFlightFilter { unclaimed_before: Some(_), .. } => {
            ("r.worker is null and r.id >= $1", "r.id")
        }
        InFlightFilter { unowned_before: Some(_), .. } => ("r.owner is null and r.id >= $1", "r.id"),
        _ => ("r.id >= $1", "r.id"),
    };
    compose(include_str!("sql/in_flight.sql"), &[("run", RUN), ("range", range), ("order", order)])
}

const RUN: &str = "select r.id, r.execution_id, r.attempt, r.started_at, r.worker, r.owner, r.ownership, r.dispatched_at, r.deadline, j.document
     from convoke_runs r
     cross join lateral (select j.document from convoke_jobs j where j.seq = r.seq offset 0) j";

pub(super) async fn holders(db: &Client) -> Result<Holders> {
    let statement = db.prepare_cached(sql!(include_str!("sql/holders.sql"))).await?;
    let (mut workers, mut owners) = (BTreeSet::new(), BTreeSet::new());
    for row in db.query(&statement, &[]).await? {
        if get(&row, "is_worker")? {
            workers.insert(name(&row, "name", WorkerId::new)?);
        } else {
            owners.insert(name(&row, "name", NodeId::new)?);
        }
    }
    Ok(Holders { workers: workers.into_iter().collect(), owners: owners.into_iter().collect() })
}

fn read_run(row: &Row, documents: &mut Documents) -> Result<InFlight> {
    let JobDefinition { job_type, queue, .. } = definition(documents, row, "document")?;
    let (job_type, queue) = (job_type.clone(), queue.clone());
    let is_started = get::<Option<i64>>(row, "started_at")?.is_some();
    Ok(InFlight {
        job: job_id(row)?,
        execution: execution_id(row, "execution_id")?,
        job_type,
        queue,
        attempt: small(row, "attempt")?,
        status: if is_started { Status::Running } else { Status::Dispatched },
        worker: name_option(row, "worker", WorkerId::new)?,
        owner: name_option(row, "owner", NodeId::new)?,
        ownership: code(row, "ownership", Ownership::from_code)?,
        dispatched_at: instant(row, "dispatched_at")?,
        deadline: None,
    })
}

pub(super) async fn overdue(db: &Client, now: Timestamp, most: usize) -> Result<Overdue> {
    let select = sql!("{run} where r.deadline is not null order by r.deadline limit $1", run = RUN);
    let statement = db.prepare_cached(select).await?;
    let (mut overdue, mut documents) = (Overdue::default(), Documents::default());
    for row in db.query(&statement, &[&wide(most).saturating_add(1)]).await? {
        let deadline = instant(&row, "deadline")?;
        if deadline > now || overdue.runs.len() == most {
            overdue.next_at = Some(deadline);
            break;
        }
        overdue.runs.push(InFlight { deadline: Some(deadline), ..read_run(&row, &mut documents)? });
    }
    Ok(overdue)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `postgres_plans::duties_find_…` tests the plans of these.
    #[test]
    fn every_filter_of_a_duty_is_served_by_an_index() {
        let none = InFlightFilter::default;
        let now = Some(Timestamp::UNIX_EPOCH);
        let (worker, owner) = (WorkerId::new("w").ok(), NodeId::new("n").ok());
        for (filter, range) in [
            (InFlightFilter { worker, ..none() }, "(r.worker, r.id) >= ($2, $1) and r.worker <= $2"),
            (InFlightFilter { owner, ..none() }, "(r.owner, r.id) >= ($3, $1) and r.owner <= $3"),
            (InFlightFilter { moving: true, ..none() }, "r.ownership >= {handing_off} and r.id >= $1"),
            (InFlightFilter { without_worker: true, ..none() }, "r.worker is null and r.id >= $1"),
            (InFlightFilter { unclaimed_before: now, ..none() }, "r.worker is null and r.id >= $1"),
            (InFlightFilter { unowned_before: now, ..none() }, "r.owner is null and r.id >= $1"),
        ] {
            assert!(in_flight_sql(&filter).contains(&compose(&format!("where {range}"), &[])), "{filter:?}");
        }
    }
}
