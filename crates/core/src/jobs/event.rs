//! What happened, as watchers are told: `/v1/events`, and whoever else listens.
//!
//! An event is a notice, not a record: it is sent after what it tells of was committed, may be lost with the process that
//! sent it, and nothing is decided from it. In JSON it is one flat object: `event` is its name, `at` its time, the rest
//! are the fields of its kind. An event says which node it comes from, since nodes tell each other's watchers; one that
//! came from another node is read back as what it was.

use std::num::NonZeroU32;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

mod read;

pub(crate) use read::those_known;

use super::lifecycle::Status;
use crate::election;
use crate::ids::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, ScheduleName, ServiceName, WorkerId};
use crate::shards::Version;

/// The names of all events, such as watchers may ask for.
pub const NAMES: [&str; 37] = [
    "leader:changed",
    "workers:updated",
    "contention:detected",
    "circuitBreaker:open",
    "circuitBreaker:halfOpen",
    "circuitBreaker:closed",
    "job:created",
    "job:pending",
    "job:scheduled",
    "job:dispatched",
    "job:running",
    "job:completed",
    "job:failed",
    "job:timedOut",
    "job:cancelled",
    "schedule:fired",
    "schedule:created",
    "schedule:updated",
    "schedule:paused",
    "schedule:resumed",
    "schedule:removed",
    "worker:joined",
    "worker:left",
    "worker:dead",
    "node:joined",
    "node:draining",
    "node:left",
    "node:dead",
    "handoff:started",
    "handoff:acked",
    "handoff:retried",
    "handoff:orphaned",
    "shards:rebalanced",
    "shards:joined",
    "shards:left",
    "shards:dead",
    "lagged",
];

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub at: Timestamp,
    /// Where it happened.
    pub node: Option<NodeId>,
    pub what: ClusterEvent,
}

