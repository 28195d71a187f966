//! Schedules, and the jobs their ticks make.

use convoke_core::election::Fence;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::limits::PAGE_BYTES_MAX;
use convoke_core::ports::store::{DueSchedules, Tick, Ticked};
use convoke_core::{ByteBudget, Error, ScheduleName};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::catalog::WriteTx;
use super::epoch;
use super::failure::Result;
use super::insert::insert_one;
use super::rows::{document, get, micros, or_log};
use crate::statement::sql;

pub(super) fn put_schedule(tx: &mut WriteTx<'_>, schedule: &Schedule) -> Result<bool> {
    let name = schedule.name.as_str();
    let known = tx.db.prepare_cached("select 1 from schedules where name = ?1")?.exists([name])?;
    let document = serde_json::to_string(schedule).map_err(|error| Error::unavailable("store", error))?;
    tx.db.prepare_cached(sql!(include_str!("sql/put_schedule.sql")))?.execute(params![
        name,
        schedule.next_run_at.map(micros),
        schedule.last_run_at.map(micros),
        schedule.paused,
        document
    ])?;
    Ok(!known)
}

pub(super) fn replace_schedule(tx: &mut WriteTx<'_>, known: &Schedule, schedule: &Schedule) -> Result<bool> {
    if self::schedule(tx.db, &known.name)?.as_ref() != Some(known) {
        return Ok(false);
    }
    put_schedule(tx, schedule)?;
    Ok(true)
}

fn read_schedule(row: &Row<'_>) -> rusqlite::Result<Schedule> {
    let (next_run_at, last_run_at) = (get(row, "next_run_at")?, get(row, "last_run_at")?);
    Ok(Schedule { next_run_at, last_run_at, ..document(row)? })
}

pub(super) fn schedule(db: &Connection, name: &ScheduleName) -> Result<Option<Schedule>> {
    let mut statement =
        db.prepare_cached("select document, next_run_at, last_run_at from schedules where name = ?1")?;
    Ok(statement.query_row([name.as_str()], read_schedule).optional()?)
}

pub(super) fn schedules(db: &Connection) -> Result<Vec<Schedule>> {
    let text = "select name, document, next_run_at, last_run_at from schedules order by name";
    let mut statement = db.prepare_cached(text)?;
    let read = statement.query_map([], |row| or_log("schedule", row, read_schedule))?;
    Ok(read.filter_map(rusqlite::Result::transpose).collect::<rusqlite::Result<_>>()?)
}

pub(super) fn remove_schedule(tx: &mut WriteTx<'_>, name: &ScheduleName) -> Result<bool> {
    Ok(tx.db.prepare_cached("delete from schedules where name = ?1")?.execute([name.as_str()])? == 1)
}

pub(super) fn due_schedules(db: &Connection, now: Timestamp, limit: usize) -> Result<DueSchedules> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/due_schedules.sql")))?;
    let mut rows = statement.query([limit as i64 + 1])?;
    let mut found = DueSchedules::default();
    let mut budget = ByteBudget::new(PAGE_BYTES_MAX);
    while let Some(row) = rows.next()? {
        let Some(schedule) = or_log("schedule", row, read_schedule)? else { continue };
        if schedule.next_run_at.is_some_and(|at| at > now)
            || found.due.len() == limit
            || !budget.admits(schedule.template.args_bytes())
        {
            found.next_at = schedule.next_run_at;
            break;
        }
        found.due.push(schedule);
    }
    Ok(found)
}

pub(super) fn tick(tx: &mut WriteTx<'_>, fence: Fence, ticks: &[Tick]) -> Result<Vec<Ticked>> {
    epoch::hold(tx, fence, "tick")?;
    tx.catalog.admit(ticks.iter().flat_map(|tick| &tick.jobs).map(|job| &job.definition.queue))?;
    ticks.iter().map(|tick| tick_one(tx, tick)).collect()
}

fn tick_one(tx: &mut WriteTx<'_>, tick: &Tick) -> Result<Ticked> {
    let db = tx.db;
    let name = tick.schedule.as_str();
    let moved = "update schedules set next_run_at = ?3 where name = ?1 and next_run_at = ?2 and paused = 0";
    if db.prepare_cached(moved)?.execute(params![name, micros(tick.expected), tick.next_run_at.map(micros)])? == 0 {
        return Ok(Ticked::default());
    }
    let live =
        sql!("select 1 from jobs indexed by jobs_live_of_schedule where schedule = ?1 and state < {first_ended}");
    let mut live = db.prepare_cached(live)?;
    let mut insert = db.prepare_cached(sql!(include_str!("sql/insert.sql")))?;
    let mut made = Vec::new();
    let mut last_run_at = None;
    for job in &tick.jobs {
        if tick.skip_overlap && live.exists([name])? {
            continue;
        }
        let enqueued = insert_one(tx, &mut insert, job)?;
        if enqueued.created {
            made.push(enqueued.id);
            last_run_at = job.run_at.or(last_run_at);
        }
    }
    if let Some(at) = last_run_at {
        db.prepare_cached("update schedules set last_run_at = ?2 where name = ?1")?
            .execute(params![name, micros(at)])?;
    }
    Ok(Ticked { made, moved: true })
}
