//! What all parts of a node share.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use convoke_core::jobs::Claim;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::event::{ClusterEvent, Event, NodeChange};
use convoke_core::jobs::rejections::Rejections;
use convoke_core::jobs::wire::NodeState;
use convoke_core::ports::{Bus, Clock, Leases, Multiplex, QueueEnd, SharedCache, Store};
use convoke_core::{Error, ExecutionId, JobId, NodeId, Result};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::{NoContext, Uuid};

use super::cache::Cache;
use super::events_forward::Forwarding;
use super::follower::{Claims, Peers};
use super::gateway::{Pace, Sessions};
use super::health::Health;
use super::hints::Hints;
use super::leader::{BusWorkers, GroupReaders};
use super::node_hints::NodeHints;
use super::reach::Backend;
use super::settings::Settings;
use super::waiting::Waiters;
use crate::election::{ElectionHealth, Leadership};
use crate::line_rate::LineRate;
use crate::outage::Outages;

/// The world, as a coordinator needs it.
#[derive(Clone)]
pub struct Ports {
    pub store: Arc<dyn Store>,
    pub bus: Arc<dyn Bus>,
    pub leases: Arc<dyn Leases>,
    /// The cache that nodes share. None: each node keeps its own.
    pub cache: Option<Arc<dyn SharedCache>>,
    pub clock: Arc<dyn Clock>,
}

/// Consumer groups on the bus.
pub const WORKERS: &str = "workers";
pub const COORDINATORS: &str = "coordinators";

/// How many events a slow watcher may lag behind.
const EVENTS_BACKLOG: usize = 4_096;

pub struct Node {
    pub id: NodeId,
    pub ports: Ports,
    /// The same store as in `ports`. Clients' requests use it, so that they do not compete with duties for connections.
    pub client_store: Arc<dyn Store>,
    pub settings: Settings,
    pub channels: Channels,
    pub started_at: Timestamp,
    pub claims: Claims,
    pub peers: Peers,
    /// One reader for the channels of all jobs this node owns.
    pub job_channels: Arc<dyn Multiplex>,
    pub sessions: Sessions,
    pub bus_workers: BusWorkers,
    pub group_readers: GroupReaders,
    pub hints: Hints,
    pub waiters: Waiters,
    pub cache: Cache,
    pub forwarding: Forwarding,
    pub node_hints: NodeHints,
    pub leadership: watch::Receiver<Leadership>,
    /// How the election goes, once it campaigns.
    pub election_health: OnceLock<Arc<ElectionHealth>>,
    pub store_failures: StoreFailures,
    pub outages: Arc<Outages>,
    /// Lines about single jobs.
    pub job_lines: LineRate,
    /// Messages that were rejected and logged.
    pub rejections: Mutex<Rejections>,
    pub store_reach: Backend,
    pub bus_reach: Backend,
    pub health: Health,
    pub pace: Pace,
    /// Rings where this node leads and a queue was paused.
    pub paused: Notify,
    /// No new work: parked polls answer at once.
    pub draining: CancellationToken,
    pub draining_since: OnceLock<Timestamp>,
    /// Somebody has asked this node to hand its runs over and exit.
    pub drain_requested: CancellationToken,
    events: broadcast::Sender<Arc<Event>>,
}

/// Whether the store lately refused what clients and workers asked for. A full disk may still take the small write by which
/// a store is tried.
#[derive(Default)]
pub struct StoreFailures(Mutex<Option<(Instant, String)>>);

impl StoreFailures {
    /// How long a failure counts where nothing was tried since.
    const REMEMBERED_FOR: Duration = Duration::from_secs(5);

    pub fn record_result<T>(&self, answer: Result<T>) -> Result<T> {
        match &answer {
            Ok(_) => *self.0.lock() = None,
            Err(error) if error.is_transient() && !error.is_locked() => {
                *self.0.lock() = Some((Instant::now(), error.to_string()))
            }
            Err(_) => {}
        }
        answer
    }

    pub fn recent(&self) -> Option<String> {
        let last = self.0.lock();
        last.as_ref().filter(|(at, _)| at.elapsed() < Self::REMEMBERED_FOR).map(|(_, what)| what.clone())
    }
}

