//! Retention of ended jobs: their channels are closed, then they are deleted.

use convoke_core::JobId;
use convoke_core::election::Fence;
use convoke_core::jobs::Status;
use convoke_core::jobs::retention::{Rows, slice};
use convoke_core::ports::store::{Cutoffs, Expired};
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::catalog::{QueueId, WriteTx};
use super::columns::columns;
use super::epoch;
use super::failure::Result;
use super::rows::{count, get, micros};
use crate::statement::sql;

pub(super) fn uncleaned(db: &Connection, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/uncleaned.sql")))?;
    let ids = statement.query_map(params![micros(before), limit as i64], |row| get(row, "id"))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn mark_cleaned(tx: &mut WriteTx<'_>, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>> {
    epoch::hold(tx, fence, "mark_cleaned")?;
    let mut statement = tx.db.prepare_cached(sql!(
        "update jobs set channels_cleaned = 1
         where id = ?1 and state >= {first_ended} and completed_at < ?2 and channels_cleaned = 0"
    ))?;
    let mut marked = Vec::new();
    for id in ids {
        if statement.execute(params![id.0.as_bytes(), micros(before)])? > 0 {
            marked.push(*id);
        }
    }
    Ok(marked)
}

pub(super) fn expire(tx: &mut WriteTx<'_>, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
    epoch::hold(tx, fence, "expire")?;
    let kinds = [
        (Status::Completed, cutoffs.completed),
        (Status::Cancelled, cutoffs.cancelled),
        (Status::Failed, cutoffs.dead),
        (Status::TimedOut, cutoffs.dead),
    ];
    let mut ended = Vec::new();
    for (kind, cutoff) in kinds {
        // One more than can be deleted shows whether there are more.
        let left = rows_max.saturating_add(1).saturating_sub(ended.len());
        ended.extend(expired(tx.db, kind, cutoff, left)?);
    }
    let deleted = delete_slice(tx, &ended, rows_max)?;
    let latest = cutoffs.completed.max(cutoffs.cancelled).max(cutoffs.dead);
    let mut forget = tx.db.prepare_cached(sql!(include_str!("sql/forget_keys.sql")))?;
    let keys = forget.execute(params![micros(latest), rows_max as i64])?;
    Ok(Expired { jobs: deleted as u64, more: deleted < ended.len() || keys >= rows_max.max(1) })
}

fn expired(db: &Connection, kind: Status, cutoff: Timestamp, limit: usize) -> Result<Vec<Ended>> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/expired.sql")))?;
    let found = statement.query_map(params![kind.code(), micros(cutoff), limit as i64], read_ended)?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// An ended job to be deleted.
pub(super) struct Ended {
    seq: i64,
    rows: Rows,
}

/// Reads the columns `seq`, `log_seq` and `superseded`.
pub(super) fn read_ended(row: &Row<'_>) -> rusqlite::Result<Ended> {
    let rows = Rows { log_lines: get(row, "log_seq")?, runs: get(row, "superseded")? };
    Ok(Ended { seq: get(row, "seq")?, rows })
}

/// Deletes one slice of `ended`. Returns how many jobs were deleted; at least one row is deleted unless `ended` is
/// empty.
pub(super) fn delete_slice(tx: &mut WriteTx<'_>, ended: &[Ended], rows_max: usize) -> Result<usize> {
    let slice = slice(ended.iter().map(|ended| ended.rows), rows_max);
    for ended in &ended[..slice.jobs] {
        delete_job(tx, ended.seq)?;
    }
    if let Some(next) = ended.get(slice.jobs).filter(|_| slice.log_lines > 0) {
        let kept = count(next.rows.log_lines.saturating_sub(slice.log_lines));
        let db = tx.db;
        db.prepare_cached("update jobs set log_seq = ?2 where seq = ?1")?.execute([next.seq, kept])?;
        db.prepare_cached("delete from logs where job = ?1 and seq > ?2")?.execute([next.seq, kept])?;
    }
    Ok(slice.jobs)
}

columns!(DELETED: DeletedColumns { queue_id, state, superseded, log_seq, unique_key, id, keys });

/// Deletes a job with its history, logs and search keys. A unique key that outlives its job stays.
fn delete_job(tx: &mut WriteTx<'_>, seq: i64) -> Result<()> {
    let db = tx.db;
    let text = sql!("delete from jobs where seq = ?1 returning {deleted}", deleted = DELETED.list);
    let mut statement = db.prepare_cached(text)?;
    let mut rows = statement.query([seq])?;
    let Some(row) = rows.next()? else { return Ok(()) };
    if get::<i64>(row, DELETED.superseded)? > 0 {
        db.prepare_cached("delete from executions where job = ?1")?.execute([seq])?;
    }
    if get::<i64>(row, DELETED.log_seq)? > 0 {
        db.prepare_cached("delete from logs where job = ?1")?.execute([seq])?;
    }
    if let Some(keys) = get::<Option<String>>(row, DELETED.keys)? {
        let delete = "delete from job_keys where seq = ?1 and key in (select value from json_each(?2))";
        db.prepare_cached(delete)?.execute(params![seq, keys])?;
    }
    if let Some(key) = get::<Option<String>>(row, DELETED.unique_key)? {
        let id: JobId = get(row, DELETED.id)?;
        let forget = "delete from unique_keys where key = ?1 and job_id = ?2 and until is null";
        db.prepare_cached(forget)?.execute(params![key, id.0.as_bytes()])?;
    }
    tx.catalog.moved(QueueId(get(row, DELETED.queue_id)?), get(row, DELETED.state)?, None);
    Ok(())
}
