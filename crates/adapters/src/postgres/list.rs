//! Lists of jobs, newest first, a page at a time.
//!
//! [`paths`] decides which index is read. No table of counts is read for its conditions: its size grows with the number
//! of queues. Ranges of ended jobs exist only for those that did not complete.

use std::collections::HashMap;

use convoke_core::jobs::Status;
use convoke_core::jobs::listing::{
    Condition, Cursor, ENTRIES_READ_MAX, PREFIX_TYPES_MAX, Path, RANGES_MAX, ROWS_READ_MAX, paths,
};
use convoke_core::limits::{PAGE_BYTES_MAX, PAGE_MAX};
use convoke_core::ports::store::{JobCount, JobPage, JobQuery};
use deadpool_postgres::{Client, Transaction};
use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};

use super::cancel::JOB;
use super::failure::Result;
use super::rows::{code, get, job, micros, wide};
use super::runs::FLIGHT;
use crate::statement::{compose, sql};

pub(super) async fn list(db: &mut Client, query: &JobQuery) -> Result<JobPage> {
    // The whole page is of one snapshot.
    let transaction = snapshot(db).await?;
    let page = page(&transaction, query).await;
    transaction.rollback().await?;
    page
}

pub(super) async fn count(db: &mut Client, query: &JobQuery) -> Result<JobCount> {
    let transaction = snapshot(db).await?;
    let found = search(&transaction, query, query.limit.clamp(1, ROWS_READ_MAX)).await;
    transaction.rollback().await?;
    let (seqs, next) = found?;
    Ok(JobCount { jobs: seqs.len() as u64, next_cursor: next.map(|seq| Cursor(seq).to_string()) })
}

async fn snapshot(db: &mut Client) -> Result<Transaction<'_>> {
    let transaction = db.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    Ok(transaction.start().await?)
}

/// Returns the numbers of at most `most` jobs that match, and where the search goes on.
async fn search(db: &Transaction<'_>, query: &JobQuery, most: usize) -> Result<Found> {
    let before = Cursor::of(query)?.0;
    let Some(wanted) = Wanted::resolve(db, query).await? else { return Ok(Found::default()) };
    let before = before.min(wanted.span.before);
    let (mut seqs, next) = match choose(db, query, &wanted).await? {
        Route::Walk(down) => walk(db, &wanted, down, before, most).await?,
        Route::Gather => gather(db, &wanted, before, most).await?,
        Route::Types => of_types(db, &wanted, before, most).await?,
        Route::Finished(ranges) => finished(db, &wanted, &ranges, before, most).await?,
    };
    seqs.truncate(most);
    Ok((seqs, next))
}

async fn page(db: &Transaction<'_>, query: &JobQuery) -> Result<JobPage> {
    let (seqs, next) = search(db, query, query.limit.clamp(1, PAGE_MAX)).await?;
    let select = sql!(include_str!("sql/jobs_by_seq.sql"), job = &*JOB);
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
    /// The type, or those that begin with the prefix of the query.
    types: Option<Vec<i32>>,
    statuses: &'q [Status],
    keys: Vec<String>,
    span: Span,
}

/// Where the jobs of a query by time are.
struct Span {
    /// The lowest number to read.
    floor: i64,
    /// The number to begin below.
    before: i64,
    /// The times of the query: from the first on, before the second.
    from: i64,
    until: i64,
}

impl Span {
    async fn of(db: &Transaction<'_>, query: &JobQuery) -> Result<Self> {
        let first_created = async |at: Option<Timestamp>| -> Result<Option<i64>> {
            let Some(at) = at else { return Ok(None) };
            let statement = db.prepare_cached(FIRST_CREATED).await?;
            get(&db.query_one(&statement, &[&micros(at)]).await?, "seq")
        };
        let (from, until) = query.times_read();
        Ok(Span {
            floor: first_created(from).await?.unwrap_or(i64::MIN),
            before: first_created(until).await?.unwrap_or(i64::MAX),
            from: query.created_from.map_or(i64::MIN, micros),
            until: query.created_until.map_or(i64::MAX, micros),
        })
    }
}

pub(super) const FIRST_CREATED: &str = include_str!("sql/first_created.sql");

impl<'q> Wanted<'q> {
    /// `None` if a name is unknown, or a key is a text that cannot be stored: nothing can match.
    async fn resolve(db: &Transaction<'_>, query: &'q JobQuery) -> Result<Option<Self>> {
        let find = async |sql: &str, name: &str| -> Result<Option<i32>> {
            let statement = db.prepare_cached(sql).await?;
            db.query_opt(&statement, &[&name]).await?.map(|row| get(&row, "id")).transpose()
        };
        let (statuses, keys, span) = (&query.statuses, query.search_keys(), Span::of(db, query).await?);
        let mut wanted = Wanted { queue: None, job_type: None, types: None, statuses, keys, span };
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
            wanted.types = wanted.job_type.map(|job_type| vec![job_type]);
        }
        if let Some(prefix) = &query.type_prefix {
            if prefix.contains('\0') {
                return Ok(None);
            }
            let types = types(db, prefix).await?;
            let both = |own: Vec<i32>| own.into_iter().filter(|id| types.contains(id)).collect();
            let types = wanted.types.take().map_or_else(|| types.clone(), both);
            if types.is_empty() {
                return Ok(None);
            }
            wanted.types = Some(types);
        }
        Ok(Some(wanted))
    }

    /// Returns whether the rows of the jobs must be read to know whether they match.
    fn has_more_filters(&self) -> bool {
        self.types.is_some() || (self.span.from, self.span.until) != (i64::MIN, i64::MAX)
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
    /// Walks down an index, from below the first parameter.
    Walk(Down),
    /// Walks down the index of each type.
    Types,
    Gather,
    Finished(Vec<(Status, i32)>),
}

