//! How values are written into columns and read.
//!
//! An unreadable value (an invalid name, an unknown code, a malformed document) is an error of the database, never a
//! panic: the file may have been edited by hand.

use std::time::Duration;

use convoke_core::audit::AuditVia;
use convoke_core::jobs::job::ExecutionStatus;
use convoke_core::jobs::template::ReadDocument;
use convoke_core::jobs::{Documents, Job, JobDefinition, LogLevel, Ownership, Progress, Status};
use convoke_core::{ExecutionId, JobId, JobType, Json, NodeId, QueueName, ScheduleName, ServiceName, WorkerId};
use jiff::Timestamp;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Row, RowIndex};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::columns::columns;
use crate::unreadable;

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub(super) fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads one column.
pub(super) fn get<T: Stored>(row: &Row<'_>, column: impl RowIndex) -> rusqlite::Result<T> {
    row.get(column).map(|Column(value)| value)
}

/// Reads the column `document` of a worker, a node or a schedule.
pub(super) fn document<T: DeserializeOwned>(row: &Row<'_>) -> rusqlite::Result<T> {
    row.get("document").map(|Document(value)| value)
}

/// Reads a row with a document. `None` if the document cannot be read, which is logged; the column `name` identifies it.
pub(super) fn or_log<T>(
    kind: &'static str,
    row: &Row<'_>,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let name: String = row.get("name")?;
    Ok(unreadable::or_log(kind, &name, read(row)))
}

/// Reads the document of a job: its definition without the arguments. One that is no text cannot be read at all.
pub(super) fn read_document<'d>(
    documents: &'d mut Documents,
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<&'d ReadDocument> {
    Ok(documents.read(row.get_ref(column)?.as_str().unwrap_or_default()))
}

/// Reads the definition of a job without its arguments, as far as it can be read.
pub(super) fn definition<'d>(
    documents: &'d mut Documents,
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<&'d JobDefinition> {
    read_document(documents, row, column).map(|read| &read.definition)
}

/// A type whose values are kept in a column.
pub(super) trait Stored: Sized {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self>;
}

struct Column<T>(T);

impl<T: Stored> FromSql for Column<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        T::read(value).map(Column)
    }
}

struct Document<T>(T);

impl<T: DeserializeOwned> FromSql for Document<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Document).map_err(FromSqlError::other)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn read(value: ValueRef<'_>) -> FromSqlResult<Self> {
        if value == ValueRef::Null { Ok(None) } else { T::read(value).map(Some) }
    }
}

macro_rules! stored {
    ($($type:ident)+, $value:ident => $read:expr) => {$(
        impl Stored for $type {
            fn read($value: ValueRef<'_>) -> FromSqlResult<Self> {
                $read
            }
        }
    )+};
}

stored!(bool i64 String, value => FromSql::column_result(value));
stored!(u8 u32 u64, value => {
    let number = value.as_i64()?;
    Self::try_from(number).map_err(|_| FromSqlError::OutOfRange(number))
});
stored!(AuditVia Status Ownership ExecutionStatus LogLevel, value => {
    let code = u8::read(value)?;
    Self::from_code(code).ok_or(FromSqlError::OutOfRange(code.into()))
});
stored!(JobId ExecutionId, value => FromSql::column_result(value).map(|bytes| Self(Uuid::from_bytes(bytes))));
stored!(JobType NodeId QueueName ScheduleName ServiceName WorkerId, value => {
    Self::new(value.as_str()?).map_err(FromSqlError::other)
});
stored!(Json, value => Json::parse(value.as_str()?.to_owned()).map_err(FromSqlError::other));
stored!(Duration, value => u64::read(value).map(Duration::from_micros));
stored!(Timestamp, value => {
    let at = value.as_i64()?;
    // Not `from_microsecond`, which rejects the last second of time: a worker may report a time from there.
    let (second, micros) = (at.div_euclid(1_000_000), at.rem_euclid(1_000_000));
    Timestamp::new(second, micros as i32 * 1_000).map_err(FromSqlError::other)
});

/// Reads a run's progress from two columns.
pub(super) fn progress(row: &Row<'_>, percent: usize, message: usize) -> rusqlite::Result<Option<Progress>> {
    match get::<Option<u8>>(row, percent)? {
        Some(percent) => Ok(Some(Progress { percent: percent.min(100), message: get(row, message)? })),
        None => Ok(None),
    }
}

columns!(JOB: JobColumns {
    id, state, attempt, attempt_base, execution_id, ownership, owner, worker, progress, progress_message, schedule,
    created_at, scheduled_at, dispatched_at, started_at, completed_at, channels_cleaned, document, error, result, args,
});

/// Reads a job from the columns of [`JOB`].
pub(super) fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let (attempt, attempt_base): (u32, u32) = (get(row, JOB.attempt)?, get(row, JOB.attempt_base)?);
    Ok(Job {
        id: get(row, JOB.id)?,
        definition: JobDefinition {
            // Arguments that cannot be read fail the run, and hide no other field.
            args: get(row, JOB.args).unwrap_or_else(|_| Json::null()),
            ..definition(&mut Documents::default(), row, JOB.document)?.clone()
        },
        status: get(row, JOB.state)?,
        attempt,
        retry_count: attempt.saturating_sub(attempt_base).saturating_sub(1),
        execution_id: get(row, JOB.execution_id)?,
        ownership: get(row, JOB.ownership)?,
        owner_node: get(row, JOB.owner)?,
        worker_id: get(row, JOB.worker)?,
        progress: progress(row, JOB.progress, JOB.progress_message)?,
        result: get(row, JOB.result)?,
        error: get(row, JOB.error)?,
        schedule: get(row, JOB.schedule)?,
        created_at: get(row, JOB.created_at)?,
        scheduled_at: get(row, JOB.scheduled_at)?,
        dispatched_at: get(row, JOB.dispatched_at)?,
        started_at: get(row, JOB.started_at)?,
        completed_at: get(row, JOB.completed_at)?,
        channels_cleaned: get(row, JOB.channels_cleaned)?,
    })
}
