//! The messages on the channels, with the fields of the existing system.
//!
//! | message | fields |
//! | --- | --- |
//! | request | `requestId, senderInstanceId, type, data, timeoutMs`, and ours: `epoch`, `traceparent` |
//! | reply | `requestId, reply: true, data` or `error` |
//! | heartbeat | `requestId, heartbeat: true` |
//! | broadcast | `broadcast: true, senderInstanceId, type, data` |
//!
//! Absent data and `null` are the same. Unknown fields are ignored, so that either side may add some. Any other message
//! is [`Malformed`]: it is counted and dropped.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::calls::RequestId;
use super::instance::InstanceId;
use super::trace::TraceParent;
use crate::ids::Epoch;
use crate::limits::NAME_BYTES_MAX;

/// Upper bound of `data`, in a request and in a reply.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Upper bound of a message; a longer one is dropped unread. A request below it with too much data is rejected with an
/// error.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Lower and upper bound of a timeout that a caller can ask for.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MAX: Duration = Duration::from_millis(TIMEOUT_MS_MAX);
/// The longest timer of the existing system; it treats a longer one as zero.
const TIMEOUT_MS_MAX: u64 = i32::MAX as u64;

/// A received message.
#[derive(Debug, PartialEq)]
pub enum Envelope<'a> {
    /// A call for a handler.
    Request(Request<'a>),
    /// The end of a call.
    Reply {
        /// The id of the request.
        id: Cow<'a, str>,
        /// The data as JSON, or the error text.
        outcome: Result<&'a str, String>,
    },
    /// The handler of a call is still running.
    Heartbeat {
        /// The id of the request.
        id: Cow<'a, str>,
    },
    /// A message to all instances.
    Broadcast {
        /// The instance that sent it.
        sender: InstanceId,
        /// The type, which selects the listener.
        kind: Cow<'a, str>,
        /// JSON.
        data: &'a str,
    },
}

/// A received request.
#[derive(Debug, PartialEq)]
pub struct Request<'a> {
    /// As its sender made it; not necessarily a UUID.
    pub id: Cow<'a, str>,
    /// The calling instance.
    pub sender: InstanceId,
    /// The type, which selects the handler.
    pub kind: Cow<'a, str>,
    /// JSON.
    pub data: &'a str,
    /// How long the caller waits for a reply or heartbeat. `None` if the caller does not send it.
    pub timeout: Option<Duration>,
    /// The caller's term of leadership, if it sends one.
    pub epoch: Option<Epoch>,
    /// The caller's position in a trace, if it sends one.
    pub trace: Option<TraceParent>,
}

/// Why a message is dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Over [`MESSAGE_BYTES_MAX`]; with its length.
    #[error("expected at most {max} bytes, got {0}", max = MESSAGE_BYTES_MAX)]
    TooLong(usize),
    /// Not JSON, or not of the expected types; with the parser's error.
    #[error("expected a JSON object with the fields of a message: {0}")]
    Json(String),
    /// JSON, but none of the four messages.
    #[error("expected a request, reply, heartbeat or broadcast")]
    Shape,
    /// A field with this name is missing or invalid.
    #[error("missing or invalid field {0}")]
    Field(&'static str),
}

/// The fields of all messages; the fields that are present determine the kind.
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
    // Fields that we added: another system may use the names for something else, so they are never a reason to drop.
    #[serde(borrow)]
    epoch: Option<&'a RawValue>,
    #[serde(borrow)]
    traceparent: Option<&'a RawValue>,
}

/// Borrowed if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Envelope<'a> {
    /// Parses a message.
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
        // A timeout of zero would make us send heartbeats without a pause.
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

/// Returns the error as text. It should be a string; any other JSON is shown as it is, so that the caller need not wait
/// for its timeout.
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

/// The fields of a request besides its id and data.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    /// The calling instance.
    pub sender: InstanceId,
    /// The type, which selects the handler.
    pub kind: &'a str,
    /// How long the caller waits for a reply or heartbeat.
    pub timeout: Duration,
    /// The caller's term of leadership, for handlers that require one.
    pub epoch: Option<Epoch>,
    /// The caller's position in a trace.
    pub trace: Option<TraceParent>,
}

/// Encodes a request.
pub fn encode_request(id: RequestId, heading: &Heading<'_>, data: &RawValue) -> Vec<u8> {
    let traceparent = heading.trace.map(|trace| trace.to_string());
    let &Heading { sender, kind, epoch, .. } = heading;
    // Peers count in whole milliseconds, and treat 0 as no timeout.
    let timeout_ms = u64::try_from(heading.timeout.as_millis()).unwrap_or(TIMEOUT_MS_MAX).clamp(1, TIMEOUT_MS_MAX);
    let request_id = &id.to_string();
    encode(&OutgoingRequest { request_id, sender_instance_id: sender, kind, data, timeout_ms, epoch, traceparent })
}

/// Encodes a reply with a result.
pub fn encode_reply(id: &str, data: &RawValue) -> Vec<u8> {
    encode(&OutgoingReply { request_id: id, reply: true, data: Some(data), error: None })
}

/// Encodes a reply with an error.
pub fn encode_refusal(id: &str, error: &str) -> Vec<u8> {
    encode(&OutgoingReply { request_id: id, reply: true, data: None, error: Some(error) })
}

/// Encodes a heartbeat of a running handler.
pub fn encode_heartbeat(id: &str) -> Vec<u8> {
    encode(&OutgoingHeartbeat { request_id: id, heartbeat: true })
}

/// Encodes a message to all instances.
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