/// The jobs of a walk, in the order of an index.
#[derive(Clone, Copy)]
pub(super) struct Down {
    jobs: &'static str,
    seq: &'static str,
    /// The first column of the index, and its value. It is compared as a row with the number: so no other index has the
    /// order. By the primary key all newer jobs would be read, however many they are.
    of: Option<(&'static str, &'static str)>,
}

/// The jobs of the first search key.
pub(super) const JOBS_OF_KEY: Down = Down {
    jobs: "convoke_job_keys k \
           cross join lateral (select * from convoke_jobs j where j.seq = k.seq offset 0) j \
           where k.key = ($5::text[])[1]",
    seq: "k.seq",
    of: None,
};

const JOBS: &str = "convoke_jobs j where true";
const ALL_JOBS: Down = Down { jobs: JOBS, seq: "j.seq", of: None };
pub(super) const JOBS_OF_TYPE: Down = Down { jobs: JOBS, seq: "j.seq", of: Some(("j.type_id", "($4::int[])[1]")) };
pub(super) const JOBS_OF_QUEUE: Down = Down { jobs: JOBS, seq: "j.seq", of: Some(("j.queue_id", "$3::int")) };

/// Returns the types whose names begin with `prefix`.
async fn types(db: &Transaction<'_>, prefix: &str) -> Result<Vec<i32>> {
    // Names are text in UTF-8 and compared by bytes: no character is above the last code point.
    let select = "select id from convoke_types where name >= $1 and name < $1 || U&'\\+10FFFF' limit $2";
    let statement = db.prepare_cached(select).await?;
    let rows = db.query(&statement, &[&prefix, &wide(PREFIX_TYPES_MAX)]).await?;
    rows.iter().map(|row| get(row, "id")).collect()
}

