//! Queues: their settings and their counts.

use convoke_core::QueueName;
use convoke_core::jobs::{Queue, QueueCounts, QueuePatch, RateLimit, Status};
use deadpool_postgres::{Client, GenericClient};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::epoch::commit;
use super::failure::Result;
use super::rows::{duration_micros, duration_option, get, instant, instant_option, micros, number, queue_name};

pub(super) async fn queues(db: &Client) -> Result<Vec<Queue>> {
    let statement = db.prepare_cached(include_str!("sql/queues.sql")).await?;
    db.query(&statement, &[]).await?.iter().map(read_queue).collect()
}

pub(super) async fn queue(db: &impl GenericClient, name: &QueueName) -> Result<Option<Queue>> {
    let statement = db.prepare_cached(include_str!("sql/queue.sql")).await?;
    db.query_opt(&statement, &[&name.as_str()]).await?.as_ref().map(read_queue).transpose()
}

fn read_queue(row: &Row) -> Result<Queue> {
    let mut counts = QueueCounts::default();
    for (column, status) in (6..).zip(&Status::ALL[1..]) {
        counts.set(*status, number(row, column)?);
    }
    let limit = get::<Option<i64>>(row, 3)?.and_then(|limit| u32::try_from(limit).ok());
    let rate_limit = limit.zip(duration_option(row, 4)?).map(|(limit, per)| RateLimit { limit, per });
    let concurrency = get::<Option<i64>>(row, 5)?.and_then(|limit| u32::try_from(limit).ok());
    let oldest_pending_at = instant_option(row, 14)?;
    Ok(Queue { name: queue_name(row, 1)?, paused: get(row, 2)?, rate_limit, concurrency, counts, oldest_pending_at })
}

pub(super) async fn configure(db: &mut Client, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
    let transaction = db.transaction().await?;
    let statement = transaction.prepare_cached("select convoke_open_queue($1)").await?;
    let id: i32 = get(&transaction.query_one(&statement, &[&name.as_str()]).await?, 0)?;
    let rate = patch.rate_limit.flatten();
    let (rate_limit, rate_per) = (rate.map(|rate| i64::from(rate.limit)), rate.map(|rate| duration_micros(rate.per)));
    let concurrency = patch.concurrency.flatten().map(i64::from);
    let (set_rate, set_concurrency) = (patch.rate_limit.is_some(), patch.concurrency.is_some());
    let statement = transaction.prepare_cached(include_str!("sql/configure.sql")).await?;
    transaction
        .execute(&statement, &[&id, &patch.paused, &set_rate, &rate_limit, &rate_per, &set_concurrency, &concurrency])
        .await?;
    let queue = queue(&transaction, name).await?;
    commit(transaction).await?;
    queue.ok_or_else(|| super::failure::Failure::Unreadable(format!("the queue {name:?} is gone")))
}

pub(super) async fn delete_queue(db: &mut Client, name: &QueueName) -> Result<bool> {
    let transaction = db.transaction().await?;
    let Some(found) = queue(&transaction, name).await? else { return Ok(false) };
    if !found.is_empty() {
        return Err(Queue::not_empty(name).into());
    }
    let statement = transaction.prepare_cached(include_str!("sql/delete_queue.sql")).await?;
    transaction.execute(&statement, &[&name.as_str()]).await?;
    commit(transaction).await?;
    Ok(true)
}

pub(super) async fn grants(db: &Client, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
    let rows = match queue {
        Some(queue) => {
            let statement = db.prepare_cached(include_str!("sql/grants.sql")).await?;
            db.query(&statement, &[&queue.as_str(), &micros(since)]).await?
        }
        None => {
            let statement = db.prepare_cached(include_str!("sql/all_grants.sql")).await?;
            db.query(&statement, &[&micros(since)]).await?
        }
    };
    rows.iter().map(|row| Ok((instant(row, 0)?, number(row, 1)?))).collect()
}
