use std::sync::Arc;

use convoke_core::election::{BreakerStatus, Metrics, Turnover};

use super::holder::Holder;

/// The health of a campaign's requests to the leases: for `/v1/cluster`, for health checks and for metrics.
pub struct ElectionHealth(pub(super) Arc<Holder>);

impl ElectionHealth {
    /// Returns the durations and counts of the election's heartbeats.
    pub fn metrics(&self) -> Metrics {
        self.0.rules.lock().metrics()
    }

    /// Returns the state of the circuit breaker.
    pub fn breaker(&self) -> BreakerStatus {
        self.0.rules.lock().breaker()
    }

    /// Returns whether the leases responded to the election's last request; `None` before the first.
    pub fn leases_respond(&self) -> Option<bool> {
        self.0.responds()
    }

    /// Records that nodes joined or left.
    pub fn members_changed(&self, turnover: Turnover) {
        self.0.rules.lock().members_changed(turnover);
    }
}
