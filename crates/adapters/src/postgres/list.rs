//! Lists of jobs, newest first, a page at a time.
//!
//! [`paths`] decides which index is read. No table of counts is read for its conditions: its size grows with the number
//! of queues. Ranges of ended jobs exist only for those that did not complete.

use std::collections::HashMap;

use convoke_core::jobs::Status;
use convoke_core::jobs::listing::{Condition, Cursor, Path, RANGES_MAX, ROWS_READ_MAX, paths};
use convoke_core::limits::{PAGE_BYTES_MAX, PAGE_MAX};
use convoke_core::ports::store::{JobPage, JobQuery};
use deadpool_postgres::{Client, Transaction};
use tokio_postgres::IsolationLevel;
use tokio_postgres::types::ToSql;

use super::failure::Result;
use super::rows::{code, get, job, wide};
use crate::statement::{compose, sql};

pub(super) async fn list(db: &mut Client, query: &JobQuery) -> Result<JobPage> {
    let before = Cursor::of(query)?.0;
    // The whole page is of one snapshot.
    let transaction =
        db.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await?;
    let page = page(&transaction, query, before).await;
    transaction.rollback().await?;
    page
}

async fn page(db: &Transaction<'_>, query: &JobQuery, before: i64) -> Result<JobPage> {
    let Some(wanted) = Wanted::resolve(db, query).await? else { return Ok(JobPage::default()) };
    let most = query.limit.clamp(1, PAGE_MAX);
    let (mut seqs, next) = match choose(db, query, &wanted).await? {
        Route::Walk(jobs) => walk(db, &wanted, jobs, before, most).await?,
        Route::Gather => gather(db, &wanted, before, most).await?,
        Route::Finished(ranges) => finished(db, &wanted, &ranges, before, most).await?,
    };
    seqs.truncate(most);
    let select = sql!(include_str!("sql/jobs_by_seq.sql"), job = include_str!("sql/job.sql"));
    let rows = db.query(&db.prepare_cached(select).await?, &[&seqs, &wide(PAGE_BYTES_MAX)]).await?;
    // A page that reached its limit in bytes ends early.
    let next = seqs.get(rows.len()).map(|seq| seq + 1).or(next);
    Ok(JobPage {
        jobs: rows.iter().map(job).collect::<Result<_>>()?,
        next_cursor: next.map(|seq| Cursor(seq).to_string()),
    })
}

/// The query with its names resolved.
struct Wanted<'q> {
    queue: Option<i32>,
    job_type: Option<i32>,
    statuses: &'q [Status],
    keys: Vec<String>,
}

impl<'q> Wanted<'q> {
    /// `None` if a name is unknown, or a key is a text that cannot be stored: nothing can match.
    async fn resolve(db: &Transaction<'_>, query: &'q JobQuery) -> Result<Option<Self>> {
        let find = async |sql: &str, name: &str| -> Result<Option<i32>> {
            let statement = db.prepare_cached(sql).await?;
            db.query_opt(&statement, &[&name]).await?.map(|row| get(&row, "id")).transpose()
        };
        let mut wanted = Wanted { queue: None, job_type: None, statuses: &query.statuses, keys: query.search_keys() };
        if wanted.keys.iter().any(|key| key.contains('\0')) {
            return Ok(None);
        }
        if let Some(name) = &query.queue {
            wanted.queue = find("select id from convoke_queues where name = $1", name.as_str()).await?;
            if wanted.queue.is_none() {
                return Ok(None);
            }
        }
        if let Some(name) = &query.job_type {
            wanted.job_type = find("select id from convoke_types where name = $1", name.as_str()).await?;
            if wanted.job_type.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(wanted))
    }

    fn wants(&self, status: Status) -> bool {
        self.statuses.contains(&status)
    }

    /// Returns the requested states of ended jobs, once each.
    fn ended(&self) -> impl Iterator<Item = Status> {
        Status::ALL.into_iter().filter(|status| !status.is_live() && self.wants(*status))
    }

    fn ended_codes(&self) -> Vec<i16> {
        self.ended().map(|status| status.code().into()).collect()
    }
}

