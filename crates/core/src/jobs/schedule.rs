//! Schedules: cron expressions and intervals that make jobs.
//!
//! A tick is an instant in UTC, and one job is made for each (schedule, tick), whichever node leads. Ticks follow from
//! the schedule alone, never from the time of a check: an interval counts from the schedule's creation. So a new leader
//! continues from the stored `next_run_at` and makes the same ticks, each once.
//!
//! A tick is due if its time has passed. It is *missed* if a later tick is due as well: no leader was there in time.
//! [`plan`] decides which due ticks get a job:
//!
//! | `missed` | ticks that get a job |
//! | --- | --- |
//! | `all` | all due ticks, the newest [`MISSED_TICKS_MAX`] of them |
//! | `latest` | the newest due tick, however late |
//! | `skip` | the newest due tick if it is at most [`SKIP_TOLERANCE`] late, which allows for a busy scanner but not for a restart |

mod spec;
mod ticks;

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cron::{Cron, DayRule};
use super::retry::RetrySettings;
use super::spec::NewJob;
use super::template::JobTemplate;
use crate::flat;
use crate::ids::{JobId, ScheduleName};

pub use super::cadence::{Missed, Overlap};
pub use spec::ScheduleSpec;
pub use ticks::{PastTick, TickOutcome};

/// Upper bound of the due ticks for which `all` makes jobs: the newest.
pub const MISSED_TICKS_MAX: usize = 1_000;

/// How late a tick may be for `skip` to make its job.
pub const SKIP_TOLERANCE: Duration = Duration::from_secs(1);

/// The shortest interval.
pub const EVERY_MIN: Duration = Duration::from_millis(100);

/// Upper bound of the ticks of a cron schedule that are counted one by one.
const COUNTED_TICKS_MAX: u64 = 100_000;

/// A schedule as it is stored and shown. Exactly one of `cron` and `every` is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Schedule {
    /// The name of the schedule.
    pub name: ScheduleName,
    /// The jobs of the schedule. Options that are left out get the defaults that are valid at each tick.
    #[cfg_attr(feature = "openapi", schema(schema_with = shown_template))]
    #[serde(flatten, skip_deserializing, default = "JobTemplate::unread")]
    pub template: JobTemplate,
    /// A cron expression of five or six fields, or a nickname.
    #[cfg_attr(feature = "openapi", schema(example = "0 9 * * 1-5"))]
    pub cron: Option<String>,
    /// The interval between two ticks.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "1h"))]
    #[serde(with = "crate::duration::option", default)]
    pub every: Option<Duration>,
    /// The time zone of `cron`.
    #[cfg_attr(feature = "openapi", schema(example = "Europe/Berlin"))]
    pub tz: Option<String>,
    /// Which days `cron` names if both of its day fields are restricted; null for an interval.
    #[serde(default)]
    pub day: Option<DayRule>,
    /// The handling of missed ticks.
    pub missed: Missed,
    /// The handling of a tick while a job of the schedule is live.
    pub overlap: Overlap,
    /// Whether the schedule makes no jobs.
    pub paused: bool,
    /// When the schedule was made. An interval counts from it.
    pub created_at: Timestamp,
    /// The next tick; null while the schedule is paused.
    pub next_run_at: Option<Timestamp>,
    /// The last tick that made a job.
    pub last_run_at: Option<Timestamp>,
}

/// Returns the schema of the template within a schedule in a response: these options are always present, null if they
/// are not set, and later versions may add fields.
#[cfg(feature = "openapi")]
fn shown_template() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    let mut schema = <JobTemplate as utoipa::PartialSchema>::schema();
    if let utoipa::openapi::RefOr::T(utoipa::openapi::Schema::Object(template)) = &mut schema {
        template.required.extend(["queue", "args", "priority", "maxRetries", "timeout"].map(String::from));
        template.additional_properties = None;
    }
    schema
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Whole<'a>(&'a Schedule);

        impl Serialize for Whole<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Schedule::serialize(self.0, serializer)
            }
        }

        /// Options that are always present, null if they are not set.
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shown<'a> {
            #[serde(flatten)]
            schedule: Whole<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            args: Option<()>,
            #[serde(skip_serializing_if = "Option::is_none")]
            max_retries: Option<()>,
            #[serde(skip_serializing_if = "Option::is_none")]
            timeout: Option<()>,
        }

        let template = &self.template;
        Shown {
            schedule: Whole(self),
            args: template.args.is_none().then_some(()),
            max_retries: template.max_retries.is_none().then_some(()),
            timeout: template.timeout.is_none().then_some(()),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (template, rest) = flat::read::<JobTemplate, flat::Rest, D>(deserializer)?;
        let schedule = Schedule::deserialize(rest.deserializer()).map_err(serde::de::Error::custom)?;
        Ok(Schedule { template, ..schedule })
    }
}

