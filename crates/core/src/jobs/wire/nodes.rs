//! Messages between coordinators.
//!
//! Each is also read in the shape of Orchestrix, which says less. What is missing there is optional here, and the reader finds
//! it in the store.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::V1;
use super::heartbeat::unknown_time;
use crate::ids::{Epoch, ExecutionId, JobId, NodeId};

/// `job.assigned`: runs whose events look for an owner. One entry carries many; one run may stand for itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "AssignedRead")]
pub struct Assigned {
    pub v: V1,
    pub epoch: Epoch,
    pub jobs: Vec<RunRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRef {
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AssignedRead {
    #[serde(default)]
    v: V1,
    #[serde(default, alias = "Epoch")]
    epoch: Epoch,
    #[serde(alias = "Jobs")]
    jobs: Option<Vec<RunRef>>,
    #[serde(alias = "JobId")]
    job_id: Option<JobId>,
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    execution_id: Option<ExecutionId>,
}

impl TryFrom<AssignedRead> for Assigned {
    type Error = &'static str;

    fn try_from(read: AssignedRead) -> Result<Self, Self::Error> {
        let AssignedRead { v, epoch, jobs, job_id, execution_id } = read;
        let jobs = match (jobs, job_id, execution_id) {
            (Some(jobs), None, None) => jobs,
            (None, Some(job_id), Some(execution_id)) => vec![RunRef { job_id, execution_id }],
            (None, None, None) => return Err("missing field `jobs`"),
            (None, Some(_), None) => return Err("missing field `executionId`"),
            (None, None, Some(_)) => return Err("missing field `jobId`"),
            (Some(_), ..) => return Err("expected either `jobs` or `jobId` and `executionId`, got both"),
        };
        Ok(Assigned { v, epoch, jobs })
    }
}

/// `job.handoff`: a job that looks for a new owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handoff {
    #[serde(default)]
    pub v: V1,
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The run that is offered; the job's present one if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: Option<ExecutionId>,
    /// The owner before; the run's present one if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "FromNode")]
    pub from_node: Option<NodeId>,
    #[serde(alias = "Reason")]
    pub reason: HandoffReason,
    #[serde(default, alias = "Tries")]
    pub tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HandoffReason {
    #[serde(alias = "Shutdown")]
    Shutdown,
    #[serde(alias = "NodeCrash")]
    NodeCrash,
    #[serde(alias = "Rebalance")]
    Rebalance,
    #[serde(alias = "Orphan")]
    Orphan,
}

impl HandoffReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            HandoffReason::Shutdown => "shutdown",
            HandoffReason::NodeCrash => "nodeCrash",
            HandoffReason::Rebalance => "rebalance",
            HandoffReason::Orphan => "orphan",
        }
    }
}

/// `job.handoff.ack.{nodeId}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffAck {
    #[serde(default)]
    pub v: V1,
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    #[serde(alias = "NewOwner")]
    pub new_owner: NodeId,
}

/// `job.taken`: runs that a node's gateway handed out, and so owns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    #[serde(default)]
    pub v: V1,
    pub node_id: NodeId,
    pub executions: Vec<ExecutionId>,
}

/// `coordinator.heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorHeartbeat {
    #[serde(default)]
    pub v: V1,
    #[serde(alias = "NodeId")]
    pub node_id: NodeId,
    #[serde(alias = "JobCount")]
    pub job_count: u64,
    #[serde(default = "active", alias = "State")]
    pub state: NodeState,
    /// Missing if its sender does not say who leads.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Role")]
    pub role: Option<NodeRole>,
    #[serde(default, alias = "Epoch")]
    pub epoch: Epoch,
    #[serde(default = "unknown_time", alias = "At", alias = "Timestamp")]
    pub at: Timestamp,
    /// How often workers are to beat. Workers on the bus follow what the leader says.
    #[serde(
        with = "crate::duration::option",
        default,
        skip_serializing_if = "Option::is_none",
        alias = "WorkerHeartbeatInterval"
    )]
    pub worker_heartbeat_interval: Option<Duration>,
    /// After how long a silent worker is dead.
    #[serde(
        with = "crate::duration::option",
        default,
        skip_serializing_if = "Option::is_none",
        alias = "WorkerStaleAfter"
    )]
    pub worker_stale_after: Option<Duration>,
}

/// `coordinator.drain`: the node is to hand its runs over and exit, as on SIGTERM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRequest {
    #[serde(default)]
    pub v: V1,
    pub node_id: NodeId,
}

/// The state of a node. `suspect`: silent for more than one and a half heartbeats; `dead`: silent for too long, its runs
/// went to other nodes; `left`: it handed its runs over and stopped. A node that is `dead` or `left` is listed for an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    #[serde(alias = "Active")]
    Active,
    /// Silent for longer than a heartbeat may take, as the node that shows it has observed. Never stored, never sent.
    Suspect,
    #[serde(alias = "Draining")]
    Draining,
    /// Silent for too long: the leader has given its runs to others.
    Dead,
    /// It handed its runs over and went.
    Left,
}

impl NodeState {
    /// Whether the node is no longer part of the cluster.
    pub const fn is_gone(self) -> bool {
        matches!(self, NodeState::Dead | NodeState::Left)
    }
}

const fn active() -> NodeState {
    NodeState::Active
}

/// Whether a node holds the lease of leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum NodeRole {
    #[serde(alias = "Leader")]
    Leader,
    #[serde(alias = "Follower")]
    Follower,
}
