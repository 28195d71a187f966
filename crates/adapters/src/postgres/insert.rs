//! New jobs.
//!
//! Jobs of known queues and types without a unique key or a tick can conflict only by their id. They take the fast
//! lane: one statement for all waiting calls. The rest (a unique key, a tick, a new queue) are checked one by one,
//! inside the database, by the same function that serves applications' own transactions.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::jobs::NewJob;
use convoke_core::jobs::link::Enqueued;
use convoke_core::{Invalid, JobId, Result, ScheduleName};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::failure::{self, Failure};
use super::lane::{Apart, BYTES_PER_WEIGHT, Work};
use super::locked_keys::LockedKeys;
use super::names::Names;
use super::rows::{check_exact, get, job_id, micros, unreadable};
use super::server::{Hot, Ways, lent};
use super::sql::{Column, column, params};
use crate::statement::sql;

/// A job for the fast lane, with the ids of its queue and its type.
pub(super) struct Plain {
    job: NewJob,
    ids: (i32, i32),
}

pub(super) struct PlainInsert;

/// An insert waits for another transaction's commit, but not for a transaction that an application keeps open.
const LOCK_TIMEOUT: &str = "lock_timeout=250";

macro_rules! insert_sql {
    ($on_conflict:literal, $known:literal) => {
        sql!(include_str!("sql/insert.sql"), on_conflict = $on_conflict, known = $known)
    };
}

#[async_trait]
impl Work for PlainInsert {
    type Item = Plain;
    type Output = Enqueued;
    const LOCK_TIMEOUT: &'static str = LOCK_TIMEOUT;

    fn weight(item: &Plain) -> usize {
        1 + item.job.definition.args.as_str().len() / BYTES_PER_WEIGHT
    }

    async fn run(&self, hot: &mut Hot, items: &[Plain]) -> failure::Result<Vec<Enqueued>> {
        let new = hot.prepared(insert_sql!("", "false")).await?;
        let jobs: Vec<&NewJob> = items.iter().map(|item| &item.job).collect();
        let mut columns = columns(&jobs);
        columns.push(column(items, |item| item.ids.0));
        columns.push(column(items, |item| item.ids.1));
        columns.push(Box::new(hot.slot));
        match hot.client.query(&new, &params(&columns)).await {
            Ok(_) => return Ok(jobs.iter().map(|job| Enqueued { id: job.id, created: true }).collect()),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
            Err(error) => return Err(Failure::of_commit(error)),
        }
        // One of them exists already, which is rare: checking for it every time costs a third more.
        let known = hot.prepared(insert_sql!("on conflict do nothing", "true")).await?;
        let rows = hot.client.query(&known, &params(&columns)).await.map_err(Failure::of_commit)?;
        // An id twice in one group: the first made the job.
        let mut created = rows.iter().map(job_id).collect::<failure::Result<HashSet<JobId>>>()?;
        Ok(jobs.iter().map(|job| Enqueued { id: job.id, created: created.remove(&job.id) }).collect())
    }

    async fn run_apart(&self, hot: &mut Hot, items: &[Plain], calls: &[Range<usize>]) -> Option<Apart<Enqueued>> {
        let jobs: Vec<&NewJob> = items.iter().map(|item| &item.job).collect();
        Some(store_calls(hot, &jobs, calls).await)
    }
}

pub(super) struct CarefulInsert {
    pub(super) locked: Arc<LockedKeys>,
}

#[async_trait]
impl Work for CarefulInsert {
    type Item = NewJob;
    type Output = Enqueued;
    const LOCK_TIMEOUT: &'static str = LOCK_TIMEOUT;

    fn weight(item: &NewJob) -> usize {
        // Each is a dozen statements.
        8 + item.definition.args.as_str().len() / BYTES_PER_WEIGHT
    }

    async fn run(&self, hot: &mut Hot, jobs: &[NewJob]) -> failure::Result<Vec<Enqueued>> {
        let statement = hot.prepared(store_jobs_sql()).await?;
        let columns = careful_columns(&jobs.iter().collect::<Vec<_>>());
        let rows = hot.client.query(&statement, &params(&columns)).await.map_err(Failure::of_commit)?;
        rows.iter().map(enqueued).collect()
    }

    async fn run_apart(&self, hot: &mut Hot, jobs: &[NewJob], calls: &[Range<usize>]) -> Option<Apart<Enqueued>> {
        Some(store_calls(hot, &jobs.iter().collect::<Vec<_>>(), calls).await)
    }

    fn found_locked(&self, jobs: &[NewJob]) {
        self.locked.remember(jobs);
    }
}