impl Node {
    pub async fn new(
        id: NodeId,
        ports: Ports,
        settings: Settings,
        leadership: watch::Receiver<Leadership>,
    ) -> Result<Self> {
        let outages = Outages::new([
            ("store", ports.store.address()),
            ("bus", ports.bus.address()),
            ("leases", ports.leases.address()),
            ("cache", ports.cache.as_ref().map(|cache| cache.address()).unwrap_or_default()),
        ]);
        let outages = Arc::new(outages);
        let now = ports.clock.now();
        Ok(Node {
            id,
            client_store: ports.store.for_clients().unwrap_or_else(|| ports.store.clone()),
            job_lines: LineRate::new("jobs"),
            rejections: Mutex::default(),
            job_channels: ports.bus.multiplex().await?.into(),
            channels: Channels::new(settings.bus.prefix.clone()),
            started_at: now,
            claims: Claims::default(),
            peers: Peers::new(&settings.cluster),
            sessions: Sessions::default(),
            bus_workers: BusWorkers::default(),
            group_readers: GroupReaders::new(settings.worker.stale_after),
            hints: Hints::default(),
            waiters: Waiters::default(),
            cache: Cache::new(
                &settings.bus.prefix,
                &settings.cache,
                ports.cache.clone().map(|cache| (cache, outages.clone())),
            ),
            outages,
            forwarding: Forwarding::default(),
            node_hints: NodeHints::default(),
            leadership,
            election_health: OnceLock::new(),
            store_failures: StoreFailures::default(),
            store_reach: Backend::new("Store", now),
            bus_reach: Backend::new("Bus", now),
            health: Health::default(),
            pace: Pace::new(settings.rate_limit.global),
            paused: Notify::new(),
            draining: CancellationToken::new(),
            draining_since: OnceLock::new(),
            drain_requested: CancellationToken::new(),
            events: broadcast::Sender::new(EVENTS_BACKLOG),
            ports,
            settings,
        })
    }

    /// Returns the store for the duties of this node. Clients' requests use `client_store`.
    pub fn store(&self) -> &dyn Store {
        &*self.ports.store
    }

    pub fn bus(&self) -> &dyn Bus {
        &*self.ports.bus
    }

    /// Closes, of the channels that had these ends, those of `jobs`. The ends must have been read before the store was asked
    /// whether the jobs are over.
    pub async fn close_channels(&self, mut ends: Vec<QueueEnd>, jobs: &[JobId]) -> Result<()> {
        let jobs: HashSet<&JobId> = jobs.iter().collect();
        ends.retain(|end| self.channels.job_of(&end.queue).is_some_and(|(job, _)| jobs.contains(&job)));
        self.bus().close(&ends).await
    }

    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    pub fn job_id(&self) -> JobId {
        JobId(Uuid::now_v7())
    }

    /// A new run's id, which says when it was made by this node's clock.
    pub fn execution_id(&self, now: Timestamp) -> ExecutionId {
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
        ExecutionId(Uuid::new_v7(uuid::Timestamp::from_unix(NoContext, seconds, nanos)))
    }

    /// The claim of a gateway on what it hands out. One that drains makes none: its runs look for another owner.
    pub fn takes(&self) -> Option<Claim> {
        (!self.draining.is_cancelled()).then(|| Claim::Take(self.id.clone()))
    }

    /// `Unavailable` on a node that is on its way out.
    pub fn ensure_accepting(&self) -> Result<()> {
        if self.draining.is_cancelled() {
            return Err(Error::unavailable("node", format!("{} is draining: ask another one", self.id)));
        }
        Ok(())
    }

    /// Returns the state of this node, and since when it is in it.
    pub fn state(&self) -> (NodeState, Timestamp) {
        match self.draining_since.get() {
            Some(since) => (NodeState::Draining, *since),
            None => (NodeState::Active, self.started_at),
        }
    }

    /// Takes no new work from now on, and says so with its next heartbeat, which is at once.
    pub fn begin_draining(&self) {
        if self.draining_since.set(self.now()).is_ok() {
            self.draining.cancel();
            self.publish_event(ClusterEvent::Node { change: NodeChange::Draining, node_id: self.id.clone() });
            self.cache.node_changed(&self.id);
        }
    }

    /// Whether anybody would hear an event: making one costs, and mostly nobody listens.
    pub fn is_watched(&self) -> bool {
        self.forwarding.is_wanted() || self.is_watched_here()
    }

    pub fn is_watched_here(&self) -> bool {
        self.events.receiver_count() > 0
    }

    /// Tells whoever watches, here or on another node, what happened here.
    pub fn publish_event(&self, what: ClusterEvent) {
        let (here, elsewhere) = (self.is_watched_here(), self.forwarding.may_be_wanted());
        if !here && !elsewhere {
            return;
        }
        let event = Arc::new(Event { node: Some(self.id.clone()), ..Event::new(self.now(), what) });
        if elsewhere && !event.is_seen_everywhere() {
            self.forwarding.add(event.clone());
        }
        if here {
            self.send(event);
        }
    }

    /// Shows those who watch here what happened elsewhere.
    pub fn publish_remote_event(&self, event: Event) {
        self.send(Arc::new(event));
    }

    fn send(&self, event: Arc<Event>) {
        // Fails only where the last listener has just left.
        let _ = self.events.send(event);
    }

    pub fn watch(&self) -> broadcast::Receiver<Arc<Event>> {
        let is_first = !self.is_watched_here();
        let receiver = self.events.subscribe();
        if is_first {
            self.node_hints.announce_all();
        }
        receiver
    }
}
