//! Lists of jobs, newest first, a page at a time.
//!
//! A page is found by walking one index downwards by `seq` and keeping what the query asks for. Which index is decided by
//! how many rows each would make us look at, which the counters tell; no page looks at more than [`LOOK_MAX`] of them. Where
//! that was not enough to fill the page, it ends early and its cursor goes on from there.

use convoke_core::jobs::Status;
use convoke_core::limits::{PAGE_BYTES_MAX, PAGE_MAX};
use convoke_core::ports::store::{JobPage, JobQuery};
use convoke_core::{ByteBudget, Invalid};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::failure::Result;
use super::rows::{job, status};

/// Rows that a page looks at.
const LOOK_MAX: usize = 10_000;

/// Jobs that are fetched by their state and sorted, rather than met on the way: index entries only.
const GATHER_MAX: u64 = LOOK_MAX as u64;

/// Ranges that are walked side by side.
const RANGES_MAX: usize = 64;

/// What marks a cursor as one of ours.
const CURSOR_MARK: &str = "j";

pub(super) fn list(db: &Connection, query: &JobQuery) -> Result<JobPage> {
    let before = match &query.cursor {
        Some(cursor) => read_cursor(cursor)?,
        None => i64::MAX,
    };
    let Some(wanted) = Wanted::resolve(db, query)? else { return Ok(JobPage::default()) };
    let Some(path) = choose(db, &wanted)? else { return Ok(JobPage::default()) };
    walk(db, &wanted, &path, before, query.limit.clamp(1, PAGE_MAX))
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
    queue: Option<i64>,
    job_type: Option<i64>,
    statuses: &'q [Status],
    correlation_id: Option<&'q str>,
}

impl<'q> Wanted<'q> {
    /// `None` where a name is unknown: nothing can match.
    fn resolve(db: &Connection, query: &'q JobQuery) -> Result<Option<Self>> {
        let find = |sql: &str, name: &str| db.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional();
        let mut wanted = Wanted {
            queue: None,
            job_type: None,
            statuses: &query.statuses,
            correlation_id: query.correlation_id.as_deref(),
        };
        if let Some(name) = &query.queue {
            wanted.queue = find("select id from queues where name = ?1", name.as_str())?;
            if wanted.queue.is_none() {
                return Ok(None);
            }
        }
        if let Some(name) = &query.job_type {
            wanted.job_type = find("select id from types where name = ?1", name.as_str())?;
            if wanted.job_type.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(wanted))
    }

    fn takes(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let state = status(row, 0)?;
        Ok((self.statuses.is_empty() || self.statuses.contains(&state))
            && self.queue.is_none_or(|queue| row.get(1) == Ok(queue))
            && self.job_type.is_none_or(|job_type| row.get(2) == Ok(job_type))
            && match self.correlation_id {
                Some(wanted) => row.get_ref(3)?.as_str_or_null()? == Some(wanted),
                None => true,
            })
    }
}

/// A way to meet jobs in the order of the list.
enum Path {
    /// A statement that gives `seq` downwards from below its first parameter.
    Walk { sql: String, key: Option<Value> },
    /// Statements that give `seq` in any order, few enough to be sorted.
    Gather { sql: Vec<&'static str>, queue: Option<i64> },
}

/// `None` where the counters say that there is nothing.
fn choose(db: &Connection, wanted: &Wanted<'_>) -> Result<Option<Path>> {
    if let Some(correlation_id) = wanted.correlation_id {
        return Ok(Some(Path::Walk {
            sql: include_str!("sql/walk_correlated.sql").into(),
            key: Some(Value::Text(correlation_id.into())),
        }));
    }
    let statuses = wanted.statuses;
    if !statuses.is_empty() && statuses.iter().all(|status| status.is_live()) {
        let counts = Counts::read(db, None)?;
        let of_queue = Counts::read(db, wanted.queue)?;
        if gather_cost(&counts, &of_queue, statuses) <= GATHER_MAX {
            return Ok(Some(gather(wanted)));
        }
    }
    if let Some(job_type) = wanted.job_type
        && is_rare_type(db, job_type)?
    {
        return Ok(Some(of_type(job_type)));
    }
    if !statuses.is_empty() && statuses.iter().all(|status| !status.is_live()) {
        let ranges = finished_ranges(db, wanted)?;
        if ranges.len() <= RANGES_MAX {
            return Ok(finished(&ranges));
        }
    }
    Ok(Some(match (wanted.queue, wanted.job_type) {
        (Some(queue), _) => {
            Path::Walk { sql: include_str!("sql/walk_queue.sql").into(), key: Some(Value::Integer(queue)) }
        }
        (None, Some(job_type)) => of_type(job_type),
        (None, None) => Path::Walk { sql: include_str!("sql/walk_all.sql").into(), key: None },
    }))
}

fn of_type(job_type: i64) -> Path {
    Path::Walk { sql: include_str!("sql/walk_type.sql").into(), key: Some(Value::Integer(job_type)) }
}

/// Whether all jobs of a type can be looked at within one page.
fn is_rare_type(db: &Connection, job_type: i64) -> Result<bool> {
    let mut statement = db.prepare_cached(include_str!("sql/type_has_many.sql"))?;
    Ok(!statement.exists(params![job_type, LOOK_MAX as i64])?)
}

/// How many jobs are in each state, in one queue or in all.
struct Counts([u64; Status::ALL.len()]);

impl Counts {
    fn read(db: &Connection, queue: Option<i64>) -> Result<Self> {
        let mut statement = db.prepare_cached(include_str!("sql/counts.sql"))?;
        Ok(statement.query_row([queue], |row| {
            let mut counts = [0; Status::ALL.len()];
            for (column, count) in counts.iter_mut().skip(1).enumerate() {
                *count = super::rows::number(row, column)?;
            }
            Ok(Counts(counts))
        })?)
    }

