//! Forwards events to watchers on other nodes.
//!
//! While another node has watchers, the events of this node are gathered and sent in batches on the topic `events`. The
//! interest of other nodes is soft state: they publish it on `interest` when their first watcher comes, and again with
//! every heartbeat; it expires if it is not repeated. Without interest no event is made or sent. Events beyond the
//! permitted rate are dropped and counted, and the watchers receive their number (`lagged`).
//!
//! A node that has just started does not know yet which nodes have watchers. For a moment it keeps the few events so
//! far (its own arrival first of all), until the others have replied to its request.
//!
//! An event from another node is shown to the watchers of this one and not forwarded: there is no echo.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_core::jobs::event::{ClusterEvent, Event};
use convoke_core::jobs::wire::{self, Events, V1};
use convoke_core::ports::Clock;
use convoke_core::{NodeId, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tracing::debug;

use super::duty::{DutyRun, WokenBy};
use super::node::{Node, NodeBase};

/// At most one batch per interval: 20,000 events a second.
const BATCH_MAX: usize = 500;
const PACE: Duration = Duration::from_millis(25);
/// Events that wait to be sent.
const QUEUE_MAX: usize = 4_096;
/// How long a node that has started keeps events for nodes that have not published their interest yet.
const GRACE: Duration = Duration::from_secs(2);
const WATCHERS_MAX: usize = 1_024;

/// How many events a slow watcher may lag behind.
const WATCHER_BACKLOG: usize = 4_096;

/// Publishes events to watchers on this node and on others.
pub struct EventPublisher {
    node: NodeId,
    clock: Arc<dyn Clock>,
    watchers: broadcast::Sender<Arc<Event>>,
    pub forwarding: Forwarding,
}

impl EventPublisher {
    pub fn new(node: NodeId, clock: Arc<dyn Clock>) -> Self {
        let watchers = broadcast::Sender::new(WATCHER_BACKLOG);
        EventPublisher { node, clock, watchers, forwarding: Forwarding::default() }
    }

    /// Returns whether an event would have a receiver.
    pub fn is_watched(&self) -> bool {
        self.forwarding.is_wanted() || self.is_watched_here()
    }

    pub fn is_watched_here(&self) -> bool {
        self.watchers.receiver_count() > 0
    }

    pub fn watch(&self) -> broadcast::Receiver<Arc<Event>> {
        self.watchers.subscribe()
    }

    /// Publishes an event of this node.
    pub fn publish(&self, what: ClusterEvent) {
        let (here, elsewhere) = (self.is_watched_here(), self.forwarding.may_be_wanted());
        if !here && !elsewhere {
            return;
        }
        let event = Arc::new(Event { node: Some(self.node.clone()), ..Event::new(self.clock.now(), what) });
        if elsewhere && !event.is_seen_everywhere() {
            self.forwarding.add(event.clone());
        }
        if here {
            self.send(event);
        }
    }

    /// Publishes an event of another node to the watchers of this one.
    pub fn publish_remote_event(&self, event: Event) {
        self.send(Arc::new(event));
    }

    fn send(&self, event: Arc<Event>) {
        // Fails only if the last watcher has just left.
        let _ = self.watchers.send(event);
    }
}

pub struct Forwarding {
    started: Instant,
    is_wanted: AtomicBool,
    /// Nodes that have watchers, and when their interest expires unless it is repeated.
    watchers: Mutex<BTreeMap<NodeId, Instant>>,
    queue: Mutex<Queue>,
    ring: Notify,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Arc<Event>>,
    missed: u64,
}

impl Default for Forwarding {
    fn default() -> Self {
        Forwarding {
            started: Instant::now(),
            is_wanted: AtomicBool::new(false),
            watchers: Mutex::default(),
            queue: Mutex::default(),
            ring: Notify::new(),
        }
    }
}

impl Forwarding {
    /// Returns whether another node has watchers.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Returns whether an event may turn out to be wanted.
    pub fn may_be_wanted(&self) -> bool {
        self.is_wanted() || self.started.elapsed() < GRACE
    }

    pub fn add(&self, event: Arc<Event>) {
        let mut queue = self.queue.lock();
        if queue.events.len() < QUEUE_MAX {
            queue.events.push_back(event);
        } else {
            queue.missed += 1;
        }
        drop(queue);
        self.ring.notify_one();
    }

    /// Records that `node` has watchers, or none any more.
    pub fn watched_by(&self, node: &NodeId, watches: bool, until: Instant) {
        let mut watchers = self.watchers.lock();
        if !watches {
            watchers.remove(node);
        } else if watchers.len() < WATCHERS_MAX || watchers.contains_key(node) {
            watchers.insert(node.clone(), until);
        }
        self.set_wanted(!watchers.is_empty());
    }

    /// Forgets nodes that have not repeated their interest.
    pub fn expire(&self, now: Instant) {
        let mut watchers = self.watchers.lock();
        watchers.retain(|_, until| *until > now);
        self.set_wanted(!watchers.is_empty());
    }

    fn set_wanted(&self, wanted: bool) {
        let was_wanted = self.is_wanted.swap(wanted, Ordering::Relaxed);
        if !was_wanted && self.started.elapsed() >= GRACE {
            // Events that were kept without a watcher are out of date.
            *self.queue.lock() = Queue::default();
        }
        if wanted && !was_wanted {
            self.ring.notify_one();
        }
    }

    fn take(&self) -> (Vec<Arc<Event>>, u64, bool) {
        let mut queue = self.queue.lock();
        let count = queue.events.len().min(BATCH_MAX);
        let batch = queue.events.drain(..count).collect();
        let missed = std::mem::take(&mut queue.missed);
        (batch, missed, queue.events.is_empty())
    }
}

/// Sends the events that other nodes want.
pub async fn forward(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let forwarding = &node.events.forwarding;
    while run.wait(forwarding.ring.notified()).await.is_some() {
        while forwarding.is_wanted() {
            let is_done = send(&node).await;
            // Also after the last batch: events that happen meanwhile go into the next one.
            if !run.sleep(PACE).await || is_done {
                break;
            }
        }
    }
    Ok(())
}

/// Sends the remaining events of a node that stops.
pub async fn flush(node: &NodeBase) {
    while node.events.forwarding.is_wanted() && !send(node).await {}
}

/// Sends one batch. Returns whether nothing is left.
async fn send(node: &NodeBase) -> bool {
    let (batch, missed, is_empty) = node.events.forwarding.take();
    if !batch.is_empty() || missed > 0 {
        let events = batch.iter().map(|event| Event::clone(event)).collect();
        let message = wire::encode(&Events { v: V1, node_id: node.id.clone(), events, missed });
        if let Err(error) = node.bus().publish(&node.channels.events(), message).await {
            debug!(%error, "publishing events to other nodes failed");
        }
    }
    is_empty
}

/// Publishes the events of other nodes to the watchers of this one.
pub fn publish_remote_events(node: &NodeBase, message: Events) {
    if message.node_id == node.id {
        return;
    }
    let from = Some(message.node_id);
    for event in message.events {
        node.events.publish_remote_event(Event { node: from.clone(), ..event });
    }
    if message.missed > 0 {
        let lagged = ClusterEvent::Lagged { missed: message.missed };
        node.events.publish_remote_event(Event { node: from, ..Event::new(node.now(), lagged) });
    }
}

#[cfg(test)]
mod tests {
    use convoke_core::jobs::event::NodeChange;

    use super::*;

    fn name(name: &str) -> NodeId {
        NodeId::new(name).expect("a name")
    }

    fn event() -> Arc<Event> {
        let what = ClusterEvent::Node { change: NodeChange::Joined, node_id: name("n") };
        Arc::new(Event::new(jiff::Timestamp::UNIX_EPOCH, what))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_wanted_while_some_node_says_so() {
        let forwarding = Forwarding::default();
        tokio::time::advance(GRACE).await;
        assert!(!forwarding.may_be_wanted());
        forwarding.watched_by(&name("a"), true, soon());
        forwarding.watched_by(&name("b"), true, soon());
        forwarding.watched_by(&name("a"), false, soon());
        assert!(forwarding.is_wanted());
        forwarding.expire(soon());
        assert!(!forwarding.may_be_wanted());
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_at_the_start_is_kept_for_those_who_answer_in_time() {
        let forwarding = Forwarding::default();
        forwarding.add(event());
        forwarding.watched_by(&name("a"), true, soon());
        assert_eq!(forwarding.take().0.len(), 1);
        let late = Forwarding::default();
        late.add(event());
        tokio::time::advance(GRACE).await;
        late.watched_by(&name("a"), true, soon());
        assert_eq!(late.take().0.len(), 0, "it is no news any more");
    }

    #[tokio::test]
    async fn what_is_too_much_is_dropped_and_counted() {
        let forwarding = Forwarding::default();
        for _ in 0..QUEUE_MAX + 7 {
            forwarding.add(event());
        }
        let (batch, missed, is_empty) = forwarding.take();
        assert_eq!((batch.len(), missed, is_empty), (BATCH_MAX, 7, false));
        assert_eq!(forwarding.take().1, 0, "they are counted once");
    }
}
