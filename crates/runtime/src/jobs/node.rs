//! A node, in parts: the base that every part may use ([`NodeBase`]), and the state of each part, which is passed only
//! to the functions that need it.
//!
//! | state | of |
//! | --- | --- |
//! | [`Gateway`] | workers and clients that are connected here |
//! | [`Ownership`] | runs whose events this node records, and the other nodes that could |
//! | [`Views`] | cached views, shared with other nodes |
//! | [`Candidate`] | the election in which this node is a candidate |
//!
//! The state that only a leader has is in [`LeaderState`](super::leader::LeaderState): it begins and ends with a term.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use convoke_core::jobs::Claim;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::event::{ClusterEvent, Event, NodeChange};
use convoke_core::jobs::rejections::Rejections;
use convoke_core::jobs::wire::NodeState;
use convoke_core::ports::{Bus, Chance, Clock, Leases, QueueEnd, RisingIds, SharedCache, Store};
use convoke_core::{Error, ExecutionId, JobId, NodeId, Result};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::duty::Duty;
use super::events_forward::EventPublisher;
use super::follower::Ownership;
use super::gateway::Gateway;
use super::history::SharedHistory;
use super::reach::Reach;
use super::settings::Settings;
use super::views::Views;
use crate::election::{ElectionHealth, Leadership};
use crate::line_rate::LineRate;
use crate::outage::Outages;

/// The ports that a coordinator needs.
#[derive(Clone)]
pub struct Ports {
    /// The store of jobs, for the duties of the node.
    pub store: Arc<dyn Store>,
    /// The bus between nodes and workers.
    pub bus: Arc<dyn Bus>,
    /// The leases by which the nodes elect their leader.
    pub leases: Arc<dyn Leases>,
    /// The cache that nodes share. `None`: each node keeps its own.
    pub cache: Option<Arc<dyn SharedCache>>,
    /// The source of time; tests replace it.
    pub clock: Arc<dyn Clock>,
    /// The source of random numbers and ids; tests seed it.
    pub chance: Arc<dyn Chance>,
}

/// The consumer group of nodes on the bus.
pub const COORDINATORS: &str = "coordinators";

/// The base of every part of a node: its id, its ports and settings, and the publication of its events.
pub struct NodeBase {
    pub id: NodeId,
    pub ports: Ports,
    /// The same store as in `ports`. Clients' requests use it, so that they do not compete with duties for connections.
    pub client_store: Arc<dyn Store>,
    pub settings: Settings,
    pub channels: Channels,
    pub started_at: Timestamp,
    pub outages: Arc<Outages>,
    /// Lines about single jobs.
    pub job_lines: LineRate,
    /// Messages that were rejected and logged.
    pub rejections: Mutex<Rejections>,
    pub reach: Reach,
    pub drain: DrainState,
    pub events: Arc<EventPublisher>,
    job_ids: Mutex<RisingIds>,
    /// How often the duties that run at an interval were asked to run at once.
    pub run_now: watch::Sender<u64>,
    /// The recent past, for display.
    pub history: Arc<SharedHistory>,
}

/// Whether and since when a node drains.
#[derive(Default)]
pub struct DrainState {
    /// The node accepts no new work: waiting polls return at once.
    pub begun: CancellationToken,
    pub since: OnceLock<Timestamp>,
    /// The node was requested to hand its runs over and exit.
    pub requested: CancellationToken,
}

/// A node's part in the election.
pub struct Candidate {
    pub leadership: watch::Receiver<Leadership>,
    /// Where the campaign publishes who leads.
    pub view: watch::Sender<Leadership>,
    /// Whether this node could lead: it reaches the bus and the store.
    pub fitness: watch::Sender<bool>,
    /// The results of the campaign's requests, once it campaigns.
    pub health: RwLock<Option<Arc<ElectionHealth>>>,
    /// Ends the campaign and, with it, the term.
    pub resign: CancellationToken,
    /// All duties; those of the leader start with a term.
    pub duties: Arc<[Duty]>,
}

/// A node with the state of all its parts.
pub struct Node {
    pub base: Arc<NodeBase>,
    pub gateway: Gateway,
    pub ownership: Ownership,
    pub views: Views,
    pub election: Candidate,
}

impl Deref for Node {
    type Target = NodeBase;

    fn deref(&self) -> &NodeBase {
        &self.base
    }
}

impl NodeBase {
    fn new(id: NodeId, ports: Ports, settings: Settings) -> Self {
        let outages = Outages::new([
            ("store", ports.store.address()),
            ("bus", ports.bus.address()),
            ("leases", ports.leases.address()),
            ("cache", ports.cache.as_ref().map(|cache| cache.address()).unwrap_or_default()),
        ]);
        let now = ports.clock.now();
        NodeBase {
            client_store: ports.store.for_clients().unwrap_or_else(|| ports.store.clone()),
            channels: Channels::new(settings.bus.prefix.clone()),
            started_at: now,
            outages: Arc::new(outages),
            job_lines: LineRate::new("jobs"),
            rejections: Mutex::default(),
            reach: Reach::new(now),
            drain: DrainState::default(),
            events: Arc::new(EventPublisher::new(id.clone(), ports.clock.clone())),
            job_ids: Mutex::default(),
            run_now: watch::Sender::new(0),
            history: Arc::new(SharedHistory::new(id.clone(), now)),
            id,
            ports,
            settings,
        }
    }

