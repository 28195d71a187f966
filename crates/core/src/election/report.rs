//! The report that a leader publishes, for readers outside the namespace.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{BreakerStatus, Metrics};
use crate::ids::Epoch;

/// The figures of a leader. It contains its term: a report of a former term may still be stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The id of the leader.
    pub member: String,
    /// Its term.
    pub epoch: Epoch,
    /// When it was made, by the leader's clock.
    pub at: Timestamp,
    /// The leader's counters.
    pub metrics: Metrics,
    /// The leader's circuit breaker.
    pub breaker: BreakerStatus,
}
