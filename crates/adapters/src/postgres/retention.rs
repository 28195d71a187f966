//! The end of ended jobs: their channels are closed, then they are deleted.

use convoke_core::JobId;
use convoke_core::election::Fence;
use convoke_core::jobs::Status;
use convoke_core::ports::store::Cutoffs;
use deadpool_postgres::{Client, Transaction};
use jiff::Timestamp;
use uuid::Uuid;

use super::counts::{self, Moves};
use super::epoch::{commit, hold};
use super::failure::Result;
use super::rows::{get, job_id, limit, micros, status};

pub(super) async fn uncleaned(db: &Client, before: Timestamp, most: usize) -> Result<Vec<JobId>> {
    let statement = db.prepare_cached(include_str!("sql/uncleaned.sql")).await?;
    let rows = db.query(&statement, &[&micros(before), &limit(most)]).await?;
    rows.iter().map(|row| job_id(row, 0)).collect()
}

pub(super) async fn mark_cleaned(
    db: &mut Client,
    fence: Fence,
    before: Timestamp,
    ids: &[JobId],
) -> Result<Vec<JobId>> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "mark_cleaned").await?;
    let statement = transaction.prepare_cached(include_str!("sql/mark_cleaned.sql")).await?;
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = transaction.query(&statement, &[&ids, &micros(before)]).await?;
    let marked = rows.iter().map(|row| job_id(row, 0)).collect::<Result<_>>()?;
    commit(transaction).await?;
    Ok(marked)
}

pub(super) async fn expire(db: &mut Client, fence: Fence, cutoffs: Cutoffs, most: usize) -> Result<u64> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "expire").await?;
    let kinds = [
        (Status::Completed, cutoffs.completed),
        (Status::Cancelled, cutoffs.cancelled),
        (Status::Failed, cutoffs.dead),
        (Status::TimedOut, cutoffs.dead),
    ];
    let statement = transaction.prepare_cached(include_str!("sql/expired.sql")).await?;
    let mut seqs: Vec<i64> = Vec::new();
    for (kind, cutoff) in kinds {
        let left = limit(most.saturating_sub(seqs.len()));
        for row in transaction.query(&statement, &[&i16::from(kind.code()), &micros(cutoff), &left]).await? {
            seqs.push(get(&row, 0)?);
        }
    }
    let deleted = delete_jobs(&transaction, &seqs).await?;
    let latest = cutoffs.completed.max(cutoffs.cancelled).max(cutoffs.dead);
    let statement = transaction.prepare_cached(include_str!("sql/forget_keys.sql")).await?;
    transaction.execute(&statement, &[&micros(latest), &limit(most)]).await?;
    commit(transaction).await?;
    Ok(deleted)
}

/// Deletes ended jobs with all that hangs on them. A unique key that outlives its job stays.
pub(super) async fn delete_jobs(transaction: &Transaction<'_>, seqs: &[i64]) -> Result<u64> {
    if seqs.is_empty() {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(include_str!("sql/delete_jobs.sql")).await?;
    let mut moves = Moves::default();
    let mut deleted = 0;
    for row in transaction.query(&statement, &[&seqs]).await? {
        let count: i64 = get(&row, 2)?;
        moves.moved(get(&row, 0)?, Some(status(&row, 1)?), None, count);
        deleted += count;
    }
    counts::count(transaction, &moves).await?;
    Ok(u64::try_from(deleted).unwrap_or(0))
}