/// How the jobs of a page are read.
enum Route {
    /// Walks down an index of these jobs, from below the first parameter.
    Walk(&'static str),
    Gather,
    Finished(Vec<(Status, i32)>),
}

/// The jobs of the first search key, in the order of the index.
pub(super) const JOBS_OF_KEY: &str = "convoke_job_keys k \
     cross join lateral (select * from convoke_jobs j where j.seq = k.seq offset 0) j \
     where k.key = ($5::text[])[1]";

async fn choose(db: &Transaction<'_>, query: &JobQuery, wanted: &Wanted<'_>) -> Result<Route> {
    for (path, condition) in paths(query) {
        match path {
            Path::Key => return Ok(Route::Walk(JOBS_OF_KEY)),
            Path::Type => {
                if condition == Condition::Always || is_rare_type(db, wanted.job_type).await? {
                    return Ok(Route::Walk("convoke_jobs j where j.type_id = $4"));
                }
            }
            Path::Ended if wanted.wants(Status::Completed) => {}
            Path::Ended => {
                let ranges = finished_ranges(db, wanted).await?;
                if ranges.len() <= RANGES_MAX {
                    return Ok(Route::Finished(ranges));
                }
            }
            Path::Statuses => {
                if are_few(db, wanted).await? {
                    return Ok(Route::Gather);
                }
            }
            Path::Queue => return Ok(Route::Walk("convoke_jobs j where j.queue_id = $3")),
            Path::All => break,
        }
    }
    Ok(Route::Walk("convoke_jobs j where true"))
}

async fn is_rare_type(db: &Transaction<'_>, job_type: Option<i32>) -> Result<bool> {
    let has_many = "select 1 from convoke_jobs where type_id = $1 offset $2 limit 1";
    let statement = db.prepare_cached(has_many).await?;
    Ok(db.query_opt(&statement, &[&job_type, &wide(ROWS_READ_MAX)]).await?.is_none())
}

/// Returns whether [`gather`] would read at most [`ROWS_READ_MAX`] rows.
async fn are_few(db: &Transaction<'_>, wanted: &Wanted<'_>) -> Result<bool> {
    let statement = db.prepare_cached(&of_waiting(include_str!("sql/list_by_status_has_many.sql"), wanted)).await?;
    let in_flight = wanted.statuses.iter().any(|status| status.is_in_flight());
    let (pending, scheduled) = (wanted.wants(Status::Pending), wanted.wants(Status::Scheduled));
    let ended = wanted.ended_codes();
    let params: [&(dyn ToSql + Sync); 6] =
        [&wanted.queue, &pending, &scheduled, &in_flight, &ended, &wide(ROWS_READ_MAX)];
    Ok(db.query_opt(&statement, &params).await?.is_none())
}

/// Returns the statement for waiting jobs, in one queue if the query names one.
fn of_waiting(sql: &str, wanted: &Wanted<'_>) -> String {
    compose(sql, &[("waiting", if wanted.queue.is_some() { "w.queue_id = $1" } else { "$1::int is null" })])
}

/// Returns the ranges of `convoke_ended_list` to read: those of the queue, or all that exist, but at most one more than
/// [`RANGES_MAX`].
async fn finished_ranges(db: &Transaction<'_>, wanted: &Wanted<'_>) -> Result<Vec<(Status, i32)>> {
    if let Some(queue) = wanted.queue {
        return Ok(wanted.ended().map(|status| (status, queue)).collect());
    }
    let statement = db.prepare_cached(sql!(include_str!("sql/finished_ranges.sql"))).await?;
    let rows = db.query(&statement, &[&wanted.ended_codes(), &wide(RANGES_MAX + 1)]).await?;
    rows.iter().map(|row| Ok((code(row, "state", Status::from_code)?, get(row, "queue_id")?))).collect()
}

pub(super) fn walk_sql(jobs: &str) -> String {
    let seq = if jobs == JOBS_OF_KEY { "k.seq" } else { "j.seq" };
    compose(include_str!("sql/scan_jobs.sql"), &[("jobs", jobs), ("seq", seq)])
}

/// The jobs found, and where the next page begins.
type Found = (Vec<i64>, Option<i64>);

async fn walk(db: &Transaction<'_>, wanted: &Wanted<'_>, jobs: &str, before: i64, most: usize) -> Result<Found> {
    let states: Option<Vec<i16>> =
        (!wanted.statuses.is_empty()).then(|| wanted.statuses.iter().map(|status| status.code().into()).collect());
    let statement = db.prepare_cached(&walk_sql(jobs)).await?;
    let (look, rows_max) = (wide(ROWS_READ_MAX), wide(most + 1));
    let params: [&(dyn ToSql + Sync); 7] =
        [&before, &look, &wanted.queue, &wanted.job_type, &wanted.keys, &states, &rows_max];
    let mut seqs = Vec::new();
    let mut next = None;
    for row in db.query(&statement, &params).await? {
        let (seq, matches, is_last): (i64, bool, bool) =
            (get(&row, "seq")?, get(&row, "matches")?, get(&row, "is_last")?);
        if matches && seqs.len() == most {
            // There is one more: it opens the next page.
            return Ok((seqs, Some(seq + 1)));
        }
        if matches {
            seqs.push(seq);
        }
        if is_last {
            next = Some(seq);
        }
    }
    Ok((seqs, next))
}

async fn gather(db: &Transaction<'_>, wanted: &Wanted<'_>, before: i64, most: usize) -> Result<Found> {
    let statement = db.prepare_cached(&of_waiting(include_str!("sql/list_by_status.sql"), wanted)).await?;
    let [pending, scheduled, dispatched, running] =
        [Status::Pending, Status::Scheduled, Status::Dispatched, Status::Running].map(|status| wanted.wants(status));
    let (ended, rows_max) = (wanted.ended_codes(), wide(most + 1));
    let params: [&(dyn ToSql + Sync); 9] =
        [&wanted.queue, &pending, &scheduled, &dispatched, &running, &ended, &before, &wanted.job_type, &rows_max];
    let rows = db.query(&statement, &params).await?;
    let seqs = rows.iter().map(|row| get(row, "seq")).collect::<Result<Vec<i64>>>()?;
    let next = seqs.get(most).map(|seq| seq + 1);
    Ok((seqs, next))
}

/// Reads each range as far as its share goes. Below the highest place at which one stopped, the result is not known
/// yet.
async fn finished(
    db: &Transaction<'_>,
    wanted: &Wanted<'_>,
    ranges: &[(Status, i32)],
    before: i64,
    most: usize,
) -> Result<Found> {
    if ranges.is_empty() {
        return Ok((Vec::new(), None));
    }
    // If no type is requested, every row of a range is found.
    let share = ROWS_READ_MAX / ranges.len();
    let share = if wanted.job_type.is_some() { share } else { share.min(most + 1) };
    let states: Vec<i16> = ranges.iter().map(|(state, _)| state.code().into()).collect();
    let queues: Vec<i32> = ranges.iter().map(|(_, queue)| *queue).collect();
    let statement = db.prepare_cached(sql!(include_str!("sql/finished.sql"))).await?;
    let rows = db.query(&statement, &[&states, &queues, &before, &wide(share), &wanted.job_type]).await?;
    let mut looked: HashMap<i64, (usize, i64)> = HashMap::new();
    let mut found: Vec<i64> = Vec::new();
    for row in &rows {
        let (range, seq): (i64, i64) = (get(row, "ord")?, get(row, "seq")?);
        let entry = looked.entry(range).or_insert((0, i64::MAX));
        *entry = (entry.0 + 1, entry.1.min(seq));
        if get(row, "matches")? {
            found.push(seq);
        }
    }
    let stopped = looked.values().filter(|(count, _)| *count == share).map(|(_, lowest)| *lowest).max();
    found.retain(|seq| stopped.is_none_or(|stopped| *seq >= stopped));
    found.sort_unstable_by(|a, b| b.cmp(a));
    let next = found.get(most).map(|seq| seq + 1).or(stopped);
    Ok((found, next))
}
