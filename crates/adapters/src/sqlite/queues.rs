//! Queues: their settings and their counts.

use convoke_core::QueueName;
use convoke_core::jobs::dispatch::{HEADS_READ, oldest_due};
use convoke_core::jobs::{Queue, QueueCounts, QueuePatch, RateLimit, Status};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::catalog::{QueueId, WriteTx};
use super::columns::columns;
use super::failure::Result;
use super::rows::{get, micros};
use crate::statement::sql;

columns!(QUEUE: QueueColumns { id, name, paused, rate_limit, rate_per, concurrency });

/// The columns with the number of jobs in each state but `created`, by the codes of the states.
pub(super) const COUNTS: &str = "pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled";

pub(super) fn queues(db: &Connection) -> Result<Vec<Queue>> {
    let text = sql!("select {queue}, {counts} from queues order by name", queue = QUEUE.list, counts = COUNTS);
    let mut statement = db.prepare_cached(text)?;
    let found = statement.query_map([], read_queue)?.collect::<rusqlite::Result<Vec<_>>>()?;
    found.into_iter().map(|(id, queue)| with_oldest(db, id, queue)).collect()
}

pub(super) fn queue(db: &Connection, name: &QueueName) -> Result<Option<Queue>> {
    let text = sql!("select {queue}, {counts} from queues where name = ?1", queue = QUEUE.list, counts = COUNTS);
    let mut statement = db.prepare_cached(text)?;
    let found = statement.query_row([name.as_str()], read_queue).optional()?;
    found.map(|(id, queue)| with_oldest(db, id, queue)).transpose()
}

/// Reads the columns of [`QUEUE`], then [`COUNTS`].
pub(super) fn read_queue(row: &Row<'_>) -> rusqlite::Result<(QueueId, Queue)> {
    let rate = get::<Option<u32>>(row, QUEUE.rate_limit)?.zip(get(row, QUEUE.rate_per)?);
    let queue = Queue {
        name: get(row, QUEUE.name)?,
        paused: get(row, QUEUE.paused)?,
        rate_limit: rate.map(|(limit, per)| RateLimit { limit, per }),
        concurrency: get(row, QUEUE.concurrency)?,
        counts: read_counts(row, QUEUE.concurrency + 1)?,
        oldest_pending_at: None,
    };
    Ok((QueueId(get(row, QUEUE.id)?), queue))
}

/// Reads [`COUNTS`] from the column `first` on.
pub(super) fn read_counts(row: &Row<'_>, first: usize) -> rusqlite::Result<QueueCounts> {
    let mut counts = QueueCounts::default();
    for (column, status) in (first..).zip(&Status::ALL[1..]) {
        counts.set(*status, get(row, column)?);
    }
    Ok(counts)
}

fn with_oldest(db: &Connection, id: QueueId, mut queue: Queue) -> Result<Queue> {
    if queue.counts.get(Status::Pending) > 0 {
        let text = sql!(include_str!("sql/pending.sql"), columns = "due_at");
        let mut statement = db.prepare_cached(text)?;
        let heads = statement.query_map(params![id.0, HEADS_READ as i64], |row| get(row, "due_at"))?;
        queue.oldest_pending_at = oldest_due(heads.collect::<rusqlite::Result<Vec<Timestamp>>>()?);
    }
    Ok(queue)
}

pub(super) fn configure(tx: &mut WriteTx<'_>, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
    tx.catalog.admit(std::iter::once(name))?;
    let id = tx.catalog.open_queue(tx.db, name)?;
    let mut queue = tx.catalog.queue(id).clone();
    queue.paused = patch.paused.unwrap_or(queue.paused);
    queue.rate_limit = patch.rate_limit.unwrap_or(queue.rate_limit);
    queue.concurrency = patch.concurrency.unwrap_or(queue.concurrency);
    tx.catalog.configure(tx.db, id, &queue)?;
    with_oldest(tx.db, id, queue)
}

pub(super) fn delete_queue(tx: &mut WriteTx<'_>, name: &QueueName) -> Result<bool> {
    let Some(id) = tx.catalog.find_queue(name) else { return Ok(false) };
    if tx.catalog.queue(id).counts.iter().any(|(_, jobs)| jobs > 0) {
        return Err(Queue::not_empty(name).into());
    }
    tx.catalog.delete_queue(tx.db, id)?;
    Ok(true)
}

pub(super) fn grants(db: &Connection, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
    let grant = |row: &Row<'_>| Ok((get(row, "at")?, get(row, "count")?));
    let all = "select at, count from grants where at >= ?1 order by at, rowid";
    let found: rusqlite::Result<_> = match queue {
        Some(queue) => {
            let mut statement = db.prepare_cached(sql!(include_str!("sql/grants.sql")))?;
            statement.query_map(params![queue.as_str(), micros(since)], grant)?.collect()
        }
        None => db.prepare_cached(all)?.query_map([micros(since)], grant)?.collect(),
    };
    Ok(found?)
}
