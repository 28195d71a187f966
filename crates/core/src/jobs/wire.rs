//! Messages on the bus: JSON, camelCase, `v` = 1.
//!
//! A message without `v` is taken for version 1; one of another version is not read. Fields that are not known are passed over,
//! so that a newer node can say more without a new version; except in an enqueue, where a misspelt field would be a
//! wish that nobody hears.
//!
//! Messages that processes of other makers send are also read with keys in PascalCase, as Orchestrix writes them. There
//! `HistoryId` is the execution id and `Timestamp` is `at`. [`seed`] writes them so.

mod heartbeat;
mod nodes;
pub mod seed;

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use serde_json::value::RawValue;

use super::event::Event;
use super::job::LogLevel;
use super::queue::RateLimit;
use super::spec::JobSpec;
use super::template::RunInput;
use crate::flat::flattened;
use crate::ids::{Epoch, ExecutionId, JobId, NodeId, QueueName, WorkerId};
use crate::json::Json;
use crate::limits::POISON_BODY_BYTES_MAX;

pub use heartbeat::{WorkerHeartbeat, WorkerState};
pub use nodes::{
    Assigned, CoordinatorHeartbeat, DrainRequest, Handoff, HandoffAck, HandoffReason, NodeRole, NodeState, RunRef,
    Taken,
};

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
        let given = BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)?;
        let mut fields = BTreeMap::new();
        for (name, value) in given {
            let name = seed::key_read(name);
            if fields.contains_key(&name) {
                return Err(D::Error::custom(format!("duplicate field `{name}`")));
            }
            fields.insert(name, value);
        }
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
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Dispatch {
    #[serde(default)]
    pub v: V1,
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    #[serde(flatten, skip_deserializing, default = "RunInput::unread")]
    pub input: RunInput,
    #[serde(alias = "Attempt")]
    pub attempt: u32,
    #[serde(alias = "Epoch")]
    pub epoch: Epoch,
    /// The limit of its queue, so that a gateway at which many runs have gathered does not hand out all of them at once.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "RateLimit")]
    pub rate_limit: Option<RateLimit>,
}

flattened!(Dispatch, input, BorrowedRest);

/// `job.{id}.status`: what a worker says of its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusMessage {
    #[serde(default)]
    pub v: V1,
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    #[serde(alias = "WorkerId")]
    pub worker_id: WorkerId,
    #[serde(alias = "Kind")]
    pub kind: StatusKind,
    #[serde(alias = "At", alias = "Timestamp")]
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Percent")]
    pub percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Message")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Result")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Error")]
    pub error: Option<String>,
    /// `failed` only: false where another attempt would be in vain.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Retry")]
    pub retry: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusKind {
    #[serde(alias = "Started")]
    Started,
    #[serde(alias = "Progress")]
    Progress,
    #[serde(alias = "Completed")]
    Completed,
    #[serde(alias = "Failed")]
    Failed,
    #[serde(alias = "TimedOut")]
    TimedOut,
    #[serde(alias = "Cancelled")]
    Cancelled,
    /// Given back unfinished by a worker that drains.
    #[serde(alias = "Released")]
    Released,
}

/// `job.{id}.logs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogMessage {
    #[serde(default)]
    pub v: V1,
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    #[serde(alias = "Seq")]
    pub seq: u64,
    #[serde(alias = "At", alias = "Timestamp")]
    pub at: Timestamp,
    #[serde(default, alias = "Level")]
    pub level: LogLevel,
    #[serde(alias = "Message")]
    pub message: String,
}

/// `job.cancel`: to every worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancel {
    #[serde(default)]
    pub v: V1,
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    #[serde(alias = "Reason")]
    pub reason: Option<String>,
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
    #[serde(alias = "Jobs")]
    pub jobs: Vec<JobId>,
    /// Those whose logs have. Where it is missing, whoever rang made no difference: `jobs` may have new logs as well.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Logs")]
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
