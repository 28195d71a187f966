//! Decides which nodes are alive, from one observer's reads of the registry and by its monotonic clock.
//!
//! A node writes its heartbeats with its own wall clock, which may be minutes away from the observer's. A timestamp is
//! therefore compared only with the one that was read before it: a change is a sign of life, the value itself means
//! nothing. Silence counts only while the observer reads. After a gap between two reads (the process was paused, or the
//! store was unreachable) every node has the whole timeout again to show that it is alive.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::election::Moment;
use crate::ids::NodeId;
use crate::ports::store::NodeRecord;

/// How long a node that is gone stays listed.
pub const GONE_LISTED_FOR: Duration = Duration::from_secs(3_600);
/// Upper bound of the listed nodes that are gone: a node that crashes at every start must not fill the registry.
pub const GONE_LISTED_MAX: usize = 100;

/// Returns how long a node may be silent before it is suspected: one and a half intervals.
pub fn suspect_after(heartbeat_interval: Duration) -> Duration {
    heartbeat_interval.saturating_add(heartbeat_interval / 2)
}

/// Returns the nodes to remove from the registry: gone for [`GONE_LISTED_FOR`], or beyond [`GONE_LISTED_MAX`].
pub fn forgettable(registry: &[NodeRecord], now: Timestamp) -> Vec<NodeId> {
    let mut gone: Vec<&NodeRecord> = registry.iter().filter(|node| node.state.is_gone()).collect();
    gone.sort_by_key(|node| std::cmp::Reverse(node.since));
    let horizon = now - GONE_LISTED_FOR;
    let is_old = |(place, node): &(usize, &NodeRecord)| *place >= GONE_LISTED_MAX || node.since < horizon;
    gone.into_iter().enumerate().filter(is_old).map(|(_, node)| node.node_id.clone()).collect()
}

/// The observations of one node.
#[derive(Debug)]
pub struct Liveness {
    nodes: BTreeMap<NodeId, Sighting>,
    last_read: Option<Moment>,
    /// A longer time between two reads is a gap.
    gap: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    heartbeat_at: Timestamp,
    /// When the observer first read this heartbeat.
    seen: Moment,
}

impl Liveness {
    /// Returns the observations of a node that reads the registry at least once in `heartbeat_interval`.
    pub fn new(heartbeat_interval: Duration, dead_node_timeout: Duration) -> Self {
        let gap = (dead_node_timeout / 2).max(heartbeat_interval.saturating_mul(2));
        Liveness { nodes: BTreeMap::new(), last_read: None, gap }
    }

    /// Records the registry as it was read at `now`. Nodes that are not in it are forgotten.
    pub fn observe(&mut self, registry: &[NodeRecord], now: Moment) {
        let after_gap = self.last_read.is_none_or(|last| now - last > self.gap);
        let mut before = std::mem::take(&mut self.nodes);
        for NodeRecord { node_id, last_heartbeat_at, .. } in registry {
            let known = before.remove(node_id).filter(|known| known.heartbeat_at == *last_heartbeat_at && !after_gap);
            let sighting = known.unwrap_or(Sighting { heartbeat_at: *last_heartbeat_at, seen: now });
            self.nodes.insert(node_id.clone(), sighting);
        }
        self.last_read = Some(now);
    }

    /// Returns when the node's heartbeat last changed, by the observer's clock; `None` if the node is not in the
    /// registry.
    pub fn seen(&self, node: &NodeId) -> Option<Moment> {
        self.nodes.get(node).map(|sighting| sighting.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::wire::{NodeRole, NodeState};

    const INTERVAL: Duration = Duration::from_secs(10);
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn record(id: &str, heartbeat_s: i64) -> NodeRecord {
        let at = Timestamp::from_second(heartbeat_s).expect("in range");
        NodeRecord {
            node_id: node(id),
            role: NodeRole::Follower,
            state: NodeState::Active,
            since: at,
            job_count: 0,
            started_at: at,
            last_heartbeat_at: at,
            version: "1".into(),
        }
    }

    fn node(id: &str) -> NodeId {
        NodeId::new(id).expect("a name")
    }

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn a_change_counts_and_the_timestamp_does_not() {
        let mut liveness = Liveness::new(INTERVAL, TIMEOUT);
        liveness.observe(&[record("a", 1), record("b", 1_000_000)], at(0));
        // One clock goes back an hour, the other stands still far in the future.
        liveness.observe(&[record("a", -3_600), record("b", 1_000_000)], at(10));
        assert_eq!((liveness.seen(&node("a")), liveness.seen(&node("b"))), (Some(at(10)), Some(at(0))));
        liveness.observe(&[record("b", 1_000_000)], at(20));
        assert_eq!((liveness.seen(&node("a")), liveness.seen(&node("b"))), (None, Some(at(0))));
    }

    #[test]
    fn nodes_are_forgotten_an_hour_after_they_went_or_when_there_are_too_many() {
        let gone = |id: &str, since_s| NodeRecord { state: NodeState::Dead, ..record(id, since_s) };
        let now = Timestamp::from_second(10_000).expect("in range");
        let left = NodeRecord { state: NodeState::Left, ..record("left", 6_399) };
        let registry = [record("alive", 0), gone("old", 6_399), gone("recent", 6_400), left];
        assert_eq!(forgettable(&registry, now), [node("old"), node("left")]);
        let many: Vec<NodeRecord> = (0..=100).map(|number| gone(&format!("n{number}"), 9_000 + number)).collect();
        assert_eq!(forgettable(&many, now), [node("n0")], "the one that has been gone for longest");
    }

    #[test]
    fn silence_that_nobody_could_have_broken_does_not_count() {
        let mut liveness = Liveness::new(INTERVAL, TIMEOUT);
        liveness.observe(&[record("a", 1)], at(0));
        liveness.observe(&[record("a", 1)], at(20));
        assert_eq!(liveness.seen(&node("a")), Some(at(0)), "two heartbeats apart is no gap");
        liveness.observe(&[record("a", 1)], at(41));
        assert_eq!(liveness.seen(&node("a")), Some(at(41)));
    }
}
