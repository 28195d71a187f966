//! Lists of jobs, newest first, a page at a time.
//!
//! A page is found by walking one index downwards by `seq` and keeping what the query asks for. Which index is decided by
//! how many rows each would make us look at, which the counters tell; no page looks at more than [`LOOK_MAX`] of them. Where
//! that was not enough to fill the page, it ends early and its cursor goes on from there. Jobs that completed, which are most,
//! are met on the way; other ends have an index.

use std::collections::HashMap;

use convoke_core::Invalid;
use convoke_core::jobs::Status;
use convoke_core::limits::PAGE_MAX;
use convoke_core::ports::store::{JobPage, JobQuery};
use deadpool_postgres::{Client, Transaction};
use tokio_postgres::IsolationLevel;

use super::failure::Result;
use super::rows::{get, job, limit, number};

/// Rows that a page looks at.
const LOOK_MAX: usize = 10_000;

/// The same for jobs that completed, which have no index of their own: so many may wait in front of them.
const LOOK_FOR_COMPLETED_MAX: usize = 200_000;

/// Jobs that are fetched by their state and sorted, rather than met on the way: index entries only.
const GATHER_MAX: u64 = 20_000;

/// Ranges that are walked side by side.
const RANGES_MAX: usize = 64;

/// What marks a cursor as one of ours.
const CURSOR_MARK: &str = "j";

pub(super) async fn list(db: &mut Client, query: &JobQuery) -> Result<JobPage> {
    let before = match &query.cursor {
        Some(cursor) => read_cursor(cursor)?,
        None => i64::MAX,
    };
    // All that a page says is of one moment.
    let transaction =
        db.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await?;
    let page = page(&transaction, query, before).await;
    transaction.rollback().await?;
    page
}

async fn page(db: &Transaction<'_>, query: &JobQuery, before: i64) -> Result<JobPage> {
    // A text that cannot be kept is nobody's.
    if query.correlation_id.as_ref().is_some_and(|id| id.contains('\0')) {
        return Ok(JobPage::default());
    }
    let Some(wanted) = Wanted::resolve(db, query).await? else { return Ok(JobPage::default()) };
    let most = query.limit.clamp(1, PAGE_MAX);
    let (mut seqs, next) = match choose(db, &wanted).await? {
        Path::Walk { key } => walk(db, &wanted, key, before, most).await?,
        Path::Gather => gather(db, &wanted, before, most).await?,
        Path::Finished(ranges) => finished(db, &wanted, &ranges, before, most).await?,
    };
    seqs.truncate(most);
    let statement = db.prepare_cached(include_str!("sql/jobs_by_seq.sql")).await?;
    let rows = db.query(&statement, &[&seqs]).await?;
    Ok(JobPage { jobs: rows.iter().map(job).collect::<Result<_>>()?, next_cursor: next.map(cursor_at) })
}

fn read_cursor(text: &str) -> Result<i64> {
    let seq = text.strip_prefix(CURSOR_MARK).and_then(|digits| i64::from_str_radix(digits, 16).ok());
    Ok(seq.filter(|seq| *seq > 0).ok_or_else(|| {
        Invalid::new("cursor", format!("expected a cursor as given by the page before, got {text:?}"))
    })?)
}

fn cursor_at(seq: i64) -> String {
    format!("{CURSOR_MARK}{seq:x}")
}

/// The query with its names resolved.
struct Wanted<'q> {
    queue: Option<i32>,
    job_type: Option<i32>,
    statuses: &'q [Status],
    correlation_id: Option<&'q str>,
}