impl Schedule {
    /// Returns the schedule with a changed template.
    pub fn with(mut self, change: impl FnOnce(&mut JobTemplate)) -> Self {
        change(&mut self.template);
        self
    }

    /// Returns the first tick after `at`; `None` if there is none, or if this version cannot parse the stored schedule.
    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        self.rhythm()?.next_after(at)
    }

    /// Replaces `known`, a schedule with the same name. If the rhythm is the same, it continues from the state of
    /// `known`, so that storing the same schedule again, as a deployment does, neither loses nor moves a tick.
    pub fn succeed(&mut self, known: &Schedule, now: Timestamp) {
        self.last_run_at = known.last_run_at;
        if (&self.cron, self.every, &self.tz, self.day) != (&known.cron, known.every, &known.tz, known.day) {
            return;
        }
        self.created_at = known.created_at;
        if !self.paused {
            self.next_run_at = known.next_run_at.or_else(|| self.next_after(now));
        }
    }

    /// Stops the ticks.
    pub fn pause(&mut self) {
        self.paused = true;
        self.next_run_at = None;
    }

    /// Continues with the first tick after `now`. Ticks that passed during the pause are not missed: they get no job.
    pub fn resume(&mut self, now: Timestamp) {
        self.paused = false;
        self.next_run_at = self.next_after(now);
    }

    fn rhythm(&self) -> Option<Rhythm> {
        match (&self.cron, self.every) {
            (Some(cron), None) => {
                let (tz, day) = (self.tz.as_deref().unwrap_or("UTC"), self.day.unwrap_or_default());
                Cron::parse(cron, tz, day).ok().map(Box::new).map(Rhythm::Cron)
            }
            (None, Some(every)) => Interval::new(self.created_at, every).map(Rhythm::Every),
            _ => None,
        }
    }
}

enum Rhythm {
    Cron(Box<Cron>),
    Every(Interval),
}

impl Rhythm {
    fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Rhythm::Cron(cron) => cron.next_after(at),
            Rhythm::Every(every) => every.next_after(at),
        }
    }

    fn last_before(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Rhythm::Cron(cron) => cron.last_before(at),
            Rhythm::Every(every) => every.last_before(at),
        }
    }
}

/// Ticks at `anchor + k * every`, for k from 1.
#[derive(Clone, Copy)]
struct Interval {
    anchor_ns: i128,
    every_ns: i128,
}

impl Interval {
    fn new(anchor: Timestamp, every: Duration) -> Option<Interval> {
        let every_ns = i128::try_from(every.as_nanos()).ok()?;
        (every_ns > 0).then_some(Interval { anchor_ns: anchor.as_nanosecond(), every_ns })
    }

    /// Returns the number of ticks up to and including an instant.
    fn count(self, at_ns: i128) -> i128 {
        (at_ns - self.anchor_ns).div_euclid(self.every_ns).max(0)
    }

    fn tick(self, k: i128) -> Option<Timestamp> {
        Timestamp::from_nanosecond(self.anchor_ns.checked_add(k.checked_mul(self.every_ns)?)?).ok()
    }

    fn next_after(self, at: Timestamp) -> Option<Timestamp> {
        self.tick(self.count(at.as_nanosecond()) + 1)
    }

    fn last_before(self, at: Timestamp) -> Option<Timestamp> {
        let k = self.count(at.as_nanosecond() - 1);
        if k > 0 { self.tick(k) } else { None }
    }
}