    fn get(&self, status: Status) -> u64 {
        self.0[usize::from(status.code())]
    }
}

/// Index entries that [`gather`] would read.
fn gather_cost(all: &Counts, of_queue: &Counts, statuses: &[Status]) -> u64 {
    let mut cost = 0;
    if statuses.contains(&Status::Pending) {
        cost += of_queue.get(Status::Pending);
    }
    if statuses.contains(&Status::Scheduled) {
        cost += all.get(Status::Scheduled);
    }
    if statuses.iter().any(|status| status.is_in_flight()) {
        cost += all.get(Status::Dispatched) + all.get(Status::Running);
    }
    cost
}

fn gather(wanted: &Wanted<'_>) -> Path {
    let mut sql = Vec::new();
    if wanted.statuses.contains(&Status::Pending) {
        sql.push(match wanted.queue {
            Some(_) => include_str!("sql/gather_pending_of_queue.sql"),
            None => include_str!("sql/gather_pending.sql"),
        });
    }
    if wanted.statuses.contains(&Status::Scheduled) {
        sql.push(include_str!("sql/gather_scheduled.sql"));
    }
    if wanted.statuses.iter().any(|status| status.is_in_flight()) {
        sql.push(include_str!("sql/gather_in_flight.sql"));
    }
    Path::Gather { sql, queue: wanted.queue }
}

/// The ranges of the index of finished jobs that hold anything asked for.
fn finished_ranges(db: &Connection, wanted: &Wanted<'_>) -> Result<Vec<(Status, i64)>> {
    let mut statement = db.prepare_cached(include_str!("sql/finished_counts.sql"))?;
    let mut rows = statement.query([wanted.queue])?;
    let mut ranges = Vec::new();
    while let Some(row) = rows.next()? {
        for (column, state) in (1..).zip([Status::Completed, Status::Failed, Status::TimedOut, Status::Cancelled]) {
            if wanted.statuses.contains(&state) && row.get::<_, i64>(column)? > 0 {
                ranges.push((state, row.get(0)?));
            }
        }
    }
    Ok(ranges)
}

/// One statement that merges the ranges, each of which is in order by itself.
fn finished(ranges: &[(Status, i64)]) -> Option<Path> {
    let parts: Vec<String> = ranges
        .iter()
        .map(|(state, queue)| {
            let state = state.code();
            format!("select seq from jobs indexed by jobs_finished where state = {state} and state >= 5 and queue_id = {queue} and seq < ?1")
        })
        .collect();
    let sql = format!("{} order by seq desc", parts.join(" union all "));
    (!parts.is_empty()).then_some(Path::Walk { sql, key: None })
}

fn walk(db: &Connection, wanted: &Wanted<'_>, path: &Path, before: i64, limit: usize) -> Result<JobPage> {
    let mut page = Page { db, wanted, found: Vec::new(), looked: 0, limit };
    match path {
        Path::Walk { sql, key } => {
            let mut statement = db.prepare_cached(sql)?;
            let values = std::iter::once(Value::Integer(before)).chain(key.clone());
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                if let Some(cursor) = page.meet(row.get(0)?)? {
                    return page.fetch(Some(cursor));
                }
            }
        }
        Path::Gather { sql, queue } => {
            let mut gathered: Vec<i64> = Vec::new();
            for sql in sql {
                let mut statement = db.prepare_cached(sql)?;
                for seq in statement.query_map(params![before, queue], |row| row.get(0))? {
                    gathered.push(seq?);
                }
            }
            gathered.sort_unstable_by(|a, b| b.cmp(a));
            for seq in gathered {
                if let Some(cursor) = page.meet(seq)? {
                    return page.fetch(Some(cursor));
                }
            }
        }
    }
    page.fetch(None)
}

/// A page as it fills.
struct Page<'a> {
    db: &'a Connection,
    wanted: &'a Wanted<'a>,
    found: Vec<i64>,
    looked: usize,
    limit: usize,
}

impl Page<'_> {
    /// Takes the next job of the walk. Answers where the page after this one begins, once that is known.
    fn meet(&mut self, seq: i64) -> Result<Option<i64>> {
        if self.looked == LOOK_MAX {
            return Ok(Some(seq + 1));
        }
        self.looked += 1;
        let mut statement = self.db.prepare_cached(include_str!("sql/look.sql"))?;
        if !statement.query_row([seq], |row| self.wanted.takes(row))? {
            return Ok(None);
        }
        if self.found.len() == self.limit {
            // There is one more: it opens the next page.
            return Ok(Some(seq + 1));
        }
        self.found.push(seq);
        Ok(None)
    }

    /// Reads the jobs that were found; a page that reaches its bytes ends early.
    fn fetch(self, next: Option<i64>) -> Result<JobPage> {
        let mut statement = self.db.prepare_cached(include_str!("sql/job_by_seq.sql"))?;
        let mut budget = ByteBudget::new(PAGE_BYTES_MAX);
        let mut page = JobPage { jobs: Vec::with_capacity(self.found.len()), next_cursor: next.map(cursor_at) };
        for seq in self.found {
            let job = statement.query_row([seq], job)?;
            if !budget.admits(job.payload_bytes()) {
                page.next_cursor = Some(cursor_at(seq + 1));
                break;
            }
            page.jobs.push(job);
        }
        Ok(page)
    }
}
