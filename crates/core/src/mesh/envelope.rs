//! The messages on the channels, field by field as the existing system has them.
//!
//! | message | fields |
//! | --- | --- |
//! | request | `requestId, senderInstanceId, type, data, timeoutMs`, and ours: `epoch`, `traceparent` |
//! | reply | `requestId, reply: true, data` or `error` |
//! | heartbeat | `requestId, heartbeat: true` |
//! | broadcast | `broadcast: true, senderInstanceId, type, data` |
//!
//! Absent data and `null` are the same. Unknown fields are passed over, so that either side may add some. What is none of
//! these is [`Malformed`]: it is counted and dropped, whoever sent it.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::calls::RequestId;
use super::instance::InstanceId;
use super::trace::TraceParent;
use crate::ids::Epoch;
use crate::limits::NAME_BYTES_MAX;

/// The longest `data`, either way.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// What is longer is not even looked into. Shorter than this, but with too much data, a request is answered by name.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// The shortest and the longest timeout that a caller can ask for.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MAX: Duration = Duration::from_millis(TIMEOUT_MS_MAX);
/// The longest that a timer of the existing system can run; it takes anything beyond for at once.
const TIMEOUT_MS_MAX: u64 = i32::MAX as u64;

#[derive(Debug, PartialEq)]
pub enum Envelope<'a> {
    Request(Request<'a>),
    Reply { id: Cow<'a, str>, outcome: Result<&'a str, String> },
    Heartbeat { id: Cow<'a, str> },
    Broadcast { sender: InstanceId, kind: Cow<'a, str>, data: &'a str },
}

#[derive(Debug, PartialEq)]
pub struct Request<'a> {
    /// As its sender made it; not necessarily a UUID.
    pub id: Cow<'a, str>,
    pub sender: InstanceId,
    pub kind: Cow<'a, str>,
    /// JSON.
    pub data: &'a str,
    /// How long the caller waits for a sign of life; absent from callers that do not say.
    pub timeout: Option<Duration>,
    pub epoch: Option<Epoch>,
    pub trace: Option<TraceParent>,
}

/// Why a message is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("{0} bytes are too many")]
    TooLong(usize),
    #[error("it is not such JSON: {0}")]
    Json(String),
    #[error("it is neither request, reply, heartbeat nor broadcast")]
    Shape,
    #[error("{0} is not as it should be")]
    Field(&'static str),
}

/// All messages at once; which it is, its fields say.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming<'a> {
    #[serde(borrow)]
    request_id: Option<Text<'a>>,
    #[serde(default)]
    reply: Option<bool>,
    #[serde(default)]
    heartbeat: Option<bool>,
    #[serde(default)]
    broadcast: Option<bool>,
    sender_instance_id: Option<InstanceId>,
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    timeout_ms: Option<f64>,
    // Ours, and so never a reason to drop a message of somebody who uses the name for something else.
    #[serde(borrow)]
    epoch: Option<&'a RawValue>,
    #[serde(borrow)]
    traceparent: Option<&'a RawValue>,
}

/// Borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Envelope<'a> {
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed::TooLong(message.len()));
        }
        let incoming: Incoming = serde_json::from_slice(message).map_err(|error| Malformed::Json(error.to_string()))?;
        let is = |mark: Option<bool>| mark == Some(true);
        match (is(incoming.reply), is(incoming.heartbeat), is(incoming.broadcast)) {
            (true, false, false) => {
                let outcome = match incoming.error {
                    Some(error) => Err(error_text(error)),
                    None => Ok(data(incoming.data)),
                };
                Ok(Envelope::Reply { id: id(incoming.request_id)?, outcome })
            }
            (false, true, false) => Ok(Envelope::Heartbeat { id: id(incoming.request_id)? }),
            (false, false, true) => Ok(Envelope::Broadcast {
                sender: sender(incoming.sender_instance_id)?,
                kind: kind(incoming.kind)?,
                data: data(incoming.data),
            }),
            (false, false, false) if incoming.request_id.is_some() => request(incoming),
            _ => Err(Malformed::Shape),
        }
    }
}

