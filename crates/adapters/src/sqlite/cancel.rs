//! What people do to jobs by hand: cancel, redrive, purge.

use convoke_core::JobId;
use convoke_core::jobs::run_state::present_status;
use convoke_core::jobs::{Job, Status};
use convoke_core::ports::store::{Cancelled, Redriven};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::archive::{archive, run_end};
use super::books::{Ledger, QueueId};
use super::failure::Result;
use super::insert::{distinct, key_holder, take_key};
use super::retention::{delete_slice, read_ended};
use super::rows::{job, micros, status};

pub(super) fn get_one(db: &Connection, id: JobId) -> Result<Option<Job>> {
    let mut statement = db.prepare_cached(include_str!("sql/job.sql"))?;
    Ok(statement.query_row([id.0.as_bytes()], job).optional()?)
}

pub(super) fn get(db: &Connection, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
    ids.iter().map(|id| get_one(db, *id)).collect()
}

pub(super) fn cancel(
    ledger: &mut Ledger<'_>,
    ids: &[JobId],
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Cancelled>> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let db = ledger.db;
        let Some(before) = get_one(db, *id)? else {
            answers.push(Cancelled::Unknown);
            continue;
        };
        let mut statement = db.prepare_cached(include_str!("sql/cancel.sql"))?;
        let queue = statement.query_row(params![id.0.as_bytes(), reason, micros(now)], |row| row.get(0)).optional()?;
        drop(statement);
        let Some(queue) = queue else {
            answers.push(Cancelled::Before(before));
            continue;
        };
        ledger.books.moved(QueueId(queue), Some(before.status), Some(Status::Cancelled));
        let run = before.execution_id.filter(|_| before.status.is_in_flight());
        let job = get_one(db, *id)?.unwrap_or(before);
        answers.push(Cancelled::Now { job, run });
    }
    Ok(answers)
}

pub(super) fn redrive(ledger: &mut Ledger<'_>, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
    ids.iter().map(|id| redrive_one(ledger, *id, now)).collect()
}

fn redrive_one(ledger: &mut Ledger<'_>, id: JobId, now: Timestamp) -> Result<Redriven> {
    let db = ledger.db;
    let Some(before) = get_one(db, id)? else { return Ok(Redriven::Unknown) };
    if before.status.is_live() || before.status.to(Status::Pending).is_err() {
        return Ok(Redriven::Refused(before));
    }
    if let Some(key) = &before.definition.unique_key {
        match key_holder(db, key, now)? {
            Some(holder) if holder != id => return Ok(Redriven::Refused(before)),
            // It still has it, with its time.
            Some(_) => {}
            None => take_key(db, key, id, None)?,
        }
    }
    let ended = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, status(row, 2)?, run_end(row, 3)?, row.get(4)?));
    let mut statement = db.prepare_cached(include_str!("sql/ended.sql"))?;
    let (seq, queue, state, run_end, completed_at): (i64, i64, Status, _, i64) =
        statement.query_row([id.0.as_bytes()], ended)?;
    archive(db, seq, present_status(state, run_end), completed_at, before.error.as_deref())?;
    db.prepare_cached(include_str!("sql/redrive.sql"))?.execute(params![seq, micros(now)])?;
    ledger.books.moved(QueueId(queue), Some(before.status), Some(Status::Pending));
    Ok(get_one(db, id)?.map_or(Redriven::Unknown, Redriven::Pending))
}

/// Deletes one slice of the dead letters among `ids`. Returns how many are gone, and whether more are left.
pub(super) fn purge(ledger: &mut Ledger<'_>, ids: &[JobId], rows_max: usize) -> Result<(u64, bool)> {
    let mut dead = Vec::new();
    for id in distinct(ids) {
        let mut statement = ledger.db.prepare_cached(include_str!("sql/dead_letter.sql"))?;
        dead.extend(statement.query_row([id.0.as_bytes()], read_ended).optional()?);
    }
    let purged = delete_slice(ledger, &dead, rows_max)?;
    Ok((purged as u64, purged < dead.len()))
}
