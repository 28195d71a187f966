//! Lists of jobs, newest first, a page at a time.
//!
//! [`paths`] decides which index is read; its conditions are evaluated from the counters of the queues.

use convoke_core::ByteBudget;
use convoke_core::jobs::listing::{
    Condition, Cursor, ENTRIES_READ_MAX, PREFIX_TYPES_MAX, Path, RANGES_MAX, ROWS_READ_MAX, first_created, has_keys,
    paths,
};
use convoke_core::jobs::{QueueCounts, Status};
use convoke_core::limits::{PAGE_BYTES_MAX, PAGE_MAX};
use convoke_core::ports::store::{JobCount, JobPage, JobQuery};
use jiff::Timestamp;
use rusqlite::types::{Type, Value};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params, params_from_iter};

use super::columns::columns;
use super::failure::Result;
use super::queues::{COUNTS, read_counts};
use super::rows::{JOB, get, job};
use crate::statement::{build, sql};

columns!(FILTERED: FilteredColumns { state, queue_id, type_id, keys, created_at });

pub(super) fn list(db: &Connection, query: &JobQuery) -> Result<JobPage> {
    let (seqs, next) = search(db, query, query.limit.clamp(1, PAGE_MAX))?;
    fetch(db, &seqs, next)
}

pub(super) fn count(db: &Connection, query: &JobQuery) -> Result<JobCount> {
    let (seqs, next) = search(db, query, query.limit.clamp(1, ROWS_READ_MAX))?;
    Ok(JobCount { jobs: seqs.len() as u64, next_cursor: next.map(|cursor| cursor.to_string()) })
}

/// The numbers of jobs that match, and where the search goes on.
type Found = (Vec<i64>, Option<Cursor>);

fn search(db: &Connection, query: &JobQuery, most: usize) -> Result<Found> {
    let cursor = Cursor::of(query)?.0;
    let Some(wanted) = Wanted::resolve(db, query)? else { return Ok(Found::default()) };
    let Some(walk) = choose(db, query, &wanted)? else { return Ok(Found::default()) };
    let (floor, before) = span(db, query, cursor)?;
    let mut page = Page::new(db, &wanted, most)?;
    let mut statement = db.prepare_cached(&walk.sql)?;
    let mut rows = statement.query(params_from_iter(std::iter::once(Value::Integer(before)).chain(walk.key)))?;
    while let Some(row) = rows.next()? {
        let seq = get(row, "seq")?;
        if seq < floor {
            break;
        }
        if let Some(cursor) = page.meet(seq)? {
            return Ok((page.found, Some(cursor)));
        }
    }
    Ok((page.found, None))
}

/// Reads the jobs that were found; a page that reaches its limit in bytes ends early.
fn fetch(db: &Connection, seqs: &[i64], next: Option<Cursor>) -> Result<JobPage> {
    let mut statement = db.prepare_cached(sql!("select {job} from jobs where seq = ?1", job = JOB.list))?;
    let mut budget = ByteBudget::new(PAGE_BYTES_MAX);
    let mut page = JobPage { jobs: Vec::with_capacity(seqs.len()), next_cursor: next.map(|cursor| cursor.to_string()) };
    for seq in seqs {
        let job = statement.query_row([seq], job)?;
        if !budget.admits(job.payload_bytes()) {
            page.next_cursor = Some(Cursor::at(*seq).to_string());
            break;
        }
        page.jobs.push(job);
    }
    Ok(page)
}

/// The lowest and the highest number. One `select` of both would read all jobs: only one of `min` and `max` is a search.
const ENDS: &str =
    "select coalesce((select min(seq) from jobs), 0) as low, coalesce((select max(seq) from jobs), 0) + 1 as high";

/// Returns between which numbers the jobs of the query are, the upper one not included.
fn span(db: &Connection, query: &JobQuery, cursor: i64) -> Result<(i64, i64)> {
    let first_created = |at: Timestamp| -> Result<i64> {
        let (low, high) = db.prepare_cached(ENDS)?.query_row([], |row| Ok((get(row, "low")?, get(row, "high")?)))?;
        let text = "select seq, created_at from jobs where seq >= ?1 and seq < ?2 order by seq limit 1";
        let mut statement = db.prepare_cached(text)?;
        first_created(low, high, at, |from, below| {
            Ok(statement.query_row([from, below], |row| Ok((get(row, "seq")?, get(row, "created_at")?))).optional()?)
        })
    };
    let (from, until) = query.times_read();
    let before = until.map(first_created).transpose()?.map_or(cursor, |until| cursor.min(until));
    Ok((from.map(first_created).transpose()?.unwrap_or(0), before))
}

