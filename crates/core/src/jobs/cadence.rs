//! The choices of a schedule, as clients make them. The rules that follow from them need a calendar and belong to a node.

use serde::{Deserialize, Serialize};

/// The handling of ticks that passed while no leader was there: forget them (`skip`), make one job for the latest
/// (`latest`), or one for each, up to a bound (`all`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Missed {
    /// Drop them.
    Skip,
    /// Make one job, for the latest.
    #[default]
    Latest,
    /// Make a job for each, up to a bound.
    All,
}

/// Whether a tick makes a job while an earlier job of the schedule is still live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Overlap {
    /// The tick makes no job.
    #[default]
    Skip,
    /// The tick makes a job.
    Allow,
}

/// The days of an expression whose two day fields are both restricted, as in `0 0 13 * FRI`: days that match either
/// field (`or`, as in cron) or both (`and`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum DayRule {
    /// Days that match either field, as in cron: every 13th and every Friday.
    #[default]
    Or,
    /// Days that match both fields, as in Cronos: Friday the 13th.
    And,
}
