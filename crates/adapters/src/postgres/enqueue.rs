//! Enqueueing inside an application's own transaction.
//!
//! The application's writes and the jobs that it enqueues are committed together, or not at all. A coordinator finds
//! such jobs with its next poll, within a second.

use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::{JobSpec, NewJob, RetrySettings};
use convoke_core::limits::{BATCH_BYTES_MAX, BATCH_JOBS_MAX};
use convoke_core::{Invalid, JobId, Result};
use jiff::Timestamp;
use tokio_postgres::GenericClient;
use uuid::Uuid;

use super::failure::{self, Failure};
use super::insert::{careful_columns, check, enqueued, store_jobs_sql};
use super::sql::params;

/// Enqueues jobs on the caller's connection: in its transaction, if it has one. All or nothing.
///
/// The schema that the coordinators use must be on the connection's `search_path`. Jobs without retry options have the
/// built-in defaults; a coordinator's configuration is not known here. After an error the transaction can only be
/// rolled back.
pub async fn enqueue_in(client: &impl GenericClient, specs: &[JobSpec]) -> Result<Vec<Enqueued>> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    if specs.len() > BATCH_JOBS_MAX {
        let message = format!("expected at most {BATCH_JOBS_MAX} jobs, got {}", specs.len());
        return Err(Invalid::too_large("jobs", message).into());
    }
    let now = Timestamp::now();
    let mut bytes = 0;
    let mut jobs: Vec<NewJob> = Vec::with_capacity(specs.len());
    for (at, spec) in specs.iter().enumerate() {
        let job = spec.clone().into_job(JobId(Uuid::now_v7()), now, &RetrySettings::default());
        let job = job.map_err(|invalid| invalid.within(format!("jobs[{at}]")))?;
        bytes += job.definition.args.as_str().len();
        jobs.push(job);
    }
    if bytes > BATCH_BYTES_MAX {
        let message = format!("expected at most {BATCH_BYTES_MAX} bytes of arguments, got {bytes}");
        return Err(Invalid::too_large("jobs", message).into());
    }
    check(&jobs)?;
    let jobs: Vec<&NewJob> = jobs.iter().collect();
    let columns = careful_columns(&jobs);
    // If the connection breaks, so does the caller's transaction.
    let rows = client.query(store_jobs_sql(), &params(&columns)).await;
    let rows = rows.map_err(|error| Failure::from(error).into_error("store"))?;
    rows.iter().map(enqueued).collect::<failure::Result<_>>().map_err(|failure| failure.into_error("store"))
}
