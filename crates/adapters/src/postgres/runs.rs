//! Runs as the leader watches them: which are due, in flight, overdue; and who owns them.

use std::collections::HashMap;

use convoke_core::election::Fence;
use convoke_core::jobs::{Ownership, Status};
use convoke_core::ports::store::{
    Handover, Holders, InFlight, InFlightFilter, Overdue, Promoted, Reassign, Reassigned,
};
use convoke_core::{JobId, NodeId, WorkerId};
use deadpool_postgres::Client;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::counts::{self, Moves, SHARED_SLOT};
use super::epoch::{commit, hold};
use super::failure::Result;
use super::names::{self, Names};
use super::rows::{
    code, execution_id, get, instant, instant_option, job_id, job_type, limit, micros, node_id_option, queue_name,
    small, worker_id_option,
};

pub(super) async fn promote(
    db: &mut Client,
    names: &Names,
    fence: Fence,
    now: Timestamp,
    most: usize,
) -> Result<Promoted> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "promote").await?;
    let statement = transaction.prepare_cached(include_str!("sql/promote.sql")).await?;
    let mut promoted = Promoted::default();
    let mut queues: Vec<i32> = Vec::new();
    let mut moves = Moves::default();
    for row in transaction.query(&statement, &[&micros(now), &limit(most)]).await? {
        let (queue, count): (i32, i64) = (get(&row, 0)?, get(&row, 1)?);
        moves.moved(queue, Some(Status::Scheduled), Some(Status::Pending), count);
        promoted.count += usize::try_from(count).unwrap_or(0);
        queues.push(queue);
    }
    counts::count(&transaction, &moves).await?;
    // What others' transactions have added is folded into our counts on the way.
    let statement = transaction.prepare_cached(include_str!("sql/fold.sql")).await?;
    transaction.execute(&statement, &[&SHARED_SLOT]).await?;
    let statement = transaction.prepare_cached(include_str!("sql/next_due.sql")).await?;
    promoted.next_due_at = instant_option(&transaction.query_one(&statement, &[]).await?, 0)?;
    commit(transaction).await?;
    let named = names.queues.named(db, &queues).await?;
    for queue in queues {
        promoted.queues.push(names::of(&named, queue)?);
    }
    Ok(promoted)
}

