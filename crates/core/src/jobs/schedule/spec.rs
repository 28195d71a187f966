//! What a client asks for when it puts a schedule, and the schedule it becomes.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{EVERY_MIN, Missed, Overlap, Schedule};
use crate::error::Invalid;
use crate::ids::{JobType, QueueName, ScheduleName};
use crate::jobs::cron::{Cron, DayRule};
use crate::jobs::priority::Priority;
use crate::jobs::spec::{DEFAULT_QUEUE, check_max_retries, check_timeout};
use crate::json::Json;
use crate::limits::ARGS_BYTES_MAX;

/// The body of `PUT /v1/schedules/{name}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ScheduleSpec {
    #[serde(rename = "type")]
    pub job_type: JobType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// Which days `cron` names if both of its day fields are restricted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<DayRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

impl ScheduleSpec {
    pub fn new(job_type: JobType) -> Self {
        ScheduleSpec {
            job_type,
            queue: None,
            args: None,
            cron: None,
            every: None,
            tz: None,
            day: None,
            missed: None,
            overlap: None,
            paused: None,
            priority: None,
            max_retries: None,
            timeout: None,
        }
    }

    /// Checks it and finds its first tick. Its interval counts from `now`.
    pub fn into_schedule(self, name: ScheduleName, now: Timestamp) -> Result<Schedule, Invalid> {
        let tz = self.check_rhythm(now)?;
        let day = self.cron.as_ref().map(|_| self.day.unwrap_or_default());
        let args = self.args.unwrap_or_default();
        args.check("args", ARGS_BYTES_MAX)?;
        if let Some(max_retries) = self.max_retries {
            check_max_retries(max_retries)?;
        }
        check_timeout(self.timeout)?;
        let mut schedule = Schedule {
            name,
            job_type: self.job_type,
            queue: match self.queue {
                Some(queue) => queue,
                None => QueueName::new(DEFAULT_QUEUE)?,
            },
            args,
            cron: self.cron,
            every: self.every,
            tz,
            day,
            missed: self.missed.unwrap_or_default(),
            overlap: self.overlap.unwrap_or_default(),
            paused: false,
            priority: self.priority.unwrap_or_default(),
            max_retries: self.max_retries,
            timeout: self.timeout,
            created_at: whole_microsecond(now),
            next_run_at: None,
            last_run_at: None,
        };
        if self.paused == Some(true) {
            schedule.pause()
        } else {
            schedule.resume(now)
        }
        Ok(schedule)
    }

    /// Returns what the caller should know although the schedule is valid.
    pub fn warnings(&self) -> Vec<String> {
        let parsed = self.cron.as_ref().and_then(|expression| Some((expression, self.parse_cron(expression).ok()?)));
        match parsed {
            Some((expression, cron)) if self.day.is_none() && cron.restricts_both_days() => vec![format!(
                "cron: both day fields of {expression:?} are restricted: it runs on days that match either of them, as in cron; \
                 set day to \"and\" for days that match both, or to \"or\" to confirm"
            )],
            _ => Vec::new(),
        }
    }

    fn parse_cron(&self, expression: &str) -> Result<Cron, Invalid> {
        Cron::parse(expression, self.tz.as_deref().unwrap_or("UTC"), self.day.unwrap_or_default())
    }

    /// Checks that there is one rhythm and that it will come. Returns the zone.
    fn check_rhythm(&self, now: Timestamp) -> Result<Option<String>, Invalid> {
        match (&self.cron, self.every) {
            (Some(_), Some(_)) => Err(Invalid::senseless("every", "expected either cron or every, got both")),
            (None, None) => Err(Invalid::senseless("cron", "expected either cron or every, got neither")),
            (None, Some(_)) if self.tz.is_some() => {
                Err(Invalid::senseless("tz", "expected only together with cron: an interval has no zone"))
            }
            (None, Some(_)) if self.day.is_some() => {
                Err(Invalid::senseless("day", "expected only together with cron: an interval has no day fields"))
            }
            (None, Some(every)) if every < EVERY_MIN => {
                let (least, got) = (crate::duration::format(EVERY_MIN), crate::duration::format(every));
                Err(Invalid::new("every", format!("expected at least {least}, got {got}")))
            }
            (None, Some(_)) => Ok(None),
            (Some(expression), None) => {
                let cron = self.parse_cron(expression)?;
                if cron.next_after(now).is_none() {
                    let message = format!("expected a date that comes, got {expression:?}, which never does");
                    return Err(Invalid::senseless("cron", message));
                }
                Ok(Some(cron.tz().into()))
            }
        }
    }
}

/// Stores keep microseconds: a finer anchor would make other ticks before it was stored than after.
fn whole_microsecond(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}
