//! New jobs. The hottest of the verbs: one row and its indexes, nothing is read unless the job has a unique key.

use std::collections::HashSet;

use convoke_core::jobs::NewJob;
use convoke_core::jobs::link::Enqueued;
use convoke_core::{JobId, QueueName, ScheduleName};
use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::catalog::WriteTx;
use super::failure::Result;
use super::rows::{get, micros};
use super::writer::BYTES_PER_ROW;
use crate::statement::sql;

/// Returns how many rows these jobs count as in a group of writes.
pub(super) fn rows(jobs: &[NewJob]) -> usize {
    jobs.iter().map(|job| 1 + job.definition.args.as_str().len() / BYTES_PER_ROW).sum()
}

pub(super) fn insert(tx: &mut WriteTx<'_>, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
    let db = tx.db;
    tx.catalog.admit(new_queues(tx, jobs)?.into_iter())?;
    let mut statement = db.prepare_cached(sql!(include_str!("sql/insert.sql")))?;
    jobs.iter().map(|job| insert_one(tx, &mut statement, job)).collect()
}

/// Returns the queues that `jobs` would open: jobs that are stored already open none.
fn new_queues<'j>(tx: &WriteTx<'_>, jobs: &'j [NewJob]) -> Result<Vec<&'j QueueName>> {
    let mut queues = Vec::new();
    for job in jobs.iter().filter(|job| tx.catalog.find_queue(&job.definition.queue).is_none()) {
        if in_the_way(tx.db, job)?.is_none() {
            queues.push(&job.definition.queue);
        }
    }
    Ok(queues)
}

pub(super) fn insert_one(tx: &mut WriteTx<'_>, statement: &mut CachedStatement<'_>, job: &NewJob) -> Result<Enqueued> {
    let db = tx.db;
    // Without a key and with a known queue, the insert itself detects a conflict.
    if (job.definition.unique_key.is_some() || tx.catalog.find_queue(&job.definition.queue).is_none())
        && let Some(there) = in_the_way(db, job)?
    {
        return Ok(Enqueued { id: there, created: false });
    }
    let queue = tx.catalog.open_queue(db, &job.definition.queue)?;
    let job_type = tx.catalog.open_type(db, &job.definition.job_type)?;
    let (status, due_at, keys) = (job.status(), job.due_at(), job.search_keys());
    let inserted = statement.execute(params![
        job.id.0.as_bytes(),
        status.code(),
        queue.0,
        job_type,
        job.definition.priority.rank(due_at),
        micros(due_at),
        micros(job.created_at),
        job.run_at.map(micros),
        job.definition.unique_key,
        job.schedule.as_ref().map(ScheduleName::as_str),
        (!keys.is_empty()).then(|| serde_json::json!(keys).to_string()),
        job.definition.document(),
        job.definition.args.as_str(),
    ])?;
    if inserted == 0 {
        let there = already_there(db, job)?.unwrap_or(job.id);
        return Ok(Enqueued { id: there, created: false });
    }
    tx.catalog.moved(queue, None, Some(status));
    let seq = db.last_insert_rowid();
    for key in keys {
        db.prepare_cached("insert or ignore into job_keys (key, seq) values (?1, ?2)")?.execute(params![key, seq])?;
    }
    if let Some(key) = &job.definition.unique_key {
        take_key(db, key, job.id, job.unique_until)?;
    }
    Ok(Enqueued { id: job.id, created: true })
}

/// Returns the job that conflicts with `job`: itself, that of its tick, or the holder of its key.
fn in_the_way(db: &Connection, job: &NewJob) -> Result<Option<JobId>> {
    match (already_there(db, job)?, &job.definition.unique_key) {
        (None, Some(key)) => key_holder(db, key, job.created_at),
        (there, _) => Ok(there),
    }
}

/// Returns the holder of a key at `now`: a live job, or the last one until the key expires.
pub(super) fn key_holder(db: &Connection, key: &str, now: Timestamp) -> Result<Option<JobId>> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/key_holder.sql")))?;
    Ok(statement.query_row(params![key, micros(now)], |row| get(row, "job_id")).optional()?)
}

pub(super) fn take_key(db: &Connection, key: &str, job: JobId, until: Option<Timestamp>) -> Result<()> {
    db.prepare_cached(sql!(
        "insert into unique_keys (key, job_id, until) values (?1, ?2, ?3)
         on conflict (key) do update set job_id = excluded.job_id, until = excluded.until"
    ))?
    .execute(params![key, job.0.as_bytes(), until.map(micros)])?;
    Ok(())
}

/// Returns the job that prevents the insertion of `job`: by its id or by its tick.
fn already_there(db: &Connection, job: &NewJob) -> Result<Option<JobId>> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/already_there.sql")))?;
    let schedule = job.schedule.as_ref().map(ScheduleName::as_str);
    let key = params![job.id.0.as_bytes(), schedule, job.run_at.map(micros)];
    Ok(statement.query_row(key, |row| get(row, "id")).optional()?)
}

/// Returns the distinct `ids`.
pub(super) fn distinct(ids: &[JobId]) -> Vec<JobId> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.iter().copied().filter(|id| seen.insert(*id)).collect()
}
