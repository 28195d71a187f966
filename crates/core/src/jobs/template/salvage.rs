//! Reads a document of which something is wrong, as far as that is possible.
//!
//! A document can be unreadable for one field: it was changed by hand, or a newer version wrote a word that this one does not know. The
//! job is then shown with the fields that can be read, and its run fails. It does not block the others of its queue.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Document, JobDefinition};
use crate::jobs::retry::RetrySettings;

/// The type of a job whose own cannot be read.
const UNREADABLE_TYPE: &str = "unreadable";

/// Returns the definition of the fields that can be read; the others have the built-in defaults.
pub(super) fn salvage(document: &str) -> JobDefinition {
    let fields: BTreeMap<String, Value> = serde_json::from_str(document).unwrap_or_default();
    let mut readable = Map::from_iter([("v".to_owned(), json!(1)), ("type".to_owned(), json!(UNREADABLE_TYPE))]);
    for (name, value) in fields {
        let before = readable.insert(name.clone(), value);
        if Document::deserialize(Value::Object(readable.clone())).is_err() {
            match before {
                Some(before) => drop(readable.insert(name, before)),
                None => drop(readable.remove(&name)),
            }
        }
    }
    match Document::deserialize(Value::Object(readable)) {
        Ok(Document { template }) => template.define(&RetrySettings::default()),
        Err(_) => JobDefinition::unread(),
    }
}
