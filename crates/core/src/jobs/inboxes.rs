//! The leader's view of the inboxes of other nodes: how many runs it sent to each and that no worker has.
//!
//! A message to an inbox has a number, which rises by one within a term. A node reports the number of the last message
//! that it received, and how many runs of each queue wait in its inbox. So the runs that no worker has are those that
//! wait by the last report, and those of messages with a higher number. A node receives its messages in order; a message
//! that was lost counts until a later one is received, or until it has been on its way for too long.
//!
//! Reports are hints, like all heartbeats. The store decides which run is present, and the reconciler finds runs that
//! no node has.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::wire::InboxReport;
use crate::ids::{Epoch, NodeId, QueueName};

/// The inboxes that a leader sends to, in its term.
#[derive(Debug)]
pub struct Inboxes {
    epoch: Epoch,
    nodes: BTreeMap<NodeId, InboxView>,
}

#[derive(Debug, Default)]
struct InboxView {
    last_sent: u64,
    /// Messages that the node has not reported yet.
    on_their_way: VecDeque<Message>,
    reported: BTreeMap<QueueName, u64>,
    /// Since when runs of a queue wait without one being handed out.
    since: BTreeMap<QueueName, Timestamp>,
}

#[derive(Debug)]
struct Message {
    seq: u64,
    sent_at: Timestamp,
    runs: BTreeMap<QueueName, u64>,
}

impl Inboxes {
    /// Returns the inboxes at the begin of a term, to which nothing was sent in it.
    pub fn new(epoch: Epoch) -> Self {
        Inboxes { epoch, nodes: BTreeMap::new() }
    }

    /// Returns the number of the next message to the node, which carries these runs of each queue.
    pub fn send(&mut self, node: &NodeId, runs: BTreeMap<QueueName, u64>, now: Timestamp) -> u64 {
        let view = self.view(node);
        view.last_sent += 1;
        if !runs.is_empty() {
            view.on_their_way.push_back(Message { seq: view.last_sent, sent_at: now, runs });
        }
        view.last_sent
    }

    /// Takes in a node's report.
    pub fn on_report(&mut self, node: &NodeId, report: &InboxReport, now: Timestamp) {
        let received = if report.epoch == self.epoch { report.seq } else { 0 };
        let view = self.view(node);
        view.on_their_way.retain(|message| message.seq > received);
        view.observe(&report.waiting, now);
    }

    /// Takes in how many runs of each queue wait in an inbox that this process reads itself.
    pub fn observe(&mut self, node: &NodeId, waiting: &BTreeMap<QueueName, u64>, now: Timestamp) {
        self.view(node).observe(waiting, now);
    }

    /// Gives up on messages that were sent `patience` ago or longer: they were lost, or the node is.
    pub fn forget_lost(&mut self, now: Timestamp, patience: Duration) {
        let is_recent = |at: Timestamp| Duration::try_from(now.duration_since(at)).is_ok_and(|age| age < patience);
        for view in self.nodes.values_mut() {
            // A message from the future: our clock went back. Its age counts from now.
            view.on_their_way.iter_mut().for_each(|message| message.sent_at = message.sent_at.min(now));
            view.on_their_way.retain(|message| is_recent(message.sent_at));
        }
    }

    /// Forgets a node that is gone.
    pub fn forget(&mut self, node: &NodeId) {
        self.nodes.remove(node);
    }

    /// Returns how many runs of the queue were sent to the node and are in no worker's hands.
    pub fn waiting(&self, node: &NodeId, queue: &QueueName) -> u64 {
        let Some(view) = self.nodes.get(node) else { return 0 };
        let on_their_way: u64 = view.on_their_way.iter().filter_map(|message| message.runs.get(queue)).sum();
        view.reported.get(queue).copied().unwrap_or(0).saturating_add(on_their_way)
    }

