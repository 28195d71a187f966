//! The settings of a coordinator: the sections of the configuration that it reads, each with its checks.
//!
//! Every duration can be made small, so that a test of failover takes a second. The runtime receives open ports; the
//! URLs are for the caller that opens them.

mod rate_limit;

use std::time::Duration;

use convoke_core::jobs::ClusterSettings;
use convoke_core::jobs::wire::seed::Format;
use convoke_core::{Invalid, Secret, duration, election, sections};
use serde::{Deserialize, Serialize};

pub use convoke_core::jobs::RetrySettings;
pub use rate_limit::RateLimitSettings;

/// The namespace whose leader dispatches.
pub const NAMESPACE: &str = "coordinator";
/// The prefix of channels if none is set.
pub const BUS_PREFIX: &str = "convoke";

/// Everything that a coordinator of jobs reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Where jobs are kept.
    pub store: StoreSettings,
    /// How nodes and workers exchange messages.
    pub bus: BusSettings,
    /// Where the leader is elected.
    pub leases: LeaseSettings,
    /// The times of heartbeats, leases and handoffs.
    pub cluster: ClusterSettings,
    /// When the channels of finished jobs are closed.
    pub channels: ChannelSettings,
    /// How long views are cached.
    pub cache: CacheSettings,
    /// The retry policy of jobs that bring none.
    pub retry: RetrySettings,
    /// The limits beside those of queues.
    pub rate_limit: RateLimitSettings,
    /// Of the election among nodes: the breaker, the detection of contention and the size of the window. Its times are
    /// the cluster's.
    pub election: election::Settings,
    /// The times that workers are held to.
    pub worker: WorkerSettings,
    /// How long ended jobs are kept.
    pub retention: RetentionSettings,
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

sections! {
    /// The section `store`.
    StoreSettings {
        /// `sqlite:FILE`, `postgres://…` or `memory:`.
        url: Secret = "sqlite:convoke.db".into(),
    }
    /// The section `bus`.
    BusSettings {
        /// `postgres:` (the database of the store), `postgres://…`, `redis://…` or `memory:`. If absent: `postgres:` if
        /// the store is in PostgreSQL, else `memory:`.
        url: Option<Secret> = None,
        /// The prefix of every channel's name.
        prefix: String = BUS_PREFIX.into(),
        /// Whether messages between coordinators are written in the format of Orchestrix. Both formats are read.
        seed_format: bool = false,
    }
    /// The section `leases`.
    LeaseSettings {
        /// If absent: the store's, or the bus's if the store is memory.
        url: Option<Secret> = None,
    }
    /// The section `channels`.
    ChannelSettings {
        /// How long a finished job's channels stay open.
        #[serde(with = "duration")]
        cleanup_delay: Duration = seconds(30),
/// How often finished jobs are searched.
        #[serde(with = "duration")]
        scan_interval: Duration = seconds(10),
        /// How many jobs' channels are closed at once.
        batch_size: usize = 100,
    }
    /// The section `cache`: how long views may be kept; zero disables it.
    CacheSettings {
        /// `memory:`: each node keeps its own cache. `redis://…`: nodes share it.
        url: Secret = "memory:".into(),
        /// Of finished jobs.
        #[serde(with = "duration")]
        job_ttl: Duration = seconds(300),
        /// Of the list of workers.
        #[serde(with = "duration")]
        worker_ttl: Duration = seconds(30),
        /// Of the list of nodes.
        #[serde(with = "duration")]
        node_ttl: Duration = seconds(30),
    }
    /// The section `worker`.
    WorkerSettings {
        /// How often a worker is expected to send a heartbeat.
        #[serde(with = "duration")]
        heartbeat_interval: Duration = seconds(10),
        /// A worker that was silent for this long is declared dead, and its runs are lost.
        #[serde(with = "duration")]
        stale_after: Duration = seconds(30),
        /// How long a worker that is asked to stop lets its runs finish.
        #[serde(with = "duration")]
        shutdown_grace: Duration = seconds(25),
    }
    /// The section `retention`.
    RetentionSettings {
        /// Of completed jobs.
        #[serde(with = "duration")]
        completed: Duration = seconds(24 * 3600),
        /// Of cancelled jobs.
        #[serde(with = "duration")]
        cancelled: Duration = seconds(24 * 3600),
        /// Of dead letters.
        #[serde(with = "duration")]
        dead: Duration = seconds(30 * 24 * 3600),
        /// Of the record of operators' acts.
        #[serde(with = "duration")]
        audit: Duration = seconds(90 * 24 * 3600),
    }
}

impl Settings {
    /// Rejects values that cannot work, by the name of the key.
    pub fn check(&self) -> Result<(), Invalid> {
        self.election.check().map_err(|invalid| invalid.within("election"))?;
        self.bus.check()?;
        self.cluster.check()?;
        self.channels.check()?;
        self.worker.check()?;
        self.rate_limit.check()?;
        self.retry.check()
    }
}

impl BusSettings {
    /// Returns how messages between coordinators are written.
    pub fn format(&self) -> Format {
        if self.seed_format { Format::Orchestrix } else { Format::Convoke }
    }

    fn check(&self) -> Result<(), Invalid> {
        let prefix = &self.prefix;
        if prefix.is_empty() || prefix.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(Invalid::new("bus.prefix", format!("expected a word without spaces, got {prefix:?}")));
        }
        Ok(())
    }
}

impl ChannelSettings {
    fn check(&self) -> Result<(), Invalid> {
        duration::check_positive([("channels.scan_interval", self.scan_interval)])?;
        if self.batch_size == 0 {
            return Err(Invalid::new("channels.batch_size", "expected at least 1"));
        }
        Ok(())
    }
}

impl WorkerSettings {
    fn check(&self) -> Result<(), Invalid> {
        duration::check_positive([("worker.heartbeat_interval", self.heartbeat_interval)])?;
        if self.stale_after <= self.heartbeat_interval {
            return Err(Invalid::unprocessable("worker.stale_after", "expected more than worker.heartbeat_interval"));
        }
        Ok(())
    }
}
