//! The messages between workers and their coordinator: JSON, one frame per message.
//!
//! Workers are written by strangers in any language. So unknown fields and trailing frames are ignored, and an invalid
//! message gets an error with the field, its value and what was expected. A worker of the original protocol sends and
//! receives exactly that protocol; our additions are optional in requests and separate fields in replies.
//!
//! `beat` is such an addition: a number that a worker puts into a register or heartbeat and finds in the reply, so that
//! it knows which of its messages was received. Without it, a reply is the same as an assignment that was sent unrequested.

mod read;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use read::{answer, message};

use super::{Shard, Version};
use crate::ids::{ServiceName, WorkerId};

/// A message of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The worker joins, and requests its shards.
    Register(Report),
    /// The worker is alive.
    Heartbeat(Report),
    /// The worker leaves, and holds nothing any more.
    Leave(Leave),
    /// The worker has stopped its work on revoked shards.
    Released(Released),
}

impl Message {
    /// Returns the `type` of the message.
    pub const fn kind(&self) -> &'static str {
        match self {
            Message::Register(_) => "register",
            Message::Heartbeat(_) => "heartbeat",
            Message::Leave(_) => "leave",
            Message::Released(_) => "released",
        }
    }
}

/// The data of a register and of a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The service.
    pub service_name: ServiceName,
    /// The worker.
    pub worker_id: WorkerId,
    /// The number of shards of the service: the last report of any worker counts.
    pub max_shard_count: u32,
    /// The shards that it believes to own; possibly outdated or out of range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assigned_shards: Option<Vec<Shard>>,
    /// The highest version that it has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Whether it wants a revocation before it loses a shard, and time to stop. `None` for a worker of the original
    /// protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff: Option<bool>,
    /// The number of this message, repeated in the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
    /// The same in all messages of one process, and different in every other process: distinguishes a reconnected
    /// worker from a second one with its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<u64>,
}

/// The data of a leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leave {
    /// The service.
    pub service_name: ServiceName,
    /// The worker.
    pub worker_id: WorkerId,
    /// The version of its latest assignment. The message is rejected if a later grant is on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The number of this message. It is rejected if a later process of the worker has registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
}

/// The data of a released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// The service.
    pub service_name: ServiceName,
    /// The worker.
    pub worker_id: WorkerId,
    /// The shards that it no longer works on.
    pub shards: Vec<Shard>,
    /// The highest version that it had seen when it released them.
    pub version: Version,
}

/// A message of the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorMessage {
    /// The shards of the worker.
    Assignment(Assignment),
    /// Shards to stop working on and then to release.
    Revoke(Revoke),
    /// The worker's message was rejected.
    Error(Refusal),
}

/// The present shards of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// All its shards, in order.
    pub assigned_shards: Vec<Shard>,
    /// Its version; 0 from a coordinator of the original protocol.
    #[serde(default)]
    pub version: Version,
    /// The silence after which the worker counts as dead; only for workers that know our additions.
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<Duration>,
    /// The number of the message that this replies to; `None` if it was sent unrequested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
}

/// A request to release shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoke {
    /// The shards to release.
    pub shards: Vec<Shard>,
    /// The version from which on they are revoked.
    pub version: Version,
}

/// Why a message was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One of the constants below.
    pub code: Cow<'static, str>,
    /// The wrong value, and the values that are accepted.
    pub message: String,
}

impl Refusal {
    /// The message is of no known type.
    pub const MESSAGE: &'static str = "invalid_message";
    /// A field is missing or invalid.
    pub const ARGUMENT: &'static str = "invalid_argument";
    /// The coordinator has its maximum of services, workers or shards.
    pub const LIMIT: &'static str = "limit";
    /// Another process has registered under the same id. The receiver holds nothing any more.
    pub const REPLACED: &'static str = "replaced";

    /// Returns a refusal.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Refusal { code: Cow::Borrowed(code), message: message.into() }
    }
}

/// `{"type":…,"data":…}`
#[derive(Serialize)]
struct Envelope<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    data: &'a T,
}

fn envelope<T: Serialize>(kind: &str, data: &T) -> Bytes {
    match serde_json::to_vec(&Envelope { kind, data }) {
        Ok(text) => text.into(),
        Err(error) => unreachable!("a message of ours did not serialise: {error}"),
    }
}

impl Message {
    /// Encodes the message as one frame.
    pub fn encode(&self) -> Bytes {
        match self {
            Message::Register(report) | Message::Heartbeat(report) => envelope(self.kind(), report),
            Message::Leave(leave) => envelope(self.kind(), leave),
            Message::Released(released) => envelope(self.kind(), released),
        }
    }
}

impl CoordinatorMessage {
    /// Encodes the message as one frame.
    pub fn encode(&self) -> Bytes {
        match self {
            CoordinatorMessage::Assignment(assignment) => envelope("assignment", assignment),
            CoordinatorMessage::Revoke(revoke) => envelope("revoke", revoke),
            CoordinatorMessage::Error(refusal) => envelope("error", refusal),
        }
    }
}

/// Returns the encoded assignment as a reply to `beat`, without encoding its shards again.
pub fn replying_to(assignment: &Bytes, beat: Option<u64>) -> Bytes {
    let (Some(beat), Some(open)) = (beat, assignment.strip_suffix(b"}}")) else {
        return assignment.clone();
    };
    let mut text = Vec::with_capacity(assignment.len() + 32);
    text.extend_from_slice(open);
    text.extend_from_slice(format!(",\"beat\":{beat}}}}}").as_bytes());
    text.into()
}