/// The query with its names resolved.
struct Wanted<'q> {
    query: &'q JobQuery,
    queue: Option<i64>,
    job_type: Option<i64>,
    /// Types that begin with the prefix of the query, in order.
    types: Option<Vec<i64>>,
    statuses: &'q [Status],
    keys: Vec<String>,
}

impl<'q> Wanted<'q> {
    /// `None` if a name is unknown: nothing can match.
    fn resolve(db: &Connection, query: &'q JobQuery) -> Result<Option<Self>> {
        let find = |sql: &str, name: &str| -> Result<Option<i64>> {
            Ok(db.prepare_cached(sql)?.query_row([name], |row| get(row, "id")).optional()?)
        };
        let queue = query.queue.as_ref().map(|name| find("select id from queues where name = ?1", name.as_str()));
        let job_type = query.job_type.as_ref().map(|name| find("select id from types where name = ?1", name.as_str()));
        let (queue, job_type) = (queue.transpose()?, job_type.transpose()?);
        if queue == Some(None) || job_type == Some(None) {
            return Ok(None);
        }
        let (queue, job_type) = (queue.flatten(), job_type.flatten());
        let types = query.type_prefix.as_ref().map(|prefix| types(db, prefix)).transpose()?;
        if types.as_ref().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        Ok(Some(Wanted { query, queue, job_type, types, statuses: &query.statuses, keys: query.search_keys() }))
    }

    /// Reads the columns of [`FILTERED`].
    fn takes(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        Ok((self.statuses.is_empty() || self.statuses.contains(&get(row, FILTERED.state)?))
            && self.queue.is_none_or(|queue| row.get(FILTERED.queue_id) == Ok(queue))
            && self.job_type.is_none_or(|job_type| row.get(FILTERED.type_id) == Ok(job_type))
            && self.types.as_ref().is_none_or(|types| {
                row.get(FILTERED.type_id).is_ok_and(|job_type: i64| types.binary_search(&job_type).is_ok())
            })
            && self.query.is_in_time(get(row, FILTERED.created_at)?)
            // The walk follows the first key.
            && (self.keys.len() < 2 || has_keys(&self.keys, &keys(row)?)))
    }
}

/// Returns the types whose names begin with `prefix`, in order.
fn types(db: &Connection, prefix: &str) -> Result<Vec<i64>> {
    // Names are text in UTF-8, which has no byte 0xff: all that begin with the prefix are below it with that byte.
    let text = "select id from types where name >= ?1 and name < cast(cast(?1 as blob) || x'ff' as text) limit ?2";
    let mut statement = db.prepare_cached(text)?;
    let ids = statement.query_map(params![prefix, PREFIX_TYPES_MAX as i64], |row| get(row, "id"))?;
    let mut ids = ids.collect::<rusqlite::Result<Vec<i64>>>()?;
    ids.sort_unstable();
    Ok(ids)
}

fn keys(row: &Row<'_>) -> rusqlite::Result<Vec<String>> {
    let text = row.get_ref(FILTERED.keys)?.as_str_or_null()?.unwrap_or("[]");
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(FILTERED.keys, Type::Text, Box::new(error)))
}

/// A statement that returns `seq` downwards from below its first parameter, and its second parameter.
struct Walk {
    sql: String,
    key: Option<Value>,
}

impl Walk {
    /// Walks down the entries of `table` whose `column` has the value.
    fn down(table: &str, column: &str, value: Option<impl Into<Value>>) -> Option<Self> {
        let sql = format!("select seq from {table} where {column} = ?2 and seq < ?1 order by seq desc");
        Some(Walk { sql, key: value.map(Into::into) })
    }

    /// Walks down several parts of indexes at once. `None` if there are no parts.
    fn merged(parts: &[Part], key: Option<Value>) -> Option<Self> {
        let select =
            |(index, part): &Part| format!("select seq from jobs indexed by {index} where {part} and seq < ?1");
        let parts: Vec<String> = parts.iter().map(|part| build(&select(part))).collect();
        (!parts.is_empty()).then(|| Walk { sql: parts.join(" union all ") + " order by seq desc", key })
    }
}

