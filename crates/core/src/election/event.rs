//! The events that an elector publishes to its watchers.
//!
//! In JSON an event is one flat object: `event` is its name, `at` its time, `namespace` the namespace, and the rest are
//! the fields of its kind.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::contention::Contention;
use crate::ids::Epoch;

/// An event with its time and namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it happened, by the member's clock.
    pub at: Timestamp,
    /// Where it happened.
    pub namespace: String,
    /// The event.
    pub what: ElectionEvent,
}

/// An event of an election.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ElectionEvent {
    /// `leader:changed`: another member leads, or the same one in another term, or none.
    LeaderChanged {
        /// The last leader, also if there was a vacancy in between. `None` if none is known.
        previous_leader: Option<String>,
        /// The new leader. `None` during a vacancy.
        new_leader: Option<String>,
        /// The term of the new leader; during a vacancy, the last known one.
        epoch: Epoch,
    },
    /// `workers:updated`: the list of present members has changed.
    WorkersUpdated {
        /// The ids of all present members, in order.
        workers: Vec<String>,
    },
    /// `contention:detected`: a heartbeat took too long.
    ContentionDetected(#[serde(serialize_with = "contention")] Contention),
    /// `circuitBreaker:open`: heartbeats are skipped.
    BreakerOpen {
        /// Failures in a row.
        failure_count: u32,
    },
    /// `circuitBreaker:halfOpen`: the backend is tested.
    BreakerHalfOpen {
        /// Failures in a row.
        failure_count: u32,
    },
    /// `circuitBreaker:closed`: heartbeats are sent again.
    BreakerClosed {
        /// Failures in a row.
        failure_count: u32,
    },
}

fn contention<S: Serializer>(contention: &Contention, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown {
        #[serde(with = "crate::duration")]
        duration: std::time::Duration,
        duration_ms: u64,
        #[serde(with = "crate::duration")]
        expected: std::time::Duration,
        expected_ms: u64,
        ratio: f64,
        threshold: f64,
    }
    let Contention { duration, expected, ratio, threshold } = *contention;
    let (duration_ms, expected_ms) = (crate::duration::ms(duration), crate::duration::ms(expected));
    Shown { duration, duration_ms, expected, expected_ms, ratio, threshold }.serialize(serializer)
}

impl Event {
    /// Returns the public name, such as `leader:changed`.
    pub const fn name(&self) -> &'static str {
        self.what.name()
    }
}

impl ElectionEvent {
    /// Returns the public name, such as `leader:changed`.
    pub const fn name(&self) -> &'static str {
        match self {
            ElectionEvent::LeaderChanged { .. } => "leader:changed",
            ElectionEvent::WorkersUpdated { .. } => "workers:updated",
            ElectionEvent::ContentionDetected(_) => "contention:detected",
            ElectionEvent::BreakerOpen { .. } => "circuitBreaker:open",
            ElectionEvent::BreakerHalfOpen { .. } => "circuitBreaker:halfOpen",
            ElectionEvent::BreakerClosed { .. } => "circuitBreaker:closed",
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            event: &'a str,
            at: Timestamp,
            namespace: &'a str,
            #[serde(flatten)]
            what: &'a ElectionEvent,
        }
        Flat { event: self.name(), at: self.at, namespace: &self.namespace, what: &self.what }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn encoded(what: ElectionEvent) -> String {
        let at = "2026-03-01T12:00:00Z".parse().expect("a time");
        serde_json::to_string(&Event { at, namespace: "production".into(), what }).expect("serializes")
    }

    #[test]
    fn an_event_is_one_flat_object_with_the_promised_fields() {
        let head = |name| format!(r#"{{"event":"{name}","at":"2026-03-01T12:00:00Z","namespace":"production","#);
        let changed =
            ElectionEvent::LeaderChanged { previous_leader: None, new_leader: Some("pod-1".into()), epoch: Epoch(7) };
        let tail = r#""previousLeader":null,"newLeader":"pod-1","epoch":7}"#;
        assert_eq!(encoded(changed), head("leader:changed") + tail);
        let updated = ElectionEvent::WorkersUpdated { workers: vec!["a".into(), "b".into()] };
        assert_eq!(encoded(updated), head("workers:updated") + r#""workers":["a","b"]}"#);
        let expected = Duration::from_secs(5);
        let slow = Contention { duration: expected * 3, expected, ratio: 3.0, threshold: 2.0 };
        let tail =
            r#""duration":"15s","durationMs":15000,"expected":"5s","expectedMs":5000,"ratio":3.0,"threshold":2.0}"#;
        assert_eq!(encoded(ElectionEvent::ContentionDetected(slow)), head("contention:detected") + tail);
        for (what, name) in [
            (ElectionEvent::BreakerOpen { failure_count: 5 }, "circuitBreaker:open"),
            (ElectionEvent::BreakerHalfOpen { failure_count: 5 }, "circuitBreaker:halfOpen"),
            (ElectionEvent::BreakerClosed { failure_count: 5 }, "circuitBreaker:closed"),
        ] {
            assert_eq!(encoded(what), head(name) + r#""failureCount":5}"#);
        }
    }
}
