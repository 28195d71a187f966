//! Messages between nodes for the sake of views, waiters and watchers.
//!
//! One subscription receives them all: changed keys that may be cached here, the interest of other nodes, awaited jobs
//! that have ended, events of other nodes, and heartbeats. Heartbeats of workers are many, so the node subscribes to
//! them only while a client reads workers. Everything here is a hint. A node that subscribes, or may have missed a
//! message, clears its cache, wakes its waiters to read the store, and asks the others for their interest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::history::HistoryMessage;
use convoke_core::jobs::event::{ClusterEvent, Event};
use convoke_core::jobs::wire::{
    self, CoordinatorHeartbeat, DrainRequest, Ended, Events, Interest, Outdated, V1, WorkerHeartbeat,
};
use convoke_core::ports::Message;
use convoke_core::{Epoch, JobId, NodeId, Result};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use super::cache::{self, Cache, Kind};
use super::duty::{DutyRun, SubscribedTo, WokenBy};
use super::feed::{Feed, Received};
use super::node::{Node, NodeBase};
use super::views::Views;
use super::{events_forward, history, telemetry, waiting};

const MESSAGE_JOBS_MAX: usize = 1_000;
const BELIEFS_MAX: usize = 1_024;
/// The state of the one subscription that every node has.
const ALWAYS_SUBSCRIBED: [Kind; 2] = [Kind::Job, Kind::Node];

#[derive(Default)]
pub struct NodeHints {
    /// Whom each node believes to lead, by its last heartbeat.
    beliefs: Mutex<BTreeMap<NodeId, Belief>>,
    /// Notified when another node asked for this node's interest, or its first watcher has come.
    must_announce_all: AtomicBool,
    /// Notified when the subscription starts: the others are to publish their interest.
    must_ask: AtomicBool,
    ring: Notify,
}

impl NodeHints {
    pub fn belief_of(&self, node: &NodeId) -> Option<Belief> {
        self.beliefs.lock().get(node).cloned()
    }

    /// Publishes all interest of this node again, at once.
    pub fn announce_all(&self) {
        self.must_announce_all.store(true, Ordering::SeqCst);
        self.ring.notify_one();
    }

    fn request_interest(&self) {
        self.must_ask.store(true, Ordering::SeqCst);
        self.ring.notify_one();
    }

    fn record_belief(&self, heartbeat: CoordinatorHeartbeat) {
        let CoordinatorHeartbeat { node_id, leader, epoch, lease_read_at, at, .. } = heartbeat;
        let mut beliefs = self.beliefs.lock();
        if beliefs.len() >= BELIEFS_MAX && !beliefs.contains_key(&node_id) {
            beliefs.clear();
        }
        beliefs.insert(node_id, Belief { leader, epoch, lease_read_at, at });
    }
}

/// Whom a node believes to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belief {
    /// `None` if it knows of no leader.
    pub leader: Option<NodeId>,
    /// The highest term that it knows of.
    pub epoch: Epoch,
    /// When it last read or renewed the lease, by its clock.
    pub lease_read_at: Option<Timestamp>,
    /// When it sent this, by its clock.
    pub at: Timestamp,
}

/// Publishes the gathered messages, and with every heartbeat the interest of this node.
pub async fn publish_hints(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let (Views { cache, node_hints, .. }, waiters) = (&node.views, &node.gateway.waiters);
    let mut was_watched = false;
    let mut refresh = Instant::now();
    loop {
        refresh = refresh.max(Instant::now());
        let woken = run.wait(async {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(refresh) => true,
                () = cache.ring.notified() => false,
                () = waiters.ring.notified() => false,
                () = node_hints.ring.notified() => false,
            }
        });
        let Some(is_due) = woken.await else { return Ok(()) };
        cache::publish_outdated(&node, cache).await;
        waiting::publish_ended(&node, waiters).await;
        let asks = node_hints.must_ask.swap(false, Ordering::SeqCst);
        let announces_all = node_hints.must_announce_all.swap(false, Ordering::SeqCst) || is_due || asks;
        let unannounced = waiters.take_unannounced();
        let is_watched = node.is_watched_here();
        if is_due {
            refresh += node.settings.cluster.heartbeat_interval;
            waiters.expire(Instant::now());
            node.events.forwarding.expire(Instant::now());
        }
        let jobs = if announces_all { waiters.all() } else { unannounced };
        // Published also when the last watcher has gone, so that the others can stop.
        if asks || !jobs.is_empty() || (announces_all && (is_watched || was_watched)) {
            publish_interest(&node, is_watched, &jobs, asks).await;
            was_watched = is_watched;
        }
    }
}

async fn publish_interest(node: &NodeBase, events: bool, jobs: &[JobId], mut asks: bool) {
    let mut chunks: Vec<&[JobId]> = jobs.chunks(MESSAGE_JOBS_MAX).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    for jobs in chunks {
        let interest = Interest { v: V1, node_id: node.id.clone(), events, jobs: jobs.to_vec(), asks };
        asks = false;
        if let Err(error) = node.bus().publish(&node.channels.interest(), wire::encode(&interest)).await {
            debug!(%error, "publishing interest in events failed");
        }
    }
}

/// Publishes the last messages of a node that has left: it is no longer in the registry, and its last events are sent.
pub async fn publish_departure(node: &Node) {
    node.views.cache.node_changed(&node.id);
    cache::publish_outdated(node, &node.views.cache).await;
    waiting::publish_ended(node, &node.gateway.waiters).await;
    events_forward::flush(node).await;
    history::send(node).await;
}

