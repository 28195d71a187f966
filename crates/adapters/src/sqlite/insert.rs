//! New jobs. The hottest of the verbs: one row and its indexes, nothing read back unless a key asks for it.

use std::collections::HashSet;

use convoke_core::jobs::NewJob;
use convoke_core::jobs::link::Enqueued;
use convoke_core::{JobId, ScheduleName};
use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::books::Ledger;
use super::failure::Result;
use super::rows::{duration_micros, jitter_code, job_id, micros};

pub(super) fn insert(ledger: &mut Ledger<'_>, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
    ledger.books.admit(jobs.iter().map(|job| &job.queue))?;
    let db = ledger.db;
    let mut statement = db.prepare_cached(include_str!("sql/insert.sql"))?;
    jobs.iter().map(|job| insert_one(ledger, &mut statement, job)).collect()
}

pub(super) fn insert_one(
    ledger: &mut Ledger<'_>,
    statement: &mut CachedStatement<'_>,
    job: &NewJob,
) -> Result<Enqueued> {
    let db = ledger.db;
    if let Some(key) = &job.unique_key
        && let Some(there) = holder(db, key, job)?
    {
        return Ok(Enqueued { id: there, created: false });
    }
    let queue = ledger.books.open_queue(db, &job.queue)?;
    let job_type = ledger.books.open_type(db, &job.job_type)?;
    let status = job.status();
    let policy = &job.retry_policy;
    let inserted = statement.execute(params![
        job.id.0.as_bytes(),
        status.code(),
        queue.0,
        job_type,
        job.priority.code(),
        micros(job.due_at()),
        job.max_retries,
        job.timeout.map(duration_micros),
        duration_micros(policy.initial_delay),
        policy.multiplier,
        duration_micros(policy.max_delay),
        jitter_code(policy.jitter),
        micros(job.created_at),
        job.run_at.map(micros),
        job.correlation_id,
        job.unique_key,
        job.schedule.as_ref().map(ScheduleName::as_str),
        job.args.as_str(),
    ])?;
    if inserted == 0 {
        return Ok(Enqueued { id: already_there(db, job)?, created: false });
    }
    ledger.books.moved(queue, None, Some(status));
    if let Some(key) = &job.unique_key {
        take_key(db, key, job.id, job.unique_until)?;
    }
    Ok(Enqueued { id: job.id, created: true })
}

/// Which job is in the way of `job`: itself, or the one that has its key.
fn holder(db: &Connection, key: &str, job: &NewJob) -> Result<Option<JobId>> {
    let mut known = db.prepare_cached("select 1 from jobs where id = ?1")?;
    if known.exists([job.id.0.as_bytes()])? {
        return Ok(Some(job.id));
    }
    key_holder(db, key, job.created_at)
}

/// Who has a key at `now`: a live job, or whichever had it last until its time is over.
pub(super) fn key_holder(db: &Connection, key: &str, now: Timestamp) -> Result<Option<JobId>> {
    let mut statement = db.prepare_cached(include_str!("sql/key_holder.sql"))?;
    Ok(statement.query_row(params![key, micros(now)], |row| job_id(row, 0)).optional()?)
}

pub(super) fn take_key(db: &Connection, key: &str, job: JobId, until: Option<Timestamp>) -> Result<()> {
    db.prepare_cached(include_str!("sql/take_key.sql"))?.execute(params![key, job.0.as_bytes(), until.map(micros)])?;
    Ok(())
}

/// The row because of which `job` was not inserted: by its id or by its tick.
fn already_there(db: &Connection, job: &NewJob) -> Result<JobId> {
    let mut statement = db.prepare_cached(include_str!("sql/already_there.sql"))?;
    let schedule = job.schedule.as_ref().map(ScheduleName::as_str);
    Ok(statement.query_row(params![job.id.0.as_bytes(), schedule, job.run_at.map(micros)], |row| job_id(row, 0))?)
}

/// The ids among `ids`, once each.
pub(super) fn distinct(ids: &[JobId]) -> Vec<JobId> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.iter().copied().filter(|id| seen.insert(*id)).collect()
}
