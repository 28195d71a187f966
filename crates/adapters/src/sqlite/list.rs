//! Lists of jobs, newest first, a page at a time.
//!
//! [`paths`] decides which index is read; its conditions are answered by the counters of the queues.

use convoke_core::ByteBudget;
use convoke_core::jobs::Status;
use convoke_core::jobs::listing::{Condition, Cursor, Path, RANGES_MAX, ROWS_READ_MAX, paths};
use convoke_core::limits::{PAGE_BYTES_MAX, PAGE_MAX};
use convoke_core::ports::store::{JobPage, JobQuery};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::failure::Result;
use super::rows::{job, status};

pub(super) fn list(db: &Connection, query: &JobQuery) -> Result<JobPage> {
    let before = Cursor::of(query)?.0;
    let Some(wanted) = Wanted::resolve(db, query)? else { return Ok(JobPage::default()) };
    let Some(route) = choose(db, query, &wanted)? else { return Ok(JobPage::default()) };
    walk(db, &wanted, &route, before, query.limit.clamp(1, PAGE_MAX))
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

/// The statements of a path.
enum Route {
    /// A statement that returns `seq` downwards from below its first parameter.
    Walk { sql: String, key: Option<Value> },
    /// Statements that return `seq` in any order.
    Gather { sql: Vec<&'static str>, queue: Option<i64> },
}

/// `None` if the counters say that there is nothing.
fn choose(db: &Connection, query: &JobQuery, wanted: &Wanted<'_>) -> Result<Option<Route>> {
    let walk = |sql: &str, key| Ok(Some(Route::Walk { sql: sql.into(), key }));
    for (path, condition) in paths(query) {
        match path {
            Path::Key => {
                let key = wanted.correlation_id.map(|id| Value::Text(id.into()));
                return walk(include_str!("sql/walk_correlated.sql"), key);
            }
            Path::Type => {
                if condition == Condition::Always || is_rare_type(db, wanted.job_type)? {
                    return walk(include_str!("sql/walk_type.sql"), wanted.job_type.map(Value::Integer));
                }
            }
            Path::Ended => {
                let ranges = finished_ranges(db, wanted)?;
                if ranges.len() <= RANGES_MAX {
                    return Ok(finished(&ranges));
                }
            }
            Path::Statuses => {
                if wanted.statuses.iter().all(|status| status.is_live())
                    && gather_cost(db, wanted)? <= ROWS_READ_MAX as u64
                {
                    return Ok(Some(gather(wanted)));
                }
            }
            Path::Queue => return walk(include_str!("sql/walk_queue.sql"), wanted.queue.map(Value::Integer)),
            Path::All => return walk(include_str!("sql/walk_all.sql"), None),
        }
    }
    Ok(None)
}

fn is_rare_type(db: &Connection, job_type: Option<i64>) -> Result<bool> {
    let mut statement = db.prepare_cached(include_str!("sql/type_has_many.sql"))?;
    Ok(!statement.exists(params![job_type, ROWS_READ_MAX as i64])?)
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

/// Returns how many index entries [`gather`] would read.
fn gather_cost(db: &Connection, wanted: &Wanted<'_>) -> Result<u64> {
    let (all, statuses) = (Counts::read(db, None)?, wanted.statuses);
    let mut cost = 0;
    if statuses.contains(&Status::Pending) {
        cost += Counts::read(db, wanted.queue)?.get(Status::Pending);
    }
    if statuses.contains(&Status::Scheduled) {
        cost += all.get(Status::Scheduled);
    }
    if statuses.iter().any(|status| status.is_in_flight()) {
        cost += all.get(Status::Dispatched) + all.get(Status::Running);
    }
    Ok(cost)
}

fn gather(wanted: &Wanted<'_>) -> Route {
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
    Route::Gather { sql, queue: wanted.queue }
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
fn finished(ranges: &[(Status, i64)]) -> Option<Route> {
    let parts: Vec<String> = ranges
        .iter()
        .map(|(state, queue)| {
            let state = state.code();
            format!("select seq from jobs indexed by jobs_finished where state = {state} and state >= 5 and queue_id = {queue} and seq < ?1")
        })
        .collect();
    let sql = format!("{} order by seq desc", parts.join(" union all "));
    (!parts.is_empty()).then_some(Route::Walk { sql, key: None })
}

fn walk(db: &Connection, wanted: &Wanted<'_>, route: &Route, before: i64, limit: usize) -> Result<JobPage> {
    let mut page = Page { db, wanted, found: Vec::new(), looked: 0, limit };
    match route {
        Route::Walk { sql, key } => {
            let mut statement = db.prepare_cached(sql)?;
            let values = std::iter::once(Value::Integer(before)).chain(key.clone());
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                if let Some(cursor) = page.meet(row.get(0)?)? {
                    return page.fetch(Some(cursor));
                }
            }
        }
        Route::Gather { sql, queue } => {
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
    /// Takes the next job of the walk. Returns where the next page begins, once that is known.
    fn meet(&mut self, seq: i64) -> Result<Option<Cursor>> {
        if self.looked == ROWS_READ_MAX {
            return Ok(Some(Cursor::at(seq)));
        }
        self.looked += 1;
        let mut statement = self.db.prepare_cached(include_str!("sql/look.sql"))?;
        if !statement.query_row([seq], |row| self.wanted.takes(row))? {
            return Ok(None);
        }
        if self.found.len() == self.limit {
            // There is one more: it opens the next page.
            return Ok(Some(Cursor::at(seq)));
        }
        self.found.push(seq);
        Ok(None)
    }

    /// Reads the jobs that were found; a page that reaches its bytes ends early.
    fn fetch(self, next: Option<Cursor>) -> Result<JobPage> {
        let mut statement = self.db.prepare_cached(include_str!("sql/job_by_seq.sql"))?;
        let mut budget = ByteBudget::new(PAGE_BYTES_MAX);
        let mut page =
            JobPage { jobs: Vec::with_capacity(self.found.len()), next_cursor: next.map(|cursor| cursor.to_string()) };
        for seq in self.found {
            let job = statement.query_row([seq], job)?;
            if !budget.admits(job.payload_bytes()) {
                page.next_cursor = Some(Cursor::at(seq).to_string());
                break;
            }
            page.jobs.push(job);
        }
        Ok(page)
    }
}