impl<'q> Wanted<'q> {
    /// `None` where a name is unknown: nothing can match.
    async fn resolve(db: &Transaction<'_>, query: &'q JobQuery) -> Result<Option<Self>> {
        let find = async |sql: &str, name: &str| -> Result<Option<i32>> {
            let statement = db.prepare_cached(sql).await?;
            db.query_opt(&statement, &[&name]).await?.map(|row| get(&row, 0)).transpose()
        };
        let mut wanted = Wanted {
            queue: None,
            job_type: None,
            statuses: &query.statuses,
            correlation_id: query.correlation_id.as_deref(),
        };
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
}

/// A way to meet jobs in the order of the list.
enum Path {
    /// Down an index of jobs, from below the first parameter.
    Walk { key: &'static str },
    /// Those of a few states, few enough to be sorted.
    Gather,
    /// Down the ranges of ended jobs that hold anything asked for.
    Finished(Vec<(Status, i32)>),
}

const OF_CORRELATION: &str = "j.correlation_id = $5";
const OF_TYPE: &str = "j.type_id = $4";
const OF_QUEUE: &str = "j.queue_id = $3";

async fn choose(db: &Transaction<'_>, wanted: &Wanted<'_>) -> Result<Path> {
    if wanted.correlation_id.is_some() {
        return Ok(Path::Walk { key: OF_CORRELATION });
    }
    let statuses = wanted.statuses;
    if !statuses.is_empty()
        && statuses.iter().all(|status| status.is_live())
        && gather_cost(db, wanted).await? <= GATHER_MAX
    {
        return Ok(Path::Gather);
    }
    if let Some(job_type) = wanted.job_type {
        let statement = db.prepare_cached(include_str!("sql/type_has_many.sql")).await?;
        if db.query_opt(&statement, &[&job_type, &limit(LOOK_MAX)]).await?.is_none() {
            return Ok(Path::Walk { key: OF_TYPE });
        }
    }
    if !statuses.is_empty() && statuses.iter().all(|status| !status.is_live() && *status != Status::Completed) {
        let ranges = finished_ranges(db, wanted).await?;
        if ranges.len() <= RANGES_MAX {
            return Ok(Path::Finished(ranges));
        }
    }
    Ok(match (wanted.queue, wanted.job_type) {
        (Some(_), _) => Path::Walk { key: OF_QUEUE },
        (None, Some(_)) => Path::Walk { key: OF_TYPE },
        (None, None) => Path::Walk { key: "true" },
    })
}

/// Index entries that [`gather`] would read.
async fn gather_cost(db: &Transaction<'_>, wanted: &Wanted<'_>) -> Result<u64> {
    let statement = db.prepare_cached(include_str!("sql/counts.sql")).await?;
    let all = db.query_one(&statement, &[&None::<i32>]).await?;
    let mut cost: u64 = 0;
    if wanted.wants(Status::Pending) {
        cost += match wanted.queue {
            Some(_) => number::<u64>(&db.query_one(&statement, &[&wanted.queue]).await?, 0)?,
            None => number(&all, 0)?,
        };
    }
    if wanted.wants(Status::Scheduled) {
        cost += number::<u64>(&all, 1)?;
    }
    if wanted.statuses.iter().any(|status| status.is_in_flight()) {
        cost += number::<u64>(&all, 2)? + number::<u64>(&all, 3)?;
    }
    Ok(cost)
}

async fn finished_ranges(db: &Transaction<'_>, wanted: &Wanted<'_>) -> Result<Vec<(Status, i32)>> {
    let statement = db.prepare_cached(include_str!("sql/finished_counts.sql")).await?;
    let mut ranges = Vec::new();
    for row in db.query(&statement, &[&wanted.queue]).await? {
        for (column, state) in (1..).zip([Status::Failed, Status::TimedOut, Status::Cancelled]) {
            if wanted.wants(state) && get::<i64>(&row, column)? > 0 {
                ranges.push((state, get(&row, 0)?));
            }
        }
    }
    Ok(ranges)
}

/// What was found, and where the next page begins.
type Found = (Vec<i64>, Option<i64>);

async fn walk(db: &Transaction<'_>, wanted: &Wanted<'_>, key: &str, before: i64, most: usize) -> Result<Found> {
    let states: Option<Vec<i16>> =
        (!wanted.statuses.is_empty()).then(|| wanted.statuses.iter().map(|status| status.code().into()).collect());
    let look = limit(if wanted.wants(Status::Completed) { LOOK_FOR_COMPLETED_MAX } else { LOOK_MAX });
    let statement = db.prepare_cached(&include_str!("sql/walk.sql").replace("{key}", key)).await?;
    let rows = db
        .query(
            &statement,
            &[&before, &look, &wanted.queue, &wanted.job_type, &wanted.correlation_id, &states, &limit(most + 1)],
        )
        .await?;
    let seqs = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>>>()?;
    if let Some(next) = seqs.get(most) {
        // There is one more: it opens the next page.
        return Ok((seqs.clone(), Some(next + 1)));
    }
    // Did the walk end, or only our patience?
    let (column, value): (_, Box<dyn tokio_postgres::types::ToSql + Sync + Send>) = match key {
        OF_QUEUE => ("j.queue_id = $3", Box::new(wanted.queue)),
        OF_TYPE => ("j.type_id = $3", Box::new(wanted.job_type)),
        OF_CORRELATION => ("j.correlation_id = $3", Box::new(wanted.correlation_id.map(str::to_owned))),
        _ => ("$3::int is null", Box::new(None::<i32>)),
    };
    let beyond =
        format!("select j.seq from convoke_jobs j where {column} and j.seq < $1 order by j.seq desc offset $2 limit 1");
    let statement = db.prepare_cached(&beyond).await?;
    let next = db.query_opt(&statement, &[&before, &look, &*value]).await?;
    let next = next.map(|row| get::<i64>(&row, 0)).transpose()?;
    Ok((seqs, next.map(|seq| seq + 1)))
}

async fn gather(db: &Transaction<'_>, wanted: &Wanted<'_>, before: i64, most: usize) -> Result<Found> {
    let of_queue = if wanted.queue.is_some() { "w.queue_id = $2" } else { "$2::int is null" };
    let statement = db.prepare_cached(&include_str!("sql/gather.sql").replace("{waiting}", of_queue)).await?;
    let wants = [Status::Pending, Status::Scheduled, Status::Dispatched, Status::Running].map(|it| wanted.wants(it));
    let rows = db
        .query(
            &statement,
            &[&before, &wanted.queue, &wants[0], &wants[1], &wants[2], &wants[3], &wanted.job_type, &limit(most + 1)],
        )
        .await?;
    let seqs = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<i64>>>()?;
    let next = seqs.get(most).map(|seq| seq + 1);
    Ok((seqs, next))
}

/// Each range is looked at as far as its share goes. Below the highest place where one stopped, nothing can be said yet.
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
    // Where nothing else is asked for, all that is met is found.
    let share = if wanted.job_type.is_some() { LOOK_MAX / ranges.len() } else { most + 1 };
    let states: Vec<i16> = ranges.iter().map(|(state, _)| state.code().into()).collect();
    let queues: Vec<i32> = ranges.iter().map(|(_, queue)| *queue).collect();
    let statement = db.prepare_cached(include_str!("sql/finished.sql")).await?;
    let rows = db.query(&statement, &[&states, &queues, &before, &limit(share), &wanted.job_type]).await?;
    let mut looked: HashMap<i64, (usize, i64)> = HashMap::new();
    let mut found: Vec<i64> = Vec::new();
    for row in &rows {
        let (range, seq): (i64, i64) = (get(row, 0)?, get(row, 1)?);
        let entry = looked.entry(range).or_insert((0, i64::MAX));
        *entry = (entry.0 + 1, entry.1.min(seq));
        if get(row, 2)? {
            found.push(seq);
        }
    }
    let stopped = looked.values().filter(|(count, _)| *count == share).map(|(_, lowest)| *lowest).max();
    found.retain(|seq| stopped.is_none_or(|stopped| *seq >= stopped));
    found.sort_unstable_by(|a, b| b.cmp(a));
    let next = found.get(most).map(|seq| seq + 1).or(stopped);
    Ok((found, next))
}
