//! Operations on single jobs by request: read, cancel, redrive, purge.

use std::collections::{HashMap, HashSet};

use convoke_core::jobs::{Job, Status};
use convoke_core::ports::store::{Cancelled, Redriven};
use convoke_core::{Error, ExecutionId, JobId};
use deadpool_postgres::{Client, GenericClient, Transaction};
use jiff::Timestamp;
use uuid::Uuid;

use super::counts::{self, Moves};
use super::epoch::commit;
use super::failure::Result;
use super::retention::{delete_slice, read_ended};
use super::rows::{code, get, job, job_id, micros, readable};
use super::runs::FLIGHT;
use crate::statement::{Statement, compose, sql};

/// How often a cancel is retried for a job that changes state meanwhile.
const CHASES_MAX: usize = 20;
/// Limits of one transaction of a purge, jobs that it locks and rows that it deletes, so that it never takes long.
const PURGED_JOBS_MAX: i64 = 100;
const PURGED_ROWS_MAX: usize = 1_000;

/// Selects jobs with their present or last runs, for [`job`].
pub(super) static JOB: Statement = Statement::new(|| compose(include_str!("sql/job.sql"), &[("flight", FLIGHT)]));

pub(super) fn cancel_sql() -> &'static str {
    sql!(include_str!("sql/cancel.sql"), flight = FLIGHT)
}

async fn find(db: &impl GenericClient, ids: &[JobId]) -> Result<HashMap<JobId, Job>> {
    let select = sql!("{job} where j.id = any ($1::uuid[])", job = &*JOB);
    let statement = db.prepare_cached(select).await?;
    let rows = db.query(&statement, &[&distinct(ids)]).await?;
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

/// Returns the distinct `ids` in one order, the same for every writer.
fn distinct(ids: &[JobId]) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
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
    let mut runs = end_live(&transaction, distinct(ids), reason, now).await?;
    let found = find(&transaction, ids).await?;
    commit(transaction).await?;
    let result = |id: &JobId| match (found.get(id), runs.remove(id)) {
        (Some(job), Some(run)) => Cancelled::Now { job: job.clone(), run },
        (Some(job), None) => Cancelled::Before(job.clone()),
        (None, _) => Cancelled::Unknown,
    };
    Ok(ids.iter().map(result).collect())
}

/// Ends the live ones of the jobs and returns them with their runs. Retries for a job that changes state meanwhile.
async fn end_live(
    transaction: &Transaction<'_>,
    ids: Vec<Uuid>,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<HashMap<JobId, Option<ExecutionId>>> {
    let cancel = transaction.prepare_cached(cancel_sql()).await?;
    let (at, reason) = (micros(now), reason.map(readable));
    let (mut runs, mut moves, mut left) = (HashMap::new(), Moves::default(), ids);
    for _ in 0..CHASES_MAX {
        for row in transaction.query(&cancel, &[&left, &at, &reason.as_deref()]).await? {
            let was = code(&row, "was", Status::from_code)?;
            moves.moved(get(&row, "queue_id")?, Some(was), Some(Status::Cancelled), 1);
            runs.insert(job_id(&row)?, get::<Option<Uuid>>(&row, "execution_id")?.map(ExecutionId));
        }
        left.retain(|id| !runs.contains_key(&JobId(*id)));
        if !left.is_empty() {
            let live = sql!("select id from convoke_jobs where id = any ($1) and state < {first_ended}");
            let live = transaction.query(&transaction.prepare_cached(live).await?, &[&left]).await?;
            left = live.iter().map(|row| get(row, "id")).collect::<Result<_>>()?;
        }
        if left.is_empty() {
            counts::count(transaction, &moves).await?;
            return Ok(runs);
        }
    }
    Err(Error::unavailable("store", "a job changed its state during every attempt to cancel it; try again").into())
}

pub(super) async fn redrive(db: &mut Client, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let transaction = db.transaction().await?;
    let redrive = "select r.* from unnest($1::uuid[]) g (id) cross join lateral convoke_redrive(g.id, $2) r";
    let statement = transaction.prepare_cached(redrive).await?;
    let wanted: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let mut moves = Moves::default();
    let mut done = HashSet::new();
    for (row, id) in transaction.query(&statement, &[&wanted, &micros(now)]).await?.iter().zip(ids) {
        if get(row, "done")? {
            let from = code(row, "ended_as", Status::from_code)?;
            moves.moved(get(row, "of_queue")?, Some(from), Some(Status::Pending), 1);
            done.insert(*id);
        }
    }
    counts::count(&transaction, &moves).await?;
    let found = find(&transaction, ids).await?;
    commit(transaction).await?;
    let result = |id: &JobId| match found.get(id) {
        None => Redriven::Unknown,
        // Of two of the same id, the second finds it live.
        Some(job) if done.remove(id) => Redriven::Pending(job.clone()),
        Some(job) => Redriven::Refused(job.clone()),
    };
    Ok(ids.iter().map(result).collect())
}

/// Deletes one slice of the jobs among `ids` that ended with one of `statuses`. Returns how many were deleted, and
/// whether more may be left. The rows of completed jobs that list their numbers stay until they expire.
pub(super) async fn purge(db: &mut Client, ids: &[JobId], statuses: &[Status]) -> Result<(u64, bool)> {
    let transaction = db.transaction().await?;
    let statement = transaction.prepare_cached(sql!(include_str!("sql/ended_jobs.sql"))).await?;
    let states: Vec<i16> = statuses.iter().map(|status| status.code().into()).collect();
    let rows = transaction.query(&statement, &[&distinct(ids), &PURGED_JOBS_MAX, &states]).await?;
    let ended = rows.iter().map(read_ended).collect::<Result<Vec<_>>>()?;
    // They are locked: none can be redriven meanwhile.
    let deleted = delete_slice(&transaction, &ended, i64::MAX, PURGED_ROWS_MAX).await?;
    commit(transaction).await?;
    Ok((deleted.jobs, deleted.rows > 0))
}
