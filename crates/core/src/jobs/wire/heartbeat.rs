//! `worker.heartbeat`: what a worker says of itself. Only its id and its queues are needed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::V1;
use crate::ids::{ExecutionId, NodeId, QueueName, WorkerId};
use crate::jobs::readers::READER_SLOTS;

/// `worker.heartbeat`: also sent at once when a worker's free slots change, for the leader's dispatch window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "HeartbeatRead")]
pub struct WorkerHeartbeat {
    pub v: V1,
    pub worker_id: WorkerId,
    pub queues: Vec<QueueName>,
    pub running: u32,
    pub free: u32,
    pub state: WorkerState,
    /// By the worker's clock; the Unix epoch if it does not say.
    pub at: Timestamp,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many it runs at once; `running` and `free` together where it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The node whose gateway it speaks to, which sends this for it. A worker that speaks the bus has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<NodeId>,
    /// All that it has. A run that two of these do not name is lost. A heartbeat that only tells of slots may leave it out;
    /// one that was read with `running` 0 has an empty list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<Vec<ExecutionId>>,
}

impl WorkerHeartbeat {
    /// How many it runs at once.
    pub fn slots(&self) -> u32 {
        self.concurrency.unwrap_or_else(|| self.running.saturating_add(self.free))
    }
}

/// As it is received.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeartbeatRead {
    #[serde(default)]
    v: V1,
    #[serde(alias = "WorkerId")]
    worker_id: WorkerId,
    #[serde(alias = "Queues")]
    queues: Vec<QueueName>,
    #[serde(alias = "Running")]
    running: Option<u32>,
    #[serde(alias = "Free")]
    free: Option<u32>,
    #[serde(default = "active", alias = "State")]
    state: WorkerState,
    #[serde(default = "unknown_time", alias = "At", alias = "Timestamp")]
    at: Timestamp,
    #[serde(alias = "Name")]
    name: Option<String>,
    #[serde(alias = "Concurrency")]
    concurrency: Option<u32>,
    #[serde(alias = "Via")]
    via: Option<NodeId>,
    #[serde(alias = "Executions")]
    executions: Option<Vec<ExecutionId>>,
}

impl From<HeartbeatRead> for WorkerHeartbeat {
    fn from(read: HeartbeatRead) -> Self {
        let HeartbeatRead { v, worker_id, queues, running, free, state, at, name, concurrency, via, executions } = read;
        let listed = executions.as_ref().map(|runs| u32::try_from(runs.len()).unwrap_or(u32::MAX));
        // A worker that says that it runs nothing need not list it. One that does not say has said nothing of its runs.
        let executions = executions.or_else(|| (running == Some(0)).then(Vec::new));
        let running = running.or(listed).unwrap_or(0);
        let free = free.unwrap_or_else(|| concurrency.unwrap_or(READER_SLOTS).saturating_sub(running));
        WorkerHeartbeat { v, worker_id, queues, running, free, state, at, name, concurrency, via, executions }
    }
}

/// Stands for a time that a message does not state. Such messages count in the order in which they arrive.
pub const fn unknown_time() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

/// Whether a worker receives runs: `draining` finishes those that it has, `gone` left or was declared dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum WorkerState {
    #[serde(alias = "Active")]
    Active,
    #[serde(alias = "Draining")]
    Draining,
    /// Left, or declared dead: its slots are gone.
    #[serde(alias = "Gone")]
    Gone,
}

const fn active() -> WorkerState {
    WorkerState::Active
}
