//! Messages between coordinators.
//!
//! Each is also accepted in the shape of Orchestrix, which has fewer fields. The missing ones are optional here, and
//! the receiver reads them from the store.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::heartbeat::unknown_time;
use super::{Dispatch, V1};
use crate::ids::{Epoch, ExecutionId, JobId, NodeId, QueueName};

/// `job.assigned`: runs that need an owner. An entry lists many runs, or has the fields of one run itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "AssignedRead")]
pub struct Assigned {
    /// The version of the message.
    pub v: V1,
    /// The term in which the runs were dispatched.
    pub epoch: Epoch,
    /// The runs.
    pub jobs: Vec<RunRef>,
}

/// A run and its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRef {
    /// The job.
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The run.
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

/// `job.handoff`: a run that is offered to a new owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handoff {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The job of the run that is offered.
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The run that is offered. None: the job's present run.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: Option<ExecutionId>,
    /// The former owner. None: the run's present owner.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "FromNode")]
    pub from_node: Option<NodeId>,
    /// Why the run is offered.
    #[serde(alias = "Reason")]
    pub reason: HandoffReason,
    /// How often the run has been offered, this offer included; 0 if the sender does not count.
    #[serde(default, alias = "Tries")]
    pub tries: u32,
}

/// Why a run is offered. `shutdown`: its owner stops. `nodeCrash`: its owner is dead. `rebalance`: its owner has far more
/// runs than another node. `orphan`: it has no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum HandoffReason {
    /// The owner shuts down.
    #[serde(alias = "Shutdown")]
    Shutdown,
    /// The owner is dead.
    #[serde(alias = "NodeCrash")]
    NodeCrash,
    /// The owner has far more runs than another node.
    #[serde(alias = "Rebalance")]
    Rebalance,
    /// The run has no owner.
    #[serde(alias = "Orphan")]
    Orphan,
}

impl HandoffReason {
    /// Returns the name of the reason, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            HandoffReason::Shutdown => "shutdown",
            HandoffReason::NodeCrash => "nodeCrash",
            HandoffReason::Rebalance => "rebalance",
            HandoffReason::Orphan => "orphan",
        }
    }
}

/// `job.handoff.ack.{nodeId}`: the acknowledgement of an offer, to the node that made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoffAck {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The job of the run.
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The node that owns the run now.
    #[serde(alias = "NewOwner")]
    pub new_owner: NodeId,
}

/// `job.inbox.{nodeId}`: runs for the workers of a node's gateway, which the node owns from their dispatch on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inbox {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The term in which the message was sent.
    #[serde(default)]
    pub epoch: Epoch,
    /// The number of the message among those to this node in the term, from 1.
    #[serde(default)]
    pub seq: u64,
    /// The runs, in the order of dispatch.
    #[serde(default)]
    pub runs: Vec<Dispatch>,
    /// Queues whose waiting runs the node must release: they are paused, or another node has a worker for them.
    #[serde(default)]
    pub recalled: Vec<QueueName>,
}

/// `coordinator.heartbeat`: a heartbeat of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorHeartbeat {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The node that sends the heartbeat.
    #[serde(alias = "NodeId")]
    pub node_id: NodeId,
    /// The number of runs that the node owns.
    #[serde(alias = "JobCount")]
    pub job_count: u64,
    /// The state of the node.
    #[serde(default = "active", alias = "State")]
    pub state: NodeState,
    /// Whether the node leads. None: the sender does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Role")]
    pub role: Option<NodeRole>,
    /// The term that the node knows of; 0 if it does not state one.
    #[serde(default, alias = "Epoch")]
    pub epoch: Epoch,
    /// The node that leads in that term, as the sender knows it. None: it knows of no leader, or does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Leader")]
    pub leader: Option<NodeId>,
    /// When the sender last read or renewed the lease, by its clock.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "LeaseReadAt")]
    pub lease_read_at: Option<Timestamp>,
    /// The time of sending, by the node's clock.
    #[serde(default = "unknown_time", alias = "At", alias = "Timestamp")]
    pub at: Timestamp,
    /// The interval of heartbeats of workers. Bus workers follow the leader's value.
    #[serde(
        with = "crate::duration::option",
        default,
        skip_serializing_if = "Option::is_none",
        alias = "WorkerHeartbeatInterval"
    )]
    pub worker_heartbeat_interval: Option<Duration>,
    /// How long a worker may be silent before it is declared dead.
    #[serde(
        with = "crate::duration::option",
        default,
        skip_serializing_if = "Option::is_none",
        alias = "WorkerStaleAfter"
    )]
    pub worker_stale_after: Option<Duration>,
}

/// `coordinator.drain`: a request to a node to hand its runs over and exit, as on SIGTERM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRequest {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The node to drain.
    pub node_id: NodeId,
}

/// The state of a node. `suspect`: silent for more than one and a half heartbeats; `dead`: silent for too long, its
/// runs went to other nodes; `left`: it handed its runs over and stopped. A node that is `dead` or `left` is listed for
/// an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// It owns runs and accepts more.
    #[serde(alias = "Active")]
    Active,
    /// Silent for more than one and a half heartbeats, as observed by the node that lists it. Never stored, never sent.
    Suspect,
    /// It hands its runs over and will exit.
    #[serde(alias = "Draining")]
    Draining,
    /// Silent for too long: the leader has offered its runs to other nodes.
    Dead,
    /// It handed its runs over and stopped.
    Left,
}

impl NodeState {
    /// Returns whether the node is no longer part of the cluster.
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
    /// It holds the lease.
    #[serde(alias = "Leader")]
    Leader,
    /// It does not.
    #[serde(alias = "Follower")]
    Follower,
}
