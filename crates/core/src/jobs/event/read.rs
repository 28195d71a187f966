//! Decodes events that another node sent.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::*;

/// Decodes a list of events and skips unknown ones: a newer node may send kinds that this node does not know.
pub(crate) fn those_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
    let texts = Vec::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(texts.iter().filter_map(|text| serde_json::from_str::<Flat>(text.get()).ok()?.event()).collect())
}

/// The fields of all kinds of events.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Flat {
    event: String,
    at: Timestamp,
    node: Option<NodeId>,
    namespace: Option<String>,
    previous_leader: Option<NodeId>,
    new_leader: Option<NodeId>,
    epoch: Option<Epoch>,
    job_id: Option<JobId>,
    execution_id: Option<ExecutionId>,
    #[serde(rename = "type")]
    job_type: Option<JobType>,
    queue: Option<QueueName>,
    attempt: Option<u32>,
    schedule: Option<ScheduleName>,
    tick: Option<Timestamp>,
    worker_id: Option<WorkerId>,
    node_id: Option<NodeId>,
    from_node: Option<NodeId>,
    new_owner: Option<NodeId>,
    tries: Option<NonZeroU32>,
    service: Option<ServiceName>,
    version: Option<Version>,
    moved: Option<u64>,
    missed: Option<u64>,
}

impl Flat {
    fn event(self) -> Option<Event> {
        let (at, node) = (self.at, self.node.clone());
        Some(Event { at, node, what: self.what()? })
    }

    fn what(self) -> Option<ClusterEvent> {
        let name = self.event.clone();
        let (kind, change) = name.split_once(':').unwrap_or((&name, ""));
        Some(match (kind, change) {
            ("leader", "changed") => ClusterEvent::LeaderChanged {
                namespace: self.namespace?,
                previous_leader: self.previous_leader,
                new_leader: self.new_leader,
                epoch: self.epoch?,
            },
            ("job", status) => ClusterEvent::Job {
                status: Status::parse(status)?,
                job_id: self.job_id?,
                job_type: self.job_type?,
                queue: self.queue?,
                attempt: self.attempt?,
            },
            ("schedule", "fired") => {
                ClusterEvent::ScheduleFired { schedule: self.schedule?, tick: self.tick?, job_id: self.job_id }
            }
            ("schedule", change) => {
                ClusterEvent::Schedule { change: schedule_change(change)?, schedule: self.schedule? }
            }
            ("worker", change) => ClusterEvent::Worker { change: worker_change(change)?, worker_id: self.worker_id? },
            ("node", change) => ClusterEvent::Node { change: node_change(change)?, node_id: self.node_id? },
            ("handoff", change) => ClusterEvent::Handoff {
                change: handoff_change(change)?,
                job_id: self.job_id?,
                execution_id: self.execution_id?,
                from_node: self.from_node?,
                new_owner: self.new_owner,
                tries: self.tries,
            },
            ("shards", "rebalanced") => {
                ClusterEvent::ShardsRebalanced { service: self.service?, version: self.version?, moved: self.moved? }
            }
            ("shards", change) => ClusterEvent::ShardWorker {
                change: worker_change(change)?,
                service: self.service?,
                worker_id: self.worker_id?,
            },
            ("lagged", "") => ClusterEvent::Lagged { missed: self.missed? },
            _ => return None,
        })
    }
}

fn schedule_change(name: &str) -> Option<ScheduleChange> {
    Some(match name {
        "created" => ScheduleChange::Created,
        "updated" => ScheduleChange::Updated,
        "paused" => ScheduleChange::Paused,
        "resumed" => ScheduleChange::Resumed,
        "removed" => ScheduleChange::Removed,
        _ => return None,
    })
}

fn worker_change(name: &str) -> Option<WorkerChange> {
    Some(match name {
        "joined" => WorkerChange::Joined,
        "left" => WorkerChange::Left,
        "dead" => WorkerChange::Dead,
        _ => return None,
    })
}

fn node_change(name: &str) -> Option<NodeChange> {
    Some(match name {
        "joined" => NodeChange::Joined,
        "draining" => NodeChange::Draining,
        "left" => NodeChange::Left,
        "dead" => NodeChange::Dead,
        _ => return None,
    })
}

fn handoff_change(name: &str) -> Option<HandoffChange> {
    Some(match name {
        "started" => HandoffChange::Started,
        "acked" => HandoffChange::Acked,
        "retried" => HandoffChange::Retried,
        "orphaned" => HandoffChange::Orphaned,
        _ => return None,
    })
}
