//! Messages on the bus: JSON, camelCase, `v` = 1.
//!
//! A message without `v` is taken for version 1; one of another version is not read. Fields that are not known are passed over,
//! so that a newer node can say more without a new version; except in an enqueue, where a misspelt field would be a
//! wish that nobody hears.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use serde_json::value::RawValue;

use super::event::Event;
use super::job::LogLevel;
use super::queue::RateLimit;
use super::spec::JobSpec;
use crate::ids::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, WorkerId};
use crate::json::Json;
use crate::limits::POISON_BODY_BYTES_MAX;

/// The version of all messages below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct V1;

impl Serialize for V1 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(1)
    }
}

impl<'de> Deserialize<'de> for V1 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            1 => Ok(V1),
            other => Err(serde::de::Error::custom(format!("expected v 1, got {other}"))),
        }
    }
}

/// `job.enqueue`: a job, as `POST /v1/jobs` takes it. The client makes its id: the bus may deliver it twice.
#[derive(Debug, Clone)]
pub struct Enqueue {
    pub spec: JobSpec,
}

impl Serialize for Enqueue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            v: V1,
            #[serde(flatten)]
            spec: &'a JobSpec,
        }
        Flat { v: V1, spec: &self.spec }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Enqueue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        // Flattening would buffer the arguments, lose their text and let unknown fields pass; so the version is taken
        // out and the rest is read as what it is.
        let mut fields = BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)?;
        if let Some(v) = fields.remove("v") {
            serde_json::from_str::<V1>(v.get()).map_err(D::Error::custom)?;
        }
        let text = serde_json::to_string(&fields).map_err(D::Error::custom)?;
        let spec: JobSpec = serde_json::from_str(&text).map_err(D::Error::custom)?;
        if spec.id.is_none() {
            return Err(D::Error::missing_field("id"));
        }
        Ok(Enqueue { spec })
    }
}

/// `job.dispatch.{queue}`: one run for one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    #[serde(default)]
    pub v: V1,
    pub job_id: JobId,
    pub execution_id: ExecutionId,
    #[serde(rename = "type")]
    pub job_type: JobType,
    pub queue: QueueName,
    pub args: Json,
    pub attempt: u32,
    pub max_retries: u32,
    #[serde(with = "crate::duration::option", default)]
    pub timeout: Option<Duration>,
    pub correlation_id: Option<String>,
    pub epoch: Epoch,
    /// That of its queue: a gateway at which many have gathered does not hand out all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// `job.assigned`: runs whose events look for an owner. One entry carries many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assigned {
    #[serde(default)]
    pub v: V1,
    pub epoch: Epoch,
    pub jobs: Vec<RunRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRef {
    pub job_id: JobId,
    pub execution_id: ExecutionId,
}

/// `job.{id}.status`: what a worker says of its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusMessage {
    #[serde(default)]
    pub v: V1,
    pub job_id: JobId,
    pub execution_id: ExecutionId,
    pub worker_id: WorkerId,
    pub kind: StatusKind,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `failed` only: false where another attempt would be in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusKind {
    Started,
    Progress,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
    /// Given back unfinished by a worker that drains.
    Released,
}

/// `job.{id}.logs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogMessage {
    #[serde(default)]
    pub v: V1,
    pub job_id: JobId,
    pub execution_id: ExecutionId,
    pub seq: u64,
    pub at: Timestamp,
    #[serde(default)]
    pub level: LogLevel,
    pub message: String,
}

/// `job.cancel`: to every worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancel {
    #[serde(default)]
    pub v: V1,
    pub job_id: JobId,
    pub execution_id: ExecutionId,
    pub reason: Option<String>,
}

