//! Reads messages.
//!
//! In two passes: first a fast one, into fields of the expected types. If that fails, a slow one, which accepts unusual
//! forms (`10.0` is a whole number) and reports what is wrong with the rest.

use serde_json::Value;

use super::*;
use crate::limits::SHARDS_MAX;

/// How much of a wrong value is shown.
const SHOWN_CHARS_MAX: usize = 80;

/// Reads a worker's message.
pub fn message(frames: &[Bytes]) -> Result<Message, Refusal> {
    let fields = fields(frames)?;
    match fields.kind.as_ref() {
        "register" => fields.report().map(Message::Register),
        "heartbeat" => fields.report().map(Message::Heartbeat),
        "leave" => {
            let (service_name, worker_id) = fields.who()?;
            let (version, beat) = (fields.version.map(Version), fields.beat);
            Ok(Message::Leave(Leave { service_name, worker_id, version, beat }))
        }
        "released" => {
            let (service_name, worker_id) = fields.who()?;
            let version = fields.version.map(Version).ok_or_else(|| missing("version", "a whole number"))?;
            let shards = fields.shards.ok_or_else(|| missing("shards", "a list of whole numbers"))?;
            Ok(Message::Released(Released { service_name, worker_id, shards: checked("shards", shards)?, version }))
        }
        other => {
            let expected = "expected register, heartbeat, leave or released";
            Err(Refusal::new(Refusal::MESSAGE, format!("type: {expected}, got {}", shown(&Value::from(other)))))
        }
    }
}

/// Reads a coordinator's message. `None` if it is empty, invalid or of an unknown type.
pub fn answer(frames: &[Bytes]) -> Option<CoordinatorMessage> {
    #[derive(Deserialize)]
    #[serde(tag = "type", content = "data", rename_all = "lowercase")]
    enum Known {
        Assignment(Assignment),
        Revoke(Revoke),
        Error(Refusal),
    }
    let known = serde_json::from_slice::<Known>(frames.first()?).ok()?;
    let is_sane = |shards: &[Shard]| shards.len() <= SHARDS_MAX as usize && shards.iter().all(|it| *it < SHARDS_MAX);
    match known {
        Known::Assignment(assignment) => {
            is_sane(&assignment.assigned_shards).then_some(CoordinatorMessage::Assignment(assignment))
        }
        Known::Revoke(revoke) => is_sane(&revoke.shards).then_some(CoordinatorMessage::Revoke(revoke)),
        Known::Error(refusal) => Some(CoordinatorMessage::Error(refusal)),
    }
}

/// The fields of all messages.
#[derive(Default)]
struct Fields<'a> {
    kind: Cow<'a, str>,
    service_name: Option<Cow<'a, str>>,
    worker_id: Option<Cow<'a, str>>,
    max_shard_count: Option<u32>,
    assigned_shards: Option<Vec<Shard>>,
    shards: Option<Vec<Shard>>,
    version: Option<u64>,
    handoff: Option<bool>,
    beat: Option<u64>,
    instance: Option<u64>,
}

#[derive(Deserialize)]
struct Fast<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    data: FastData<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FastData<'a> {
    #[serde(borrow)]
    service_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    worker_id: Option<Cow<'a, str>>,
    max_shard_count: Option<u32>,
    assigned_shards: Option<Vec<Shard>>,
    shards: Option<Vec<Shard>>,
    version: Option<u64>,
    handoff: Option<bool>,
    beat: Option<u64>,
    instance: Option<u64>,
}

fn fields(frames: &[Bytes]) -> Result<Fields<'_>, Refusal> {
    let refuse = |message: &str| Err(Refusal::new(Refusal::MESSAGE, message));
    let Some(text) = frames.first() else {
        return refuse("expected a frame of JSON, got none");
    };
    if text.is_empty() {
        return refuse("expected JSON in the first frame, got an empty one; send from a DEALER socket, not from a REQ");
    }
    if let Ok(Fast { kind, data }) = serde_json::from_slice(text) {
        #[rustfmt::skip]
        let FastData { service_name, worker_id, max_shard_count, assigned_shards, shards, version, handoff, beat, instance } = data;
        #[rustfmt::skip]
        let fields = Fields { kind, service_name, worker_id, max_shard_count, assigned_shards, shards, version, handoff, beat, instance };
        return Ok(fields);
    }
    match serde_json::from_slice::<Value>(text) {
        Ok(value) => careful(value),
        Err(error) => refuse(&format!("expected JSON, got {}: {error}", shown_text(text))),
    }
}

