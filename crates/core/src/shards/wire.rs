//! What workers and their coordinator say to each other: JSON, one frame a message.
//!
//! Workers were written by people we do not know, in any language. So fields that are not known here are passed over,
//! trailing frames too, and whatever cannot be understood is answered with an error that names the field, what it was and
//! what was expected. What a worker of the original protocol sends and sees is exactly that protocol; all that was added
//! is optional on the way in and beside the old fields on the way out.
//!
//! `heartbeat` is one such addition: a number that a worker puts into a register or heartbeat and finds in its answer, so that it
//! knows which of its words was heard. Nothing else would tell an answer from news that came by themselves.

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

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// It is there, and wants its shards.
    Register(Report),
    /// It is still there.
    Heartbeat(Report),
    /// It goes, and holds nothing any more.
    Leave(Leave),
    /// It has let go of shards that were revoked.
    Released(Released),
}

impl Message {
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
    pub service_name: ServiceName,
    pub worker_id: WorkerId,
    /// Of the service: the last one that any worker reports counts.
    pub max_shard_count: u32,
    /// What it believes to own; may be out of date, or make no sense here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assigned_shards: Option<Vec<Shard>>,
    /// The highest version that it has seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Whether it wants to be asked to let go, and to be waited for. A worker that says either way knows our additions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
    /// The same in all messages of one process, and another in each other one: tells a worker that connected again from a
    /// second one with its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leave {
    pub service_name: ServiceName,
    pub worker_id: WorkerId,
    /// Of its latest assignment: a farewell that was overtaken by a grant is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// One that was overtaken by a later life of the worker is refused too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    pub service_name: ServiceName,
    pub worker_id: WorkerId,
    pub shards: Vec<Shard>,
    /// The highest version that it had seen when it let go.
    pub version: Version,
}

/// What the coordinator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorMessage {
    Assignment(Assignment),
    /// Let go of these, then say so.
    Revoke(Revoke),
    Error(Refusal),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    pub assigned_shards: Vec<Shard>,
    /// A coordinator of the original protocol has none.
    #[serde(default)]
    pub version: Version,
    /// After how long a silence the worker is taken for dead; for those that know our additions.
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<Duration>,
    /// Of the message that this answers; none where it came by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoke {
    pub shards: Vec<Shard>,
    pub version: Version,
}

/// Why a message was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: Cow<'static, str>,
    pub message: String,
}

impl Refusal {
    /// Not one of the messages there are.
    pub const MESSAGE: &'static str = "invalid_message";
    /// A field is missing or is not what it should be.
    pub const ARGUMENT: &'static str = "invalid_argument";
    /// The coordinator has as many services, workers or shards as it takes.
    pub const LIMIT: &'static str = "limit";
    /// Another worker has registered under the same id since. Whoever is told holds nothing any more.
    pub const REPLACED: &'static str = "replaced";

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
    pub fn encode(&self) -> Bytes {
        match self {
            Message::Register(report) | Message::Heartbeat(report) => envelope(self.kind(), report),
            Message::Leave(leave) => envelope(self.kind(), leave),
            Message::Released(released) => envelope(self.kind(), released),
        }
    }
}

impl CoordinatorMessage {
    pub fn encode(&self) -> Bytes {
        match self {
            CoordinatorMessage::Assignment(assignment) => envelope("assignment", assignment),
            CoordinatorMessage::Revoke(revoke) => envelope("revoke", revoke),
            CoordinatorMessage::Error(refusal) => envelope("error", refusal),
        }
    }
}

/// The same assignment as an answer to `heartbeat`, without encoding its shards again.
pub fn answering(assignment: &Bytes, beat: Option<u64>) -> Bytes {
    let (Some(beat), Some(open)) = (beat, assignment.strip_suffix(b"}}")) else {
        return assignment.clone();
    };
    let mut text = Vec::with_capacity(assignment.len() + 32);
    text.extend_from_slice(open);
    text.extend_from_slice(format!(",\"beat\":{beat}}}}}").as_bytes());
    text.into()
}