/// Stores the jobs of several calls in one statement, which commits the calls without conflicts.
async fn store_calls(hot: &mut Hot, jobs: &[&NewJob], calls: &[Range<usize>]) -> Apart<Enqueued> {
    let statement = hot.prepared(sql!("select * from convoke_store_calls($13, {jobs})", jobs = NEW_JOBS)).await?;
    let mut columns = careful_columns(jobs);
    let numbers: Vec<i32> = (0..).zip(calls).flat_map(|(number, call)| call.clone().map(move |_| number)).collect();
    columns.push(Box::new(numbers));
    let rows = hot.client.query(&statement, &params(&columns)).await.map_err(Failure::of_commit)?;
    let mut answers: Vec<failure::Result<Vec<Enqueued>>> = calls.iter().map(|_| Ok(Vec::new())).collect();
    for row in &rows {
        let number: i32 = get(row, "call")?;
        let answer = usize::try_from(number).ok().and_then(|number| answers.get_mut(number));
        let answer = answer.ok_or_else(|| unreadable("call", format!("unknown call {number}")))?;
        if let Some(code) = get::<Option<String>>(row, "error_code")? {
            *answer = Err(Failure::Undone(code, get(row, "error_message")?));
        } else if let Ok(stored) = answer {
            stored.push(enqueued(row)?);
        }
    }
    Ok(answers)
}

const NEW_JOBS: &str = include_str!("sql/new_jobs.sql");

/// Returns the statement that stores jobs with all checks. Takes [`careful_columns`] and returns a row for each job,
/// for [`enqueued`].
pub(super) fn store_jobs_sql() -> &'static str {
    sql!("select * from convoke_store_jobs({jobs})", jobs = NEW_JOBS)
}

pub(super) fn enqueued(row: &Row) -> failure::Result<Enqueued> {
    Ok(Enqueued { id: job_id(row)?, created: get(row, "created")? })
}

/// Returns the columns that both ways of storing jobs begin with.
fn columns<'j>(jobs: &[&'j NewJob]) -> Vec<Column<'j>> {
    vec![
        column(jobs, |job| job.id.0),
        column(jobs, |job| i16::from(job.definition.priority.code())),
        column(jobs, |job| job.definition.document()),
        column(jobs, |job| job.definition.args.as_str()),
        column(jobs, |job| array_text(&job.definition.search_keys())),
        column(jobs, |job| micros(job.created_at)),
        column(jobs, |job| job.run_at.map(micros)),
    ]
}

/// Returns the columns of `sql/new_jobs.sql`.
pub(super) fn careful_columns<'j>(jobs: &[&'j NewJob]) -> Vec<Column<'j>> {
    let mut columns = columns(jobs);
    columns.extend([
        column(jobs, |job| job.definition.job_type.as_str()),
        column(jobs, |job| job.definition.queue.as_str()),
        column(jobs, |job| job.definition.unique_key.as_deref()),
        column(jobs, |job| job.unique_until.map(micros)),
        column(jobs, |job| job.schedule.as_ref().map(ScheduleName::as_str)),
    ]);
    columns
}

/// Returns texts as a PostgreSQL array literal: arrays inside an array would have to be of one length. `None` if there
/// are none.
fn array_text(texts: &[String]) -> Option<String> {
    let quoted = texts.iter().map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    (!texts.is_empty()).then(|| format!("{{{}}}", quoted.collect::<Vec<_>>().join(",")))
}

/// Rejects jobs that cannot be stored, before anything is sent: they would fail the other jobs of the statement.
pub(super) fn check(jobs: &[NewJob]) -> Result<(), Invalid> {
    for job in jobs {
        check_exact("uniqueKey", job.definition.unique_key.as_deref())?;
        for key in job.definition.search_keys() {
            check_exact("searchKeys", Some(&key))?;
        }
    }
    Ok(())
}

/// The way that a batch takes.
pub(super) enum Way {
    Fast(Vec<Plain>),
    Careful(Vec<NewJob>),
}

pub(super) async fn way(ways: &Ways, names: &Names, jobs: Vec<NewJob>) -> Result<Way> {
    if jobs.iter().any(|job| job.definition.unique_key.is_some() || job.schedule.is_some()) {
        return Ok(Way::Careful(jobs));
    }
    if !jobs.iter().all(|job| names.of(job).is_some()) {
        lent!(Read, ways, |db| names.learn(db, &jobs))?;
    }
    let Some(ids) = jobs.iter().map(|job| names.of(job)).collect::<Option<Vec<_>>>() else {
        return Ok(Way::Careful(jobs));
    };
    Ok(Way::Fast(jobs.into_iter().zip(ids).map(|(job, ids)| Plain { job, ids }).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_written_as_the_server_reads_it() {
        let texts = ["c:a", r#"a"b\c"#, "a,{b}"].map(String::from);
        assert_eq!(array_text(&texts).as_deref(), Some(r#"{"c:a","a\"b\\c","a,{b}"}"#));
        assert_eq!(array_text(&[]), None);
    }
}
