//! Messages on the bus: JSON, camelCase, `v` = 1.
//!
//! A message without `v` has version 1; a message of another version is rejected. Unknown fields are ignored, so that a
//! newer node can send more without a new version. An enqueue rejects unknown fields, because a misspelt option would
//! otherwise be ignored without notice.
//!
//! Messages that other software may send are also accepted with keys in PascalCase, as Orchestrix writes them. There
//! `HistoryId` is the execution id and `Timestamp` is `at`. [`seed`] writes this form.

mod heartbeat;
mod nodes;
mod reports;
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
use crate::strict::Strict;

pub use heartbeat::{InboxReport, WorkerHeartbeat, WorkerState};
pub use nodes::{
    Assigned, CoordinatorHeartbeat, DrainRequest, Handoff, HandoffAck, HandoffReason, Inbox, NodeRole, NodeState,
    RunRef,
};

pub use reports::EventMessage;

/// The version of all messages: 1.
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

/// `job.enqueue`: a job, as in `POST /v1/jobs`. The client must set the id, because the bus may deliver the message
/// twice.
#[derive(Debug, Clone)]
pub struct Enqueue {
    /// The job to enqueue. It has an id.
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
        // `serde(flatten)` would buffer the arguments, lose their text and accept unknown fields. So the version is
        // removed and the rest is parsed as a `JobSpec`.
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
        let mut parser = serde_json::Deserializer::from_str(&text);
        let spec = JobSpec::deserialize(Strict(&mut parser)).map_err(D::Error::custom)?;
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
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The job.
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The run.
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    /// The type, the arguments and the limits of the run.
    #[serde(flatten, skip_deserializing, default = "RunInput::unread")]
    pub input: RunInput,
    /// The number of the attempt, from 1.
    #[serde(alias = "Attempt")]
    pub attempt: u32,
    /// The term in which the leader dispatched the run.
    #[serde(alias = "Epoch")]
    pub epoch: Epoch,
    /// The rate limit of the queue, so that a gateway with many waiting runs does not hand out all of them at once.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "RateLimit")]
    pub rate_limit: Option<RateLimit>,
}

flattened!(Dispatch, input, BorrowedRest);

/// `job.{id}.status`: a report of a worker about its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusMessage {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The job.
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The run.
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    /// The worker that has the run.
    #[serde(alias = "WorkerId")]
    pub worker_id: WorkerId,
    /// The kind of the report.
    #[serde(alias = "Kind")]
    pub kind: StatusKind,
    /// When it happened, by the worker's clock.
    #[serde(alias = "At", alias = "Timestamp")]
    pub at: Timestamp,
    /// An end: when the run started, by the worker's clock, if no `started` was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "StartedAt")]
    pub started_at: Option<Timestamp>,
    /// `progress`: the part of the run that is done.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Percent")]
    pub percent: Option<u8>,
    /// `progress`: a text. `cancelled`: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Message")]
    pub message: Option<String>,
    /// `completed`: the result.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Result")]
    pub result: Option<Json>,
    /// `failed` and `timedOut`: the text of the error.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Error")]
    pub error: Option<String>,
    /// `failed`: false if the job must not be retried.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Retry")]
    pub retry: Option<bool>,
}

/// The kind of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusKind {
    /// The worker started the run.
    #[serde(alias = "Started")]
    Started,
    /// The run made progress.
    #[serde(alias = "Progress")]
    Progress,
    /// The run succeeded.
    #[serde(alias = "Completed")]
    Completed,
    /// The run failed.
    #[serde(alias = "Failed")]
    Failed,
    /// The run exceeded its timeout.
    #[serde(alias = "TimedOut")]
    TimedOut,
    /// The worker stopped the run because it was cancelled.
    #[serde(alias = "Cancelled")]
    Cancelled,
    /// Returned unfinished by a worker that drains.
    #[serde(alias = "Released")]
    Released,
}

