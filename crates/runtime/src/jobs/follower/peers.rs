//! The other nodes, as their heartbeats show them: how much they own, whether they take more.
//!
//! Heartbeats come by the bus, at most once; the registry in the store is read now and then to fill what was missed. Nothing
//! is decided from them that the store does not check: a run moves by compare-and-set, a leader by its lease.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::NodeId;
use convoke_core::jobs::wire::{CoordinatorHeartbeat, NodeRole, NodeState};
use convoke_core::ports::store::NodeRecord;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::jobs::node::Node;
use crate::jobs::telemetry;

pub struct Peers {
    known: Mutex<HashMap<NodeId, Peer>>,
    /// Whether this node may be given more.
    room: watch::Sender<bool>,
    /// Rings when the leader says that it leads no longer.
    pub vacancy: Arc<Notify>,
}

#[derive(Debug, Clone, Copy)]
struct Peer {
    job_count: u64,
    state: NodeState,
    seen: Instant,
}

impl Default for Peers {
    fn default() -> Self {
        Peers { known: Mutex::default(), room: watch::Sender::new(true), vacancy: Arc::default() }
    }
}

impl Peers {
    fn beat(&self, beat: &CoordinatorHeartbeat, now: Instant) {
        let peer = Peer { job_count: beat.job_count, state: beat.state, seen: now };
        self.known.lock().insert(beat.node_id.clone(), peer);
    }

    /// Follows the registry: who is not in it is gone, who is new in it is known.
    pub fn refresh(&self, own: &NodeId, nodes: &[NodeRecord], now: Timestamp) {
        let (monotonic, mut known) = (Instant::now(), self.known.lock());
        known.retain(|id, _| nodes.iter().any(|node| &node.node_id == id));
        for node in nodes.iter().filter(|node| &node.node_id != own) {
            let age = Duration::try_from(now.duration_since(node.last_heartbeat_at)).unwrap_or_default();
            let seen = monotonic.checked_sub(age).unwrap_or(monotonic);
            let peer = Peer { job_count: node.job_count, state: node.state, seen };
            let current = known.entry(node.node_id.clone()).or_insert(peer);
            if current.seen < seen {
                *current = peer;
            }
        }
    }

    /// The loads of those that live and take more.
    pub fn loads(&self, within: Duration) -> Vec<u64> {
        let known = self.known.lock();
        let live = known.values().filter(|peer| peer.state == NodeState::Active && peer.seen.elapsed() <= within);
        live.map(|peer| peer.job_count).collect()
    }

    pub fn has_room(&self) -> watch::Receiver<bool> {
        self.room.subscribe()
    }

    pub fn set_room(&self, room: bool) {
        self.room.send_if_modified(|current| std::mem::replace(current, room) != room);
    }
}

/// Whether somebody could take this node's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prospects {
    /// Another node lives and takes runs.
    Good,
    /// There are others, but they are silent.
    Silent,
    /// There is nobody else, or all others are on their way out too.
    None,
}

pub async fn prospects(node: &Node) -> Prospects {
    let nodes = match node.store().nodes().await {
        Ok(nodes) => nodes,
        Err(error) => {
            node.outages.failed("node registry", &error);
            let live = node.peers.loads(node.settings.cluster.dead_node_timeout);
            return if live.is_empty() { Prospects::Silent } else { Prospects::Good };
        }
    };
    node.peers.refresh(&node.id, &nodes, node.now());
    let horizon = node.now() - node.settings.cluster.dead_node_timeout;
    let others = nodes.iter().filter(|other| other.node_id != node.id);
    let mut active = others.filter(|other| other.state == NodeState::Active).peekable();
    if active.peek().is_none() {
        return Prospects::None;
    }
    if active.any(|other| other.last_heartbeat_at >= horizon) { Prospects::Good } else { Prospects::Silent }
}

/// Hears `coordinator.heartbeat` until `stop`.
pub async fn hear_peers(node: Arc<Node>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let heard = tokio::select! {
            () = stop.cancelled() => return,
            heard = hear(&node) => heard,
        };
        if let Err(error) = heard {
            node.outages.failed("heartbeats of other nodes", &error);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

async fn hear(node: &Node) -> convoke_core::Result<()> {
    let mut beats = node.bus().subscribe(&[node.channels.coordinator_heartbeat(), node.channels.taken()]).await?;
    loop {
        let Some(message) = beats.next().await? else { continue };
        if message.channel == node.channels.taken() {
            match serde_json::from_slice::<convoke_core::jobs::wire::Taken>(&message.body) {
                Ok(taken) if taken.node_id != node.id => {
                    node.claims.taken_elsewhere(&taken.executions, Instant::now());
                }
                Ok(_) => {}
                Err(error) => telemetry::poison(node, message.channel, message.body, &error).await,
            }
            continue;
        }
        match serde_json::from_slice::<CoordinatorHeartbeat>(&message.body) {
            Ok(beat) if beat.node_id == node.id => {}
            Ok(beat) => {
                let resigned =
                    beat.role == NodeRole::Follower && node.leadership.borrow().leader.as_ref() == Some(&beat.node_id);
                node.peers.beat(&beat, Instant::now());
                if resigned {
                    node.peers.vacancy.notify_one();
                }
            }
            Err(error) => telemetry::poison(node, message.channel, message.body, &error).await,
        }
    }
}
