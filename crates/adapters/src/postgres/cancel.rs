//! What people do to jobs by hand: look, cancel, redrive, purge.

use std::collections::{HashMap, HashSet};

use convoke_core::jobs::{Job, Progress, Status};
use convoke_core::ports::store::{Cancelled, Redriven};
use convoke_core::{Error, ExecutionId, JobId};
use deadpool_postgres::{Client, GenericClient, Transaction};
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::counts::{self, Moves};
use super::epoch::commit;
use super::failure::Result;
use super::retention::{delete_slice, read_ended};
use super::rows::{get, job, micros, progress, readable};

/// How often a job that is on the move is followed.
const CHASES_MAX: usize = 20;
/// Jobs that one transaction of a purge locks, and rows that it deletes, so that it never takes long.
const PURGED_JOBS_MAX: i64 = 100;
const PURGED_ROWS_MAX: usize = 1_000;

async fn find(db: &impl GenericClient, ids: &[JobId]) -> Result<HashMap<JobId, Job>> {
    let statement = db.prepare_cached(include_str!("sql/job.sql")).await?;
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = db.query(&statement, &[&ids]).await?;
    rows.iter().map(|row| job(row).map(|job| (job.id, job))).collect()
}

pub(super) async fn get_jobs(db: &Client, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = find(db, ids).await?;
    let twice = distinct(ids).len() < ids.len();
    Ok(ids.iter().map(|id| if twice { found.get(id).cloned() } else { found.remove(id) }).collect())
}

/// The ids among `ids`, once each, in one order for everybody.
fn distinct(ids: &[JobId]) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What a job was doing when it was taken out of it.
struct Caught {
    from: Status,
    run: Option<ExecutionId>,
}

/// The arrays of `sql/cancel.sql`.
#[derive(Default)]
struct Columns {
    seqs: Vec<i64>,
    executions: Vec<Option<Uuid>>,
    attempts: Vec<Option<i32>>,
    dispatched_ats: Vec<Option<i64>>,
    started_ats: Vec<Option<i64>>,
    workers: Vec<Option<String>>,
    owners: Vec<Option<String>>,
    percents: Vec<Option<i16>>,
    messages: Vec<Option<String>>,
    log_seqs: Vec<Option<i64>>,
}

pub(super) async fn cancel(
    db: &mut Client,
    ids: &[JobId],
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Cancelled>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let transaction = db.transaction().await?;
    let (mut caught, columns) = catch(&transaction, distinct(ids)).await?;
    let statement = transaction.prepare_cached(include_str!("sql/cancel.sql")).await?;
    let (at, reason) = (micros(now), reason.map(readable));
    let reason = reason.as_deref();
    let params: [&(dyn ToSql + Sync); 12] = [
        &columns.seqs,
        &columns.executions,
        &columns.attempts,
        &columns.dispatched_ats,
        &columns.started_ats,
        &columns.workers,
        &columns.owners,
        &columns.percents,
        &columns.messages,
        &columns.log_seqs,
        &at,
        &reason,
    ];
    let mut moves = Moves::default();
    for row in transaction.query(&statement, &params).await? {
        if let Some(caught) = caught.get(&JobId(get(&row, 0)?)) {
            moves.moved(get(&row, 1)?, Some(caught.from), Some(Status::Cancelled), 1);
        }
    }
    counts::count(&transaction, &moves).await?;
    let found = find(&transaction, ids).await?;
    commit(transaction).await?;
    let answer = |id: &JobId| match (found.get(id), caught.remove(id)) {
        (Some(job), Some(caught)) => Cancelled::Now { job: job.clone(), run: caught.run },
        (Some(job), None) => Cancelled::Before(job.clone()),
        (None, _) => Cancelled::Unknown,
    };
    Ok(ids.iter().map(answer).collect())
}