/// The jobs that a schedule makes now, and its next state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Ticks that get a job, oldest first.
    pub ticks: Vec<Timestamp>,
    /// The first tick after now.
    pub next_run_at: Option<Timestamp>,
    /// The number of due ticks that get no job. A lower bound if a cron schedule has more than about 100,000 due ticks.
    pub dropped: u64,
}

/// Returns which ticks of `schedule`, from its `next_run_at` on, get a job at `now`.
pub fn plan(schedule: &Schedule, now: Timestamp) -> Plan {
    let nothing = Plan { ticks: Vec::new(), next_run_at: schedule.next_run_at, dropped: 0 };
    let (Some(first), Some(rhythm)) = (schedule.next_run_at, schedule.rhythm()) else {
        return nothing;
    };
    if first > now {
        return nothing;
    }
    let keep = if schedule.missed == Missed::All { MISSED_TICKS_MAX } else { 1 };
    let Due { mut newest, count } = match &rhythm {
        Rhythm::Cron(cron) => due_of_cron(cron, first, now, keep),
        Rhythm::Every(every) => due_of_interval(*every, first, now, keep),
    };
    if schedule.missed == Missed::Skip {
        newest.retain(|tick| now.duration_since(*tick).unsigned_abs() <= SKIP_TOLERANCE);
    }
    Plan { dropped: count - newest.len() as u64, ticks: newest.into(), next_run_at: rhythm.next_after(now) }
}

/// The due ticks of a schedule.
struct Due {
    newest: VecDeque<Timestamp>,
    count: u64,
}

fn due_of_cron(cron: &Cron, first: Timestamp, now: Timestamp, keep: usize) -> Due {
    let mut due = Due { newest: VecDeque::new(), count: 0 };
    let mut next = Some(first);
    while let Some(tick) = next.filter(|tick| *tick <= now) {
        if due.count == COUNTED_TICKS_MAX {
            // Too many to count. The newest are searched backwards from now.
            let late = last_of_cron(cron, tick, now, keep);
            due.count += late.len() as u64;
            due.newest.extend(late);
            break;
        }
        due.count += 1;
        due.newest.push_back(tick);
        if due.newest.len() > keep {
            due.newest.pop_front();
        }
        next = cron.next_after(tick);
    }
    let surplus = due.newest.len().saturating_sub(keep);
    due.newest.drain(..surplus);
    due
}

/// Returns the newest ticks from `first` to `now`, oldest first.
fn last_of_cron(cron: &Cron, first: Timestamp, now: Timestamp, keep: usize) -> Vec<Timestamp> {
    let end = cron.next_after(now).unwrap_or(Timestamp::MAX);
    let back = std::iter::successors(cron.last_before(end), |tick| cron.last_before(*tick));
    let mut ticks: Vec<Timestamp> = back.take_while(|tick| *tick >= first).take(keep).collect();
    ticks.reverse();
    ticks
}

fn due_of_interval(every: Interval, first: Timestamp, now: Timestamp, keep: usize) -> Due {
    let (start, end) = (every.count(first.as_nanosecond() - 1) + 1, every.count(now.as_nanosecond()));
    let count = u64::try_from(end - start + 1).unwrap_or(0);
    let kept = i128::try_from(keep).unwrap_or(i128::MAX).min(end - start + 1);
    Due { newest: (end - kept + 1..=end).filter_map(|k| every.tick(k)).collect(), count }
}

/// Returns the job of a tick. It is due as soon as it is stored.
pub fn job_for_tick(
    schedule: &Schedule,
    id: JobId,
    tick: Timestamp,
    now: Timestamp,
    defaults: &RetrySettings,
) -> NewJob {
    // Not before the tick, even if the clock that planned it was ahead of the clock that stores it.
    let created_at = now.max(tick);
    NewJob {
        id,
        unique_until: schedule.template.unique_for.map(|duration| created_at + duration),
        definition: schedule.template.clone().define(defaults),
        created_at,
        run_at: Some(tick),
        schedule: Some(schedule.name.clone()),
    }
}

#[cfg(test)]
mod tests;
