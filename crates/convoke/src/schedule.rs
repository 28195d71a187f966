//! Schedules: requests to make one, and what a client reads of them.
//!
//! The coordinator knows the calendar; a client only sends the expression and reads the ticks that follow from it.

use std::pin::Pin;
use std::time::Duration;

use convoke_core::jobs::link::ScheduleCall;
use convoke_core::jobs::{DayRule, JobTemplate, Missed, Overlap};
use convoke_core::{Json, ScheduleName, duration};
use convoke_runtime::jobs::client;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::enqueue::{spec, template_options};
use crate::error::{Error, Result};

/// A schedule as the coordinator has it. Exactly one of `cron` and `every` is set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Schedule {
    /// The name of the schedule.
    pub name: String,
    /// The type of its jobs.
    #[serde(rename = "type")]
    pub job_type: String,
    /// The queue of its jobs; `None` for `default`.
    pub queue: Option<String>,
    /// The cron expression.
    pub cron: Option<String>,
    /// The interval.
    #[serde(default, with = "duration::option")]
    pub every: Option<Duration>,
    /// The time zone of the cron expression.
    pub tz: Option<String>,
    /// The handling of missed ticks.
    pub missed: Missed,
    /// The handling of a tick while a job of the schedule is live.
    pub overlap: Overlap,
    /// Whether the schedule makes no jobs.
    pub paused: bool,
    /// The next tick; `None` while the schedule is paused.
    pub next_run_at: Option<Timestamp>,
    /// The last tick that made a job.
    pub last_run_at: Option<Timestamp>,
}

/// A request to make a schedule, or to replace the one of this name. Nothing is sent until it is awaited. Set either
/// [`cron`](Self::cron) or [`every`](Self::every).
#[must_use = "no schedule is made until it is awaited"]
pub struct PutSchedule {
    client: client::Client,
    request: Result<(ScheduleName, Request)>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(flatten)]
    template: JobTemplate,
    #[serde(flatten)]
    cadence: Cadence,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cadence {
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    every: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tz: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<DayRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<Missed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<Overlap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
}

impl PutSchedule {
    pub(crate) fn new(client: client::Client, name: &str, job_type: &str, args: &impl Serialize) -> Self {
        let request = ScheduleName::new(name).map_err(Error::from).and_then(|name| {
            let template = spec(job_type, args)?.template;
            Ok((name, Request { template, cadence: Cadence::default() }))
        });
        PutSchedule { client, request }
    }

    template_options!();

    /// Makes a job at each tick of a cron expression: five or six fields, or a nickname such as `@daily`.
    pub fn cron(self, expression: impl Into<String>) -> Self {
        self.cadence(|cadence| cadence.cron = Some(expression.into()))
    }

    /// Sets the time zone of the cron expression, such as `Europe/Berlin`. Default: `UTC`.
    pub fn tz(self, zone: impl Into<String>) -> Self {
        self.cadence(|cadence| cadence.tz = Some(zone.into()))
    }

    /// Sets which days the cron expression names if both of its day fields are restricted. Default: either.
    pub fn day(self, rule: DayRule) -> Self {
        self.cadence(|cadence| cadence.day = Some(rule))
    }

    /// Makes a job at each interval, at least 100 ms.
    pub fn every(self, interval: Duration) -> Self {
        self.cadence(|cadence| cadence.every = Some(interval))
    }

    /// Sets what happens to ticks that passed while no coordinator led. Default: one job, for the latest.
    pub fn missed(self, missed: Missed) -> Self {
        self.cadence(|cadence| cadence.missed = Some(missed))
    }

    /// Sets what happens to a tick while a job of the schedule is live. Default: it is skipped.
    pub fn overlap(self, overlap: Overlap) -> Self {
        self.cadence(|cadence| cadence.overlap = Some(overlap))
    }

    /// Makes the schedule without ticks until it is resumed.
    pub fn paused(self) -> Self {
        self.cadence(|cadence| cadence.paused = Some(true))
    }

    fn cadence(mut self, change: impl FnOnce(&mut Cadence)) -> Self {
        if let Ok((_, request)) = &mut self.request {
            change(&mut request.cadence);
        }
        self
    }

    fn each(mut self, change: impl Fn(&mut JobTemplate)) -> Self {
        if let Ok((_, request)) = &mut self.request {
            change(&mut request.template);
        }
        self
    }

    fn fail(mut self, error: Error) -> Self {
        self.request = self.request.and(Err(error));
        self
    }
}

impl IntoFuture for PutSchedule {
    type Output = Result<Schedule>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Schedule>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (name, request) = self.request?;
            let written = Json::of(&request);
            let body = written.map_err(|source| Error::Json { what: "the schedule cannot be written", source })?;
            read(&self.client.schedule(ScheduleCall::Put(name, body)).await?)
        })
    }
}

/// Reads the coordinator's response to a call about schedules.
pub(crate) fn read<T: serde::de::DeserializeOwned>(response: &Json) -> Result<T> {
    response.to().map_err(|source| Error::Json { what: "the coordinator's response is not that of a schedule", source })
}

/// Checks the name of a schedule.
pub(crate) fn name_of(name: &str) -> Result<ScheduleName> {
    Ok(ScheduleName::new(name)?)
}
