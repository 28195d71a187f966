//! What can be set of a coordinator. Every duration can be made small, so that a test of failover takes a second.

use std::time::Duration;

use convoke_core::Invalid;
use convoke_core::election::{self, certain_for};
use convoke_core::jobs::handoff::HandoffSettings;
use convoke_core::jobs::wire::seed::Format;
use convoke_core::jobs::{JobDefaults, Queue, RateLimit};
use convoke_core::limits::RETRIES_MAX;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Before every channel's name.
    pub bus_prefix: String,
    /// How messages between coordinators are written. Both formats are read.
    pub bus_format: Format,
    pub cluster: ClusterSettings,
    pub channels: ChannelSettings,
    pub cache: CacheSettings,
    pub retry: JobDefaults,
    pub rate_limit: RateLimitSettings,
    pub worker: WorkerSettings,
    pub retention: RetentionSettings,
    /// Of the election among nodes the breaker, the detection of contention and the size of the window. Its times are the
    /// cluster's.
    pub election: election::Settings,
}

#[derive(Debug, Clone)]
pub struct ClusterSettings {
    pub heartbeat_interval: Duration,
    pub dead_node_timeout: Duration,
    pub lease_duration: Duration,
    pub renew_interval: Duration,
    pub handoff: HandoffSettings,
    pub orphan_check_interval: Duration,
    /// Whether a node with far more than its share gives some away.
    pub rebalance: bool,
    /// From how many times the load of the idlest on.
    pub rebalance_ratio: f64,
}

#[derive(Debug, Clone)]
pub struct ChannelSettings {
    /// How long a finished job's channels stay open.
    pub cleanup_delay: Duration,
    pub scan_interval: Duration,
    pub batch_size: usize,
}

/// How long what is shown may be kept; zero switches it off.
#[derive(Debug, Clone)]
pub struct CacheSettings {
    /// Of finished jobs.
    pub job_ttl: Duration,
    pub worker_ttl: Duration,
    pub node_ttl: Duration,
}

/// Rate limits beside those that queues set for themselves.
#[derive(Debug, Clone, Default)]
pub struct RateLimitSettings {
    /// Of all queues together.
    pub global: Option<RateLimit>,
    /// Of each queue that sets none.
    pub default: Option<RateLimit>,
}

impl RateLimitSettings {
    /// Returns the limit that a queue has: its own, else the default.
    pub fn of(&self, queue: &Queue) -> Option<RateLimit> {
        queue.rate_limit.or(self.default)
    }
}

#[derive(Debug, Clone)]
pub struct WorkerSettings {
    pub heartbeat_interval: Duration,
    /// A worker that was silent for so long is dead, and its runs are lost.
    pub stale_after: Duration,
}

#[derive(Debug, Clone)]
pub struct RetentionSettings {
    pub completed: Duration,
    pub cancelled: Duration,
    pub dead: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Settings {
            bus_prefix: "convoke".into(),
            bus_format: Format::default(),
            cluster: ClusterSettings {
                heartbeat_interval: seconds(10),
                dead_node_timeout: seconds(30),
                lease_duration: seconds(30),
                renew_interval: seconds(10),
                handoff: HandoffSettings::default(),
                orphan_check_interval: seconds(30),
                rebalance: true,
                rebalance_ratio: 2.0,
            },
            channels: ChannelSettings { cleanup_delay: seconds(30), scan_interval: seconds(10), batch_size: 100 },
            cache: CacheSettings { job_ttl: seconds(300), worker_ttl: seconds(30), node_ttl: seconds(30) },
            retry: JobDefaults::default(),
            rate_limit: RateLimitSettings::default(),
            worker: WorkerSettings { heartbeat_interval: seconds(10), stale_after: seconds(30) },
            retention: RetentionSettings {
                completed: seconds(24 * 3600),
                cancelled: seconds(24 * 3600),
                dead: seconds(30 * 24 * 3600),
            },
            election: election::Settings::default(),
        }
    }
}

impl Settings {
    /// Refuses what cannot work, by the name of the key.
    pub fn check(&self) -> Result<(), Invalid> {
        let prefix = &self.bus_prefix;
        if prefix.is_empty() || prefix.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(Invalid::new("bus.prefix", format!("expected a word without spaces, got {prefix:?}")));
        }
        self.check_durations()?;
        if self.channels.batch_size == 0 {
            return Err(Invalid::new("channels.batch_size", "expected at least 1"));
        }
        let ratio = self.cluster.rebalance_ratio;
        if !(ratio > 1.0 && ratio.is_finite()) {
            return Err(Invalid::new("cluster.rebalance_ratio", format!("expected a number above 1, got {ratio}")));
        }
        if self.retry.max_retries > RETRIES_MAX {
            let message = format!("expected 0 to {RETRIES_MAX}, got {}", self.retry.max_retries);
            return Err(Invalid::new("retry.max_retries", message));
        }
        let rates = [("rate_limit.global", self.rate_limit.global), ("rate_limit.default", self.rate_limit.default)];
        for (key, rate) in rates {
            rate.map_or(Ok(()), |rate| rate.check()).map_err(|invalid| Invalid::new(key, invalid.message))?;
        }
        self.retry.retry_policy.check()
    }

    fn check_durations(&self) -> Result<(), Invalid> {
        let positive = [
            ("cluster.heartbeat_interval", self.cluster.heartbeat_interval),
            ("cluster.renew_interval", self.cluster.renew_interval),
            ("cluster.orphan_check_interval", self.cluster.orphan_check_interval),
            ("cluster.handoff_ack_timeout", self.cluster.handoff.ack_timeout),
            ("cluster.handoff_orphan_wait", self.cluster.handoff.orphan_wait),
            ("cluster.handoff_hard_timeout", self.cluster.handoff.hard_timeout),
            ("channels.scan_interval", self.channels.scan_interval),
            ("worker.heartbeat_interval", self.worker.heartbeat_interval),
        ];
        for (key, value) in positive {
            if value.is_zero() {
                return Err(Invalid::new(key, "expected a duration longer than zero, got \"0s\""));
            }
        }
        let lease = self.cluster.lease_duration;
        if certain_for(lease, lease) <= self.cluster.renew_interval {
            // Its holder trusts it for so long.
            let message = "expected nine tenths of it to be more than cluster.renew_interval";
            return Err(Invalid::senseless("cluster.lease_duration", message));
        }
        let longer = [
            (
                "cluster.dead_node_timeout",
                self.cluster.dead_node_timeout,
                "cluster.heartbeat_interval",
                self.cluster.heartbeat_interval,
            ),
            (
                "worker.stale_after",
                self.worker.stale_after,
                "worker.heartbeat_interval",
                self.worker.heartbeat_interval,
            ),
        ];
        for (key, value, than, floor) in longer {
            if value <= floor {
                return Err(Invalid::senseless(key, format!("expected more than {than}")));
            }
        }
        Ok(())
    }
}