/// Returns `None` if the counters show that there are no such jobs.
fn choose(db: &Connection, query: &JobQuery, wanted: &Wanted<'_>) -> Result<Option<Walk>> {
    for (path, condition) in paths(query) {
        match path {
            Path::Key => return Ok(Walk::down("job_keys", "key", wanted.keys.first().cloned())),
            Path::Type if condition == Condition::Always || is_rare_type(db, wanted.job_type)? => {
                return Ok(Walk::down("jobs indexed by jobs_of_type", "type_id", wanted.job_type));
            }
            Path::Ended => {
                let parts = ended(db, wanted)?;
                if parts.len() <= RANGES_MAX {
                    return Ok(Walk::merged(&parts, None));
                }
            }
            Path::Statuses if wanted.statuses.iter().all(|status| status.is_live()) => {
                let (parts, entries) = live(db, wanted)?;
                if entries <= ENTRIES_READ_MAX as u64 {
                    return Ok(Walk::merged(&parts, Some(wanted.queue.map_or(Value::Null, Value::Integer))));
                }
            }
            Path::Types => {
                let types = wanted.types.as_deref().unwrap_or_default();
                if types.len() <= RANGES_MAX {
                    let parts = types.iter().map(|id| ("jobs_of_type", format!("type_id = {id}")));
                    return Ok(Walk::merged(&parts.collect::<Vec<_>>(), None));
                }
            }
            Path::Queue => return Ok(Walk::down("jobs indexed by jobs_of_queue", "queue_id", wanted.queue)),
            Path::All => {
                let sql = "select seq from jobs where seq < ?1 order by seq desc".into();
                return Ok(Some(Walk { sql, key: None }));
            }
            Path::Type | Path::Statuses => {}
        }
    }
    Ok(None)
}

fn is_rare_type(db: &Connection, job_type: Option<i64>) -> Result<bool> {
    let text = "select 1 from jobs indexed by jobs_of_type where type_id = ?1 limit 1 offset ?2";
    Ok(!db.prepare_cached(text)?.exists(params![job_type, ROWS_READ_MAX as i64])?)
}

/// Returns the counts of one queue, or of each.
fn counts(db: &Connection, queue: Option<i64>) -> Result<Vec<(i64, QueueCounts)>> {
    let text = sql!("select id, {counts} from queues where ?1 is null or id = ?1", counts = COUNTS);
    let mut statement = db.prepare_cached(text)?;
    let counts = statement.query_map([queue], |row| Ok((get(row, "id")?, read_counts(row, 1)?)))?;
    Ok(counts.collect::<rusqlite::Result<_>>()?)
}

/// An index, and the condition of the part of it to read.
type Part = (&'static str, String);

/// Returns the ranges of ended jobs that hold any of the query, each in the order of storing.
fn ended(db: &Connection, wanted: &Wanted<'_>) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for (queue, counts) in counts(db, wanted.queue)? {
        for (state, _) in counts.iter().filter(|(state, jobs)| *jobs > 0 && wanted.statuses.contains(state)) {
            let state = state.code();
            let part = format!("state = {state} and state >= {{first_ended}} and queue_id = {queue}");
            parts.push(("jobs_finished", part));
        }
    }
    Ok(parts)
}

/// Returns the parts of indexes that hold the live jobs of the query, in any order, and how many entries they have.
fn live(db: &Connection, wanted: &Wanted<'_>) -> Result<(Vec<Part>, u64)> {
    let counts = counts(db, None)?;
    let all = |state: Status| counts.iter().map(|(_, counts)| counts.get(state)).sum::<u64>();
    let of_queue = "(?2 is null or queue_id = ?2)";
    let (mut parts, mut entries) = (Vec::new(), 0);
    if wanted.statuses.contains(&Status::Pending) {
        // The only one of these indexes that begins with the queue.
        let of_queue = if wanted.queue.is_some() { "queue_id = ?2" } else { "?2 is null" };
        parts.push(("jobs_pending", format!("state = {{pending}} and {of_queue}")));
        let read = counts.iter().filter(|(id, _)| wanted.queue.is_none_or(|queue| queue == *id));
        entries += read.map(|(_, counts)| counts.get(Status::Pending)).sum::<u64>();
    }
    if wanted.statuses.contains(&Status::Scheduled) {
        parts.push(("jobs_scheduled", format!("state = {{scheduled}} and {of_queue}")));
        entries += all(Status::Scheduled);
    }
    if wanted.statuses.iter().any(|status| status.is_in_flight()) {
        parts.push(("jobs_in_flight", format!("state in ({{in_flight}}) and {of_queue}")));
        entries += all(Status::Dispatched) + all(Status::Running);
    }
    Ok((parts, entries))
}

