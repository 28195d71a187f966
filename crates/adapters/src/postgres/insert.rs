//! New jobs.
//!
//! Jobs of known queues and types without a unique key or a tick can conflict only by their id. They take the fast
//! lane: one statement for all waiting calls. The rest (a unique key, a tick, a new queue) are checked one by one,
//! inside the database, by the same function that serves applications' own transactions.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::jobs::NewJob;
use convoke_core::jobs::link::Enqueued;
use convoke_core::{Invalid, Result, ScheduleName};
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

/// Limit of the jobs of a pack: two rows of this many fit on a page.
const PACK_MAX: usize = 160;

/// The number of a job's pack among those of a group, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    pack: i32,
    place: i16,
}

/// Divides the jobs of a group into packs: pending ones of a queue and priority in the order of dispatch, scheduled ones
/// alone. Returns the place of each job, and the number of packs.
fn places(items: &[Plain]) -> (Vec<Place>, i32) {
    let due_at = |item: &Plain| item.job.run_at.map_or(item.job.created_at, |at| at.max(item.job.created_at));
    let alone = |item: &Plain| item.job.run_at.is_some_and(|at| at > item.job.created_at);
    let kind = |item: &Plain| (item.ids.0, item.job.definition.priority);
    let mut order: Vec<usize> = (0..items.len()).collect();
    // Stable: of equals, the first stored is the first.
    order.sort_by_key(|at| (kind(&items[*at]), alone(&items[*at]), due_at(&items[*at])));
    let mut places = vec![Place { pack: 0, place: 0 }; items.len()];
    let mut last: Option<(usize, Place)> = None;
    for at in order {
        let place = match last {
            None => Place { pack: 1, place: 0 },
            Some((before, Place { pack, place })) => {
                let shares = kind(&items[before]) == kind(&items[at]) && !alone(&items[at]) && !alone(&items[before]);
                let has_room = usize::try_from(place).is_ok_and(|place| place + 1 < PACK_MAX);
                if shares && has_room { Place { pack, place: place + 1 } } else { Place { pack: pack + 1, place: 0 } }
            }
        };
        places[at] = place;
        last = Some((at, place));
    }
    (places, last.map_or(0, |(_, place)| place.pack))
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
        let new = hot.prepared(sql!(include_str!("sql/insert.sql"))).await?;
        let jobs: Vec<&NewJob> = items.iter().map(|item| &item.job).collect();
        let (places, packs) = places(items);
        let mut columns = columns(&jobs);
        columns.push(column(items, |item| item.ids.0));
        columns.push(column(items, |item| item.ids.1));
        columns.push(column(&places, |place| place.pack));
        columns.push(column(&places, |place| place.place));
        columns.push(Box::new(packs));
        columns.push(Box::new(hot.slot));
        match hot.client.execute(&new, &params(&columns)).await {
            Ok(_) => Ok(jobs.iter().map(|job| Enqueued { id: job.id, created: true }).collect()),
            // One of them exists already, which is rare.
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => store_jobs(hot, &jobs).await,
            Err(error) => Err(Failure::of_commit(error)),
        }
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
        store_jobs(hot, &jobs.iter().collect::<Vec<_>>()).await
    }

    async fn run_apart(&self, hot: &mut Hot, jobs: &[NewJob], calls: &[Range<usize>]) -> Option<Apart<Enqueued>> {
        Some(store_calls(hot, &jobs.iter().collect::<Vec<_>>(), calls).await)
    }

    fn found_locked(&self, jobs: &[NewJob]) {
        self.locked.remember(jobs);
    }
}

/// Stores jobs with all checks, all or nothing.
async fn store_jobs(hot: &mut Hot, jobs: &[&NewJob]) -> failure::Result<Vec<Enqueued>> {
    let statement = hot.prepared(store_jobs_sql()).await?;
    let rows = hot.client.query(&statement, &params(&careful_columns(jobs))).await.map_err(Failure::of_commit)?;
    rows.iter().map(enqueued).collect()
}

/// Stores the jobs of several calls in one statement, which commits the calls without conflicts.
async fn store_calls(hot: &mut Hot, jobs: &[&NewJob], calls: &[Range<usize>]) -> Apart<Enqueued> {
    let statement = hot.prepared(sql!("select * from convoke_store_calls($13, {jobs})", jobs = NEW_JOBS)).await?;
    let mut columns = careful_columns(jobs);
    let numbers: Vec<i32> = (0..).zip(calls).flat_map(|(number, call)| call.clone().map(move |_| number)).collect();
    columns.push(Box::new(numbers));
    let rows = hot.client.query(&statement, &params(&columns)).await.map_err(Failure::of_commit)?;
    let mut results: Vec<failure::Result<Vec<Enqueued>>> = calls.iter().map(|_| Ok(Vec::new())).collect();
    for row in &rows {
        let number: i32 = get(row, "call")?;
        let result = usize::try_from(number).ok().and_then(|number| results.get_mut(number));
        let result = result.ok_or_else(|| unreadable("call", format!("unknown call {number}")))?;
        if let Some(code) = get::<Option<String>>(row, "error_code")? {
            *result = Err(Failure::Undone(code, get(row, "error_message")?));
        } else if let Ok(stored) = result {
            stored.push(enqueued(row)?);
        }
    }
    Ok(results)
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
        column(jobs, |job| array_text(&job.search_keys())),
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
        for key in job.search_keys() {
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
    use convoke_core::jobs::{JobSpec, Priority, RetrySettings};
    use convoke_core::{JobId, JobType};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn plain(queue: i32, priority: Priority, second: i64, run_at: Option<i64>) -> Plain {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let spec = JobSpec::new(JobType::new("t").expect("a name"));
        let mut job = spec.into_job(JobId(Uuid::nil()), at(second), &RetrySettings::default()).expect("valid");
        job.definition.priority = priority;
        job.run_at = run_at.map(at);
        Plain { job, ids: (queue, 1) }
    }

    #[test]
    fn pending_jobs_of_a_queue_and_priority_share_a_pack_in_the_order_of_dispatch() {
        let (normal, high) = (Priority::Normal, Priority::High);
        let items = [
            plain(1, normal, 5, None),
            plain(2, normal, 5, None),
            plain(1, normal, 3, None),
            plain(1, high, 5, None),
            plain(1, normal, 5, Some(9)),
            plain(1, normal, 5, Some(9)),
            plain(1, normal, 5, Some(2)),
        ];
        let (divided, packs) = places(&items);
        let places: Vec<_> = divided.iter().map(|place| (place.pack, place.place)).collect();
        assert_eq!(places, [(1, 1), (5, 0), (1, 0), (4, 0), (2, 0), (3, 0), (1, 2)]);
        assert_eq!(packs, 5, "scheduled jobs are alone");
        let items: Vec<_> = (0..PACK_MAX as i64 + 1).map(|second| plain(1, normal, second, None)).collect();
        let (divided, packs) = super::places(&items);
        assert_eq!((packs, divided[PACK_MAX]), (2, Place { pack: 2, place: 0 }));
    }

    #[test]
    fn an_array_is_written_as_the_server_reads_it() {
        let texts = ["c:a", r#"a"b\c"#, "a,{b}"].map(String::from);
        assert_eq!(array_text(&texts).as_deref(), Some(r#"{"c:a","a\"b\\c","a,{b}"}"#));
        assert_eq!(array_text(&[]), None);
    }
}
