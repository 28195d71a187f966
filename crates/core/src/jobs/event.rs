//! Events for watchers: `/v1/events` and subscribers in the process.
//!
//! An event is a notice, not a record. It is sent after the change was committed, may be lost with the process that
//! sends it, and no decision depends on it. In JSON an event is one flat object: `event` is its name, `at` its time,
//! the rest are the fields of its kind. Nodes forward events to the watchers of other nodes, so an event names its
//! node.

use std::num::NonZeroU32;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

mod read;

pub(crate) use read::those_known;

use super::lifecycle::Status;
use crate::election;
use crate::ids::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, ScheduleName, ServiceName, WorkerId};
use crate::shards::Version;

/// The names of all events, by which watchers filter.
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

/// An event as watchers receive it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The time of the event, by the clock of the node that sent it.
    pub at: Timestamp,
    /// The node on which it happened.
    pub node: Option<NodeId>,
    /// The kind of the event, with its fields.
    pub what: ClusterEvent,
}

/// The kinds of events, each with its own fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ClusterEvent {
    /// `leader:changed`
    LeaderChanged {
        /// The namespace of the election.
        namespace: String,
        /// The leader of the term before. None: there was none.
        previous_leader: Option<NodeId>,
        /// None: there is no leader now.
        new_leader: Option<NodeId>,
        /// The epoch of the new term.
        epoch: Epoch,
    },
    /// `workers:updated`, `contention:detected`, `circuitBreaker:open` and so on: events of the nodes' own election.
    Election {
        /// The namespace of the election.
        namespace: String,
        /// The event of the election.
        #[serde(flatten)]
        what: election::ElectionEvent,
    },
    /// `job:{status}`
    Job {
        /// The new status, which is part of the name.
        #[serde(skip)]
        status: Status,
        /// The job.
        job_id: JobId,
        /// The type of the job.
        #[serde(rename = "type")]
        job_type: JobType,
        /// The queue of the job.
        queue: QueueName,
        /// The attempts that counted so far.
        attempt: u32,
    },
    /// `schedule:fired`: a tick was due.
    ScheduleFired {
        /// The schedule.
        schedule: ScheduleName,
        /// The tick.
        tick: Timestamp,
        /// The job of the tick. None: an earlier job of the schedule was still live.
        job_id: Option<JobId>,
    },
    /// `schedule:created`, `schedule:updated`, `schedule:paused`, `schedule:resumed`, `schedule:removed`
    Schedule {
        /// The change, which is part of the name.
        #[serde(skip)]
        change: ScheduleChange,
        /// The schedule.
        schedule: ScheduleName,
    },
    /// `worker:joined`, `worker:left`, `worker:dead`
    Worker {
        /// The change, which is part of the name.
        #[serde(skip)]
        change: WorkerChange,
        /// The worker.
        worker_id: WorkerId,
    },
    /// `node:joined`, `node:draining`, `node:left`, `node:dead`
    Node {
        /// The change, which is part of the name.
        #[serde(skip)]
        change: NodeChange,
        /// The node that changed.
        node_id: NodeId,
    },
    /// `handoff:started`, `handoff:acked`, `handoff:retried`, `handoff:orphaned`
    Handoff {
        /// The change, which is part of the name.
        #[serde(skip)]
        change: HandoffChange,
        /// The job of the run.
        job_id: JobId,
        /// The run.
        execution_id: ExecutionId,
        /// The node that offers the run.
        from_node: NodeId,
        /// `acked`: the node that owns the run now.
        #[serde(skip_serializing_if = "Option::is_none")]
        new_owner: Option<NodeId>,
        /// `started` and `retried`: how often the run has been offered.
        #[serde(skip_serializing_if = "Option::is_none")]
        tries: Option<NonZeroU32>,
    },
    /// `shards:rebalanced`: shards of a service were assigned to other workers.
    ShardsRebalanced {
        /// The service.
        service: ServiceName,
        /// The version of the new assignment.
        version: Version,
        /// The number of shards that move.
        moved: u64,
    },
    /// `shards:joined`, `shards:left`, `shards:dead`: a worker of a service.
    ShardWorker {
        /// The change, which is part of the name.
        #[serde(skip)]
        change: WorkerChange,
        /// The service of the worker.
        service: ServiceName,
        /// The worker.
        worker_id: WorkerId,
    },
    /// `lagged`: the node had more events than it could send.
    Lagged {
        /// How many events were dropped, at least.
        missed: u64,
    },
}

/// A change of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleChange {
    /// A request made it.
    Created,
    /// A request replaced it.
    Updated,
    /// It makes no jobs until it is resumed.
    Paused,
    /// It makes jobs again.
    Resumed,
    /// It was deleted.
    Removed,
}

/// A change of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerChange {
    /// It registered.
    Joined,
    /// It left.
    Left,
    /// It was silent for too long.
    Dead,
}

/// A change of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    /// It registered.
    Joined,
    /// It hands its runs over and will exit.
    Draining,
    /// It handed its runs over and stopped.
    Left,
    /// It was silent for too long.
    Dead,
}

/// A step of a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffChange {
    /// The run was offered for the first time.
    Started,
    /// Another node owns the run now.
    Acked,
    /// The run was offered again.
    Retried,
    /// No node accepted the run: the leader finds an owner.
    Orphaned,
}

impl Event {
    /// Returns an event of no node. The sender fills in `node`.
    pub fn new(at: Timestamp, what: ClusterEvent) -> Self {
        Event { at, node: None, what }
    }

    /// Returns whether the event must not be forwarded to other nodes: they observe it themselves, or it concerns this
    /// node only.
    pub const fn is_seen_everywhere(&self) -> bool {
        matches!(self.what, ClusterEvent::LeaderChanged { .. } | ClusterEvent::Election { .. })
    }

    /// Returns the name of the event, such as `job:completed`.
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
