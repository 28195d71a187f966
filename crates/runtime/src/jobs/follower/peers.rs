//! The other nodes, by their heartbeats: how many runs they own, and whether they take more.
//!
//! Heartbeats come by the bus, at most once; the registry in the store is read now and then to fill gaps. Nothing is
//! decided from them that the store does not check: a run moves by compare-and-set, a leader by its lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::Moment;
use convoke_core::jobs::liveness::Liveness;
use convoke_core::jobs::wire::{CoordinatorHeartbeat, NodeRole, NodeState};
use convoke_core::ports::Message;
use convoke_core::ports::store::NodeRecord;
use convoke_core::{NodeId, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::jobs::ClusterSettings;
use crate::jobs::duty::{DutyRun, SubscribedTo};
use crate::jobs::feed::Received;
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::telemetry;

pub struct Peers {
    known: Mutex<Known>,
    /// The origin of the moments below.
    origin: Instant,
    /// Whether this node may receive more runs.
    room: watch::Sender<bool>,
    /// Notified when the leader publishes that it no longer leads.
    pub vacancy: Arc<Notify>,
}

struct Known {
    peers: BTreeMap<NodeId, Peer>,
    registry: Liveness,
    /// The registry as it was read last.
    last: Option<(Instant, Vec<NodeRecord>)>,
}

#[derive(Debug, Clone, Copy)]
struct Peer {
    job_count: u64,
    state: NodeState,
    seen: Instant,
}

impl Peers {
    pub fn new(settings: &ClusterSettings) -> Self {
        let registry = Liveness::new(settings.heartbeat_interval, settings.dead_node_timeout);
        let known = Known { peers: BTreeMap::new(), registry, last: None };
        Peers {
            known: Mutex::new(known),
            origin: Instant::now(),
            room: watch::Sender::new(true),
            vacancy: Arc::default(),
        }
    }

    fn on_heartbeat(&self, heartbeat: &CoordinatorHeartbeat, now: Instant) {
        let peer = Peer { job_count: heartbeat.job_count, state: heartbeat.state, seen: now };
        self.known.lock().peers.insert(heartbeat.node_id.clone(), peer);
    }

    /// Follows the registry: adds new nodes and removes those that are not in it.
    pub fn refresh(&self, own: &NodeId, nodes: &[NodeRecord]) {
        let mut known = self.known.lock();
        known.last = Some((Instant::now(), nodes.to_vec()));
        let Known { peers, registry, .. } = &mut *known;
        registry.observe(nodes, Moment(self.origin.elapsed()));
        let present = |node: &&NodeRecord| !node.state.is_gone();
        peers.retain(|id, _| nodes.iter().filter(present).any(|node| &node.node_id == id));
        for node in nodes.iter().filter(present).filter(|node| &node.node_id != own) {
            let Some(seen) = registry.seen(&node.node_id).map(|seen| self.origin + seen.0) else { continue };
            let peer = Peer { job_count: node.job_count, state: node.state, seen };
            let current = peers.entry(node.node_id.clone()).or_insert(peer);
            if current.seen < seen {
                *current = peer;
            }
        }
    }

    /// Returns the state of a node by its last heartbeat.
    pub fn state_of(&self, node: &NodeId) -> Option<NodeState> {
        self.known.lock().peers.get(node).map(|peer| peer.state)
    }

    /// Returns the registry as it was read last, and when that was.
    pub fn last_registry(&self) -> Option<(Instant, Vec<NodeRecord>)> {
        self.known.lock().last.clone()
    }

    /// Returns how long no sign of the node was received, neither by the bus nor in the registry.
    pub fn silent_for(&self, node: &NodeId) -> Duration {
        let received = self.known.lock().peers.get(node).map(|peer| peer.seen.elapsed());
        received.map_or_else(|| self.unchanged_for(node), |received| received.min(self.unchanged_for(node)))
    }

    /// Returns for how long the node's heartbeat in the registry has not changed, as far as this node has seen.
    pub fn unchanged_for(&self, node: &NodeId) -> Duration {
        let seen = self.known.lock().registry.seen(node);
        seen.map_or(Duration::ZERO, |seen| Moment(self.origin.elapsed()) - seen)
    }

    /// Returns the loads of the nodes that are alive and take more.
    pub fn loads(&self, within: Duration) -> Vec<u64> {
        let known = self.known.lock();
        let live = known.peers.values().filter(|peer| peer.state == NodeState::Active && peer.seen.elapsed() <= within);
        live.map(|peer| peer.job_count).collect()
    }

    pub fn has_room(&self) -> watch::Receiver<bool> {
        self.room.subscribe()
    }

    pub fn set_room(&self, room: bool) {
        self.room.send_if_modified(|current| std::mem::replace(current, room) != room);
    }
}

/// Whether another node could take this node's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prospects {
    /// Another node is alive and takes runs.
    Good,
    /// There are others, but they are silent.
    Silent,
    /// There are no other nodes, or all of them drain too.
    None,
}

/// Reads the registry, and records which heartbeats have changed since the last read.
pub async fn read_registry(node: &NodeBase, peers: &Peers) -> Result<Vec<NodeRecord>> {
    let nodes = node.reach.store.record_result(node.store().nodes().await, node.now())?;
    peers.refresh(&node.id, &nodes);
    Ok(nodes)
}

pub async fn prospects(node: &NodeBase, peers: &Peers) -> Prospects {
    let timeout = node.settings.cluster.dead_node_timeout;
    let nodes = match read_registry(node, peers).await {
        Ok(nodes) => nodes,
        Err(error) => {
            node.outages.failed("node registry", &error);
            let live = peers.loads(timeout);
            return if live.is_empty() { Prospects::Silent } else { Prospects::Good };
        }
    };
    let others = nodes.iter().filter(|other| other.node_id != node.id);
    let mut active = others.filter(|other| other.state == NodeState::Active).peekable();
    if active.peek().is_none() {
        return Prospects::None;
    }
    let lives = |other: &NodeRecord| peers.unchanged_for(&other.node_id) <= timeout;
    if active.any(lives) { Prospects::Good } else { Prospects::Silent }
}

/// Follows the heartbeats of other nodes. The registry fills gaps.
pub async fn receive_peer_heartbeats(node: Arc<Node>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let mut feed = run.feed("heartbeats of other nodes");
    while let Some(received) = run.next(&mut feed).await {
        if let Received::Message(message) = received {
            receive_heartbeats(&node, message).await;
        }
    }
    Ok(())
}

async fn receive_heartbeats(node: &Node, Message { channel, body }: Message) {
    let peers = &node.ownership.peers;
    match serde_json::from_slice::<CoordinatorHeartbeat>(&body) {
        Ok(heartbeat) if heartbeat.node_id == node.id => {}
        Ok(heartbeat) => {
            let leader = node.election.leadership.borrow().leader.clone();
            peers.on_heartbeat(&heartbeat, Instant::now());
            if heartbeat.role == Some(NodeRole::Follower) && leader.as_ref() == Some(&heartbeat.node_id) {
                peers.vacancy.notify_one();
            }
        }
        Err(error) => telemetry::poison(node, channel, body, &error).await,
    }
}
