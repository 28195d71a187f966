//! How values are written into columns and read back.
//!
//! What cannot be read back (a name no one could have written, a code nobody knows) is an error of the database, never a
//! panic: the rows may have been edited by hand. PostgreSQL keeps every text but one with a NUL in it; what people say to
//! people (errors, log lines) loses it, what identifies something is refused.

use std::borrow::Cow;
use std::time::Duration;

use convoke_core::jobs::{
    ExecutionStatus, Jitter, Job, JobDefinition, Ownership, Priority, Progress, RetryPolicy, Status,
};
use convoke_core::{
    ExecutionId, Invalid, JobId, JobType, Json, NodeId, QueueName, ScheduleName, ServiceName, WorkerId,
};
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::failure::{Failure, Result};

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub(super) fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Text that somebody reads.
pub(super) fn readable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Text that identifies something.
pub(super) fn check_exact(field: &str, text: Option<&str>) -> Result<(), Invalid> {
    match text {
        Some(text) if text.contains('\0') => Err(Invalid::new(field, "expected no NUL character, got one in it")),
        _ => Ok(()),
    }
}

pub(super) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|error| Failure::Unreadable(format!("column {column}: {error}")))
}

fn unreadable(column: usize, message: impl std::fmt::Display) -> Failure {
    Failure::Unreadable(format!("column {column}: {message}"))
}

pub(super) fn instant(row: &Row, column: usize) -> Result<Timestamp> {
    let at: i64 = get(row, column)?;
    // Not `from_microsecond`, which knows of nothing within the last second of time: a worker's word may be from there.
    let (second, micros) = (at.div_euclid(1_000_000), at.rem_euclid(1_000_000));
    Timestamp::new(second, micros as i32 * 1_000).map_err(|error| unreadable(column, error))
}

pub(super) fn instant_option(row: &Row, column: usize) -> Result<Option<Timestamp>> {
    match get::<Option<i64>>(row, column)? {
        Some(_) => instant(row, column).map(Some),
        None => Ok(None),
    }
}

fn duration(row: &Row, column: usize) -> Result<Duration> {
    get::<i64>(row, column).map(|micros| Duration::from_micros(micros.max(0) as u64))
}

pub(super) fn duration_option(row: &Row, column: usize) -> Result<Option<Duration>> {
    Ok(get::<Option<i64>>(row, column)?.map(|micros| Duration::from_micros(micros.max(0) as u64)))
}

/// A number of a column of eight bytes.
pub(super) fn number<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<T> {
    let value: i64 = get(row, column)?;
    T::try_from(value).map_err(|_| unreadable(column, format!("{value} is out of range")))
}

/// One of a column of four.
pub(super) fn small(row: &Row, column: usize) -> Result<u32> {
    let value: i32 = get(row, column)?;
    u32::try_from(value).map_err(|_| unreadable(column, format!("{value} is out of range")))
}

pub(super) fn job_id(row: &Row, column: usize) -> Result<JobId> {
    get::<Uuid>(row, column).map(JobId)
}

pub(super) fn execution_id(row: &Row, column: usize) -> Result<ExecutionId> {
    get::<Uuid>(row, column).map(ExecutionId)
}

macro_rules! name {
    ($read:ident, $read_option:ident, $name:ident) => {
        #[allow(dead_code)]
        pub(super) fn $read(row: &Row, column: usize) -> Result<$name> {
            $name::new(get::<&str>(row, column)?).map_err(|invalid| unreadable(column, invalid))
        }

        #[allow(dead_code)]
        pub(super) fn $read_option(row: &Row, column: usize) -> Result<Option<$name>> {
            let text: Option<&str> = get(row, column)?;
            text.map($name::new).transpose().map_err(|invalid| unreadable(column, invalid))
        }
    };
}

name!(queue_name, queue_name_option, QueueName);
name!(job_type, job_type_option, JobType);
name!(worker_id, worker_id_option, WorkerId);
name!(node_id, node_id_option, NodeId);
name!(schedule_name, schedule_name_option, ScheduleName);
name!(service_name, service_name_option, ServiceName);

pub(super) fn json(row: &Row, column: usize) -> Result<Json> {
    Json::parse(get(row, column)?).map_err(|error| unreadable(column, error))
}

fn json_option(row: &Row, column: usize) -> Result<Option<Json>> {
    let text: Option<String> = get(row, column)?;
    text.map(Json::parse).transpose().map_err(|error| unreadable(column, error))
}

/// A code of one of the core's enums.
pub(super) fn code<T>(row: &Row, column: usize, from_code: impl Fn(u8) -> Option<T>) -> Result<T> {
    let value: i16 = get(row, column)?;
    let known = u8::try_from(value).ok().and_then(from_code);
    known.ok_or_else(|| unreadable(column, format!("the code {value} is unknown")))
}

pub(super) fn status(row: &Row, column: usize) -> Result<Status> {
    code(row, column, Status::from_code)
}

pub(super) fn execution_status(row: &Row, column: usize) -> Result<ExecutionStatus> {
    code(row, column, ExecutionStatus::from_code)
}

pub(super) fn jitter_code(jitter: Jitter) -> i16 {
    match jitter {
        Jitter::Full => 0,
        Jitter::None => 1,
    }
}

/// Four columns from `column` on.
pub(super) fn retry_policy(row: &Row, column: usize) -> Result<RetryPolicy> {
    Ok(RetryPolicy {
        initial_delay: duration(row, column)?,
        multiplier: get(row, column + 1)?,
        max_delay: duration(row, column + 2)?,
        jitter: match get::<i16>(row, column + 3)? {
            0 => Jitter::Full,
            _ => Jitter::None,
        },
    })
}

/// Two columns from `column` on.
pub(super) fn progress(row: &Row, column: usize) -> Result<Option<Progress>> {
    let percent: Option<i16> = get(row, column)?;
    let message = get(row, column + 1)?;
    Ok(percent.map(|percent| Progress { percent: percent.clamp(0, 100) as u8, message }))
}

/// A job as `sql/job.sql` selects it.
pub(super) fn job(row: &Row) -> Result<Job> {
    let (attempt, attempt_base) = (small(row, 6)?, small(row, 7)?);
    Ok(Job {
        id: job_id(row, 0)?,
        definition: JobDefinition {
            job_type: job_type(row, 1)?,
            queue: queue_name(row, 2)?,
            priority: code(row, 4, Priority::from_code)?,
            args: json(row, 5)?,
            max_retries: small(row, 8)?,
            retry_policy: retry_policy(row, 9)?,
            correlation_id: get(row, 17)?,
            unique_key: get(row, 18)?,
            timeout: duration_option(row, 19)?,
        },
        status: status(row, 3)?,
        attempt,
        retry_count: attempt.saturating_sub(attempt_base).saturating_sub(1),
        execution_id: get::<Option<Uuid>>(row, 13)?.map(ExecutionId),
        ownership: code(row, 14, Ownership::from_code)?,
        owner_node: node_id_option(row, 15)?,
        worker_id: worker_id_option(row, 16)?,
        progress: progress(row, 20)?,
        result: json_option(row, 22)?,
        error: get(row, 23)?,
        schedule: schedule_name_option(row, 24)?,
        created_at: instant(row, 25)?,
        scheduled_at: instant_option(row, 26)?,
        dispatched_at: instant_option(row, 27)?,
        started_at: instant_option(row, 28)?,
        completed_at: instant_option(row, 29)?,
        channels_cleaned: get(row, 30)?,
    })
}