    /// Returns the store for the duties of this node. Clients' requests use `client_store`.
    pub fn store(&self) -> &dyn Store {
        &*self.ports.store
    }

    pub fn bus(&self) -> &dyn Bus {
        &*self.ports.bus
    }

    /// Closes, of the channels that had these ends, those of `jobs`. The ends must have been read before the store
    /// returned whether the jobs have ended.
    pub async fn close_channels(&self, mut ends: Vec<QueueEnd>, jobs: &[JobId]) -> Result<()> {
        let jobs: BTreeSet<&JobId> = jobs.iter().collect();
        ends.retain(|end| self.channels.job_of(&end.queue).is_some_and(|(job, _)| jobs.contains(&job)));
        self.bus().close(&ends).await
    }

    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    pub fn job_id(&self) -> JobId {
        let now = self.now();
        JobId(self.job_ids.lock().next(now, &*self.ports.chance))
    }

    /// Returns the id of a new run, which contains the time by this node's clock.
    pub fn execution_id(&self, now: Timestamp) -> ExecutionId {
        ExecutionId(self.ports.chance.id(now))
    }

    /// Returns a word that no other node, worker or consumer has.
    pub fn unique_word(&self) -> String {
        self.ports.chance.id(self.now()).simple().to_string()
    }

    /// Returns a random number from 0 to below 1.
    pub fn fraction(&self) -> f64 {
        self.ports.chance.fraction()
    }

    /// Returns the claim of a gateway on the runs that it hands out. A draining node makes none: its runs need another
    /// owner.
    pub fn takes(&self) -> Option<Claim> {
        (!self.drain.begun.is_cancelled()).then(|| Claim::Take(self.id.clone()))
    }

    /// Returns `Unavailable` on a node that drains.
    pub fn ensure_accepting(&self) -> Result<()> {
        if self.drain.begun.is_cancelled() {
            return Err(Error::unavailable("node", format!("{} is draining: ask another one", self.id)));
        }
        Ok(())
    }

    /// Returns the state of this node, and since when it is in it.
    pub fn state(&self) -> (NodeState, Timestamp) {
        match self.drain.since.get() {
            Some(since) => (NodeState::Draining, *since),
            None => (NodeState::Active, self.started_at),
        }
    }

    /// Returns whether an event would have a receiver: making one costs, and mostly there is no watcher.
    pub fn is_watched(&self) -> bool {
        self.events.is_watched()
    }

    pub fn is_watched_here(&self) -> bool {
        self.events.is_watched_here()
    }

    /// Publishes an event of this node to watchers, here or on another node.
    pub fn publish_event(&self, what: ClusterEvent) {
        self.events.publish(what);
    }
}

impl Candidate {
    fn new(duties: Arc<[Duty]>) -> Self {
        let (view, leadership) = watch::channel(Leadership::default());
        Candidate {
            leadership,
            view,
            fitness: watch::Sender::new(true),
            health: RwLock::default(),
            resign: CancellationToken::new(),
            duties,
        }
    }

    /// Returns the results of the campaign's requests; `None` before the first campaign.
    pub fn health(&self) -> Option<Arc<ElectionHealth>> {
        self.health.read().clone()
    }
}

impl Node {
    pub async fn new(id: NodeId, ports: Ports, settings: Settings, duties: Arc<[Duty]>) -> Result<Self> {
        let base = Arc::new(NodeBase::new(id, ports, settings));
        Ok(Node {
            gateway: Gateway::new(&base),
            ownership: Ownership::new(&base).await?,
            views: Views::new(&base),
            election: Candidate::new(duties),
            base,
        })
    }

    /// Accepts no new work from now on, and publishes that with its next heartbeat, which is at once.
    pub fn begin_draining(&self) {
        if self.drain.since.set(self.now()).is_ok() {
            self.drain.begun.cancel();
            self.publish_event(ClusterEvent::Node { change: NodeChange::Draining, node_id: self.id.clone() });
            self.views.cache.node_changed(&self.id);
        }
    }

    pub fn watch(&self) -> broadcast::Receiver<Arc<Event>> {
        let is_first = !self.is_watched_here();
        let receiver = self.events.watch();
        if is_first {
            self.views.node_hints.announce_all();
        }
        receiver
    }
}

#[cfg(test)]
#[path = "../../tests/common/memory.rs"]
mod memory;

/// A node and a term for unit tests, over the engines in memory.
#[cfg(test)]
pub mod fixture {
    use std::time::Duration;

    use convoke_core::Epoch;
    use tokio::time::Instant;

    use super::*;
    use crate::election::Term;
    use crate::jobs::leader::LeaderState;

    pub async fn node() -> Arc<Node> {
        let id = NodeId::new("n1").expect("a name");
        let node = Node::new(id, memory::ports(), Settings::default(), Arc::new([])).await;
        Arc::new(node.expect("memory is always there"))
    }

    pub async fn leader(node: Arc<Node>, epoch: Epoch) -> LeaderState {
        let fence = node.ports.store.seal(epoch).await.expect("a later epoch");
        LeaderState::new(node, Term::new(fence, Instant::now() + Duration::from_secs(60)))
    }
}
