//! The shape in which Orchestrix writes messages between coordinators, for `bus.seed_format`.
//!
//! Keys are in PascalCase, the execution id is `HistoryId`, the time `Timestamp`, and words such as a reason begin with
//! a capital letter. `job.assigned` has an entry for each run. Fields that only Convoke has are written as well: a
//! receiver that does not know them ignores them, and a node of Convoke loses nothing. Nodes always accept both shapes,
//! so that a cluster may have nodes with and without this setting.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Assigned, RunRef, encode};

/// How messages between coordinators are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// As the module [`wire`](super) describes.
    #[default]
    Convoke,
    /// As Orchestrix writes them.
    Orchestrix,
}

impl Format {
    /// Encodes a message as one entry.
    pub fn encode(self, message: &impl Serialize) -> Bytes {
        match self {
            Format::Convoke => encode(message),
            Format::Orchestrix => encode(&renamed(message)),
        }
    }

    /// Encodes an assignment as one entry, or as one entry for each run.
    pub fn encode_assigned(self, message: &Assigned) -> Vec<Bytes> {
        match self {
            Format::Convoke => vec![encode(message)],
            Format::Orchestrix => {
                let one = |run: &RunRef| {
                    let mut fields = renamed(run);
                    fields.insert("Epoch".into(), message.epoch.0.into());
                    encode(&fields)
                };
                message.jobs.iter().map(one).collect()
            }
        }
    }
}

/// Returns the fields of a message under the names of Orchestrix.
fn renamed(message: &impl Serialize) -> Map<String, Value> {
    let fields = match serde_json::to_value(message) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a wire message is an object, not {other:?}"),
    };
    let known = fields.into_iter().filter(|(name, _)| name != "v");
    known.map(|(name, value)| (key_written(&name), word_written(&name, value))).collect()
}

fn key_written(name: &str) -> String {
    match name {
        "executionId" => "HistoryId".into(),
        "at" => "Timestamp".into(),
        _ => capitalised(name),
    }
}

fn word_written(name: &str, value: Value) -> Value {
    match (name, value) {
        ("reason" | "state" | "role", Value::String(word)) => Value::String(capitalised(&word)),
        (_, value) => value,
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// Returns the name of a job's field for a name in PascalCase, and any other name unchanged.
pub(super) fn key_read(name: String) -> String {
    match name.as_str() {
        "JobType" => "type".into(),
        "ScheduledAt" => "runAt".into(),
        _ if name.starts_with(|first: char| first.is_ascii_uppercase()) => {
            let mut letters = name.chars();
            letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
        }
        _ => name,
    }
}
