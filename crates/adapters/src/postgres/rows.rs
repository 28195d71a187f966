//! How values are written into columns and read, by the names of columns. Statements that return many rows look up the
//! places of their columns once ([`places`]).
//!
//! An unreadable value (a name or code that this program cannot have written) is an error of the database, never a
//! panic: the rows may have been edited by hand. PostgreSQL stores every text but one with a NUL in it; texts for
//! people (errors, log lines) lose it, texts that identify something are rejected.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use convoke_core::jobs::{Documents, ExecutionStatus, Job, JobDefinition, Ownership, Progress, Status};
use convoke_core::{ExecutionId, Invalid, JobId, Json};
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::failure::{Failure, Result};

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub(super) fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Converts a number to a column of eight bytes.
pub(super) fn wide<N>(number: N) -> i64
where
    i64: TryFrom<N>,
{
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a text for people without NUL.
pub(super) fn readable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Rejects an identifying text that has a NUL in it.
pub(super) fn check_exact(field: &str, text: Option<&str>) -> Result<(), Invalid> {
    match text {
        Some(text) if text.contains('\0') => Err(Invalid::new(field, "expected no NUL character, got one in it")),
        _ => Ok(()),
    }
}

/// A column of a row: its name, or its place.
pub(super) trait Column: RowIndex + Display + Copy {}

impl<C: RowIndex + Display + Copy> Column for C {}

/// Declares the columns of a statement that returns many rows, with a place for each name.
macro_rules! places {
    ($name:ident { $($column:ident),* $(,)? }) => {
        struct $name { $($column: usize),* }

        impl $name {
            fn of(statement: &tokio_postgres::Statement) -> $crate::postgres::failure::Result<Self> {
                let place = |name: &str| {
                    let place = statement.columns().iter().position(|column| column.name() == name);
                    place.ok_or_else(|| $crate::postgres::rows::unreadable(name, "the statement does not return this column"))
                };
                Ok($name { $($column: place(stringify!($column))?),* })
            }
        }
    };
}
pub(super) use places;

pub(super) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: impl Column) -> Result<T> {
    row.try_get(column).map_err(|error| unreadable(column, error))
}

pub(super) fn unreadable(what: impl Display, message: impl Display) -> Failure {
    Failure::Unreadable(format!("{what}: {message}"))
}

pub(super) fn instant_option(row: &Row, column: impl Column) -> Result<Option<Timestamp>> {
    let Some(at) = get::<Option<i64>>(row, column)? else { return Ok(None) };
    // Not `from_microsecond`, which rejects the last second of time: a worker's timestamp may be there.
    let (second, micros) = (at.div_euclid(1_000_000), at.rem_euclid(1_000_000));
    Timestamp::new(second, micros as i32 * 1_000).map(Some).map_err(|error| unreadable(column, error))
}

pub(super) fn instant(row: &Row, column: impl Column) -> Result<Timestamp> {
    instant_option(row, column)?.ok_or_else(|| unreadable(column, "expected a value, got null"))
}

pub(super) fn duration_option(row: &Row, column: &str) -> Result<Option<Duration>> {
    Ok(get::<Option<i64>>(row, column)?.map(|micros| Duration::from_micros(micros.max(0) as u64)))
}

/// Reads a number from a column of eight bytes.
pub(super) fn number<T: TryFrom<i64>>(row: &Row, column: impl Column) -> Result<T> {
    let value: i64 = get(row, column)?;
    T::try_from(value).map_err(|_| unreadable(column, format!("{value} is out of range")))
}

/// Reads a number from a column of four bytes.
pub(super) fn small(row: &Row, column: impl Column) -> Result<u32> {
    let value: i32 = get(row, column)?;
    u32::try_from(value).map_err(|_| unreadable(column, format!("{value} is out of range")))
}

pub(super) fn job_id(row: &Row) -> Result<JobId> {
    get::<Uuid>(row, "id").map(JobId)
}