    /// Returns the same for all queues together.
    pub fn waiting_in_all(&self, node: &NodeId) -> u64 {
        let Some(view) = self.nodes.get(node) else { return 0 };
        let on_their_way = view.on_their_way.iter().flat_map(|message| message.runs.values());
        view.reported.values().chain(on_their_way).fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the nodes at which runs of the queue wait.
    pub fn holders(&self, queue: &QueueName) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.nodes.keys().filter(|node| self.waiting(node, queue) > 0).cloned().collect();
        nodes.sort();
        nodes
    }

    /// Returns the queues of which runs have waited at a node for `patience` without one being handed out.
    pub fn stuck(&self, now: Timestamp, patience: Duration) -> Vec<(NodeId, QueueName)> {
        let is_long = |at: &Timestamp| Duration::try_from(now.duration_since(*at)).is_ok_and(|age| age >= patience);
        let mut stuck: Vec<(NodeId, QueueName)> = Vec::new();
        for (node, view) in &self.nodes {
            let queues = view.since.iter().filter(|(_, since)| is_long(since)).map(|(queue, _)| queue);
            stuck.extend(queues.map(|queue| (node.clone(), queue.clone())));
        }
        stuck.sort();
        stuck
    }

    fn view(&mut self, node: &NodeId) -> &mut InboxView {
        self.nodes.entry(node.clone()).or_default()
    }
}

