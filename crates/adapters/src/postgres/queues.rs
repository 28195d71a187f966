//! Queues: their settings and their counts.

use convoke_core::QueueName;
use convoke_core::jobs::{Queue, QueueCounts, QueuePatch, RateLimit, Status};
use deadpool_postgres::{Client, GenericClient};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::epoch::commit;
use super::failure::Result;
use super::rows::{duration_micros, duration_option, get, instant, instant_option, micros, name, number};
use crate::statement::sql;

pub(super) async fn queues(db: &Client) -> Result<Vec<Queue>> {
    let select = sql!(include_str!("sql/queues.sql"), which = "true");
    let statement = db.prepare_cached(select).await?;
    db.query(&statement, &[]).await?.iter().map(read_queue).collect()
}

pub(super) async fn queue(db: &impl GenericClient, name: &QueueName) -> Result<Option<Queue>> {
    let select = sql!(include_str!("sql/queues.sql"), which = "q.name = $1");
    let statement = db.prepare_cached(select).await?;
    db.query_opt(&statement, &[&name.as_str()]).await?.as_ref().map(read_queue).transpose()
}

/// The columns of counts.
const COUNTED: [(Status, &str); 8] = [
    (Status::Pending, "pending"),
    (Status::Scheduled, "scheduled"),
    (Status::Dispatched, "dispatched"),
    (Status::Running, "running"),
    (Status::Completed, "completed"),
    (Status::Failed, "failed"),
    (Status::TimedOut, "timed_out"),
    (Status::Cancelled, "cancelled"),
];

fn read_queue(row: &Row) -> Result<Queue> {
    let mut counts = QueueCounts::default();
    for (status, column) in COUNTED {
        counts.set(status, number(row, column)?);
    }
    let limit = |column| get::<Option<i64>>(row, column).map(|limit| limit.and_then(|limit| u32::try_from(limit).ok()));
    let rate = limit("rate_limit")?.zip(duration_option(row, "rate_per")?);
    Ok(Queue {
        name: name(row, "name", QueueName::new)?,
        paused: get(row, "paused")?,
        rate_limit: rate.map(|(limit, per)| RateLimit { limit, per }),
        concurrency: limit("concurrency")?,
        counts,
        oldest_pending_at: instant_option(row, "oldest_pending_at")?,
    })
}

pub(super) async fn configure(db: &mut Client, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
    let transaction = db.transaction().await?;
    let statement = transaction.prepare_cached("select convoke_open_queue($1) as id").await?;
    let id: i32 = get(&transaction.query_one(&statement, &[&name.as_str()]).await?, "id")?;
    let rate = patch.rate_limit.flatten();
    let (rate_limit, rate_per) = (rate.map(|rate| i64::from(rate.limit)), rate.map(|rate| duration_micros(rate.per)));
    let concurrency = patch.concurrency.flatten().map(i64::from);
    let (set_rate, set_concurrency) = (patch.rate_limit.is_some(), patch.concurrency.is_some());
    let statement = transaction.prepare_cached(sql!(include_str!("sql/configure.sql"))).await?;
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
    let statement = transaction
        .prepare_cached(sql!(
            "update convoke_queues
             set deleted = true, paused = false, rate_limit = null, rate_per = null, concurrency = null
             where name = $1"
        ))
        .await?;
    transaction.execute(&statement, &[&name.as_str()]).await?;
    commit(transaction).await?;
    Ok(true)
}

pub(super) async fn grants(db: &Client, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
    let rows = match queue {
        Some(queue) => {
            let statement = db.prepare_cached(sql!(include_str!("sql/grants.sql"))).await?;
            db.query(&statement, &[&queue.as_str(), &micros(since)]).await?
        }
        None => {
            let select = "select g.at, g.count from convoke_grants g where g.at >= $1 order by g.at, g.seq";
            let statement = db.prepare_cached(select).await?;
            db.query(&statement, &[&micros(since)]).await?
        }
    };
    rows.iter().map(|row| Ok((instant(row, "at")?, number(row, "count")?))).collect()
}
