//! Operations on single jobs by request: cancel, redrive, purge.

use convoke_core::JobId;
use convoke_core::jobs::run_state::present_status;
use convoke_core::jobs::{Job, Status};
use convoke_core::ports::store::{Cancelled, Redriven};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::archive::archive;
use super::catalog::{QueueId, WriteTx};
use super::failure::Result;
use super::insert::{distinct, key_holder, take_key};
use super::retention::{delete_slice, read_ended};
use super::rows::{JOB, get as column, job, micros};
use crate::statement::sql;

pub(super) fn get_one(db: &Connection, id: JobId) -> Result<Option<Job>> {
    let mut statement = db.prepare_cached(sql!("select {job} from jobs where id = ?1", job = JOB.list))?;
    Ok(statement.query_row([id.0.as_bytes()], job).optional()?)
}

pub(super) fn get(db: &Connection, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
    ids.iter().map(|id| get_one(db, *id)).collect()
}

pub(super) fn cancel(
    tx: &mut WriteTx<'_>,
    ids: &[JobId],
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Cancelled>> {
    let mut cancelled = Vec::with_capacity(ids.len());
    for id in ids {
        let db = tx.db;
        let Some(before) = get_one(db, *id)? else {
            cancelled.push(Cancelled::Unknown);
            continue;
        };
        let key = params![id.0.as_bytes(), reason, micros(now)];
        let queue = db
            .prepare_cached(sql!(include_str!("sql/cancel.sql")))?
            .query_row(key, |row| row.get("queue_id"))
            .optional()?;
        let Some(queue) = queue else {
            cancelled.push(Cancelled::Before(before));
            continue;
        };
        tx.catalog.moved(QueueId(queue), Some(before.status), Some(Status::Cancelled));
        let run = before.execution_id.filter(|_| before.status.is_in_flight());
        let job = get_one(db, *id)?.unwrap_or(before);
        cancelled.push(Cancelled::Now { job, run });
    }
    Ok(cancelled)
}

pub(super) fn redrive(tx: &mut WriteTx<'_>, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
    ids.iter().map(|id| redrive_one(tx, *id, now)).collect()
}

fn redrive_one(tx: &mut WriteTx<'_>, id: JobId, now: Timestamp) -> Result<Redriven> {
    let db = tx.db;
    let Some(before) = get_one(db, id)? else { return Ok(Redriven::Unknown) };
    if before.status.is_live() || before.status.to(Status::Pending).is_err() {
        return Ok(Redriven::Refused(before));
    }
    if let Some(key) = &before.definition.unique_key {
        match key_holder(db, key, now)? {
            Some(holder) if holder != id => return Ok(Redriven::Refused(before)),
            // It still has the key, with its expiry.
            Some(_) => {}
            None => take_key(db, key, id, None)?,
        }
    }
    let mut ended = db.prepare_cached("select seq, queue_id, run_end, completed_at from jobs where id = ?1")?;
    let (seq, queue, run_end, completed_at) = ended.query_row([id.0.as_bytes()], |row| {
        Ok((column(row, "seq")?, column(row, "queue_id")?, column(row, "run_end")?, column(row, "completed_at")?))
    })?;
    archive(db, seq, present_status(before.status, run_end), completed_at, before.error.as_deref())?;
    let rank = before.definition.priority.rank(now);
    db.prepare_cached(sql!(include_str!("sql/redrive.sql")))?.execute([seq, micros(now), rank])?;
    tx.catalog.moved(QueueId(queue), Some(before.status), Some(Status::Pending));
    Ok(get_one(db, id)?.map_or(Redriven::Unknown, Redriven::Pending))
}

/// Deletes one slice of the jobs among `ids` that ended with one of `statuses`. Returns how many were deleted, and
/// whether more are left.
pub(super) fn purge(tx: &mut WriteTx<'_>, ids: &[JobId], statuses: &[Status], rows_max: usize) -> Result<(u64, bool)> {
    let mut ended = Vec::new();
    for id in distinct(ids) {
        let text = sql!("select seq, log_seq, superseded, state from jobs where id = ?1 and state >= {first_ended}");
        let read = |row: &rusqlite::Row<'_>| Ok((read_ended(row)?, column(row, "state")?));
        let found: Option<(_, Status)> = tx.db.prepare_cached(text)?.query_row([id.0.as_bytes()], read).optional()?;
        ended.extend(found.filter(|(_, state)| statuses.contains(state)).map(|(ended, _)| ended));
    }
    let purged = delete_slice(tx, &ended, rows_max)?;
    Ok((purged as u64, purged < ended.len()))
}