/// `job.handoff`: a job that looks for a new owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handoff {
    #[serde(default)]
    pub v: V1,
    pub job_id: JobId,
    pub execution_id: ExecutionId,
    pub from_node: NodeId,
    pub reason: HandoffReason,
    pub tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HandoffReason {
    Shutdown,
    NodeCrash,
    Rebalance,
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
    pub job_id: JobId,
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
    pub node_id: NodeId,
    pub job_count: u64,
    pub state: NodeState,
    pub role: NodeRole,
    pub epoch: Epoch,
    pub at: Timestamp,
    /// How often workers are to beat. Workers on the bus follow what the leader says.
    #[serde(with = "crate::duration::option", default, skip_serializing_if = "Option::is_none")]
    pub worker_heartbeat_interval: Option<Duration>,
    /// After how long a silent worker is dead.
    #[serde(with = "crate::duration::option", default, skip_serializing_if = "Option::is_none")]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    Active,
    /// Silent for longer than a heartbeat may take, as the node that shows it has observed. Never stored, never sent.
    Suspect,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeRole {
    Leader,
    Follower,
}

/// `worker.heartbeat`: also sent at once when a worker's free slots change, for the leader's dispatch window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerHeartbeat {
    #[serde(default)]
    pub v: V1,
    pub worker_id: WorkerId,
    pub queues: Vec<QueueName>,
    pub running: u32,
    pub free: u32,
    pub state: WorkerState,
    pub at: Timestamp,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many it runs at once; `running` and `free` together where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The node whose gateway it speaks to, which sends this for it. A worker that speaks the bus has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<NodeId>,
    /// All that it has. A run that two of these do not name is lost. A heartbeat that only tells of slots may leave it out;
    /// with `running` 0 that is an empty list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions: Option<Vec<ExecutionId>>,
}

impl WorkerHeartbeat {
    /// How many it runs at once.
    pub fn slots(&self) -> u32 {
        self.concurrency.unwrap_or_else(|| self.running.saturating_add(self.free))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkerState {
    Active,
    Draining,
    /// Left, or declared dead: its slots are gone.
    Gone,
}

/// `job.ready`: a hint to the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    #[serde(default)]
    pub v: V1,
    /// Queues that have something new to dispatch.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// Queues that were paused, resumed or given other limits.
    #[serde(default)]
    pub configured: Vec<QueueName>,
    /// When the earliest of the new jobs that wait for their time is due.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// Schedules were added or changed.
    #[serde(default)]
    pub schedules: bool,
}

/// `cache`: what has changed, by the keys under which nodes may have it cached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outdated {
    #[serde(default)]
    pub v: V1,
    pub keys: Vec<String>,
}

/// `interest`: what a node wants to hear of. It is forgotten unless it is said again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interest {
    #[serde(default)]
    pub v: V1,
    pub node_id: NodeId,
    /// Somebody watches events there; false withdraws it.
    #[serde(default)]
    pub events: bool,
    /// Somebody waits there for these to end.
    #[serde(default)]
    pub jobs: Vec<JobId>,
    /// It has just begun to listen: the others are to say what they want.
    #[serde(default)]
    pub asks: bool,
}

/// `job.ended`: of the jobs that somebody waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    #[serde(default)]
    pub v: V1,
    pub jobs: Vec<JobId>,
}

/// `events`: what happened on a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    #[serde(default)]
    pub v: V1,
    pub node_id: NodeId,
    /// Those of a kind that is not known here are passed over.
    #[serde(deserialize_with = "super::event::those_known")]
    pub events: Vec<Event>,
    /// How many more there were than could be sent.
    #[serde(default)]
    pub missed: u64,
}

/// `job.bell`: jobs whose channels have something new.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bell {
    #[serde(default)]
    pub v: V1,
    /// Those whose status channel has.
    pub jobs: Vec<JobId>,
    /// Those whose logs have. Where it is missing, whoever rang made no difference: `jobs` may have new logs as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<Vec<JobId>>,
}

/// `poison`: a message that could not be read, as it was, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Poison {
    #[serde(default)]
    pub v: V1,
    /// Where it was found.
    pub channel: String,
    pub reason: String,
    /// Its beginning, as far as that is text: at most [`POISON_BODY_BYTES_MAX`].
    pub body: String,
    /// How long the whole body was.
    #[serde(default)]
    pub body_bytes: usize,
}

impl Poison {
    pub fn of(channel: impl Into<String>, reason: impl ToString, body: &[u8]) -> Self {
        let start = &body[..body.len().min(POISON_BODY_BYTES_MAX)];
        // A parser's complaint may quote what it could not read.
        let reason = cut(reason.to_string());
        let text = cut(String::from_utf8_lossy(start).into_owned());
        Poison { v: V1, channel: channel.into(), reason, body: text, body_bytes: body.len() }
    }
}

/// Cuts a text to what is kept of a rejected message.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(POISON_BODY_BYTES_MAX));
    text
}

/// Encodes a message. None of ours can fail to: they have string keys and no foreign `Serialize`.
pub fn encode(message: &impl Serialize) -> Bytes {
    match serde_json::to_vec(message) {
        Ok(text) => text.into(),
        Err(error) => unreachable!("a wire message did not serialise: {error}"),
    }
}

#[cfg(test)]
mod tests;
