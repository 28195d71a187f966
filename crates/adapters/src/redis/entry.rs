//! Entries of a stream, as Redis writes them.
//!
//! An entry has one field, `data`. An entry without it is foreign: it is passed on with an empty body, which no reader
//! can decode, and so is set aside like every unreadable message.

use bytes::Bytes;
use convoke_core::ports::{Delivery, Entry};
use redis::{Cmd, Value};

const FIELD: &str = "data";
/// About how many unreadable entries are kept for inspection, the newest: a faulty producer must not fill the server.
pub(super) const POISON_KEPT: usize = 10_000;

/// Appends an entry to a queue. `kept` trims the queue to about that many entries.
pub(super) fn add(queue: &str, body: &[u8], kept: Option<usize>) -> Cmd {
    let mut add = redis::cmd("XADD");
    add.arg(queue);
    if let Some(kept) = kept {
        add.arg("MAXLEN").arg("~").arg(kept);
    }
    add.arg("*").arg(FIELD).arg(body);
    add
}

/// An entry's id: the millisecond and the number within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId {
    ms: u64,
    seq: u64,
}

impl EntryId {
    /// Accepts only the form in which Redis returns ids.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (ms, seq) = text.split_once('-')?;
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        Some(EntryId { ms: number(ms)?, seq: number(seq)? })
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// Returns the `ids` that are well formed. Redis rejects a whole command because of one that is not.
pub(super) fn valid_ids(ids: &[String]) -> impl Iterator<Item = &str> {
    ids.iter().map(String::as_str).filter(|id| EntryId::parse(id).is_some())
}

/// Parses `[id, [field, value, …]]`. `None` if the entry was deleted, or the value is not an entry.
fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter();
    let id = text(parts.next()?)?;
    let body = match parts.next()? {
        Value::Array(fields) => data(fields.into_iter()),
        Value::Map(fields) => data(fields.into_iter().flat_map(|(name, value)| [name, value])),
        _ => return None,
    };
    Some(Entry { id, body })
}

pub(super) fn delivery(value: Value, deliveries: u32) -> Option<Delivery> {
    entry(value).map(|Entry { id, body }| Delivery { id, body, deliveries })
}

/// Parses all entries of a list.
pub(super) fn entries(value: Value) -> Option<Vec<Entry>> {
    match value {
        Value::Nil => Some(Vec::new()),
        Value::Array(entries) => Some(entries.into_iter().filter_map(entry).collect()),
        _ => None,
    }
}

/// Parses all entries of a list as first deliveries.
pub(super) fn deliveries(value: Value) -> Option<Vec<Delivery>> {
    let first = |Entry { id, body }| Delivery { id, body, deliveries: 1 };
    Some(entries(value)?.into_iter().map(first).collect())
}

/// Parses the entries of the only stream in a reply of XREADGROUP.
pub(super) fn of_one_stream(value: Value) -> Option<Vec<Delivery>> {
    match value {
        Value::Nil => Some(Vec::new()),
        Value::Map(streams) => streams.into_iter().next().map_or(Some(Vec::new()), |(_, entries)| deliveries(entries)),
        Value::Array(streams) => match streams.into_iter().next() {
            None => Some(Vec::new()),
            Some(Value::Array(pair)) => pair.into_iter().nth(1).and_then(deliveries),
            Some(_) => None,
        },
        _ => None,
    }
}

fn data(mut fields: impl Iterator<Item = Value>) -> Bytes {
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        if let (Value::BulkString(name), Value::BulkString(value)) = (name, value)
            && name == FIELD.as_bytes()
        {
            return value.into();
        }
    }
    Bytes::new()
}

pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn ids_are_two_numbers_and_sort_as_such() {
        assert!(EntryId::parse("9-10") > EntryId::parse("9-9"));
        assert_eq!(EntryId::parse("1700000000000-3").expect("an id").to_string(), "1700000000000-3");
        for wrong in ["", "1", "-", "1-", "-1", "1-x", "+1-1", "1-2-3", "nonsense", "99999999999999999999-0"] {
            assert_eq!(EntryId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_entry_of_somebody_else_has_no_body_and_what_is_no_entry_is_passed_over() {
        let fields = Value::Array(vec![bulk("other"), bulk("x"), bulk("data"), bulk("body")]);
        let entry = delivery(Value::Array(vec![bulk("1-0"), fields]), 3).expect("an entry");
        assert_eq!((entry.id.as_str(), &entry.body[..], entry.deliveries), ("1-0", &b"body"[..], 3));
        let foreign = delivery(Value::Array(vec![bulk("1-0"), Value::Array(vec![bulk("a")])]), 1).expect("an entry");
        assert!(foreign.body.is_empty());
        for malformed_reply in
            [Value::Nil, Value::Int(1), Value::Array(vec![bulk("1-0"), Value::Nil]), Value::Array(vec![])]
        {
            assert_eq!(delivery(malformed_reply, 1), None);
        }
        assert_eq!(of_one_stream(Value::Int(1)), None);
        assert_eq!(of_one_stream(Value::Nil), Some(Vec::new()));
    }
}
