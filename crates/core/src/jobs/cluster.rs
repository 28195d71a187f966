//! The settings of a node in a cluster: heartbeats, lease, handoff of runs.

use std::time::Duration;

use crate::election::certain_for;
use crate::error::Invalid;
use crate::{duration, sections};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

sections! {
    /// The section `cluster`.
    #[derive(Copy)]
    ClusterSettings {
        /// The interval of the heartbeats of a node.
        #[serde(with = "duration")]
        heartbeat_interval: Duration = seconds(10),
        /// How long a node may be silent before it is declared dead.
        #[serde(with = "duration")]
        dead_node_timeout: Duration = seconds(30),
        /// How long a lease is valid after it was acquired or renewed.
        #[serde(with = "duration")]
        lease_duration: Duration = seconds(30),
        /// The interval at which the leader renews its lease.
        #[serde(with = "duration")]
        renew_interval: Duration = seconds(10),
        /// How long an offer of a run waits for its acknowledgement.
        #[serde(with = "duration")]
        handoff_ack_timeout: Duration = seconds(5),
        /// How often an offer is repeated without an acknowledgement.
        handoff_max_retries: u32 = 3,
        /// How long a node that drains waits for late acknowledgements if only orphans are left.
        #[serde(with = "duration")]
        handoff_orphan_wait: Duration = seconds(30),
        /// How long a node drains at most. It then exits, even if runs are left.
        #[serde(with = "duration")]
        handoff_hard_timeout: Duration = seconds(60),
        /// The interval at which the leader offers orphans.
        #[serde(with = "duration")]
        orphan_check_interval: Duration = seconds(30),
        /// Whether a node with far more runs than another offers some of them.
        rebalance: bool = true,
        /// The ratio to the load of the idlest node from which on a node offers runs.
        rebalance_ratio: f64 = 2.0,
    }
}

impl ClusterSettings {
    /// Rejects values that cannot work, by the name of the key.
    pub fn check(&self) -> Result<(), Invalid> {
        duration::check_positive([
            ("cluster.heartbeat_interval", self.heartbeat_interval),
            ("cluster.renew_interval", self.renew_interval),
            ("cluster.orphan_check_interval", self.orphan_check_interval),
            ("cluster.handoff_ack_timeout", self.handoff_ack_timeout),
            ("cluster.handoff_orphan_wait", self.handoff_orphan_wait),
            ("cluster.handoff_hard_timeout", self.handoff_hard_timeout),
        ])?;
        // The leader trusts its lease for this long.
        if certain_for(self.lease_duration, self.lease_duration) <= self.renew_interval {
            let message = "expected nine tenths of it to be more than cluster.renew_interval";
            return Err(Invalid::unprocessable("cluster.lease_duration", message));
        }
        if self.dead_node_timeout <= self.heartbeat_interval {
            let message = "expected more than cluster.heartbeat_interval";
            return Err(Invalid::unprocessable("cluster.dead_node_timeout", message));
        }
        let ratio = self.rebalance_ratio;
        if !(ratio > 1.0 && ratio.is_finite()) {
            return Err(Invalid::new("cluster.rebalance_ratio", format!("expected a number above 1, got {ratio}")));
        }
        Ok(())
    }
}