/// Moves the ownership of runs: the present owner is in the `where` of the statement that writes.
pub(super) async fn reassign(db: &mut Client, changes: &[Reassign]) -> Result<Vec<Reassigned>> {
    let transaction = db.transaction().await?;
    let write = transaction.prepare_cached(include_str!("sql/reassign.sql")).await?;
    let read = transaction.prepare_cached(include_str!("sql/owners.sql")).await?;
    let mut reassigned = vec![Reassigned::Over; changes.len()];
    for round in rounds(changes) {
        let of = |at: &usize| &changes[*at];
        let ids: Vec<Uuid> = round.iter().map(|at| of(at).job.0).collect();
        let executions: Vec<Uuid> = round.iter().map(|at| of(at).execution.0).collect();
        let givers: Vec<&str> = round.iter().map(|at| of(at).from.as_str()).collect();
        let takers: Vec<Option<&str>> = round.iter().map(|at| taker(&of(at).to)).collect();
        let ownerships: Vec<i16> = round.iter().map(|at| ownership(&of(at).to).code().into()).collect();
        let places: Vec<i64> = round.iter().map(|at| limit(*at)).collect();
        let written = transaction.query(&write, &[&ids, &executions, &givers, &takers, &ownerships, &places]).await?;
        for row in transaction.query(&read, &[&ids]).await? {
            let (id, execution, owner): (Uuid, Uuid, _) = (get(&row, 0)?, get(&row, 1)?, node_id_option(&row, 2)?);
            for at in round.iter().filter(|at| of(at).job.0 == id && of(at).execution.0 == execution) {
                reassigned[*at] = Reassigned::OwnedBy(owner.clone());
            }
        }
        for row in written {
            let at = usize::try_from(get::<i64>(&row, 0)?).unwrap_or(usize::MAX);
            if let Some(answer) = reassigned.get_mut(at) {
                *answer = Reassigned::Done;
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

/// Places of changes, a job at most once in each round, by job: for everybody in the same order.
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
    let statement = db.prepare_cached(&in_flight_sql(filter)).await?;
    let params: [&(dyn ToSql + Sync); 9] = [
        &from,
        &worker,
        &owner,
        &unclaimed,
        &unowned,
        &filter.moving,
        &executions,
        &limit(most),
        &filter.without_worker,
    ];
    db.query(&statement, &params).await?.iter().map(read_run).collect()
}

/// The statement for a filter, by the index that serves it. The order is written so that no other index has it: else the server
/// might walk all runs in flight in the order of their ids, hoping to meet enough soon.
fn in_flight_sql(filter: &InFlightFilter) -> String {
    let (range, order) = match filter {
        InFlightFilter { worker: Some(_), .. } => ("(r.worker, r.id) >= ($2, $1) and r.worker <= $2", "r.worker, r.id"),
        InFlightFilter { owner: Some(_), .. } => ("(r.owner, r.id) >= ($3, $1) and r.owner <= $3", "r.owner, r.id"),
        InFlightFilter { moving: true, .. } => ("r.ownership >= 2 and r.id >= $1", "r.id"),
        InFlightFilter { without_worker: true, .. } | InFlightFilter { unclaimed_before: Some(_), .. } => {
            ("r.worker is null and r.id >= $1", "r.id")
        }
        InFlightFilter { unowned_before: Some(_), .. } => ("r.owner is null and r.id >= $1", "r.id"),
        _ => ("r.id >= $1", "r.id"),
    };
    include_str!("sql/in_flight.sql").replace("{range}", range).replace("{order}", order)
}

pub(super) async fn holders(db: &Client) -> Result<Holders> {
    let statement = db.prepare_cached(include_str!("sql/holders.sql")).await?;
    let mut holders = Holders::default();
    for row in db.query(&statement, &[]).await? {
        if get(&row, 0)? {
            holders.workers.extend(worker_id_option(&row, 1)?);
        } else {
            holders.owners.extend(node_id_option(&row, 1)?);
        }
    }
    Ok(holders)
}

fn read_run(row: &Row) -> Result<InFlight> {
    Ok(InFlight {
        job: job_id(row, 0)?,
        execution: execution_id(row, 1)?,
        job_type: job_type(row, 2)?,
        queue: queue_name(row, 3)?,
        attempt: small(row, 4)?,
        status: if get(row, 5)? { Status::Running } else { Status::Dispatched },
        worker: worker_id_option(row, 6)?,
        owner: node_id_option(row, 7)?,
        ownership: code(row, 8, Ownership::from_code)?,
        dispatched_at: instant(row, 9)?,
        deadline: None,
    })
}

pub(super) async fn overdue(db: &Client, now: Timestamp, most: usize) -> Result<Overdue> {
    let statement = db.prepare_cached(include_str!("sql/overdue.sql")).await?;
    let mut overdue = Overdue::default();
    for row in db.query(&statement, &[&limit(most).saturating_add(1)]).await? {
        let deadline = instant(&row, 10)?;
        if deadline > now || overdue.runs.len() == most {
            overdue.next_at = Some(deadline);
            break;
        }
        overdue.runs.push(InFlight { deadline: Some(deadline), ..read_run(&row)? });
    }
    Ok(overdue)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `postgres_plans::duties_find_…` has the plans of these.
    #[test]
    fn every_filter_of_a_duty_is_served_by_an_index() {
        let none = InFlightFilter::default;
        let now = Some(Timestamp::UNIX_EPOCH);
        let (worker, owner) = (WorkerId::new("w").ok(), NodeId::new("n").ok());
        for (filter, range) in [
            (InFlightFilter { worker, ..none() }, "(r.worker, r.id) >= ($2, $1) and r.worker <= $2"),
            (InFlightFilter { owner, ..none() }, "(r.owner, r.id) >= ($3, $1) and r.owner <= $3"),
            (InFlightFilter { moving: true, ..none() }, "r.ownership >= 2 and r.id >= $1"),
            (InFlightFilter { without_worker: true, ..none() }, "r.worker is null and r.id >= $1"),
            (InFlightFilter { unclaimed_before: now, ..none() }, "r.worker is null and r.id >= $1"),
            (InFlightFilter { unowned_before: now, ..none() }, "r.owner is null and r.id >= $1"),
        ] {
            assert!(in_flight_sql(&filter).contains(&format!("where {range}")), "{filter:?}");
        }
    }
}
