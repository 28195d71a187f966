use std::sync::Arc;

use convoke_core::election::{BreakerStatus, Metrics, Turnover};

use super::holder::Holder;

/// How a campaign's requests to the leases go: for `/v1/cluster`, for health checks and for metrics.
pub struct ElectionHealth(pub(super) Arc<Holder>);

impl ElectionHealth {
    pub fn metrics(&self) -> Metrics {
        self.0.rules.lock().metrics()
    }

    pub fn breaker(&self) -> BreakerStatus {
        self.0.rules.lock().breaker()
    }

    /// Returns whether the leases answered the election's last request; `None` before the first.
    pub fn leases_respond(&self) -> Option<bool> {
        self.0.responds()
    }

    /// Nodes came or went.
    pub fn members_changed(&self, turnover: Turnover) {
        self.0.rules.lock().members_changed(turnover);
    }
}