/// `job.{id}.logs`: a log line of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogMessage {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The job.
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The run that logged the line.
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    /// The number of the line within its run, rising.
    #[serde(alias = "Seq")]
    pub seq: u64,
    /// When the line was logged, by the worker's clock.
    #[serde(alias = "At", alias = "Timestamp")]
    pub at: Timestamp,
    /// The level, `info` if it is absent.
    #[serde(default, alias = "Level")]
    pub level: LogLevel,
    /// The text of the line.
    #[serde(alias = "Message")]
    pub message: String,
}

/// `job.cancel`: a run to stop, sent to every worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancel {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The job.
    #[serde(alias = "JobId")]
    pub job_id: JobId,
    /// The run to stop.
    #[serde(alias = "ExecutionId", alias = "HistoryId")]
    pub execution_id: ExecutionId,
    /// The reason, if one was given.
    #[serde(alias = "Reason")]
    pub reason: Option<String>,
}

/// `job.ready`: a hint to the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// Queues with new pending jobs.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// Queues that were paused, resumed or whose limits changed.
    #[serde(default)]
    pub configured: Vec<QueueName>,
    /// The earliest due time of the new scheduled jobs. None: there are none.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// Whether schedules were added or changed.
    #[serde(default)]
    pub schedules: bool,
}

/// `cache`: cache keys whose values have changed, so that nodes drop them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outdated {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The keys that have changed.
    pub keys: Vec<String>,
}

/// `interest`: the events and jobs that a node subscribes to. The subscription expires unless it is repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interest {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The node that subscribes.
    pub node_id: NodeId,
    /// Whether the node has watchers of events; false unsubscribes.
    #[serde(default)]
    pub events: bool,
    /// Jobs for whose end a client of the node waits.
    #[serde(default)]
    pub jobs: Vec<JobId>,
    /// Whether the node has just subscribed: the others are to send their interest.
    #[serde(default)]
    pub asks: bool,
}

/// `job.ended`: jobs that have ended and that some node waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The jobs that ended.
    pub jobs: Vec<JobId>,
}

/// `events`: events of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The node on which the events happened.
    pub node_id: NodeId,
    /// The events. Unknown kinds are skipped when a message is decoded.
    #[serde(deserialize_with = "super::event::those_known")]
    pub events: Vec<Event>,
    /// How many further events could not be sent.
    #[serde(default)]
    pub missed: u64,
}

/// `job.bell`: jobs with new entries on their channels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bell {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// Jobs with new entries on the status channel.
    #[serde(alias = "Jobs")]
    pub jobs: Vec<JobId>,
    /// Jobs with new entries on the log channel. None: the sender does not distinguish, `jobs` may have new logs as
    /// well.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "Logs")]
    pub logs: Option<Vec<JobId>>,
}

/// `poison`: a message that could not be decoded, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Poison {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The channel that carried it.
    pub channel: String,
    /// Why the message was rejected.
    pub reason: String,
    /// The beginning of its body as text: at most [`POISON_BODY_BYTES_MAX`].
    pub body: String,
    /// The length of the whole body.
    #[serde(default)]
    pub body_bytes: usize,
}

impl Poison {
    /// Returns the message with its reason and its body, both cut to [`POISON_BODY_BYTES_MAX`].
    pub fn of(channel: impl Into<String>, reason: impl ToString, body: &[u8]) -> Self {
        let start = &body[..body.len().min(POISON_BODY_BYTES_MAX)];
        // The error of a parser may quote the body.
        let reason = cut(reason.to_string());
        let text = cut(String::from_utf8_lossy(start).into_owned());
        Poison { v: V1, channel: channel.into(), reason, body: text, body_bytes: body.len() }
    }
}

/// Cuts a text to [`POISON_BODY_BYTES_MAX`].
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(POISON_BODY_BYTES_MAX));
    text
}

/// Encodes a message. It cannot fail: messages have string keys and no foreign `Serialize`.
pub fn encode(message: &impl Serialize) -> Bytes {
    match serde_json::to_vec(message) {
        Ok(text) => text.into(),
        Err(error) => unreachable!("a wire message did not serialise: {error}"),
    }
}

#[cfg(test)]
mod tests;
