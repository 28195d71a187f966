//! A request to enqueue, and the job it becomes.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::job::{Job, Ownership};
use super::lifecycle::Status;
use super::priority::Priority;
use super::retry::RetryPolicy;
use crate::error::Invalid;
use crate::ids::{JobId, JobType, QueueName, ScheduleName};
use crate::json::Json;
use crate::limits::{ARGS_BYTES_MAX, NAME_BYTES_MAX, RETRIES_MAX};

/// What a client sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct JobSpec {
    /// Made by the client, so that a request whose answer was lost can be sent again: the second finds the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    #[serde(rename = "type")]
    pub job_type: JobType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    #[serde(default, with = "crate::instant::option", skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub unique_for: Option<Duration>,
}

impl JobSpec {
    pub fn new(job_type: JobType) -> Self {
        JobSpec {
            id: None,
            job_type,
            queue: None,
            args: None,
            priority: None,
            delay: None,
            run_at: None,
            max_retries: None,
            retry_policy: None,
            timeout: None,
            correlation_id: None,
            unique_key: None,
            unique_for: None,
        }
    }
}

/// What a job gets where its request is silent.
#[derive(Debug, Clone, Copy)]
pub struct JobDefaults {
    pub max_retries: u32,
    pub retry_policy: RetryPolicy,
}

impl Default for JobDefaults {
    fn default() -> Self {
        JobDefaults { max_retries: 3, retry_policy: RetryPolicy::default() }
    }
}

/// A job that is about to be stored: checked, with its id and its time.
#[derive(Debug, Clone)]
pub struct NewJob {
    pub id: JobId,
    pub job_type: JobType,
    pub queue: QueueName,
    pub args: Json,
    pub priority: Priority,
    pub max_retries: u32,
    pub retry_policy: RetryPolicy,
    pub timeout: Option<Duration>,
    pub correlation_id: Option<String>,
    pub unique_key: Option<String>,
    /// Until when the key stays taken even after the job has ended. `None`: only while it is live.
    pub unique_until: Option<Timestamp>,
    pub created_at: Timestamp,
    /// Not before. `None`: at once.
    pub run_at: Option<Timestamp>,
    /// The schedule that made it; `run_at` is then its tick.
    pub schedule: Option<ScheduleName>,
}

pub const DEFAULT_QUEUE: &str = "default";

impl JobSpec {
    /// Checks it and gives it an id, `fresh` where the client made none.
    pub fn into_job(self, fresh: JobId, now: Timestamp, defaults: &JobDefaults) -> Result<NewJob, Invalid> {
        let run_at = match (self.delay, self.run_at) {
            (Some(_), Some(_)) => return Err(Invalid::senseless("runAt", "expected either delay or runAt, got both")),
            (Some(delay), None) => (!delay.is_zero()).then(|| now + delay),
            (None, run_at) => run_at.filter(|at| *at > now),
        };
        self.id.map_or(Ok(()), check_id)?;
        let args = self.args.unwrap_or_default();
        args.check("args", ARGS_BYTES_MAX)?;
        let max_retries = self.max_retries.unwrap_or(defaults.max_retries);
        check_max_retries(max_retries)?;
        let retry_policy = self.retry_policy.unwrap_or(defaults.retry_policy);
        retry_policy.check()?;
        check_timeout(self.timeout)?;
        check_key("correlationId", self.correlation_id.as_deref())?;
        check_key("uniqueKey", self.unique_key.as_deref())?;
        if self.unique_for.is_some() && self.unique_key.is_none() {
            return Err(Invalid::senseless("uniqueFor", "expected only together with uniqueKey"));
        }
        Ok(NewJob {
            id: self.id.unwrap_or(fresh),
            job_type: self.job_type,
            queue: match self.queue {
                Some(queue) => queue,
                None => QueueName::new(DEFAULT_QUEUE)?,
            },
            args,
            priority: self.priority.unwrap_or_default(),
            max_retries,
            retry_policy,
            timeout: self.timeout,
            correlation_id: self.correlation_id,
            unique_key: self.unique_key,
            unique_until: self.unique_for.map(|duration| now + duration),
            created_at: now,
            run_at,
            schedule: None,
        })
    }
}

pub(super) fn check_max_retries(max_retries: u32) -> Result<(), Invalid> {
    if max_retries > RETRIES_MAX {
        return Err(Invalid::new("maxRetries", format!("expected 0 to {RETRIES_MAX}, got {max_retries}")));
    }
    Ok(())
}

pub(super) fn check_timeout(timeout: Option<Duration>) -> Result<(), Invalid> {
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(Invalid::new("timeout", "expected a duration longer than zero; leave it out for no timeout"));
    }
    Ok(())
}

/// Rejects the nil and the max UUID. Tools write them for "no id", so two clients that send one would mean two jobs.
fn check_id(id: JobId) -> Result<(), Invalid> {
    if id.0.is_nil() || id.0.is_max() {
        return Err(Invalid::new("id", format!("expected a UUID other than the nil and the max UUID, got {id}")));
    }
    Ok(())
}

fn check_key(field: &str, key: Option<&str>) -> Result<(), Invalid> {
    match key {
        Some("") => Err(Invalid::new(field, "expected 1 to 255 bytes, got an empty string; leave it out for none")),
        Some(key) if key.len() > NAME_BYTES_MAX => {
            Err(Invalid::new(field, format!("expected at most {NAME_BYTES_MAX} bytes, got {}", key.len())))
        }
        // Not every store can keep one, and jobs must not depend on which it is.
        Some(key) if key.contains('\0') => Err(Invalid::new(field, "expected no NUL character, got one in it")),
        _ => Ok(()),
    }
}

impl NewJob {
    /// The state it is stored in.
    pub fn status(&self) -> Status {
        match self.run_at {
            Some(at) if at > self.created_at => Status::Scheduled,
            _ => Status::Pending,
        }
    }

    /// When it may first run.
    pub fn due_at(&self) -> Timestamp {
        self.run_at.unwrap_or(self.created_at).max(self.created_at)
    }

    /// The job as a reader would see it right after it was stored.
    pub fn into_stored(self) -> Job {
        Job {
            status: self.status(),
            id: self.id,
            job_type: self.job_type,
            queue: self.queue,
            priority: self.priority,
            args: self.args,
            attempt: 0,
            retry_count: 0,
            max_retries: self.max_retries,
            retry_policy: self.retry_policy,
            execution_id: None,
            ownership: Ownership::Unowned,
            owner_node: None,
            worker_id: None,
            correlation_id: self.correlation_id,
            unique_key: self.unique_key,
            timeout: self.timeout,
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
