//! A request to enqueue a job, and the job that is stored for it.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::{IgnoredAny, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

use super::job::{Job, Ownership};
use super::lifecycle::Status;
use super::retry::RetrySettings;
use super::template::{JobDefinition, JobTemplate};
use crate::error::Invalid;
use crate::flat::{self, Extra};
use crate::ids::{JobId, JobType, ScheduleName};

/// A request to enqueue a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// The id of the job, made by the client, so that a request whose response was lost can be repeated without a
    /// second job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// The definition of the job, without defaults.
    #[cfg_attr(feature = "openapi", schema(inline))]
    #[serde(flatten)]
    pub template: JobTemplate,
    /// How long the job waits before it may run; either this or `runAt`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "5s"))]
    #[serde(with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The earliest time at which the job may run.
    #[serde(with = "crate::instant::option", skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
}

impl<'de> Deserialize<'de> for JobSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (template, When { id, delay, run_at }) = flat::read(deserializer)?;
        let (delay, run_at) = (delay.and_then(|delay| delay.0), run_at.and_then(|at| at.0));
        Ok(JobSpec { id: id.flatten(), template, delay, run_at })
    }
}

/// The fields of a request beside the template.
#[derive(Default)]
struct When {
    id: Option<Option<JobId>>,
    delay: Option<Delay>,
    run_at: Option<RunAt>,
}

#[derive(Deserialize)]
struct Delay(#[serde(with = "crate::duration::option")] Option<Duration>);

#[derive(Deserialize)]
struct RunAt(#[serde(with = "crate::instant::option")] Option<Timestamp>);

impl<'de> Extra<'de> for When {
    const FIELDS: Option<&'static [&'static str]> = Some(&["id", "delay", "runAt"]);

    fn read<A: MapAccess<'de>>(&mut self, field: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        match &*field {
            "id" => flat::fill(&mut self.id, "id", map),
            "delay" => flat::fill(&mut self.delay, "delay", map),
            "runAt" => flat::fill(&mut self.run_at, "runAt", map),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

/// A job that is about to be stored: checked, with its id and its times.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The id of the job.
    pub id: JobId,
    /// The definition of the job, with all defaults filled in.
    pub definition: JobDefinition,
    /// Until when the unique key stays taken, even after the job has ended. None: while the job is live.
    pub unique_until: Option<Timestamp>,
    /// When the job is stored.
    pub created_at: Timestamp,
    /// The earliest time of the first run. None: at once.
    pub run_at: Option<Timestamp>,
    /// The schedule that made the job; `run_at` is then the tick.
    pub schedule: Option<ScheduleName>,
}

impl JobSpec {
    /// Returns a request for a job of this type that may run at once.
    pub fn new(job_type: JobType) -> Self {
        JobTemplate::new(job_type).into()
    }

    /// Returns the request with a changed template.
    pub fn with(mut self, change: impl FnOnce(&mut JobTemplate)) -> Self {
        change(&mut self.template);
        self
    }

    /// Checks the request and returns the job to store. Its id is `fresh` if the client set none.
    pub fn into_job(self, fresh: JobId, now: Timestamp, defaults: &RetrySettings) -> Result<NewJob, Invalid> {
        let run_at = match (self.delay, self.run_at) {
            (Some(_), Some(_)) => {
                return Err(Invalid::unprocessable("runAt", "expected either delay or runAt, got both"));
            }
            (Some(delay), None) => (!delay.is_zero()).then(|| now + delay),
            (None, run_at) => run_at.filter(|at| *at > now),
        };
        self.id.map_or(Ok(()), check_id)?;
        self.template.check()?;
        Ok(NewJob {
            id: self.id.unwrap_or(fresh),
            unique_until: self.template.unique_for.map(|duration| now + duration),
            definition: self.template.define(defaults),
            created_at: now,
            run_at,
            schedule: None,
        })
    }
}

impl From<JobTemplate> for JobSpec {
    /// Returns a request for a job that may run at once.
    fn from(template: JobTemplate) -> Self {
        JobSpec { id: None, template, delay: None, run_at: None }
    }
}

/// Rejects the nil and the max UUID. Tools write them for "no id", so two clients may send one for different jobs.
fn check_id(id: JobId) -> Result<(), Invalid> {
    if id.0.is_nil() || id.0.is_max() {
        return Err(Invalid::new("id", format!("expected a UUID other than the nil and the max UUID, got {id}")));
    }
    Ok(())
}

impl NewJob {
    /// Returns the job with a changed definition.
    pub fn with(mut self, change: impl FnOnce(&mut JobDefinition)) -> Self {
        change(&mut self.definition);
        self
    }

    /// Returns the keys under which the job is found by a list with a filter. A store keeps an index of them.
    pub fn search_keys(&self) -> Vec<String> {
        self.definition.search_keys(self.schedule.as_ref())
    }

    /// Returns the status with which the job is stored.
    pub fn status(&self) -> Status {
        match self.run_at {
            Some(at) if at > self.created_at => Status::Scheduled,
            _ => Status::Pending,
        }
    }

    /// Returns the earliest time of the first run.
    pub fn due_at(&self) -> Timestamp {
        self.run_at.unwrap_or(self.created_at).max(self.created_at)
    }

    /// Returns the job as it is right after it was stored.
    pub fn into_stored(self) -> Job {
        Job {
            status: self.status(),
            id: self.id,
            definition: self.definition,
            attempt: 0,
            retry_count: 0,
            execution_id: None,
            ownership: Ownership::Unowned,
            owner_node: None,
            worker_id: None,
            progress: None,
            result: None,
            error: None,
            schedule: self.schedule,
            created_at: self.created_at,
            scheduled_at: self.run_at,
            dispatched_at: None,
            started_at: None,
            completed_at: None,
            channels_cleaned: false,
        }
    }
}

#[cfg(test)]
mod tests;
