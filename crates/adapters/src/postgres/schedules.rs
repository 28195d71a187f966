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
use super::insert::{Columns, STORE_JOBS, enqueued};
use super::rows::{get, instant_option, limit, micros};

pub(super) async fn put_schedule(db: &impl GenericClient, schedule: &Schedule) -> Result<bool> {
    let document = serde_json::to_string(schedule).map_err(|error| Error::unavailable("store", error))?;
    let statement = db.prepare_cached(include_str!("sql/put_schedule.sql")).await?;
    let (next, last) = (schedule.next_run_at.map(micros), schedule.last_run_at.map(micros));
    let row = db
        .query_one(&statement, &[&schedule.name.as_str(), &next, &last, &schedule.paused, &document])
        .await
        .map_err(Failure::of_commit)?;
    get(&row, 0)
}

pub(super) async fn replace_schedule(db: &mut Client, known: &Schedule, schedule: &Schedule) -> Result<bool> {
    let transaction = db.transaction().await?;
    let statement = transaction.prepare_cached(include_str!("sql/schedule_to_replace.sql")).await?;
    let stored = transaction.query_opt(&statement, &[&known.name.as_str()]).await?;
    if stored.as_ref().map(read_schedule).transpose()?.as_ref() != Some(known) {
        return Ok(false);
    }
    put_schedule(&transaction, schedule).await?;
    commit(transaction).await?;
    Ok(true)
}

fn read_schedule(row: &Row) -> Result<Schedule> {
    let mut schedule: Schedule =
        serde_json::from_str(get(row, 0)?).map_err(|error| Failure::Unreadable(format!("a schedule: {error}")))?;
    schedule.next_run_at = instant_option(row, 1)?;
    schedule.last_run_at = instant_option(row, 2)?;
    Ok(schedule)
}

pub(super) async fn schedule(db: &Client, name: &ScheduleName) -> Result<Option<Schedule>> {
    let statement = db.prepare_cached(include_str!("sql/schedule.sql")).await?;
    db.query_opt(&statement, &[&name.as_str()]).await?.as_ref().map(read_schedule).transpose()
}

pub(super) async fn schedules(db: &Client) -> Result<Vec<Schedule>> {
    let statement = db.prepare_cached(include_str!("sql/schedules.sql")).await?;
    db.query(&statement, &[]).await?.iter().map(read_schedule).collect()
}

pub(super) async fn remove_schedule(db: &Client, name: &ScheduleName) -> Result<bool> {
    let statement = db.prepare_cached("delete from convoke_schedules where name = $1").await?;
    Ok(db.execute(&statement, &[&name.as_str()]).await.map_err(Failure::of_commit)? == 1)
}

pub(super) async fn due_schedules(db: &Client, now: Timestamp, most: usize) -> Result<DueSchedules> {
    let statement = db.prepare_cached(include_str!("sql/due_schedules.sql")).await?;
    let mut answer = DueSchedules::default();
    for row in db.query(&statement, &[&limit(most).saturating_add(1), &limit(PAGE_BYTES_MAX)]).await? {
        let next_at = instant_option(&row, 1)?;
        let is_cut = get::<Option<&str>>(&row, 0)?.is_none();
        if next_at.is_some_and(|at| at > now) || answer.due.len() == most || is_cut {
            answer.next_at = next_at;
            break;
        }
        answer.due.push(read_schedule(&row)?);
    }
    Ok(answer)
}

pub(super) async fn tick(db: &mut Client, fence: Fence, ticks: &[Tick]) -> Result<Vec<Ticked>> {
    let mut transaction = db.transaction().await?;
    hold(&transaction, fence, "tick").await?;
    transaction.batch_execute("set local lock_timeout = 200").await?;
    let mut ticked = Vec::with_capacity(ticks.len());
    for tick in ticks {
        let savepoint = transaction.savepoint("tick").await?;
        match tick_one(&savepoint, tick).await {
            // An application's open transaction has just created its queue or its type. It stays due, and the others fire.
            Err(failure) if failure.is_locked() => {
                savepoint.rollback().await?;
                tracing::warn!(schedule = %tick.schedule, "its new queue or type is locked by another transaction: its tick waits");
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
    let moved = transaction.prepare_cached(include_str!("sql/move_schedule.sql")).await?;
    if transaction.execute(&moved, &[&name, &micros(tick.expected), &tick.next_run_at.map(micros)]).await? == 0 {
        return Ok(Ticked::default());
    }
    let live = transaction.prepare_cached(include_str!("sql/live_of_schedule.sql")).await?;
    let store = transaction.prepare_cached(STORE_JOBS).await?;
    let mut made = Vec::new();
    let mut last_run_at = None;
    for job in &tick.jobs {
        if tick.skip_overlap && get(&transaction.query_one(&live, &[&name]).await?, 0)? {
            continue;
        }
        let columns = Columns::of(&[job]);
        for enqueued in enqueued(&transaction.query(&store, &columns.params()).await?)? {
            if enqueued.created {
                made.push(enqueued.id);
                last_run_at = job.run_at.or(last_run_at);
            }
        }
    }
    if let Some(at) = last_run_at {
        let ran = "update convoke_schedules set last_run_at = $2 where name = $1";
        transaction.execute(&transaction.prepare_cached(ran).await?, &[&name, &micros(at)]).await?;
    }
    Ok(Ticked { made, moved: true })
}
