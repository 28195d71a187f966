//! Queues: their settings and their counts.

use convoke_core::QueueName;
use convoke_core::jobs::{Queue, QueueCounts, QueuePatch, RateLimit, Status};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::books::Ledger;
use super::failure::Result;
use super::rows::{duration_micros, duration_option, instant, instant_option, micros, number, queue_name};

pub(super) fn queues(db: &Connection) -> Result<Vec<Queue>> {
    let mut statement = db.prepare_cached(include_str!("sql/queues.sql"))?;
    let found = statement.query_map([], read_queue)?.collect::<rusqlite::Result<Vec<_>>>()?;
    found.into_iter().map(|(id, queue)| with_oldest(db, id, queue)).collect()
}

pub(super) fn queue(db: &Connection, name: &QueueName) -> Result<Option<Queue>> {
    let mut statement = db.prepare_cached(include_str!("sql/queue.sql"))?;
    let found = statement.query_row([name.as_str()], read_queue).optional()?;
    found.map(|(id, queue)| with_oldest(db, id, queue)).transpose()
}

fn read_queue(row: &Row<'_>) -> rusqlite::Result<(i64, Queue)> {
    let mut counts = QueueCounts::default();
    for (column, status) in (6..).zip(&Status::ALL[1..]) {
        counts.set(*status, number(row, column)?);
    }
    let rate_limit = match (row.get::<_, Option<u32>>(3)?, duration_option(row, 4)?) {
        (Some(limit), Some(per)) => Some(RateLimit { limit, per }),
        _ => None,
    };
    let (name, paused, concurrency) = (queue_name(row, 1)?, row.get(2)?, row.get(5)?);
    Ok((row.get(0)?, Queue { name, paused, rate_limit, concurrency, counts, oldest_pending_at: None }))
}

fn with_oldest(db: &Connection, id: i64, mut queue: Queue) -> Result<Queue> {
    if queue.counts.get(Status::Pending) > 0 {
        let mut statement = db.prepare_cached(include_str!("sql/oldest_pending.sql"))?;
        queue.oldest_pending_at = statement.query_row([id], |row| instant_option(row, 0))?;
    }
    Ok(queue)
}

pub(super) fn configure(ledger: &mut Ledger<'_>, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
    ledger.books.admit(std::iter::once(name))?;
    let id = ledger.books.open_queue(ledger.db, name)?;
    let entry = ledger.books.queue_mut(id);
    let update = |sql: &str, values: &[&dyn rusqlite::ToSql]| ledger.db.prepare_cached(sql)?.execute(values);
    if let Some(paused) = patch.paused {
        update("update queues set paused = ?2 where id = ?1", params![id.0, paused])?;
        entry.paused = paused;
    }
    if let Some(rate) = patch.rate_limit {
        let (limit, per) = (rate.map(|rate| rate.limit), rate.map(|rate| duration_micros(rate.per)));
        update("update queues set rate_limit = ?2, rate_per = ?3 where id = ?1", params![id.0, limit, per])?;
    }
    if let Some(concurrency) = patch.concurrency {
        update("update queues set concurrency = ?2 where id = ?1", params![id.0, concurrency])?;
        entry.concurrency = concurrency.map(u64::from);
    }
    // The counts in the file must be those of this moment, also those that verbs of this transaction changed.
    ledger.books.settle(ledger.db)?;
    let mut statement = ledger.db.prepare_cached(include_str!("sql/queue.sql"))?;
    let (id, queue) = statement.query_row([name.as_str()], read_queue)?;
    with_oldest(ledger.db, id, queue)
}

pub(super) fn delete_queue(ledger: &mut Ledger<'_>, name: &QueueName) -> Result<bool> {
    let Some(id) = ledger.books.find_queue(name) else { return Ok(false) };
    if !ledger.books.queue(id).is_empty() {
        return Err(Queue::not_empty(name).into());
    }
    ledger.books.delete_queue(ledger.db, id)?;
    Ok(true)
}

pub(super) fn grants(db: &Connection, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
    let grant = |row: &rusqlite::Row<'_>| Ok((instant(row, 0)?, number::<u32>(row, 1)?));
    let found: rusqlite::Result<_> = match queue {
        Some(queue) => db
            .prepare_cached(include_str!("sql/grants.sql"))?
            .query_map(params![queue.as_str(), micros(since)], grant)?
            .collect(),
        None => db.prepare_cached(include_str!("sql/all_grants.sql"))?.query_map([micros(since)], grant)?.collect(),
    };
    Ok(found?)
}