/// Reads the fields one by one, after the fast pass has failed.
fn careful(value: Value) -> Result<Fields<'static>, Refusal> {
    let Value::Object(mut message) = value else {
        let expected = "expected an object with type and data";
        return Err(Refusal::new(Refusal::MESSAGE, format!("{expected}, got {}", shown(&value))));
    };
    let kind = match message.remove("type") {
        Some(Value::String(kind)) => kind,
        other => return Err(wrong("type", "a string", &other.unwrap_or_default())),
    };
    let mut data = match message.remove("data") {
        Some(Value::Object(data)) => data,
        None => return Err(missing("data", "an object")),
        Some(other) => return Err(wrong("data", "an object", &other)),
    };
    let mut take = |field: &str| data.remove(field).filter(|value| !value.is_null());
    let text = |field: &'static str, value: Option<Value>| match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(Cow::Owned(text))),
        Some(other) => Err(wrong(field, "a string", &other)),
    };
    Ok(Fields {
        kind: Cow::Owned(kind),
        service_name: text("serviceName", take("serviceName"))?,
        worker_id: text("workerId", take("workerId"))?,
        max_shard_count: take("maxShardCount").map(|value| shard_count(&value)).transpose()?,
        assigned_shards: take("assignedShards").map(|value| shard_list("assignedShards", &value)).transpose()?,
        shards: take("shards").map(|value| shard_list("shards", &value)).transpose()?,
        version: take("version").map(|value| whole("version", &value)).transpose()?,
        handoff: match take("handoff") {
            None => None,
            Some(Value::Bool(handoff)) => Some(handoff),
            Some(other) => return Err(wrong("handoff", "true or false", &other)),
        },
        beat: take("beat").map(|value| whole("beat", &value)).transpose()?,
        instance: take("instance").map(|value| whole("instance", &value)).transpose()?,
    })
}

impl Fields<'_> {
    fn who(&self) -> Result<(ServiceName, WorkerId), Refusal> {
        let name = |field, value: &Option<Cow<'_, str>>| match value {
            Some(name) => Ok(name.to_string()),
            None => Err(missing(field, "a name of 1 to 255 bytes")),
        };
        let invalid = |invalid: crate::error::Invalid| Refusal::new(Refusal::ARGUMENT, invalid.to_string());
        let service = ServiceName::new(name("serviceName", &self.service_name)?).map_err(invalid)?;
        let worker = WorkerId::new(name("workerId", &self.worker_id)?).map_err(invalid)?;
        Ok((service, worker))
    }

    fn report(self) -> Result<Report, Refusal> {
        let (service_name, worker_id) = self.who()?;
        let max_shard_count = self.max_shard_count.ok_or_else(|| missing("maxShardCount", &counts()))?;
        if max_shard_count > SHARDS_MAX {
            return Err(wrong("maxShardCount", &counts(), &Value::from(max_shard_count)));
        }
        Ok(Report {
            service_name,
            worker_id,
            max_shard_count,
            assigned_shards: self.assigned_shards.map(|shards| checked("assignedShards", shards)).transpose()?,
            version: self.version.map(Version),
            handoff: self.handoff,
            beat: self.beat,
            instance: self.instance,
        })
    }
}

fn counts() -> String {
    format!("a whole number from 0 to {SHARDS_MAX}")
}

fn shard_count(value: &Value) -> Result<u32, Refusal> {
    let count = as_whole(value).and_then(|count| u32::try_from(count).ok());
    count.filter(|count| *count <= SHARDS_MAX).ok_or_else(|| wrong("maxShardCount", &counts(), value))
}

fn whole(field: &str, value: &Value) -> Result<u64, Refusal> {
    as_whole(value).ok_or_else(|| wrong(field, "a whole number", value))
}

/// Reads a list of shards. A number that is too high for any service is outdated or invalid; it is dropped without an error.
fn shard_list(field: &str, value: &Value) -> Result<Vec<Shard>, Refusal> {
    let Value::Array(values) = value else {
        return Err(wrong(field, "a list of whole numbers", value));
    };
    let mut shards = Vec::new();
    for value in values {
        let shard = as_whole(value).ok_or_else(|| wrong(field, "a list of whole numbers", value))?;
        shards.extend(u32::try_from(shard));
    }
    Ok(shards)
}

/// Rejects a list that is too long, and drops shards that are out of range.
fn checked(field: &str, mut shards: Vec<Shard>) -> Result<Vec<Shard>, Refusal> {
    if shards.len() > SHARDS_MAX as usize {
        let message = format!("{field}: expected at most {SHARDS_MAX} shards, got {}", shards.len());
        return Err(Refusal::new(Refusal::ARGUMENT, message));
    }
    shards.retain(|shard| *shard < SHARDS_MAX);
    Ok(shards)
}

/// Reads a whole number, also `10.0`: some languages have no other numbers.
fn as_whole(value: &Value) -> Option<u64> {
    let from_double = |number: f64| {
        let is_whole = number.fract() == 0.0 && (0.0..=Version::MAX.0 as f64).contains(&number);
        is_whole.then_some(number as u64)
    };
    value.as_u64().or_else(|| value.as_f64().and_then(from_double))
}

fn missing(field: &str, expected: &str) -> Refusal {
    Refusal::new(Refusal::ARGUMENT, format!("{field}: expected {expected}, got nothing"))
}

fn wrong(field: &str, expected: &str, value: &Value) -> Refusal {
    Refusal::new(Refusal::ARGUMENT, format!("{field}: expected {expected}, got {}", shown(value)))
}

fn shown(value: &Value) -> String {
    shown_text(value.to_string().as_bytes())
}

/// Returns the beginning of the received text, so that an error is not longer than its cause.
fn shown_text(text: &[u8]) -> String {
    let head = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN_CHARS_MAX)]);
    let mut shown: String = head.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { '.' } else { c }).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