/// Takes live jobs out of whatever they are doing. A job that moves on meanwhile, from waiting to a run or back, is followed.
async fn catch(transaction: &Transaction<'_>, ids: Vec<Uuid>) -> Result<(HashMap<JobId, Caught>, Columns)> {
    let mut caught = HashMap::new();
    let mut columns = Columns::default();
    let mut left = ids;
    for _ in 0..CHASES_MAX {
        catch_runs(transaction, &left, &mut caught, &mut columns).await?;
        for (sql, from) in [
            (include_str!("sql/cancel_waiting.sql"), Status::Pending),
            (include_str!("sql/cancel_scheduled.sql"), Status::Scheduled),
        ] {
            let statement = transaction.prepare_cached(sql).await?;
            for row in transaction.query(&statement, &[&left]).await? {
                caught.insert(JobId(get(&row, 0)?), Caught { from, run: None });
                columns.push(get(&row, 1)?);
            }
        }
        left.retain(|id| !caught.contains_key(&JobId(*id)));
        if left.is_empty() {
            return Ok((caught, columns));
        }
        let statement = transaction.prepare_cached(include_str!("sql/live.sql")).await?;
        let live = transaction.query(&statement, &[&left]).await?;
        left = live.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
        if left.is_empty() {
            return Ok((caught, columns));
        }
    }
    Err(Error::unavailable("store", "a job moved on faster than it could be cancelled").into())
}

async fn catch_runs(
    transaction: &Transaction<'_>,
    ids: &[Uuid],
    caught: &mut HashMap<JobId, Caught>,
    columns: &mut Columns,
) -> Result<()> {
    let statement = transaction.prepare_cached(include_str!("sql/cancel_runs.sql")).await?;
    for row in transaction.query(&statement, &[&ids]).await? {
        let (execution, started_at): (Uuid, Option<i64>) = (get(&row, 2)?, get(&row, 5)?);
        let from = if started_at.is_some() { Status::Running } else { Status::Dispatched };
        caught.insert(JobId(get(&row, 0)?), Caught { from, run: Some(ExecutionId(execution)) });
        columns.seqs.push(get(&row, 1)?);
        columns.executions.push(Some(execution));
        columns.attempts.push(Some(get(&row, 3)?));
        columns.dispatched_ats.push(Some(get(&row, 4)?));
        columns.started_ats.push(started_at);
        columns.workers.push(get(&row, 6)?);
        columns.owners.push(get(&row, 7)?);
        let progress: Option<Progress> = progress(&row, 8)?;
        columns.percents.push(progress.as_ref().map(|progress| progress.percent.into()));
        columns.messages.push(progress.and_then(|progress| progress.message));
        columns.log_seqs.push(Some(get(&row, 10)?));
    }
    Ok(())
}

impl Columns {
    /// A job that was not in flight.
    fn push(&mut self, seq: i64) {
        self.seqs.push(seq);
        self.executions.push(None);
        self.attempts.push(None);
        self.dispatched_ats.push(None);
        self.started_ats.push(None);
        self.workers.push(None);
        self.owners.push(None);
        self.percents.push(None);
        self.messages.push(None);
        self.log_seqs.push(None);
    }
}

pub(super) async fn redrive(db: &mut Client, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let transaction = db.transaction().await?;
    let statement = transaction.prepare_cached(include_str!("sql/redrive.sql")).await?;
    let wanted: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let mut moves = Moves::default();
    let mut done = HashSet::new();
    for (row, id) in transaction.query(&statement, &[&wanted, &micros(now)]).await?.iter().zip(ids) {
        if get::<i16>(row, 0)? == 2 {
            let from = super::rows::status(row, 2)?;
            moves.moved(get(row, 1)?, Some(from), Some(Status::Pending), 1);
            done.insert(*id);
        }
    }
    counts::count(&transaction, &moves).await?;
    let found = find(&transaction, ids).await?;
    commit(transaction).await?;
    let answer = |id: &JobId| match found.get(id) {
        None => Redriven::Unknown,
        // Of two of the same id, the second finds it live.
        Some(job) if done.remove(id) => Redriven::Pending(job.clone()),
        Some(job) => Redriven::Refused(job.clone()),
    };
    Ok(ids.iter().map(answer).collect())
}

/// Deletes one slice of the dead letters among `ids`. Returns how many are gone, and whether more may be left.
pub(super) async fn purge(db: &mut Client, ids: &[JobId]) -> Result<(u64, bool)> {
    let transaction = db.transaction().await?;
    let statement = transaction.prepare_cached(include_str!("sql/dead_letters.sql")).await?;
    let rows = transaction.query(&statement, &[&distinct(ids), &PURGED_JOBS_MAX]).await?;
    let dead = rows.iter().map(read_ended).collect::<Result<Vec<_>>>()?;
    // They are locked: none can be redriven meanwhile.
    let deleted = delete_slice(&transaction, &dead, i64::MAX, PURGED_ROWS_MAX).await?;
    commit(transaction).await?;
    Ok((deleted.jobs, deleted.rows > 0))
}
