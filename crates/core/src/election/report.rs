//! What a leader publishes of itself, for whoever looks at a namespace from outside.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{BreakerStatus, Metrics};
use crate::ids::Epoch;

/// A leader's figures. It names its term: one that was published in a former term may still be there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub member: String,
    pub epoch: Epoch,
    /// By the leader's clock.
    pub at: Timestamp,
    pub metrics: Metrics,
    pub breaker: BreakerStatus,
}
