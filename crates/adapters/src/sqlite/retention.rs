//! The end of ended jobs: their channels are closed, then they are deleted.

use convoke_core::JobId;
use convoke_core::election::Fence;
use convoke_core::jobs::Status;
use convoke_core::ports::store::Cutoffs;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::books::{Ledger, QueueId};
use super::epoch;
use super::failure::Result;
use super::rows::{job_id, micros, status};

pub(super) fn uncleaned(db: &Connection, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
    let mut statement = db.prepare_cached(include_str!("sql/uncleaned.sql"))?;
    let ids = statement.query_map(params![micros(before), limit as i64], |row| job_id(row, 0))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn mark_cleaned(
    ledger: &mut Ledger<'_>,
    fence: Fence,
    before: Timestamp,
    ids: &[JobId],
) -> Result<Vec<JobId>> {
    epoch::hold(ledger, fence, "mark_cleaned")?;
    let mut statement = ledger.db.prepare_cached(include_str!("sql/mark_cleaned.sql"))?;
    let mut marked = Vec::new();
    for id in ids {
        if statement.execute(params![id.0.as_bytes(), micros(before)])? > 0 {
            marked.push(*id);
        }
    }
    Ok(marked)
}

pub(super) fn expire(ledger: &mut Ledger<'_>, fence: Fence, cutoffs: Cutoffs, limit: usize) -> Result<u64> {
    epoch::hold(ledger, fence, "expire")?;
    let kinds = [
        (Status::Completed, cutoffs.completed),
        (Status::Cancelled, cutoffs.cancelled),
        (Status::Failed, cutoffs.dead),
        (Status::TimedOut, cutoffs.dead),
    ];
    let mut deleted = 0;
    for (kind, cutoff) in kinds {
        let left = limit.saturating_sub(deleted);
        for seq in expired(ledger.db, kind, cutoff, left)? {
            delete_job(ledger, seq)?;
            deleted += 1;
        }
    }
    let latest = cutoffs.completed.max(cutoffs.cancelled).max(cutoffs.dead);
    ledger.db.prepare_cached(include_str!("sql/forget_keys.sql"))?.execute(params![micros(latest), limit as i64])?;
    Ok(deleted as u64)
}

fn expired(db: &Connection, kind: Status, cutoff: Timestamp, limit: usize) -> Result<Vec<i64>> {
    let mut statement = db.prepare_cached(include_str!("sql/expired.sql"))?;
    let found = statement.query_map(params![kind.code(), micros(cutoff), limit as i64], |row| row.get(0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Deletes a job with all that hangs on it. A unique key that outlives its job stays.
pub(super) fn delete_job(ledger: &mut Ledger<'_>, seq: i64) -> Result<()> {
    let db = ledger.db;
    let mut statement = db.prepare_cached(include_str!("sql/delete_job.sql"))?;
    let mut rows = statement.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(()) };
    if row.get::<_, i64>(2)? > 0 {
        db.prepare_cached("delete from executions where job = ?1")?.execute([seq])?;
    }
    if row.get::<_, i64>(3)? > 0 {
        db.prepare_cached("delete from logs where job = ?1")?.execute([seq])?;
    }
    if let Some(key) = row.get::<_, Option<String>>(4)? {
        let id = job_id(row, 5)?;
        let forget = "delete from unique_keys where key = ?1 and job_id = ?2 and until is null";
        db.prepare_cached(forget)?.execute(params![key, id.0.as_bytes()])?;
    }
    ledger.books.moved(QueueId(row.get(0)?), Some(status(row, 1)?), None);
    Ok(())
}
