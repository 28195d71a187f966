//! `worker.heartbeat`: the state of a worker. Only its id and its queues are required.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::V1;
use crate::ids::{Epoch, ExecutionId, NodeId, QueueName, WorkerId};
use crate::jobs::readers::READER_SLOTS;

/// `worker.heartbeat`: sent at an interval, and at once when free slots change, for the leader's dispatch window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "HeartbeatRead")]
pub struct WorkerHeartbeat {
    /// The version of the message.
    pub v: V1,
    /// The id of the worker.
    pub worker_id: WorkerId,
    /// The queues that the worker receives runs of.
    pub queues: Vec<QueueName>,
    /// The number of runs that it has.
    pub running: u32,
    /// The number of runs that it can take now.
    pub free: u32,
    /// Whether it receives runs.
    pub state: WorkerState,
    /// The time of sending, by the worker's clock; the Unix epoch if it is absent.
    pub at: Timestamp,
    /// A name for people to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many runs it executes at once. None: `running` and `free` together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The node whose gateway serves the worker and sends this heartbeat. None: a bus worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<NodeId>,
    /// All runs of the worker. A run that is missing from two lists is lost. A heartbeat that only reports slots may
    /// leave the list out; if `running` is 0, the list is decoded as empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<Vec<ExecutionId>>,
    /// The inbox of the node in `via`. None: a bus worker, or a node that has no inbox and reads the dispatch queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxReport>,
}

/// The state of a node's inbox: the runs that the leader sent to the node and that no worker has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxReport {
    /// The term of the last message that the inbox received; 0 if it received none.
    #[serde(default)]
    pub epoch: Epoch,
    /// The number of that message in its term.
    #[serde(default)]
    pub seq: u64,
    /// How many runs of each queue wait in the inbox. Queues without any are left out.
    #[serde(default)]
    pub waiting: BTreeMap<QueueName, u64>,
    /// How many runs the heartbeat's worker wants to have beside those that it executes.
    #[serde(default)]
    pub prefetch: u32,
}

impl WorkerHeartbeat {
    /// Returns how many runs the worker executes at once.
    pub fn slots(&self) -> u32 {
        self.concurrency.unwrap_or_else(|| self.running.saturating_add(self.free))
    }
}

/// A heartbeat as it is received.
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
    #[serde(alias = "Inbox")]
    inbox: Option<InboxReport>,
}

impl From<HeartbeatRead> for WorkerHeartbeat {
    fn from(read: HeartbeatRead) -> Self {
        let HeartbeatRead { v, worker_id, queues, running, free, state, at, .. } = read;
        let HeartbeatRead { name, concurrency, via, executions, inbox, .. } = read;
        let listed = executions.as_ref().map(|runs| u32::try_from(runs.len()).unwrap_or(u32::MAX));
        // `running` 0 implies an empty list. A heartbeat without `running` and without a list does not report runs.
        let executions = executions.or_else(|| (running == Some(0)).then(Vec::new));
        let running = running.or(listed).unwrap_or(0);
        let free = free.unwrap_or_else(|| concurrency.unwrap_or(READER_SLOTS).saturating_sub(running));
        WorkerHeartbeat { v, worker_id, queues, running, free, state, at, name, concurrency, via, executions, inbox }
    }
}

/// Returns the time of a message that states none. Such messages are ordered by their arrival.
pub const fn unknown_time() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

/// Whether a worker receives runs: `draining` finishes those that it has, `gone` left or was declared dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum WorkerState {
    /// It receives runs.
    #[serde(alias = "Active")]
    Active,
    /// It finishes the runs that it has and receives no more.
    #[serde(alias = "Draining")]
    Draining,
    /// Left, or declared dead: its slots are gone.
    #[serde(alias = "Gone")]
    Gone,
}

const fn active() -> WorkerState {
    WorkerState::Active
}
