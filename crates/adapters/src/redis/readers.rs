//! Members of consumer groups, as Redis lists them.
//!
//! Redis before 7.2 lists a member from its first entry, and its idle time counts from its last entry; later versions
//! list it from its first read, and count every read.

use std::time::Duration;

use convoke_core::ports::{GroupReader, QueueReaders};
use redis::Value;
use uuid::{Uuid, Version};

use super::entry::{number, text};

/// Returns a unique name for a consumer in its group: if a name is used again, the entries of the first consumer must
/// not seem to be the second's.
pub(super) fn consumer_name(name: &str) -> String {
    format!("{name}:{}", Uuid::now_v7().simple())
}

/// Returns whether [`consumer_name`] made this name.
fn is_consumer_name(name: &str) -> bool {
    let is_ours =
        |id: &str| id.len() == 32 && Uuid::try_parse(id).is_ok_and(|id| id.get_version() == Some(Version::SortRand));
    name.rsplit_once(':').is_some_and(|(_, id)| is_ours(id))
}

/// Parses the result of the script `readers` for one queue.
pub(super) fn group_readers(reply: Value) -> Option<QueueReaders> {
    let Value::Array(parts) = reply else { return None };
    let mut parts = parts.into_iter();
    let has_group = parts.next().as_ref().and_then(number) == Some(1);
    let is_awaited = parts.next().as_ref().and_then(number) == Some(1);
    has_group.then(|| QueueReaders { readers: parts.filter_map(reader).collect(), is_awaited })
}

fn reader(value: Value) -> Option<GroupReader> {
    let Value::Array(fields) = value else { return None };
    let [name, idle, pending] = <[Value; 3]>::try_from(fields).ok()?;
    let count = |value: &Value| number(value).and_then(|number| u64::try_from(number).ok());
    // A name that is not text is foreign and cannot be listed.
    let name = text(name)?;
    let (idle, pending) = (Duration::from_millis(count(&idle)?), count(&pending)?);
    Some(GroupReader { is_consumer: is_consumer_name(&name), name, idle, pending })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_are_told_from_those_of_others() {
        assert!(is_consumer_name(&consumer_name("n-1")));
        assert!(is_consumer_name(&consumer_name("a:b")));
        let others =
            ["", "worker", "host:1", "host:0198c0de000070008000", &format!("host:{}", Uuid::from_u128(7).simple())];
        for name in others.into_iter().chain([consumer_name("x").replace(':', "-").as_str()]) {
            assert!(!is_consumer_name(name), "{name}");
        }
    }

    #[test]
    fn what_is_no_list_of_members_is_nothing() {
        for malformed_reply in
            [Value::Nil, Value::Int(1), Value::Array(vec![]), Value::Array(vec![Value::Int(0), Value::Int(1)])]
        {
            assert_eq!(group_readers(malformed_reply), None);
        }
        let odd = Value::Array(vec![Value::Int(1), Value::Int(0), Value::Array(vec![Value::Int(1)]), Value::Nil]);
        assert_eq!(group_readers(odd), Some(QueueReaders::default()));
    }
}
