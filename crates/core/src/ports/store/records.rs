//! The records of workers and nodes, in the registry and on display.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, QueueName, WorkerId};
use crate::jobs::wire::{NodeRole, NodeState, WorkerState};

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Worker))]
#[serde(rename_all = "camelCase")]
pub struct WorkerRecord {
    /// The worker's id.
    pub worker_id: WorkerId,
    /// The name for display.
    pub name: String,
    /// The queues that it receives runs of.
    pub queues: Vec<QueueName>,
    /// How many runs it executes at once at most.
    pub concurrency: u32,
    /// How many runs it executes.
    pub running: u32,
    /// Whether it accepts runs, drains or is gone.
    pub state: WorkerState,
    /// When it first registered.
    pub registered_at: Timestamp,
    /// When its last heartbeat was recorded.
    pub last_heartbeat_at: Timestamp,
    /// The node whose gateway it is connected to; null if it is connected to the bus.
    pub via: Option<NodeId>,
}

/// A coordinator node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Node))]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The node's id.
    pub node_id: NodeId,
    /// `leader` if it holds the lease as far as the responding node knows, otherwise `follower`.
    pub role: NodeRole,
    /// Whether it is alive, draining or gone.
    pub state: NodeState,
    /// When it entered that state.
    pub since: Timestamp,
    /// How many runs it records the events of.
    pub job_count: u64,
    /// When its process started.
    pub started_at: Timestamp,
    /// When its last heartbeat was recorded.
    pub last_heartbeat_at: Timestamp,
    /// The version of its binary.
    pub version: String,
}