impl InboxView {
    fn observe(&mut self, waiting: &BTreeMap<QueueName, u64>, now: Timestamp) {
        self.since.retain(|queue, _| waiting.get(queue).is_some_and(|count| *count > 0));
        for (queue, count) in waiting.iter().filter(|(_, count)| **count > 0) {
            let has_shrunk = self.reported.get(queue).is_some_and(|before| count < before);
            let since = self.since.get(queue).copied().filter(|since| !has_shrunk && *since <= now);
            self.since.insert(queue.clone(), since.unwrap_or(now));
        }
        if self.reported != *waiting {
            self.reported.clone_from(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).expect("in range")
    }

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    fn node(name: &str) -> NodeId {
        NodeId::new(name).expect("a name")
    }

    fn runs(of: &[(&str, u64)]) -> BTreeMap<QueueName, u64> {
        of.iter().map(|(name, count)| (queue(name), *count)).collect()
    }

    fn report(epoch: u64, seq: u64, waiting: &[(&str, u64)]) -> InboxReport {
        InboxReport { epoch: Epoch(epoch), seq, waiting: runs(waiting), prefetch: 0 }
    }

    #[test]
    fn runs_wait_from_the_sending_of_their_message_until_a_worker_has_them() {
        let mut inboxes = Inboxes::new(Epoch(7));
        assert_eq!(inboxes.send(&node("n"), runs(&[("a", 3), ("b", 1)]), at(0)), 1);
        assert_eq!(inboxes.send(&node("n"), runs(&[("a", 2)]), at(1)), 2);
        assert_eq!(inboxes.waiting(&node("n"), &queue("a")), 5);
        // The first has arrived, and two of its runs were handed out.
        inboxes.on_report(&node("n"), &report(7, 1, &[("a", 1), ("b", 1)]), at(2));
        let waiting = |inboxes: &Inboxes, name| inboxes.waiting(&node("n"), &queue(name));
        assert_eq!((waiting(&inboxes, "a"), waiting(&inboxes, "b"), inboxes.waiting_in_all(&node("n"))), (3, 1, 4));
        assert_eq!(inboxes.holders(&queue("b")), [node("n")]);
        inboxes.on_report(&node("n"), &report(7, 2, &[]), at(3));
        assert_eq!((inboxes.waiting_in_all(&node("n")), inboxes.holders(&queue("a"))), (0, vec![]));
        assert_eq!(inboxes.waiting(&node("other"), &queue("a")), 0);
    }

    #[test]
    fn a_report_about_another_term_acknowledges_nothing_of_this_one() {
        let mut inboxes = Inboxes::new(Epoch(7));
        inboxes.send(&node("n"), runs(&[("a", 3)]), at(0));
        inboxes.on_report(&node("n"), &report(6, 100, &[("a", 2)]), at(1));
        assert_eq!(inboxes.waiting(&node("n"), &queue("a")), 5, "two from before, three on their way");
    }

    #[test]
    fn a_lost_message_counts_until_a_later_one_arrives_or_it_is_given_up() {
        let mut inboxes = Inboxes::new(Epoch(7));
        inboxes.send(&node("n"), runs(&[("a", 3)]), at(0));
        inboxes.send(&node("n"), runs(&[("a", 2)]), at(1));
        inboxes.on_report(&node("n"), &report(7, 2, &[("a", 2)]), at(2));
        assert_eq!(inboxes.waiting(&node("n"), &queue("a")), 2);
        inboxes.send(&node("n"), runs(&[("a", 4)]), at(3));
        inboxes.forget_lost(at(1_002), Duration::from_secs(1));
        assert_eq!(inboxes.waiting(&node("n"), &queue("a")), 6);
        inboxes.forget_lost(at(1_003), Duration::from_secs(1));
        assert_eq!(inboxes.waiting(&node("n"), &queue("a")), 2);
        // A clock that was set back must not keep a message for ever.
        inboxes.send(&node("n"), runs(&[("a", 4)]), at(100_000));
        inboxes.forget_lost(at(0), Duration::from_secs(1));
        inboxes.forget_lost(at(1_000), Duration::from_secs(1));
        assert_eq!(inboxes.waiting(&node("n"), &queue("a")), 2);
        inboxes.forget(&node("n"));
        assert_eq!(inboxes.waiting(&node("n"), &queue("a")), 0);
    }

    #[test]
    fn a_queue_is_stuck_if_its_runs_wait_and_none_is_handed_out() {
        let (mut inboxes, second) = (Inboxes::new(Epoch(7)), Duration::from_secs(1));
        inboxes.on_report(&node("n"), &report(7, 0, &[("a", 3), ("b", 1)]), at(0));
        inboxes.on_report(&node("n"), &report(7, 0, &[("a", 5), ("b", 1)]), at(600));
        assert_eq!(inboxes.stuck(at(999), second), []);
        assert_eq!(inboxes.stuck(at(1_000), second), [(node("n"), queue("a")), (node("n"), queue("b"))]);
        // One of a was handed out, none of b is left.
        inboxes.on_report(&node("n"), &report(7, 0, &[("a", 4)]), at(1_000));
        assert_eq!(inboxes.stuck(at(1_999), second), []);
        assert_eq!(inboxes.stuck(at(2_000), second), [(node("n"), queue("a"))]);
    }

    proptest! {
        /// A node that receives every message in order, at any time, and reports at any time, is never believed to have
        /// fewer runs than it has, and has as many once all are reported.
        #[test]
        fn no_run_that_was_sent_is_forgotten(steps in prop::collection::vec((0..4u8, 1..5u64), 1..80)) {
            let (own, a) = (node("n"), queue("a"));
            let mut inboxes = Inboxes::new(Epoch(1));
            let (mut wire, mut inbox, mut seq) = (VecDeque::new(), 0u64, 0u64);
            for (step, count) in steps {
                match step {
                    0 => wire.push_back((inboxes.send(&own, runs(&[("a", count)]), at(0)), count)),
                    1 => if let Some((number, count)) = wire.pop_front() {
                        (seq, inbox) = (number, inbox + count);
                    },
                    2 => inbox = inbox.saturating_sub(count),
                    _ => inboxes.on_report(&own, &report(1, seq, &[("a", inbox)]), at(0)),
                }
                // A handout only makes fewer of them; all else is known.
                let on_the_wire: u64 = wire.iter().map(|(_, count)| count).sum();
                prop_assert!(inboxes.waiting(&own, &a) >= on_the_wire + inbox);
            }
            while let Some((number, count)) = wire.pop_front() {
                (seq, inbox) = (number, inbox + count);
            }
            inboxes.on_report(&own, &report(1, seq, &[("a", inbox)]), at(0));
            prop_assert_eq!(inboxes.waiting(&own, &a), inbox);
            prop_assert_eq!(inboxes.waiting_in_all(&own), inbox);
        }
    }
}
