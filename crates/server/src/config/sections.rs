//! The sections of the configuration: every key with its default, and why it exists where its name does not say it.

use std::time::Duration;

use convoke_core::jobs::Jitter;
use convoke_core::jobs::schedule::{Missed, Overlap};
use convoke_core::shards::Strategy;
use convoke_core::{Invalid, duration, limits, sections};
use serde::{Deserialize, Serialize};

use convoke_http::{AccessOptions, Role};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

sections! {
    Node {
        /// Absent: the host's name and something random.
        id: Option<String> = None,
    }
    Http {
        /// `host:port`; port 0 takes a free one.
        bind: String = "127.0.0.1:3000".into(),
        /// `health,metrics`: these are open to all without a token, and a `PORT` or `HOST` listens on all addresses.
        public: String = String::new(),
        /// Names that a server without tokens accepts in `Host`, beside addresses and `localhost`.
        hosts: Vec<String> = Vec::new(),
        /// Listen beyond loopback without tokens.
        insecure: bool = false,
        tokens: Vec<Token> = Vec::new(),
    }
    Store {
        url: String = "sqlite:convoke.db".into(),
    }
    Bus {
        url: String = "memory:".into(),
        /// Before every channel's name.
        prefix: String = "convoke".into(),
        /// Nodes write messages to each other as Orchestrix does.
        seed_format: bool = false,
    }
    Leases {
        /// Absent: the store's, or the bus's where the store is memory.
        url: Option<String> = None,
    }
    Cluster {
        #[serde(with = "duration")]
        heartbeat_interval: Duration = seconds(10),
        #[serde(with = "duration")]
        dead_node_timeout: Duration = seconds(30),
        #[serde(with = "duration")]
        lease_duration: Duration = seconds(30),
        #[serde(with = "duration")]
        renew_interval: Duration = seconds(10),
        #[serde(with = "duration")]
        handoff_ack_timeout: Duration = seconds(5),
        handoff_max_retries: u32 = 3,
        #[serde(with = "duration")]
        handoff_orphan_wait: Duration = seconds(30),
        #[serde(with = "duration")]
        handoff_hard_timeout: Duration = seconds(60),
        #[serde(with = "duration")]
        orphan_check_interval: Duration = seconds(30),
        rebalance: bool = true,
        rebalance_ratio: f64 = 2.0,
    }
    Channels {
        /// How long a finished job's channels stay open.
        #[serde(with = "duration")]
        cleanup_delay: Duration = seconds(30),
        #[serde(with = "duration")]
        scan_interval: Duration = seconds(10),
        batch_size: usize = 100,
    }
    /// How long what is shown may be kept; `0s` switches it off.
    Cache {
        /// `memory:`: each node keeps its own. `redis://…`: nodes share it.
        url: String = "memory:".into(),
        /// Of finished jobs.
        #[serde(with = "duration")]
        job_ttl: Duration = seconds(300),
        #[serde(with = "duration")]
        worker_ttl: Duration = seconds(30),
        #[serde(with = "duration")]
        node_ttl: Duration = seconds(30),
    }
    Retry {
        max_retries: u32 = 3,
        #[serde(with = "duration")]
        initial_delay: Duration = seconds(10),
        multiplier: f64 = 2.0,
        #[serde(with = "duration")]
        max_delay: Duration = seconds(600),
        jitter: Jitter = Jitter::Full,
    }
    /// As `100/1s`, or `none`.
    RateLimit {
        /// Of all queues together.
        global: String = "none".into(),
        /// Of each queue that sets none.
        default: String = "none".into(),
    }
    Shards {
        /// `tcp://host:port`, or `off`.
        bind: String = "tcp://127.0.0.1:5555".into(),
        #[serde(with = "duration")]
        heartbeat_timeout: Duration = seconds(15),
        #[serde(with = "duration")]
        check_interval: Duration = seconds(5),
        /// `contiguous`, `sticky` or `rendezvous`.
        strategy: Strategy = Strategy::default(),
        /// Who may connect, as `user:password,user:password`, or `off`.
        plain: String = "off".into(),
        /// The coordinator's secret CURVE key, 40 characters of Z85, or `off`.
        curve: String = "off".into(),
        /// The public keys of the workers that may connect, with commas between, or `any`.
        curve_clients: String = "any".into(),
    }
    Worker {
        #[serde(with = "duration")]
        heartbeat_interval: Duration = seconds(10),
        /// A worker that was silent for so long is dead, and its runs are lost.
        #[serde(with = "duration")]
        stale_after: Duration = seconds(30),
        /// How long a worker that is told to stop lets its runs finish.
        #[serde(with = "duration")]
        shutdown_grace: Duration = seconds(25),
    }
    Retention {
        #[serde(with = "duration")]
        completed: Duration = seconds(24 * 3600),
        #[serde(with = "duration")]
        cancelled: Duration = seconds(24 * 3600),
        #[serde(with = "duration")]
        dead: Duration = seconds(30 * 24 * 3600),
    }
    /// What a schedule gets where its request is silent.
    Schedules {
        missed: Missed = Missed::Latest,
        overlap: Overlap = Overlap::Skip,
        #[serde(with = "duration")]
        every_min: Duration = Duration::from_millis(100),
    }
    /// Built in: they can be named, so that a file documents them, but not moved.
    Limits {
        args_bytes_max: usize = limits::ARGS_BYTES_MAX,
        result_bytes_max: usize = limits::RESULT_BYTES_MAX,
        log_line_bytes_max: usize = limits::LOG_LINE_BYTES_MAX,
        batch_jobs_max: usize = limits::BATCH_JOBS_MAX,
        batch_bytes_max: usize = limits::BATCH_BYTES_MAX,
        name_bytes_max: usize = limits::NAME_BYTES_MAX,
        queues_max: usize = limits::QUEUES_MAX,
    }
}

/// Who may do what. In the environment: `role:token,role:token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    pub token: String,
    pub role: Role,
}

impl Http {
    /// The rules of access to the HTTP API.
    pub fn access(&self) -> Result<AccessOptions, Invalid> {
        let public = self.public.parse().map_err(|message| Invalid::new("http.public", message))?;
        let tokens = self.tokens.iter().map(|entry| (entry.token.clone(), entry.role)).collect();
        Ok(AccessOptions { tokens, public, hosts: self.hosts.clone(), insecure: self.insecure })
    }
}
