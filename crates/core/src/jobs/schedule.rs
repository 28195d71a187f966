//! Work that comes again: cron expressions and intervals.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::priority::Priority;
use crate::ids::{JobType, QueueName, ScheduleName};
use crate::json::Json;

/// A schedule as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    pub name: ScheduleName,
    #[serde(rename = "type")]
    pub job_type: JobType,
    pub queue: QueueName,
    pub args: Json,
    /// Five or six fields, or a nickname. Exactly one of `cron` and `every` is set.
    pub cron: Option<String>,
    #[serde(with = "crate::duration::option", default)]
    pub every: Option<Duration>,
    pub tz: Option<String>,
    pub missed: Missed,
    pub overlap: Overlap,
    pub paused: bool,
    pub priority: Priority,
    pub max_retries: Option<u32>,
    #[serde(with = "crate::duration::option", default)]
    pub timeout: Option<Duration>,
    pub created_at: Timestamp,
    /// `None` while paused.
    pub next_run_at: Option<Timestamp>,
    pub last_run_at: Option<Timestamp>,
}

/// What to do about ticks that passed while nobody was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missed {
    /// Forget them.
    Skip,
    /// Run once, for the latest.
    #[default]
    Latest,
    /// Run them all, up to a bound.
    All,
}

/// What to do when a tick comes while a job of the schedule is still live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Overlap {
    #[default]
    Skip,
    Allow,
}
