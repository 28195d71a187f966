//! Schedules, and the jobs their ticks make.

use convoke_core::election::Fence;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::limits::PAGE_BYTES_MAX;
use convoke_core::ports::store::{DueSchedules, Tick, Ticked};
use convoke_core::{Error, ScheduleName};
use deadpool_postgres::{Client, GenericClient, Transaction};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::epoch::{commit, hold};
use super::failure::{Failure, Result};
use super::insert::{careful_columns, enqueued, store_jobs_sql};
use super::rows::{get, instant_option, micros, unreadable, wide};
use super::sql::params;
use crate::statement::sql;
use crate::unreadable::or_log;

pub(super) async fn put_schedule(db: &impl GenericClient, schedule: &Schedule) -> Result<bool> {
    let document = serde_json::to_string(schedule).map_err(|error| Error::unavailable("store", error))?;
    let statement = db.prepare_cached(sql!(include_str!("sql/put_schedule.sql"))).await?;
    let (next, last) = (schedule.next_run_at.map(micros), schedule.last_run_at.map(micros));
    let row = db
        .query_one(&statement, &[&schedule.name.as_str(), &next, &last, &schedule.paused, &document])
        .await
        .map_err(Failure::of_commit)?;
    get(&row, "is_new")
}

pub(super) async fn replace_schedule(db: &mut Client, known: &Schedule, schedule: &Schedule) -> Result<bool> {
    let transaction = db.transaction().await?;
    let statement = transaction.prepare_cached(&format!("{SELECT} where name = $1 for update")).await?;
    let stored = transaction.query_opt(&statement, &[&known.name.as_str()]).await?;
    if stored.as_ref().map(read_schedule).transpose()?.as_ref() != Some(known) {
        return Ok(false);
    }
    put_schedule(&transaction, schedule).await?;
    commit(transaction).await?;
    Ok(true)
}

const SELECT: &str = "select name, document, next_run_at, last_run_at from convoke_schedules";

fn read_schedule(row: &Row) -> Result<Schedule> {
    let schedule = serde_json::from_str(get(row, "document")?);
    let mut schedule: Schedule = schedule.map_err(|error| unreadable("a schedule", error))?;
    schedule.next_run_at = instant_option(row, "next_run_at")?;
    schedule.last_run_at = instant_option(row, "last_run_at")?;
    Ok(schedule)
}

/// Returns `None` for a schedule that cannot be read, which is logged.
fn read_or_log(row: &Row) -> Result<Option<Schedule>> {
    let read = read_schedule(row).map_err(|failure| failure.into_error("store"));
    Ok(or_log("schedule", get(row, "name")?, read))
}

pub(super) async fn schedule(db: &Client, name: &ScheduleName) -> Result<Option<Schedule>> {
    let statement = db.prepare_cached(&format!("{SELECT} where name = $1")).await?;
    db.query_opt(&statement, &[&name.as_str()]).await?.as_ref().map(read_schedule).transpose()
}

pub(super) async fn schedules(db: &Client) -> Result<Vec<Schedule>> {
    let statement = db.prepare_cached(&format!("{SELECT} order by name")).await?;
    db.query(&statement, &[]).await?.iter().filter_map(|row| read_or_log(row).transpose()).collect()
}

pub(super) async fn remove_schedule(db: &Client, name: &ScheduleName) -> Result<bool> {
    let statement = db.prepare_cached("delete from convoke_schedules where name = $1").await?;
    Ok(db.execute(&statement, &[&name.as_str()]).await.map_err(Failure::of_commit)? == 1)
}

pub(super) async fn due_schedules(db: &Client, now: Timestamp, most: usize) -> Result<DueSchedules> {
    let statement = db.prepare_cached(sql!(include_str!("sql/due_schedules.sql"))).await?;
    let mut found = DueSchedules::default();
    for row in db.query(&statement, &[&wide(most).saturating_add(1), &wide(PAGE_BYTES_MAX)]).await? {
        let next_at = instant_option(&row, "next_run_at")?;
        let is_cut = get::<Option<&str>>(&row, "document")?.is_none();
        if next_at.is_some_and(|at| at > now) || found.due.len() == most || is_cut {
            found.next_at = next_at;
            break;
        }
        found.due.extend(read_or_log(&row)?);
    }
    Ok(found)
}

pub(super) async fn tick(db: &mut Client, fence: Fence, ticks: &[Tick]) -> Result<Vec<Ticked>> {
    let mut transaction = db.transaction().await?;
    hold(&transaction, fence, "tick").await?;
    transaction.batch_execute("set local lock_timeout = 200").await?;
    let mut ticked = Vec::with_capacity(ticks.len());
    for tick in ticks {
        let savepoint = transaction.savepoint("tick").await?;
        match tick_one(&savepoint, tick).await {
            // An application's open transaction has just created its queue or its type. This tick stays due, and the
            // others fire.
            Err(failure) if failure.is_locked() => {
                savepoint.rollback().await?;
                tracing::warn!(schedule = %tick.schedule, "tick postponed: another transaction holds the lock of its new queue or type");
                ticked.push(Ticked::default());
            }
            done => {
                ticked.push(done?);
                savepoint.commit().await?;
            }
        }
    }
    commit(transaction).await?;
    Ok(ticked)
}

async fn tick_one(transaction: &Transaction<'_>, tick: &Tick) -> Result<Ticked> {
    let name = tick.schedule.as_str();
    let moved = "update convoke_schedules set next_run_at = $3 where name = $1 and next_run_at = $2 and not paused";
    let moved = transaction.prepare_cached(moved).await?;
    if transaction.execute(&moved, &[&name, &micros(tick.expected), &tick.next_run_at.map(micros)]).await? == 0 {
        return Ok(Ticked::default());
    }
    let live = sql!(include_str!("sql/is_schedule_live.sql"));
    let live = transaction.prepare_cached(live).await?;
    let store = transaction.prepare_cached(store_jobs_sql()).await?;
    let mut made = Vec::new();
    let mut last_run_at = None;
    for job in &tick.jobs {
        if tick.skip_overlap && get(&transaction.query_one(&live, &[&name]).await?, "live")? {
            continue;
        }
        let stored = transaction.query_one(&store, &params(&careful_columns(&[job]))).await?;
        let stored = enqueued(&stored)?;
        if stored.created {
            made.push(stored.id);
            last_run_at = job.run_at.or(last_run_at);
        }
    }
    if let Some(at) = last_run_at {
        let ran = "update convoke_schedules set last_run_at = $2 where name = $1";
        transaction.execute(&transaction.prepare_cached(ran).await?, &[&name, &micros(at)]).await?;
    }
    Ok(Ticked { made, moved: true })
}
