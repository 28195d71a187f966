//! What happened, as watchers are told: `/v1/events`, and whoever else listens.
//!
//! An event is a notice, not a record: it is sent after what it tells of was committed, may be lost with the process that
//! sent it, and nothing is decided from it. In JSON it is one flat object: `event` is its name, `at` its time, the rest
//! are the fields of its kind.

use std::num::NonZeroU32;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::lifecycle::Status;
use crate::ids::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, ScheduleName, WorkerId};

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub at: Timestamp,
    pub what: Happening,
}

/// The kinds of events, each with its own fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Happening {
    /// `leader:changed`
    LeaderChanged {
        namespace: String,
        previous_leader: Option<NodeId>,
        /// None while the place is vacant.
        new_leader: Option<NodeId>,
        epoch: Epoch,
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
    pub fn new(at: Timestamp, what: Happening) -> Self {
        Event { at, what }
    }

    /// The name by which it is known outside, such as `job:completed`.
    pub const fn name(&self) -> &'static str {
        match &self.what {
            Happening::LeaderChanged { .. } => "leader:changed",
            Happening::Job { status, .. } => job_event(*status),
            Happening::ScheduleFired { .. } => "schedule:fired",
            Happening::Worker { change: WorkerChange::Joined, .. } => "worker:joined",
            Happening::Worker { change: WorkerChange::Left, .. } => "worker:left",
            Happening::Worker { change: WorkerChange::Dead, .. } => "worker:dead",
            Happening::Node { change: NodeChange::Joined, .. } => "node:joined",
            Happening::Node { change: NodeChange::Draining, .. } => "node:draining",
            Happening::Node { change: NodeChange::Left, .. } => "node:left",
            Happening::Node { change: NodeChange::Dead, .. } => "node:dead",
            Happening::Handoff { change: HandoffChange::Started, .. } => "handoff:started",
            Happening::Handoff { change: HandoffChange::Acked, .. } => "handoff:acked",
            Happening::Handoff { change: HandoffChange::Retried, .. } => "handoff:retried",
            Happening::Handoff { change: HandoffChange::Orphaned, .. } => "handoff:orphaned",
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
            #[serde(flatten)]
            what: &'a Happening,
        }
        Flat { event: self.name(), at: self.at, what: &self.what }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198c0de-0000-7000-8000-000000000001";

    fn json(what: Happening) -> String {
        let at = "2026-03-01T12:00:00Z".parse().expect("an instant");
        serde_json::to_string(&Event::new(at, what)).expect("serialises")
    }

    fn node(name: &str) -> NodeId {
        NodeId::new(name).expect("a name")
    }

    fn job(status: Status) -> Happening {
        Happening::Job {
            status,
            job_id: ID.parse().expect("an id"),
            job_type: JobType::new("email.send").expect("a name"),
            queue: QueueName::new("email").expect("a name"),
            attempt: 2,
        }
    }

    #[test]
    fn a_job_event_is_named_after_the_status() {
        for status in Status::ALL {
            let expected = format!(
                r#"{{"event":"job:{}","at":"2026-03-01T12:00:00Z","jobId":"{ID}","type":"email.send","queue":"email","attempt":2}}"#,
                status.as_str()
            );
            assert_eq!(json(job(status)), expected);
        }
    }

    #[test]
    fn a_change_of_leader_names_both_and_the_epoch() {
        let what = Happening::LeaderChanged {
            namespace: "jobs".into(),
            previous_leader: None,
            new_leader: Some(node("node-1")),
            epoch: Epoch(7),
        };
        assert_eq!(
            json(what),
            r#"{"event":"leader:changed","at":"2026-03-01T12:00:00Z","namespace":"jobs","previousLeader":null,"newLeader":"node-1","epoch":7}"#
        );
    }

    #[test]
    fn a_fired_schedule_names_its_tick_and_job() {
        let what = Happening::ScheduleFired {
            schedule: ScheduleName::new("nightly").expect("a name"),
            tick: "2026-03-01T11:00:00Z".parse().expect("an instant"),
            job_id: None,
        };
        assert_eq!(
            json(what),
            r#"{"event":"schedule:fired","at":"2026-03-01T12:00:00Z","schedule":"nightly","tick":"2026-03-01T11:00:00Z","jobId":null}"#
        );
    }

    #[test]
    fn workers_and_nodes_come_and_go_by_name() {
        for (change, name) in
            [(WorkerChange::Joined, "joined"), (WorkerChange::Left, "left"), (WorkerChange::Dead, "dead")]
        {
            let what = Happening::Worker { change, worker_id: WorkerId::new("w-1").expect("a name") };
            let expected = format!(r#"{{"event":"worker:{name}","at":"2026-03-01T12:00:00Z","workerId":"w-1"}}"#);
            assert_eq!(json(what), expected);
        }
        for (change, name) in [
            (NodeChange::Joined, "joined"),
            (NodeChange::Draining, "draining"),
            (NodeChange::Left, "left"),
            (NodeChange::Dead, "dead"),
        ] {
            let what = Happening::Node { change, node_id: node("node-1") };
            let expected = format!(r#"{{"event":"node:{name}","at":"2026-03-01T12:00:00Z","nodeId":"node-1"}}"#);
            assert_eq!(json(what), expected);
        }
    }

    #[test]
    fn a_handoff_event_has_only_the_fields_of_its_stage() {
        let handoff = |change, new_owner, tries| Happening::Handoff {
            change,
            job_id: ID.parse().expect("an id"),
            execution_id: ID.parse().expect("an id"),
            from_node: node("node-1"),
            new_owner,
            tries: NonZeroU32::new(tries),
        };
        let cases = [
            (handoff(HandoffChange::Started, None, 1), "started", r#","tries":1"#),
            (handoff(HandoffChange::Retried, None, 2), "retried", r#","tries":2"#),
            (handoff(HandoffChange::Acked, Some(node("node-2")), 0), "acked", r#","newOwner":"node-2""#),
            (handoff(HandoffChange::Orphaned, None, 0), "orphaned", ""),
        ];
        for (what, name, rest) in cases {
            let expected = format!(
                r#"{{"event":"handoff:{name}","at":"2026-03-01T12:00:00Z","jobId":"{ID}","executionId":"{ID}","fromNode":"node-1"{rest}}}"#
            );
            assert_eq!(json(what), expected);
        }
    }
}
