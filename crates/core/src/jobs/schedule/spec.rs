//! A request to make or replace a schedule, and the schedule that is stored for it.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::{IgnoredAny, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};

use super::{EVERY_MIN, Missed, Overlap, Schedule};
use crate::error::Invalid;
use crate::flat::{self, Extra};
use crate::ids::{JobType, ScheduleName};
use crate::jobs::cron::{Cron, DayRule};
use crate::jobs::template::JobTemplate;

/// A request to make or replace a schedule, with either `cron` or `every`.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// The jobs of the schedule.
    #[cfg_attr(feature = "openapi", schema(inline))]
    #[serde(flatten)]
    pub template: JobTemplate,
    /// A cron expression of five or six fields, or a nickname such as `@hourly`; reversed ranges (`22-2`), `L`, `L-3`,
    /// `W` and `#` are accepted.
    #[cfg_attr(feature = "openapi", schema(example = "0 9 * * 1-5"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The interval between two ticks, at least `100ms`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "1h"))]
    #[serde(with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// The time zone of `cron`, `UTC` if it is absent.
    #[cfg_attr(feature = "openapi", schema(example = "Europe/Berlin"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// Which days `cron` names if both of its day fields are restricted; `or` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<DayRule>,
    /// The handling of missed ticks, `latest` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// The handling of a tick while a job of the schedule is live, `skip` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Whether the schedule makes no jobs; false if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl<'de> Deserialize<'de> for ScheduleSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (template, Cadence { cron, every, tz, day, missed, overlap, paused }) = flat::read(deserializer)?;
        Ok(ScheduleSpec {
            template,
            cron: cron.flatten(),
            every: every.and_then(|every| every.0),
            tz: tz.flatten(),
            day: day.flatten(),
            missed: missed.flatten(),
            overlap: overlap.flatten(),
            paused: paused.flatten(),
        })
    }
}

/// The fields of a request beside the template. A field that is null counts as absent.
#[derive(Default)]
struct Cadence {
    cron: Option<Option<String>>,
    every: Option<Every>,
    tz: Option<Option<String>>,
    day: Option<Option<DayRule>>,
    missed: Option<Option<Missed>>,
    overlap: Option<Option<Overlap>>,
    paused: Option<Option<bool>>,
}

#[derive(Deserialize)]
struct Every(#[serde(with = "crate::duration::option")] Option<Duration>);

impl<'de> Extra<'de> for Cadence {
    const FIELDS: Option<&'static [&'static str]> =
        Some(&["cron", "every", "tz", "day", "missed", "overlap", "paused"]);

    fn read<A: MapAccess<'de>>(&mut self, field: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        match &*field {
            "cron" => flat::fill(&mut self.cron, "cron", map),
            "every" => flat::fill(&mut self.every, "every", map),
            "tz" => flat::fill(&mut self.tz, "tz", map),
            "day" => flat::fill(&mut self.day, "day", map),
            "missed" => flat::fill(&mut self.missed, "missed", map),
            "overlap" => flat::fill(&mut self.overlap, "overlap", map),
            "paused" => flat::fill(&mut self.paused, "paused", map),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

impl ScheduleSpec {
    /// Returns a request without a rhythm, for jobs of this type.
    pub fn new(job_type: JobType) -> Self {
        ScheduleSpec {
            template: JobTemplate::new(job_type),
            cron: None,
            every: None,
            tz: None,
            day: None,
            missed: None,
            overlap: None,
            paused: None,
        }
    }

    /// Checks the request and returns the schedule with its first tick. An interval counts from `now`.
    pub fn into_schedule(self, name: ScheduleName, now: Timestamp) -> Result<Schedule, Invalid> {
        let tz = self.check_rhythm(now)?;
        self.template.check()?;
        let day = self.cron.as_ref().map(|_| self.day.unwrap_or_default());
        let mut schedule = Schedule {
            name,
            template: JobTemplate {
                queue: Some(self.template.queue.unwrap_or_default()),
                priority: Some(self.template.priority.unwrap_or_default()),
                args: self.template.args.filter(|args| !args.is_null()),
                ..self.template
            },
            cron: self.cron,
            every: self.every,
            tz,
            day,
            missed: self.missed.unwrap_or_default(),
            overlap: self.overlap.unwrap_or_default(),
            paused: false,
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

    /// Returns warnings about a valid schedule that may not mean what the caller expects.
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

    /// Checks that the request has one rhythm, and that it has a tick. Returns the time zone.
    fn check_rhythm(&self, now: Timestamp) -> Result<Option<String>, Invalid> {
        match (&self.cron, self.every) {
            (Some(_), Some(_)) => Err(Invalid::unprocessable("every", "expected either cron or every, got both")),
            (None, None) => Err(Invalid::unprocessable("cron", "expected either cron or every, got neither")),
            (None, Some(_)) if self.tz.is_some() => {
                Err(Invalid::unprocessable("tz", "expected only together with cron: an interval has no zone"))
            }
            (None, Some(_)) if self.day.is_some() => {
                Err(Invalid::unprocessable("day", "expected only together with cron: an interval has no day fields"))
            }
            (None, Some(every)) if every < EVERY_MIN => {
                let (least, got) = (crate::duration::format(EVERY_MIN), crate::duration::format(every));
                Err(Invalid::new("every", format!("expected at least {least}, got {got}")))
            }
            (None, Some(_)) => Ok(None),
            (Some(expression), None) => {
                let cron = self.parse_cron(expression)?;
                if cron.next_after(now).is_none() {
                    let message =
                        format!("expected an expression that matches a date, got {expression:?}, which matches none");
                    return Err(Invalid::unprocessable("cron", message));
                }
                Ok(Some(cron.tz().into()))
            }
        }
    }
}

/// Rounds down to microseconds, as stores do: a finer anchor would have other ticks before it was stored than after.
fn whole_microsecond(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}
