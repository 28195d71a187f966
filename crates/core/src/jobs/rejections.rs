//! Limits the log lines about rejected messages to the first of each producer, kind of message and reason.
//!
//! A worker that leaves out a field does so in every message. One log line names the field; the metric counts the rest.

use std::collections::{BTreeSet, VecDeque};

use serde::Deserialize;
use serde_json::Value;

use crate::limits::NAME_BYTES_MAX;

/// Upper bound of the rejections that are remembered. The oldest is dropped beyond it, and logged again if it recurs.
const KNOWN_MAX: usize = 1_000;
/// Upper bound of the part of a reason that is compared.
const COMPLAINT_BYTES_MAX: usize = 128;

/// The rejections that were logged.
#[derive(Debug, Default)]
pub struct Rejections {
    known: BTreeSet<(String, String, String)>,
    order: VecDeque<(String, String, String)>,
}

impl Rejections {
    /// Returns whether this is the first rejection with this kind, producer and reason.
    pub fn is_first(&mut self, kind: &str, producer: &str, reason: &str) -> bool {
        let key = (kind.to_owned(), producer.to_owned(), complaint(reason).to_owned());
        if !self.known.insert(key.clone()) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// Returns the part of a reason that is the same for every message: the field, without values and positions.
fn complaint(reason: &str) -> &str {
    let end = reason.find(" at line ").into_iter().chain(reason.find(": ")).min().unwrap_or(reason.len());
    &reason[..reason.floor_char_boundary(end.min(COMPLAINT_BYTES_MAX))]
}

/// Returns the sender that a message names, or `unknown`.
pub fn producer_of(body: &[u8]) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Sender {
        #[serde(default, alias = "WorkerId")]
        worker_id: Value,
        #[serde(default, alias = "NodeId")]
        node_id: Value,
        #[serde(default, alias = "FromNode")]
        from_node: Value,
        #[serde(default, alias = "NewOwner")]
        new_owner: Value,
    }
    let named = serde_json::from_slice::<Sender>(body).ok().and_then(|sender| {
        let Sender { worker_id, node_id, from_node, new_owner } = sender;
        [worker_id, node_id, from_node, new_owner].into_iter().find_map(|name| name.as_str().map(str::to_owned))
    });
    let mut name = named.unwrap_or_else(|| "unknown".into());
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_is_logged_once_for_each_kind_and_complaint() {
        let mut rejections = Rejections::default();
        let mut first = |kind, producer, reason| rejections.is_first(kind, producer, reason);
        assert!(first("worker.heartbeat", "w-1", "missing field `queues` at line 1 column 17"));
        assert!(!first("worker.heartbeat", "w-1", "missing field `queues` at line 1 column 99"));
        assert!(first("worker.heartbeat", "w-1", "missing field `workerId` at line 1 column 9"), "another field");
        assert!(first("job.status", "w-1", "missing field `queues`"), "another kind");
        assert!(first("worker.heartbeat", "w-2", "missing field `queues`"), "another producer");
        assert!(first("job.status", "w-1", "invalid type: string \"7\", expected u32 at line 1 column 9"));
        assert!(!first("job.status", "w-1", "invalid type: string \"8\", expected u32 at line 1 column 9"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut rejections = Rejections::default();
        for n in 0..KNOWN_MAX * 3 {
            assert!(rejections.is_first("worker.heartbeat", &format!("w-{n}"), &"é".repeat(1 << 16)));
        }
        assert_eq!((rejections.known.len(), rejections.order.len()), (KNOWN_MAX, KNOWN_MAX));
        assert!(rejections.known.iter().all(|(.., reason)| reason.len() <= COMPLAINT_BYTES_MAX));
        assert!(rejections.is_first("worker.heartbeat", "w-0", ""), "the oldest is forgotten");
    }

    #[test]
    fn the_producer_is_who_the_message_names() {
        for (body, producer) in [
            (r#"{"workerId": "w-1", "queues": 7}"#, "w-1"),
            (r#"{"WorkerId": "w-1"}"#, "w-1"),
            (r#"{"NodeId": "n-1", "x": [{}]}"#, "n-1"),
            (r#"{"fromNode": "n-2", "workerId": 7}"#, "n-2"),
            (r#"{"newOwner": "n-3"}"#, "n-3"),
            (r#"{"jobId": "x"}"#, "unknown"),
            ("{", "unknown"),
            ("[]", "unknown"),
        ] {
            assert_eq!(producer_of(body.as_bytes()), producer, "{body}");
        }
        assert_eq!(producer_of(format!(r#"{{"nodeId":"{}"}}"#, "é".repeat(500)).as_bytes()).len(), 254);
    }
}