async fn choose(db: &Transaction<'_>, query: &JobQuery, wanted: &Wanted<'_>) -> Result<Route> {
    for (path, condition) in paths(query) {
        match path {
            Path::Key => return Ok(Route::Walk(JOBS_OF_KEY)),
            Path::Type => {
                if condition == Condition::Always || is_rare_type(db, wanted.job_type).await? {
                    return Ok(Route::Walk(JOBS_OF_TYPE));
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
            Path::Types => {
                if wanted.types.as_ref().is_some_and(|types| types.len() <= RANGES_MAX) {
                    return Ok(Route::Types);
                }
            }
            Path::Queue => return Ok(Route::Walk(JOBS_OF_QUEUE)),
            Path::All => break,
        }
    }
    Ok(Route::Walk(ALL_JOBS))
}

async fn is_rare_type(db: &Transaction<'_>, job_type: Option<i32>) -> Result<bool> {
    let has_many = "select 1 from convoke_jobs where type_id = $1 offset $2 limit 1";
    let statement = db.prepare_cached(has_many).await?;
    Ok(db.query_opt(&statement, &[&job_type, &wide(ROWS_READ_MAX)]).await?.is_none())
}

/// Returns whether [`gather`] would read at most [`ENTRIES_READ_MAX`] entries.
async fn are_few(db: &Transaction<'_>, wanted: &Wanted<'_>) -> Result<bool> {
    let statement = db.prepare_cached(&of_waiting(include_str!("sql/list_by_status_has_many.sql"), wanted)).await?;
    let in_flight = wanted.statuses.iter().any(|status| status.is_in_flight());
    let (pending, scheduled) = (wanted.wants(Status::Pending), wanted.wants(Status::Scheduled));
    let ended = wanted.ended_codes();
    let params: [&(dyn ToSql + Sync); 6] =
        [&wanted.queue, &pending, &scheduled, &in_flight, &ended, &wide(ENTRIES_READ_MAX)];
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

pub(super) fn walk_sql(down: Down) -> String {
    let Down { jobs, seq, of } = down;
    let (range, order, sorted) = match of {
        None => (format!("{seq} < $1 and {seq} >= $8::bigint"), format!("{seq} desc"), "order by j.seq desc"),
        // The rows come in the order of the index; the server would sort them, and read all of them for it.
        Some((column, value)) => (
            format!(
                "row({column}, {seq}) < row({value}, $1::bigint) and row({column}, {seq}) >= row({value}, $8::bigint)"
            ),
            format!("{column} desc, {seq} desc"),
            "",
        ),
    };
    let matches = compose(include_str!("sql/matches.sql"), &[("flight", FLIGHT)]);
    let parts = [
        ("jobs", jobs),
        ("seq", seq),
        ("range", range.as_str()),
        ("order", order.as_str()),
        ("sorted", sorted),
        ("matches", matches.as_str()),
    ];
    compose(include_str!("sql/scan_jobs.sql"), &parts)
}

pub(super) fn types_sql() -> String {
    let matches = compose(include_str!("sql/matches.sql"), &[("flight", FLIGHT)]);
    compose(include_str!("sql/scan_types.sql"), &[("matches", &matches)])
}

/// The jobs found, and where the next page begins.
type Found = (Vec<i64>, Option<i64>);

async fn walk(db: &Transaction<'_>, wanted: &Wanted<'_>, down: Down, before: i64, most: usize) -> Result<Found> {
    let mut seqs = Vec::new();
    let mut next = None;
    for row in scan(db, wanted, &walk_sql(down), (before, ROWS_READ_MAX, most)).await? {
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

/// Runs one of the statements that read jobs and return whether they match: at most so many, below a number.
async fn scan(
    db: &Transaction<'_>,
    wanted: &Wanted<'_>,
    sql: &str,
    (before, look, most): (i64, usize, usize),
) -> Result<Vec<Row>> {
    let states: Option<Vec<i16>> =
        (!wanted.statuses.is_empty()).then(|| wanted.statuses.iter().map(|status| status.code().into()).collect());
    let statement = db.prepare_cached(sql).await?;
    let Span { floor, from, until, .. } = &wanted.span;
    let params: [&(dyn ToSql + Sync); 10] = [
        &before,
        &wide(look),
        &wanted.queue,
        &wanted.types,
        &wanted.keys,
        &states,
        &wide(most + 1),
        floor,
        from,
        until,
    ];
    Ok(db.query(&statement, &params).await?)
}

async fn of_types(db: &Transaction<'_>, wanted: &Wanted<'_>, before: i64, most: usize) -> Result<Found> {
    let share = ROWS_READ_MAX / wanted.types.as_ref().map_or(1, |types| types.len().max(1));
    let rows = scan(db, wanted, &types_sql(), (before, share, most)).await?;
    merge(&rows, most)
}

async fn gather(db: &Transaction<'_>, wanted: &Wanted<'_>, before: i64, most: usize) -> Result<Found> {
    let statement = db.prepare_cached(&of_waiting(include_str!("sql/list_by_status.sql"), wanted)).await?;
    let [pending, scheduled, dispatched, running] =
        [Status::Pending, Status::Scheduled, Status::Dispatched, Status::Running].map(|status| wanted.wants(status));
    let (ended, rows_max) = (wanted.ended_codes(), wide(most + 1));
    let (filters, Span { floor, from, until, .. }) = (wanted.has_more_filters(), &wanted.span);
    let params: [&(dyn ToSql + Sync); 13] = [
        &wanted.queue,
        &pending,
        &scheduled,
        &dispatched,
        &running,
        &ended,
        &before,
        &wanted.types,
        &rows_max,
        &filters,
        floor,
        from,
        until,
    ];
    let rows = db.query(&statement, &params).await?;
    let seqs = rows.iter().map(|row| get(row, "seq")).collect::<Result<Vec<i64>>>()?;
    let next = seqs.get(most).map(|seq| seq + 1);
    Ok((seqs, next))
}

/// Reads each range until it has enough, or as far as its share goes. Below the highest place at which one stopped, the result is not known
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
    let (filters, Span { floor, from, until, .. }) = (wanted.has_more_filters(), &wanted.span);
    let (share, enough) = (ROWS_READ_MAX / ranges.len(), wide(most + 1));
    let states: Vec<i16> = ranges.iter().map(|(state, _)| state.code().into()).collect();
    let queues: Vec<i32> = ranges.iter().map(|(_, queue)| *queue).collect();
    let statement = db.prepare_cached(sql!(include_str!("sql/finished.sql"))).await?;
    let params: [&(dyn ToSql + Sync); 10] =
        [&states, &queues, &before, &wide(share), &wanted.types, &filters, floor, from, until, &enough];
    merge(&db.query(&statement, &params).await?, most)
}

/// Merges what was found in ranges: of each at most one job more than `most`, and the last one that its share allowed.
fn merge(rows: &[Row], most: usize) -> Result<Found> {
    let mut matched: HashMap<i64, usize> = HashMap::new();
    let mut found: Vec<i64> = Vec::new();
    let mut stopped: Option<i64> = None;
    for row in rows {
        let (range, seq, mut stops): (i64, i64, bool) = (get(row, "ord")?, get(row, "seq")?, get(row, "is_last")?);
        if get(row, "matches")? {
            let matched = matched.entry(range).or_default();
            *matched += 1;
            stops |= *matched > most;
            found.push(seq);
        }
        if stops {
            stopped = stopped.max(Some(seq));
        }
    }
    found.retain(|seq| stopped.is_none_or(|stopped| *seq >= stopped));
    found.sort_unstable_by(|a, b| b.cmp(a));
    let next = found.get(most).map(|seq| seq + 1).or(stopped);
    Ok((found, next))
}
