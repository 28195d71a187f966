//! Retention of ended jobs: their channels are closed, then they are deleted.

use convoke_core::JobId;
use convoke_core::election::Fence;
use convoke_core::jobs::Status;
use convoke_core::jobs::retention::{Rows, slice};
use convoke_core::ports::store::{Cutoffs, Expired};
use deadpool_postgres::{Client, Transaction};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::counts::{self, Moves};
use super::epoch::{commit, hold};
use super::failure::Result;
use super::rows::{code, get, job_id, micros, number, small, wide};
use crate::statement::sql;

pub(super) async fn uncleaned(db: &Client, before: Timestamp, most: usize) -> Result<Vec<JobId>> {
    let select = "select id from convoke_uncleaned where completed_at < $1 order by completed_at, seq limit $2";
    let statement = db.prepare_cached(select).await?;
    let rows = db.query(&statement, &[&micros(before), &wide(most)]).await?;
    rows.iter().map(job_id).collect()
}

pub(super) async fn mark_cleaned(
    db: &mut Client,
    fence: Fence,
    before: Timestamp,
    ids: &[JobId],
) -> Result<Vec<JobId>> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "mark_cleaned").await?;
    let statement = transaction.prepare_cached(sql!(include_str!("sql/mark_cleaned.sql"))).await?;
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = transaction.query(&statement, &[&ids, &micros(before)]).await?;
    let marked = rows.iter().map(job_id).collect::<Result<_>>()?;
    commit(transaction).await?;
    Ok(marked)
}

pub(super) async fn expire(db: &mut Client, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "expire").await?;
    // One more than can be deleted shows whether there are more.
    let most = rows_max.saturating_add(1);
    let completed = transaction.prepare_cached(include_str!("sql/expired_completed.sql")).await?;
    let rows = transaction.query(&completed, &[&micros(cutoffs.completed), &wide(most)]).await?;
    let mut ended = rows.iter().map(read_ended).collect::<Result<Vec<Ended>>>()?;
    let statement = transaction.prepare_cached(include_str!("sql/expired.sql")).await?;
    let kinds =
        [(Status::Cancelled, cutoffs.cancelled), (Status::Failed, cutoffs.dead), (Status::TimedOut, cutoffs.dead)];
    for (kind, cutoff) in kinds {
        let left = wide(most.saturating_sub(ended.len()));
        for row in transaction.query(&statement, &[&i16::from(kind.code()), &micros(cutoff), &left]).await? {
            ended.push(read_ended(&row)?);
        }
    }
    let latest = micros(cutoffs.completed.max(cutoffs.cancelled).max(cutoffs.dead));
    let deleted = delete_slice(&transaction, &ended, latest, rows_max).await?;
    let statement = transaction.prepare_cached(sql!(include_str!("sql/forget_keys.sql"))).await?;
    let keys = transaction.execute(&statement, &[&latest, &wide(rows_max)]).await?;
    commit(transaction).await?;
    let all_keys = usize::try_from(keys).unwrap_or(usize::MAX) < rows_max.max(1);
    Ok(Expired { jobs: deleted.jobs, more: (deleted.rows > 0 && deleted.is_cut) || !all_keys })
}

/// An ended job to be deleted.
pub(super) struct Ended {
    seq: i64,
    rows: Rows,
    /// The row of completed jobs that has it, if it completed.
    batch: Option<i64>,
}

/// Reads the columns `seq`, `log_seq`, `superseded` and `batch`.
pub(super) fn read_ended(row: &Row) -> Result<Ended> {
    Ok(Ended {
        seq: get(row, "seq")?,
        rows: Rows { log_lines: number(row, "log_seq")?, runs: small(row, "superseded")?.into() },
        batch: get(row, "batch")?,
    })
}

pub(super) struct Deleted {
    pub(super) jobs: u64,
    /// Deleted jobs, and log lines of a job that stays.
    pub(super) rows: u64,
    /// Whether some of the jobs were left for another slice.
    pub(super) is_cut: bool,
}

/// Deletes one slice of `ended`: the jobs that are still ended and since before `latest`. A job may have been redriven
/// after it was read.
pub(super) async fn delete_slice(
    transaction: &Transaction<'_>,
    ended: &[Ended],
    latest: i64,
    rows_max: usize,
) -> Result<Deleted> {
    let slice = slice(ended.iter().map(|ended| ended.rows), rows_max);
    let (whole, rest) = ended.split_at(slice.jobs);
    let jobs = delete_jobs(transaction, whole, latest).await?;
    let mut lines = 0;
    if let Some(next) = rest.first().filter(|_| slice.log_lines > 0) {
        let statement = transaction.prepare_cached(sql!(include_str!("sql/trim_logs.sql"))).await?;
        let trimmed = i64::try_from(slice.log_lines).unwrap_or(i64::MAX);
        lines = transaction.execute(&statement, &[&next.seq, &trimmed, &latest]).await?;
    }
    Ok(Deleted { jobs, rows: jobs + lines, is_cut: !rest.is_empty() })
}

/// Deletes ended jobs with their history and logs. A unique key that outlives its job stays.
async fn delete_jobs(transaction: &Transaction<'_>, ended: &[Ended], latest: i64) -> Result<u64> {
    if ended.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(sql!(include_str!("sql/delete_jobs.sql"))).await?;
    let seqs: Vec<i64> = ended.iter().map(|ended| ended.seq).collect();
    let batches: Vec<i64> = ended.iter().filter_map(|ended| ended.batch).collect();
    let mut moves = Moves::default();
    let mut deleted = 0;
    for row in transaction.query(&statement, &[&seqs, &latest, &batches]).await? {
        let count: i64 = get(&row, "count")?;
        moves.moved(get(&row, "queue_id")?, Some(code(&row, "state", Status::from_code)?), None, count);
        deleted += count;
    }
    counts::count(transaction, &moves).await?;
    Ok(u64::try_from(deleted).unwrap_or(0))
}
