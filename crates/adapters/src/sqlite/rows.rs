//! How values are written into columns and read back.
//!
//! What cannot be read back (a name no one could have written, a code nobody knows) is an error of the database, never a
//! panic: the file may have been edited by hand.

use std::time::Duration;

use convoke_core::jobs::{Jitter, job};
use convoke_core::jobs::{Job, JobDefinition, Ownership, Priority, Progress, RetryPolicy, Status};
use convoke_core::{ExecutionId, JobId, JobType, Json, NodeId, QueueName, ScheduleName, ServiceName, WorkerId};
use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::Type;
use uuid::Uuid;

type Read<T> = rusqlite::Result<T>;

pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

pub(super) fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn unreadable(column: usize, kind: Type, message: impl Into<String>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, message.into().into())
}

pub(super) fn instant(row: &Row<'_>, column: usize) -> Read<Timestamp> {
    let at: i64 = row.get(column)?;
    // Not `from_microsecond`, which knows of nothing within the last second of time: a worker's word may be from there.
    let (second, micros) = (at.div_euclid(1_000_000), at.rem_euclid(1_000_000));
    Timestamp::new(second, micros as i32 * 1_000).map_err(|error| unreadable(column, Type::Integer, error.to_string()))
}

pub(super) fn instant_option(row: &Row<'_>, column: usize) -> Read<Option<Timestamp>> {
    match row.get::<_, Option<i64>>(column)? {
        Some(_) => instant(row, column).map(Some),
        None => Ok(None),
    }
}

fn duration(row: &Row<'_>, column: usize) -> Read<Duration> {
    row.get::<_, i64>(column).map(|micros| Duration::from_micros(micros.max(0) as u64))
}

pub(super) fn duration_option(row: &Row<'_>, column: usize) -> Read<Option<Duration>> {
    match row.get::<_, Option<i64>>(column)? {
        Some(_) => duration(row, column).map(Some),
        None => Ok(None),
    }
}

pub(super) fn number<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> Read<T> {
    let value: i64 = row.get(column)?;
    T::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

pub(super) fn job_id(row: &Row<'_>, column: usize) -> Read<JobId> {
    row.get::<_, [u8; 16]>(column).map(|bytes| JobId(Uuid::from_bytes(bytes)))
}

pub(super) fn execution_id(row: &Row<'_>, column: usize) -> Read<ExecutionId> {
    row.get::<_, [u8; 16]>(column).map(|bytes| ExecutionId(Uuid::from_bytes(bytes)))
}

pub(super) fn execution_id_option(row: &Row<'_>, column: usize) -> Read<Option<ExecutionId>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(|bytes| ExecutionId(Uuid::from_bytes(bytes))))
}

macro_rules! name {
    ($read:ident, $read_option:ident, $name:ident) => {
        #[allow(dead_code)]
        pub(super) fn $read(row: &Row<'_>, column: usize) -> Read<$name> {
            let text = row.get_ref(column)?.as_str()?;
            $name::new(text).map_err(|invalid| unreadable(column, Type::Text, invalid.to_string()))
        }

        #[allow(dead_code)]
        pub(super) fn $read_option(row: &Row<'_>, column: usize) -> Read<Option<$name>> {
            match row.get_ref(column)?.as_str_or_null()? {
                Some(_) => $read(row, column).map(Some),
                None => Ok(None),
            }
        }
    };
}

name!(queue_name, queue_name_option, QueueName);
name!(job_type, job_type_option, JobType);
name!(worker_id, worker_id_option, WorkerId);
name!(node_id, node_id_option, NodeId);
name!(schedule_name, schedule_name_option, ScheduleName);
name!(service_name, service_name_option, ServiceName);

pub(super) fn json(row: &Row<'_>, column: usize) -> Read<Json> {
    let text: String = row.get(column)?;
    Json::parse(text).map_err(|error| unreadable(column, Type::Text, error.to_string()))
}

fn json_option(row: &Row<'_>, column: usize) -> Read<Option<Json>> {
    match row.get_ref(column)?.as_str_or_null()? {
        Some(_) => json(row, column).map(Some),
        None => Ok(None),
    }
}

/// A code of one of the core's enums.
pub(super) fn code<T>(row: &Row<'_>, column: usize, from_code: impl Fn(u8) -> Option<T>) -> Read<T> {
    let value: i64 = row.get(column)?;
    u8::try_from(value).ok().and_then(from_code).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, value))
}

pub(super) fn status(row: &Row<'_>, column: usize) -> Read<Status> {
    code(row, column, Status::from_code)
}

pub(super) fn jitter_code(jitter: Jitter) -> i64 {
    match jitter {
        Jitter::Full => 0,
        Jitter::None => 1,
    }
}

/// Four columns from `column` on.
pub(super) fn retry_policy(row: &Row<'_>, column: usize) -> Read<RetryPolicy> {
    Ok(RetryPolicy {
        initial_delay: duration(row, column)?,
        multiplier: row.get(column + 1)?,
        max_delay: duration(row, column + 2)?,
        jitter: match row.get::<_, i64>(column + 3)? {
            0 => Jitter::Full,
            _ => Jitter::None,
        },
    })
}

/// Two columns from `column` on.
pub(super) fn progress(row: &Row<'_>, column: usize) -> Read<Option<Progress>> {
    match row.get::<_, Option<i64>>(column)? {
        Some(percent) => Ok(Some(Progress { percent: percent.clamp(0, 100) as u8, message: row.get(column + 1)? })),
        None => Ok(None),
    }
}

/// A job as `sql/job.sql` selects it.
pub(super) fn job(row: &Row<'_>) -> Read<Job> {
    let attempt: u32 = number(row, 6)?;
    let attempt_base: u32 = number(row, 7)?;
    Ok(Job {
        id: job_id(row, 0)?,
        definition: JobDefinition {
            job_type: job_type(row, 1)?,
            queue: queue_name(row, 2)?,
            priority: code(row, 4, Priority::from_code)?,
            args: json(row, 5)?,
            max_retries: number(row, 8)?,
            retry_policy: retry_policy(row, 9)?,
            correlation_id: row.get(17)?,
            unique_key: row.get(18)?,
            timeout: duration_option(row, 19)?,
        },
        status: status(row, 3)?,
        attempt,
        retry_count: attempt.saturating_sub(attempt_base).saturating_sub(1),
        execution_id: execution_id_option(row, 13)?,
        ownership: code(row, 14, Ownership::from_code)?,
        owner_node: node_id_option(row, 15)?,
        worker_id: worker_id_option(row, 16)?,
        progress: progress(row, 20)?,
        result: json_option(row, 22)?,
        error: row.get(23)?,
        schedule: schedule_name_option(row, 24)?,
        created_at: instant(row, 25)?,
        scheduled_at: instant_option(row, 26)?,
        dispatched_at: instant_option(row, 27)?,
        started_at: instant_option(row, 28)?,
        completed_at: instant_option(row, 29)?,
        channels_cleaned: row.get(30)?,
    })
}

pub(super) fn execution_status(row: &Row<'_>, column: usize) -> Read<job::ExecutionStatus> {
    code(row, column, job::ExecutionStatus::from_code)
}