fn request(incoming: Incoming<'_>) -> Result<Envelope<'_>, Malformed> {
    let timeout = match incoming.timeout_ms {
        // A timeout that is no time at all would have us send heartbeats without end.
        Some(ms) if ms.is_finite() && ms > 0.0 => {
            Some(Duration::try_from_secs_f64(ms / 1e3).unwrap_or(TIMEOUT_MAX).clamp(TIMEOUT_MIN, TIMEOUT_MAX))
        }
        Some(_) => return Err(Malformed::Field("timeoutMs")),
        None => None,
    };
    Ok(Envelope::Request(Request {
        id: id(incoming.request_id)?,
        sender: sender(incoming.sender_instance_id)?,
        kind: kind(incoming.kind)?,
        data: data(incoming.data),
        timeout,
        epoch: incoming.epoch.and_then(|raw| serde_json::from_str(raw.get()).ok()),
        trace: incoming.traceparent.and_then(|raw| serde_json::from_str::<Text>(raw.get()).ok()?.0.parse().ok()),
    }))
}

fn id(text: Option<Text<'_>>) -> Result<Cow<'_, str>, Malformed> {
    text.map(|text| text.0).filter(|text| is_name(text)).ok_or(Malformed::Field("requestId"))
}

fn kind(text: Option<Text<'_>>) -> Result<Cow<'_, str>, Malformed> {
    text.map(|text| text.0).filter(|text| is_name(text)).ok_or(Malformed::Field("type"))
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
}

fn sender(sender: Option<InstanceId>) -> Result<InstanceId, Malformed> {
    sender.filter(|sender| *sender != InstanceId::NOBODY).ok_or(Malformed::Field("senderInstanceId"))
}

fn data(raw: Option<&RawValue>) -> &str {
    raw.map_or("null", RawValue::get)
}

/// An error is a string, by rights. What is none is shown as it came, rather than leaving the caller to its timeout.
fn error_text(error: &RawValue) -> String {
    serde_json::from_str(error.get()).unwrap_or_else(|_| error.get().to_owned())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingRequest<'a> {
    request_id: &'a str,
    sender_instance_id: InstanceId,
    #[serde(rename = "type")]
    kind: &'a str,
    data: &'a RawValue,
    timeout_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingReply<'a> {
    request_id: &'a str,
    reply: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingHeartbeat<'a> {
    request_id: &'a str,
    heartbeat: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingBroadcast<'a> {
    broadcast: bool,
    sender_instance_id: InstanceId,
    #[serde(rename = "type")]
    kind: &'a str,
    data: &'a RawValue,
}

/// What a request carries beside its data.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    pub sender: InstanceId,
    pub kind: &'a str,
    pub timeout: Duration,
    pub epoch: Option<Epoch>,
    pub trace: Option<TraceParent>,
}

pub fn encode_request(id: RequestId, heading: &Heading<'_>, data: &RawValue) -> Vec<u8> {
    let traceparent = heading.trace.map(|trace| trace.to_string());
    let &Heading { sender, kind, epoch, .. } = heading;
    // A peer counts in milliseconds, and takes none for no timeout at all.
    let timeout_ms = u64::try_from(heading.timeout.as_millis()).unwrap_or(TIMEOUT_MS_MAX).clamp(1, TIMEOUT_MS_MAX);
    let request_id = &id.to_string();
    encode(&OutgoingRequest { request_id, sender_instance_id: sender, kind, data, timeout_ms, epoch, traceparent })
}

pub fn encode_reply(id: &str, data: &RawValue) -> Vec<u8> {
    encode(&OutgoingReply { request_id: id, reply: true, data: Some(data), error: None })
}

pub fn encode_refusal(id: &str, error: &str) -> Vec<u8> {
    encode(&OutgoingReply { request_id: id, reply: true, data: None, error: Some(error) })
}

pub fn encode_heartbeat(id: &str) -> Vec<u8> {
    encode(&OutgoingHeartbeat { request_id: id, heartbeat: true })
}

pub fn encode_broadcast(sender: InstanceId, kind: &str, data: &RawValue) -> Vec<u8> {
    encode(&OutgoingBroadcast { broadcast: true, sender_instance_id: sender, kind, data })
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(192);
    serde_json::to_writer(&mut bytes, message).expect("strings, numbers and raw JSON always serialise");
    bytes
}

#[cfg(test)]
#[path = "envelope/tests.rs"]
mod tests;