pub(super) fn execution_id(row: &Row, column: impl Column) -> Result<ExecutionId> {
    get::<Uuid>(row, column).map(ExecutionId)
}

/// Reads a name of one of the core's types, by its `new`.
pub(super) fn name<'r, N>(row: &'r Row, column: &str, new: impl Fn(&'r str) -> Result<N, Invalid>) -> Result<N> {
    new(get(row, column)?).map_err(|invalid| unreadable(column, invalid))
}

pub(super) fn name_option<'r, N>(
    row: &'r Row,
    column: &str,
    new: impl Fn(&'r str) -> Result<N, Invalid>,
) -> Result<Option<N>> {
    get::<Option<&str>>(row, column)?.map(new).transpose().map_err(|invalid| unreadable(column, invalid))
}

pub(super) fn json_option(row: &Row, column: &str) -> Result<Option<Json>> {
    let text: Option<String> = get(row, column)?;
    text.map(Json::parse).transpose().map_err(|error| unreadable(column, error))
}

pub(super) fn json(row: &Row, column: impl Column) -> Result<Json> {
    Json::parse(get(row, column)?).map_err(|error| unreadable(column, error))
}

/// Reads a code of one of the core's enums.
pub(super) fn code<T>(row: &Row, column: &str, from_code: impl Fn(u8) -> Option<T>) -> Result<T> {
    let value: i16 = get(row, column)?;
    let known = u8::try_from(value).ok().and_then(from_code);
    known.ok_or_else(|| unreadable(column, format!("unknown code {value}")))
}

pub(super) fn execution_status(row: &Row) -> Result<ExecutionStatus> {
    code(row, "status", ExecutionStatus::from_code)
}

pub(super) fn progress(row: &Row) -> Result<Option<Progress>> {
    let percent: Option<i16> = get(row, "progress")?;
    let message = get(row, "progress_message")?;
    Ok(percent.map(|percent| Progress { percent: percent.clamp(0, 100) as u8, message }))
}

/// Reads a column with a document: the definition of a job without its arguments, as far as it can be read.
pub(super) fn definition<'d>(
    documents: &'d mut Documents,
    row: &Row,
    column: impl Column,
) -> Result<&'d JobDefinition> {
    Ok(&documents.read(get(row, column)?).definition)
}

/// Reads a job as `sql/job.sql` selects it.
pub(super) fn job(row: &Row) -> Result<Job> {
    let definition = definition(&mut Documents::default(), row, "document")?.clone();
    // Arguments that cannot be read fail the run, and hide no other field.
    let args = json(row, "args").unwrap_or_else(|_| Json::null());
    let (attempt, attempt_base) = (small(row, "attempt")?, small(row, "attempt_base")?);
    Ok(Job {
        id: job_id(row)?,
        definition: JobDefinition { args, ..definition },
        status: code(row, "state", Status::from_code)?,
        attempt,
        retry_count: attempt.saturating_sub(attempt_base).saturating_sub(1),
        execution_id: get::<Option<Uuid>>(row, "execution_id")?.map(ExecutionId),
        ownership: code(row, "ownership", Ownership::from_code)?,
        owner_node: name_option(row, "owner", convoke_core::NodeId::new)?,
        worker_id: name_option(row, "worker", convoke_core::WorkerId::new)?,
        progress: progress(row)?,
        result: json_option(row, "result")?,
        error: get(row, "error")?,
        schedule: name_option(row, "schedule", convoke_core::ScheduleName::new)?,
        created_at: instant(row, "created_at")?,
        scheduled_at: instant_option(row, "scheduled_at")?,
        dispatched_at: instant_option(row, "dispatched_at")?,
        started_at: instant_option(row, "started_at")?,
        completed_at: instant_option(row, "completed_at")?,
        channels_cleaned: get(row, "channels_cleaned")?,
    })
}