/// A page while it is filled.
struct Page<'a> {
    read: CachedStatement<'a>,
    wanted: &'a Wanted<'a>,
    found: Vec<i64>,
    looked: usize,
    limit: usize,
}

impl<'a> Page<'a> {
    fn new(db: &'a Connection, wanted: &'a Wanted<'a>, limit: usize) -> Result<Self> {
        let read = db.prepare_cached(sql!("select {filtered} from jobs where seq = ?1", filtered = FILTERED.list))?;
        Ok(Page { read, wanted, found: Vec::new(), looked: 0, limit })
    }

    /// Takes the next job of the walk. Returns where the next page begins, once that is known.
    fn meet(&mut self, seq: i64) -> Result<Option<Cursor>> {
        if self.looked == ROWS_READ_MAX {
            return Ok(Some(Cursor::at(seq)));
        }
        self.looked += 1;
        if !self.read.query_row([seq], |row| self.wanted.takes(row))? {
            return Ok(None);
        }
        if self.found.len() == self.limit {
            // There is one more: it opens the next page.
            return Ok(Some(Cursor::at(seq)));
        }
        self.found.push(seq);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    fn plan(db: &Connection, sql: &str) -> String {
        let mut statement = db.prepare(&format!("explain query plan {sql}")).expect("prepared");
        let (mut rows, mut plan) = (statement.raw_query(), String::new());
        while let Some(row) = rows.next().expect("explained") {
            plan += &format!("{}\n", row.get::<_, String>("detail").expect("text"));
        }
        plan
    }

    #[test]
    fn the_time_of_a_query_is_searched_and_not_scanned() {
        let directory = tempfile::tempdir().expect("a directory");
        let db = schema::open_writable(&directory.path().join("convoke.db"), 64).expect("opens");
        let plan = plan(&db, ENDS);
        assert!(plan.matches("SEARCH jobs").count() == 2 && !plan.contains("SCAN jobs"), "{plan}");
    }

    #[test]
    fn every_list_is_read_down_an_index() {
        let directory = tempfile::tempdir().expect("a directory");
        let db = schema::open_writable(&directory.path().join("convoke.db"), 64).expect("opens");
        let made =
            "insert into types values (1, 't'); insert into queues (id, name, failed, timed_out) values (1, 'q', 1, 1)";
        db.execute_batch(made).expect("made");
        let all = JobQuery::default();
        let of_queue = JobQuery { queue: "q".parse().ok(), ..all.clone() };
        let dead = vec![Status::Failed, Status::TimedOut];
        let queries = [
            (
                JobQuery { correlation_id: Some("c".into()), ..all.clone() },
                "job_keys USING PRIMARY KEY (key=? AND seq<?)",
            ),
            (JobQuery { job_type: "t".parse().ok(), ..all.clone() }, "jobs_of_type (type_id=? AND rowid<?)"),
            (JobQuery { type_prefix: Some("t".into()), ..all.clone() }, "jobs_of_type (type_id=? AND rowid<?)"),
            (of_queue.clone(), "jobs_of_queue (queue_id=? AND rowid<?)"),
            (JobQuery { statuses: dead, ..of_queue.clone() }, "jobs_finished (state=? AND queue_id=? AND rowid<?)"),
            (all.clone(), "INTEGER PRIMARY KEY (rowid<?)"),
        ];
        for (query, expected) in queries {
            let wanted = Wanted::resolve(&db, &query).expect("read").expect("known");
            let walk = choose(&db, &query, &wanted).expect("read").expect("not empty");
            let plan = plan(&db, &walk.sql);
            assert!(plan.contains(expected) && !plan.contains("TEMP B-TREE"), "{}\n{plan}", walk.sql);
        }
        let pending = JobQuery { statuses: vec![Status::Pending], ..of_queue };
        let wanted = Wanted::resolve(&db, &pending).expect("read").expect("known");
        let walk = choose(&db, &pending, &wanted).expect("read").expect("not empty");
        assert!(walk.sql.contains("indexed by jobs_pending where state = 1 and queue_id = ?2"), "{}", walk.sql);
    }
}
