//! Enqueueing inside an application's own PostgreSQL transaction: the job exists if and only if the transaction commits.
//!
//! The tables of the application are in the database that the coordinators use as their store, and the schema of the
//! coordinators is on the `search_path` of the connection.
//!
//! | client | call | retry options that a job does not set |
//! | --- | --- | --- |
//! | `tokio-postgres` | `enqueue_in(&transaction, &[…])`, with the feature `postgres` | the built-in defaults |
//! | `sqlx`, and every other client | a [`Statement`]: its text, and one text as its parameter | those of the coordinators |
//!
//! With `sqlx` 0.8 or 0.9:
//!
//! ```no_run
//! use convoke::transaction::{Statement, spec};
//! # use convoke::Job;
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # struct ConfirmOrder { order: u64 }
//! # impl Job for ConfirmOrder { const TYPE: &'static str = "order.confirm"; type Output = (); }
//!
//! # async fn confirm(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = pool.begin().await?;
//! sqlx::query("insert into orders (id) values ($1)").bind(17).execute(&mut *transaction).await?;
//! let enqueue = Statement::new(&[spec(&ConfirmOrder { order: 17 })?])?;
//! let rows: Vec<String> =
//!     sqlx::query_scalar(enqueue.sql()).bind(enqueue.parameter()).fetch_all(&mut *transaction).await?;
//! transaction.commit().await?;
//! let jobs = enqueue.enqueued(rows)?;
//! # Ok(())
//! # }
//! ```
//!
//! A coordinator finds such a job when it next reads the store, within a second.

use convoke_core::jobs::RetrySettings;
use convoke_core::limits::{BATCH_BYTES_MAX, BATCH_JOBS_MAX};
use convoke_core::{Invalid, JobId};
use jiff::Timestamp;
use uuid::Uuid;

#[cfg(feature = "postgres")]
pub use crate::connect::enqueue_in;
use crate::error::{Error, Result};
use crate::job::Job;

pub use convoke_core::jobs::JobSpec;
pub use convoke_core::jobs::link::Enqueued;
pub use convoke_core::{JobType, Json};

/// `convoke_enqueue` is a function that the coordinators keep in their schema. Its results are in the order of the jobs.
const SQL: &str = "select convoke_enqueue(job)::text \
                   from jsonb_array_elements($1::text::jsonb) with ordinality as jobs (job, place) order by place";

/// Returns the request to enqueue a job, on which options can be set: `spec(&job)?.with(|it| it.queue = …)`.
pub fn spec<T: Job>(job: &T) -> Result<JobSpec> {
    crate::enqueue::spec(T::TYPE, job)
}

/// The statement that enqueues jobs on any client of PostgreSQL: all of them or none.
#[derive(Debug, Clone)]
pub struct Statement {
    parameter: String,
    ids: Vec<JobId>,
}

impl Statement {
    /// Checks the jobs, and gives an id to each that has none: executing the statement again in another transaction is
    /// the same job again. At most 10,000 jobs and 32 MiB.
    pub fn new(jobs: &[JobSpec]) -> Result<Statement> {
        if jobs.len() > BATCH_JOBS_MAX {
            let message = format!("expected at most {BATCH_JOBS_MAX} jobs, got {}", jobs.len());
            return Err(Invalid::too_large("jobs", message).into());
        }
        let now = Timestamp::now();
        let identify = |(at, job): (usize, &JobSpec)| {
            let id = job.id.unwrap_or_else(|| JobId(Uuid::now_v7()));
            let checked = job.clone().into_job(id, now, &RetrySettings::default());
            checked.map_err(|invalid| invalid.within(format_args!("jobs[{at}]")))?;
            Ok(JobSpec { id: Some(id), ..job.clone() })
        };
        let jobs: Vec<JobSpec> = jobs.iter().enumerate().map(identify).collect::<Result<_>>()?;
        let ids = jobs.iter().filter_map(|job| job.id).collect();
        let parameter = serde_json::to_string(&jobs).map_err(|source| Error::Json { what: "the jobs", source })?;
        if parameter.len() > BATCH_BYTES_MAX {
            let message = format!("expected at most {BATCH_BYTES_MAX} bytes of jobs, got {}", parameter.len());
            return Err(Invalid::too_large("jobs", message).into());
        }
        Ok(Statement { parameter, ids })
    }

    /// Returns its text. It has one parameter, of the type `text`, and returns one row with one column of the type `text`
    /// for each job: its id.
    pub fn sql(&self) -> &'static str {
        SQL
    }

    /// Returns the parameter.
    pub fn parameter(&self) -> &str {
        &self.parameter
    }

    /// Reads the rows: which jobs were created, and which existed already by their unique key. A job whose id the
    /// application chose counts as created.
    pub fn enqueued<S: AsRef<str>>(&self, rows: impl IntoIterator<Item = S>) -> Result<Vec<Enqueued>> {
        let read = |(row, made): (S, &JobId)| {
            let id: JobId = row.as_ref().parse()?;
            Ok(Enqueued { id, created: id == *made })
        };
        let jobs: Vec<Enqueued> = rows.into_iter().zip(&self.ids).map(read).collect::<Result<_>>()?;
        match jobs.len() == self.ids.len() {
            true => Ok(jobs),
            false => Err(Error::failed(format!("expected {} rows, got {}", self.ids.len(), jobs.len()))),
        }
    }
}