/// Receives the messages of the other nodes.
pub async fn receive_hints(node: Arc<Node>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let (Views { cache, node_hints, .. }, waiters) = (&node.views, &node.gateway.waiters);
    let mut feed = run.feed("messages of other nodes").observing_reach();
    // A previous run of this duty may have ended in the middle.
    cache.deaf(&ALWAYS_SUBSCRIBED);
    while let Some(received) = run.next(&mut feed).await {
        match received {
            Received::Subscribed => {
                cache.mark_subscribed(&ALWAYS_SUBSCRIBED);
                node_hints.request_interest();
                node.history.ask();
            }
            Received::Message(message) => take(&node, message).await,
            Received::Missed => {
                cache.missed(&ALWAYS_SUBSCRIBED);
                waiters.wake_all_here();
                node_hints.request_interest();
                node.history.ask();
                if node.is_watched_here() {
                    node.events.publish_remote_event(Event::new(node.now(), ClusterEvent::Lagged { missed: 1 }));
                }
            }
            Received::Broken => {
                cache.deaf(&ALWAYS_SUBSCRIBED);
                waiters.wake_all_here();
            }
        }
    }
    cache.deaf(&ALWAYS_SUBSCRIBED);
    waiters.wake_all_here();
    Ok(())
}

async fn take(node: &Node, message: Message) {
    let Message { channel, body } = message;
    let channels = &node.channels;
    if channel == channels.coordinator_heartbeat() {
        // The duty that receives it sets it aside if it cannot be read.
        if let Ok(heartbeat) = serde_json::from_slice::<CoordinatorHeartbeat>(&body) {
            node.views.cache.node_heartbeat_received(&heartbeat.node_id);
            node.views.node_hints.record_belief(heartbeat);
        }
    } else if channel == channels.events() {
        // Most nodes have no watchers, and need not even decode it.
        if node.is_watched_here()
            && let Some(events) = read::<Events>(node, channel, body).await
        {
            events_forward::publish_remote_events(node, events);
        }
    } else if channel == channels.history() {
        let Some(message) = read::<HistoryMessage>(node, channel, body).await else { return };
        node.history.receive(message, node.now());
    } else if channel == channels.cache() {
        let Some(outdated) = read::<Outdated>(node, channel, body).await else { return };
        node.views.cache.apply_outdated(&outdated);
    } else if channel == channels.ended() {
        let Some(ended) = read::<Ended>(node, channel, body).await else { return };
        ended.jobs.into_iter().for_each(|job| node.gateway.waiters.wake_here(job));
    } else if channel == channels.drain() {
        let Some(request) = read::<DrainRequest>(node, channel, body).await else { return };
        if request.node_id == node.id {
            node.begin_draining();
            node.drain.requested.cancel();
        }
    } else if channel == channels.interest() {
        let Some(interest) = read::<Interest>(node, channel, body).await else { return };
        if interest.node_id != node.id {
            record_interest(node, interest);
        }
    }
}

fn record_interest(node: &Node, interest: Interest) {
    let until = Instant::now() + node.settings.cluster.dead_node_timeout;
    node.events.forwarding.watched_by(&interest.node_id, interest.events, until);
    node.gateway.waiters.awaited_elsewhere(&interest.jobs, until);
    if interest.asks {
        node.views.node_hints.announce_all();
    }
}

async fn read<T: DeserializeOwned>(node: &NodeBase, channel: String, body: Bytes) -> Option<T> {
    match serde_json::from_slice(&body) {
        Ok(message) => Some(message),
        Err(error) => {
            telemetry::poison(node, channel, body, &error).await;
            None
        }
    }
}

/// Receives the heartbeats of workers while a client reads workers.
pub async fn receive_worker_heartbeats(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let cache = &node.views.cache;
    // A previous run of this duty may have ended in the middle.
    cache.deaf(&[Kind::Worker]);
    while run.wait(cache.workers_read.notified()).await.is_some() {
        let topics = vec![node.channels.worker_heartbeat()];
        let mut feed = Feed::new(node.base.clone(), topics, "worker heartbeats").observing_reach();
        let patience = cache.lifetime(Kind::Worker);
        let mut until = Instant::now() + patience;
        // Until no client has read them for as long as an entry lives.
        while let Some(Some(received)) = run.wait(next_while_read(cache, &mut feed, &mut until, patience)).await {
            match received {
                Received::Subscribed => cache.mark_subscribed(&[Kind::Worker]),
                Received::Message(Message { channel, body }) => {
                    match serde_json::from_slice::<WorkerHeartbeat>(&body) {
                        Ok(heartbeat) => cache.worker_heartbeat_received(&heartbeat.worker_id),
                        // The leader receives it too, and sets it aside.
                        Err(error) => debug!(channel, %error, "worker heartbeat could not be read"),
                    }
                }
                Received::Missed => cache.missed(&[Kind::Worker]),
                Received::Broken => cache.deaf(&[Kind::Worker]),
            }
        }
        cache.deaf(&[Kind::Worker]);
    }
    Ok(())
}

/// Returns the next message; `None` once no client has read workers for this long.
async fn next_while_read(cache: &Cache, feed: &mut Feed, until: &mut Instant, patience: Duration) -> Option<Received> {
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(*until) => return None,
            () = cache.workers_read.notified() => *until = Instant::now() + patience,
            received = feed.next() => return Some(received),
        }
    }
}