/// The kinds of events, each with its own fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ClusterEvent {
    /// `leader:changed`
    LeaderChanged {
        namespace: String,
        previous_leader: Option<NodeId>,
        /// None while the place is vacant.
        new_leader: Option<NodeId>,
        epoch: Epoch,
    },
    /// `workers:updated`, `contention:detected`, `circuitBreaker:open` and so on: of the nodes' own election.
    Election {
        namespace: String,
        #[serde(flatten)]
        what: election::ElectionEvent,
    },
    /// `job:{status}`
    Job {
        #[serde(skip)]
        status: Status,
        job_id: JobId,
        #[serde(rename = "type")]
        job_type: JobType,
        queue: QueueName,
        attempt: u32,
    },
    /// `schedule:fired`: a tick came. No job where one of the schedule was still live.
    ScheduleFired { schedule: ScheduleName, tick: Timestamp, job_id: Option<JobId> },
    /// `schedule:created`, `schedule:updated`, `schedule:paused`, `schedule:resumed`, `schedule:removed`
    Schedule {
        #[serde(skip)]
        change: ScheduleChange,
        schedule: ScheduleName,
    },
    /// `worker:joined`, `worker:left`, `worker:dead`
    Worker {
        #[serde(skip)]
        change: WorkerChange,
        worker_id: WorkerId,
    },
    /// `node:joined`, `node:draining`, `node:left`, `node:dead`
    Node {
        #[serde(skip)]
        change: NodeChange,
        node_id: NodeId,
    },
    /// `handoff:started`, `handoff:acked`, `handoff:retried`, `handoff:orphaned`
    Handoff {
        #[serde(skip)]
        change: HandoffChange,
        job_id: JobId,
        execution_id: ExecutionId,
        from_node: NodeId,
        /// Of `acked`: who has it now.
        #[serde(skip_serializing_if = "Option::is_none")]
        new_owner: Option<NodeId>,
        /// Of `started` and `retried`: how often it has been offered.
        #[serde(skip_serializing_if = "Option::is_none")]
        tries: Option<NonZeroU32>,
    },
    /// `shards:rebalanced`: shards of a service are meant for other workers than before.
    ShardsRebalanced { service: ServiceName, version: Version, moved: u64 },
    /// `shards:joined`, `shards:left`, `shards:dead`: a worker of a service.
    ShardWorker {
        #[serde(skip)]
        change: WorkerChange,
        service: ServiceName,
        worker_id: WorkerId,
    },
    /// `lagged`: more happened on the node than could be told; at least so much.
    Lagged { missed: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleChange {
    Created,
    Updated,
    Paused,
    Resumed,
    Removed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerChange {
    Joined,
    Left,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    Joined,
    Draining,
    Left,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffChange {
    Started,
    Acked,
    Retried,
    Orphaned,
}

impl Event {
    pub fn new(at: Timestamp, what: ClusterEvent) -> Self {
        Event { at, node: None, what }
    }

    /// Whether every node sees it by itself, so that telling another one's watchers would tell them twice, or is the only one
    /// whom it concerns.
    pub const fn is_seen_everywhere(&self) -> bool {
        matches!(self.what, ClusterEvent::LeaderChanged { .. } | ClusterEvent::Election { .. })
    }

    /// The name by which it is known outside, such as `job:completed`.
    pub const fn name(&self) -> &'static str {
        match &self.what {
            ClusterEvent::LeaderChanged { .. } => "leader:changed",
            ClusterEvent::Election { what, .. } => what.name(),
            ClusterEvent::Job { status, .. } => job_event(*status),
            ClusterEvent::ScheduleFired { .. } => "schedule:fired",
            ClusterEvent::Schedule { change: ScheduleChange::Created, .. } => "schedule:created",
            ClusterEvent::Schedule { change: ScheduleChange::Updated, .. } => "schedule:updated",
            ClusterEvent::Schedule { change: ScheduleChange::Paused, .. } => "schedule:paused",
            ClusterEvent::Schedule { change: ScheduleChange::Resumed, .. } => "schedule:resumed",
            ClusterEvent::Schedule { change: ScheduleChange::Removed, .. } => "schedule:removed",
            ClusterEvent::Worker { change: WorkerChange::Joined, .. } => "worker:joined",
            ClusterEvent::Worker { change: WorkerChange::Left, .. } => "worker:left",
            ClusterEvent::Worker { change: WorkerChange::Dead, .. } => "worker:dead",
            ClusterEvent::Node { change: NodeChange::Joined, .. } => "node:joined",
            ClusterEvent::Node { change: NodeChange::Draining, .. } => "node:draining",
            ClusterEvent::Node { change: NodeChange::Left, .. } => "node:left",
            ClusterEvent::Node { change: NodeChange::Dead, .. } => "node:dead",
            ClusterEvent::Handoff { change: HandoffChange::Started, .. } => "handoff:started",
            ClusterEvent::Handoff { change: HandoffChange::Acked, .. } => "handoff:acked",
            ClusterEvent::Handoff { change: HandoffChange::Retried, .. } => "handoff:retried",
            ClusterEvent::Handoff { change: HandoffChange::Orphaned, .. } => "handoff:orphaned",
            ClusterEvent::ShardsRebalanced { .. } => "shards:rebalanced",
            ClusterEvent::ShardWorker { change: WorkerChange::Joined, .. } => "shards:joined",
            ClusterEvent::ShardWorker { change: WorkerChange::Left, .. } => "shards:left",
            ClusterEvent::ShardWorker { change: WorkerChange::Dead, .. } => "shards:dead",
            ClusterEvent::Lagged { .. } => "lagged",
        }
    }
}

const fn job_event(status: Status) -> &'static str {
    match status {
        Status::Created => "job:created",
        Status::Pending => "job:pending",
        Status::Scheduled => "job:scheduled",
        Status::Dispatched => "job:dispatched",
        Status::Running => "job:running",
        Status::Completed => "job:completed",
        Status::Failed => "job:failed",
        Status::TimedOut => "job:timedOut",
        Status::Cancelled => "job:cancelled",
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            event: &'a str,
            at: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            node: Option<&'a NodeId>,
            #[serde(flatten)]
            what: &'a ClusterEvent,
        }
        Flat { event: self.name(), at: self.at, node: self.node.as_ref(), what: &self.what }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests;
