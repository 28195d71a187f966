//! Shapes of the fleet: nodes, workers, and what workers say.

#![allow(dead_code, reason = "described, never made")]

use jiff::Timestamp;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::schemas::LogLevel;

#[derive(ToSchema)]
pub struct Workers {
    pub workers: Vec<Worker>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Worker {
    pub worker_id: String,
    pub name: String,
    pub queues: Vec<String>,
    pub concurrency: u32,
    pub running: u32,
    #[schema(example = "active")]
    pub state: String,
    pub registered_at: Timestamp,
    pub last_heartbeat_at: Timestamp,
    /// The node whose gateway it speaks to
    pub via: Option<String>,
}

#[derive(ToSchema)]
pub struct Nodes {
    pub nodes: Vec<Node>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Node {
    pub node_id: String,
    /// `leader` by the lease as the answering node knows it, else `follower`
    #[schema(example = "leader")]
    pub role: String,
    /// `active`, `suspect`, `draining`, `dead` or `left`; a node that is gone is listed for an hour
    #[schema(example = "active")]
    pub state: String,
    /// Since when it is in that state
    pub since: Timestamp,
    pub job_count: u64,
    pub started_at: Timestamp,
    pub last_heartbeat_at: Timestamp,
    pub version: String,
}

/// A backend as the answering node reaches it
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Backend {
    /// `Store` or `Bus`
    #[schema(example = "Store")]
    pub component: String,
    pub is_reachable: bool,
    /// Since when that is so
    pub since: Timestamp,
    /// The last error of one that is away
    pub detail: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Cluster {
    /// The holder of the lease, as the answering node knows it; none once the lease has run out
    pub leader: Option<String>,
    pub epoch: u64,
    pub answered_by: String,
    /// When the answering node read or renewed the lease last
    pub as_of: Option<Timestamp>,
    pub backends: Vec<Backend>,
    pub nodes: Vec<ClusterNode>,
    /// When the nodes were read: earlier than now while the store is away
    pub nodes_as_of: Timestamp,
    /// The first 100 runs on their way from one node to another
    pub handoffs: Vec<Handoff>,
    /// How many there are, counted up to 10,000; none while the store is away
    pub handoffs_total: Option<u64>,
    pub rate_limits: RateLimits,
    /// How the election among the nodes goes, as this one sees it
    pub election: Option<Election>,
}

/// Rate limits of the configuration of the answering node
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RateLimits {
    /// Of all queues together
    pub global: Option<super::RateLimit>,
    /// Of each queue that sets none
    pub default: Option<super::RateLimit>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Election {
    #[schema(example = "coordinator")]
    pub namespace: String,
    pub is_leader: bool,
    pub metrics: ElectionMetrics,
    pub breaker: Breaker,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ElectionMetrics {
    /// Requests to the leases that were answered
    pub heartbeat_count: u64,
    pub election_count: u64,
    pub election_duration_ms: u64,
    pub leader_changes: u64,
    pub worker_registrations: u64,
    /// Nodes that are no longer there, whether they were silent for too long or left
    pub worker_timeouts: u64,
    pub start_time: Timestamp,
    pub last_heartbeat_time: Option<Timestamp>,
    pub heartbeat_failures: u64,
    pub heartbeats_skipped: u64,
    pub heartbeat_latency_ms: Percentiles,
    pub epochs_refused: u64,
}

#[derive(ToSchema)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    /// Of how many heartbeats
    pub samples: u64,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Breaker {
    /// `closed`, `open` or `half-open`
    #[schema(example = "closed")]
    pub state: String,
    pub failure_count: u32,
    pub failure_threshold: u32,
    #[schema(example = "30s")]
    pub reset_timeout: String,
    #[schema(example = 30_000)]
    pub reset_timeout_ms: u64,
    /// How often it opened
    pub trips: u64,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ClusterNode {
    pub node_id: String,
    /// `leader` by the lease as the answering node knows it, else `follower`
    #[schema(example = "leader")]
    pub role: String,
    /// `active`, `suspect`, `draining`, `dead` or `left`; a node that is gone is listed for an hour
    #[schema(example = "active")]
    pub state: String,
    /// Since when it is in that state
    pub since: Timestamp,
    pub job_count: u64,
    pub started_at: Timestamp,
    pub last_heartbeat_at: Timestamp,
    pub version: String,
    /// The term that it spoke of last, where it was heard
    pub epoch: Option<u64>,
    /// For how long the answering node has heard nothing of it
    #[schema(example = "2s500ms")]
    pub heartbeat_age: String,
    pub draining: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Handoff {
    pub job_id: Uuid,
    pub execution_id: Uuid,
    pub r#type: String,
    pub queue: String,
    /// Who gives it away
    pub from_node: Option<String>,
    /// `handingOff` while it is offered, `orphanPending` where nobody took it
    #[schema(example = "handingOff")]
    pub ownership: String,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct OwnedRuns {
    pub node_id: String,
    pub jobs: Vec<OwnedRun>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct OwnedRun {
    pub job_id: Uuid,
    pub execution_id: Uuid,
    pub r#type: String,
    pub queue: String,
    #[schema(example = "running")]
    pub status: String,
    pub attempt: u32,
    pub worker_id: Option<String>,
    #[schema(example = "owned")]
    pub ownership: String,
    pub dispatched_at: Timestamp,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Register {
    /// Made by the server where absent
    pub worker_id: Option<String>,
    pub name: Option<String>,
    #[schema(min_items = 1)]
    pub queues: Vec<String>,
    #[schema(minimum = 1, example = 10)]
    pub concurrency: u32,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Registered {
    pub worker_id: String,
    #[schema(example = "10s")]
    pub heartbeat_interval: String,
    #[schema(example = "30s")]
    pub stale_after: String,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Poll {
    pub worker_id: String,
    #[schema(minimum = 1, maximum = 10000, example = 10)]
    pub max: u32,
    /// `20s` where absent, at most `5m`
    #[schema(example = "20s")]
    pub wait: Option<String>,
}

#[derive(ToSchema)]
pub struct Polled {
    pub jobs: Vec<Assignment>,
    /// Runs of this worker to stop
    pub cancel: Vec<Uuid>,
    /// Finish what you have and take no more
    pub drain: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Assignment {
    pub job_id: Uuid,
    pub execution_id: Uuid,
    pub r#type: String,
    pub queue: String,
    pub args: Value,
    pub attempt: u32,
    pub max_retries: u32,
    pub timeout: Option<String>,
    pub correlation_id: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Report {
    pub worker_id: String,
    #[schema(max_items = 20000)]
    pub events: Vec<RunEvent>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RunEvent {
    pub execution_id: Uuid,
    pub job_id: Uuid,
    pub kind: RunEventKind,
    pub at: Option<Timestamp>,
    /// `progress`
    #[schema(maximum = 100)]
    pub percent: Option<u8>,
    /// `log`, `progress`; of `cancelled`, the reason
    pub message: Option<String>,
    /// `log`
    pub level: Option<LogLevel>,
    /// `log`: the line's number within its run, rising. A line that is sent again under its number is recorded once
    pub seq: Option<u64>,
    /// `completed`: any JSON of at most 1 MiB
    pub result: Option<Value>,
    /// `failed`, `timedOut`
    pub error: Option<String>,
    /// `failed`: false where another attempt would be in vain
    pub retry: Option<bool>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum RunEventKind {
    Started,
    Progress,
    Log,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
    /// Given back unfinished by a worker that drains
    Released,
}

#[derive(ToSchema)]
pub struct Reported {
    /// How many events are durable, those repeated included
    pub accepted: u64,
    pub rejected: Vec<Rejected>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Rejected {
    pub execution_id: Uuid,
    #[schema(example = "stale_execution")]
    pub code: String,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Heartbeat {
    pub worker_id: String,
    pub running: Vec<Uuid>,
    /// It takes no more: its free slots are none.
    #[schema(required = false)]
    draining: bool,
}

#[derive(ToSchema)]
pub struct Beaten {
    pub cancel: Vec<Uuid>,
    pub drain: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Leave {
    pub worker_id: String,
}

#[derive(ToSchema)]
pub struct ShardServices {
    /// The node that coordinates shards: the leader
    pub coordinator: Option<String>,
    /// Where this node listens for workers; none if another node does
    #[schema(example = "tcp://127.0.0.1:5555")]
    pub listening: Option<String>,
    pub services: Vec<ShardService>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ShardService {
    pub service: String,
    pub max_shard_count: u32,
    /// Rises with every change of who has what
    pub version: u64,
    #[schema(example = "contiguous")]
    pub strategy: String,
    pub workers: Vec<ShardWorker>,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ShardWorker {
    pub worker_id: String,
    pub shards: Vec<u32>,
    /// What it was asked to let go of and has not yet
    pub revoking: Option<Vec<u32>>,
    /// Whether it beats
    pub active: bool,
    /// Whether it is asked to let go of a shard before another gets it
    pub handoff: bool,
    pub last_heartbeat_at: Timestamp,
}
