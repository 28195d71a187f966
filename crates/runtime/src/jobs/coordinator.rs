//! A running node.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::{BreakerStatus, Metrics};
use convoke_core::jobs::event::{ClusterEvent, Event, NodeChange};
use convoke_core::jobs::wire::{HandoffReason, NodeState};
use convoke_core::ports::store::NodeRecord;
use convoke_core::ports::{Clock, Store};
use convoke_core::{Epoch, Invalid, NodeId, Result};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::duty::{Duty, Scope};
use super::health::{self, Check};
use super::heartbeats::send_heartbeat;
use super::node::{Node, Ports};
use super::reach::BackendState;
use super::settings::Settings;
use super::{duties, follower, gateway, node_hints, telemetry};
use crate::election::Leadership;

/// Clocks of a cluster are assumed to differ by no more than this. It decides only whether to wait.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(3_600);

/// A node of the cluster; a single node is a cluster of one. Cheap to clone.
#[derive(Clone)]
pub struct Coordinator {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
    tasks: TaskTracker,
    /// Ends the competition for runs.
    leave: CancellationToken,
    competing: TaskTracker,
    /// Ends everything else.
    stop: CancellationToken,
}

impl Coordinator {
    /// Joins the cluster and starts the duties. The node is ready once it knows who leads.
    pub async fn start(id: NodeId, ports: Ports, settings: Settings) -> Result<Coordinator> {
        Coordinator::start_with(id, ports, settings, Vec::new()).await
    }

    /// Starts a node as [`start`](Self::start) does, with further duties.
    pub async fn start_with(id: NodeId, ports: Ports, settings: Settings, others: Vec<Duty>) -> Result<Coordinator> {
        settings.check()?;
        telemetry::describe();
        let duties: Arc<[Duty]> = duties::all().into_iter().chain(others).collect();
        telemetry::describe_duties(&duties);
        let node = Arc::new(Node::new(id, ports, settings, duties.clone()).await?);
        refuse_to_split(&node).await?;
        send_heartbeat(&node).await?;
        let owned = follower::recover_owned_runs(&node).await?;
        if owned > 0 {
            info!(runs = owned, "recovered runs owned before the restart");
        }
        let inner = Inner {
            node,
            tasks: TaskTracker::new(),
            leave: CancellationToken::new(),
            competing: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let coordinator = Coordinator { inner: Arc::new(inner) };
        coordinator.start_duties(duties);
        coordinator
            .node()
            .publish_event(ClusterEvent::Node { change: NodeChange::Joined, node_id: coordinator.node_id().clone() });
        Ok(coordinator)
    }

    /// Starts the duties of every node. The leader's duties start with a term.
    fn start_duties(&self, duties: Arc<[Duty]>) {
        let Inner { node, tasks, leave, competing, stop } = &*self.inner;
        for place in 0..duties.len() {
            let (duties, node, stop, leave) = (duties.clone(), node.clone(), stop.clone(), leave.clone());
            match duties[place].scope() {
                Scope::Node => tasks.spawn(async move { duties[place].keep_running(node, stop).await }),
                Scope::Competing => competing.spawn(async move { duties[place].keep_running(node, leave).await }),
                Scope::Leader => continue,
            };
        }
    }

    pub(super) fn node(&self) -> &Node {
        &self.inner.node
    }

    /// Returns the id of this node.
    pub fn node_id(&self) -> &NodeId {
        &self.node().id
    }

    /// Returns the store for clients' requests, for reads.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.node().client_store
    }

    /// Returns the clock that the node was started with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.node().ports.clock
    }

    /// Returns who leads by the lease, as this node knows it.
    pub fn cluster(&self) -> Leadership {
        self.node().election.leadership.borrow().clone().at(tokio::time::Instant::now())
    }

    /// Returns the figures of its election; `None` before it campaigns.
    pub fn election(&self) -> Option<(Metrics, BreakerStatus)> {
        self.node().election.health().map(|health| (health.metrics(), health.breaker()))
    }

    /// Returns why the node takes no work now; `None` if it is ready. It is ready once it has known a leader, until it
    /// drains, and while it reaches its store and its bus.
    pub fn unready(&self) -> Option<&'static str> {
        let node = self.node();
        if node.drain.begun.is_cancelled() {
            Some("this node is draining")
        } else if node.election.leadership.borrow().epoch == Epoch::default() {
            Some("this node is starting: it does not know yet who leads")
        } else if !node.reach.store.is_reachable() {
            Some("this node cannot reach its store")
        } else if !node.reach.bus.is_reachable() {
            Some("this node cannot reach its bus")
        } else {
            None
        }
    }

    /// Returns whether the node reaches its store and its bus, as its own duties have observed.
    pub fn backends(&self) -> [BackendState; 2] {
        [self.node().reach.store.state(), self.node().reach.bus.state()]
    }

    /// Waits until the node is ready.
    pub async fn ready(&self) {
        let mut leadership = self.node().election.leadership.clone();
        // Never fails: the node itself keeps the sender.
        let _ = leadership.wait_for(|view| view.leader.is_some()).await;
    }

    /// Subscribes to the events of the whole cluster. A receiver that is too slow loses the oldest.
    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.node().watch()
    }

    /// Returns whether each part works. However often it is called, the backends are probed at most once a second.
    pub async fn health(&self) -> Vec<Check> {
        let stopped = self.inner.stop.is_cancelled();
        let detail = stopped.then(|| "stopped".to_owned());
        let own = Check { component: "Coordinator", is_healthy: !stopped, detail };
        let backends = health::backends(&self.inner.node).await;
        std::iter::once(own).chain(backends.iter().cloned()).collect()
    }

    /// Accepts no new work: waiting polls return at once, and the node is no longer ready.
    pub fn drain(&self) {
        self.node().begin_draining();
    }

    /// Hands everything over before it stops: resigns first, then finds another owner for each run. Returns false if
    /// some were left as orphans. Without other nodes there is no new owner, and nothing to wait for.
    pub async fn hand_over(&self) -> bool {
        self.drain();
        let Inner { node, leave, competing, .. } = &*self.inner;
        node.election.resign.cancel();
        leave.cancel();
        // Otherwise it would take its own offers.
        competing.close();
        competing.wait().await;
        let mut leadership = node.election.leadership.clone();
        // Never fails: the node itself keeps the sender.
        let _ = leadership.wait_for(|view| !view.is_me).await;
        gateway::release_waiting(node).await;
        if let Err(error) = send_heartbeat(node).await {
            node.outages.failed("heartbeat", &error);
        }
        if follower::prospects(node, &node.ownership.peers).await == follower::Prospects::None {
            return true;
        }
        follower::persist_claims(node, Duration::ZERO).await;
        follower::offer_runs(node, node.ownership.claims.all(), HandoffReason::Shutdown).await
    }

    /// Ends everything that the node does, without waiting: it hands nothing over and stays in the registry, as after a
    /// crash. Other nodes declare it dead once its heartbeats are missing.
    pub fn abort(&self) {
        let Inner { node, leave, stop, .. } = &*self.inner;
        self.drain();
        node.election.resign.cancel();
        leave.cancel();
        stop.cancel();
    }

    /// Writes the state that is only in memory, and leaves the registry.
    pub async fn stop(&self) {
        self.drain();
        let Inner { node, tasks, leave, competing, stop } = &*self.inner;
        node.election.resign.cancel();
        leave.cancel();
        stop.cancel();
        tasks.close();
        competing.close();
        tokio::join!(tasks.wait(), competing.wait());
        gateway::release_waiting(node).await;
        // Runs that it still owns, because no node took them, must be visible.
        if let Err(error) = send_heartbeat(node).await {
            debug!(%error, "last heartbeat failed");
        }
        if let Err(error) = node.store().retire_node(None, &node.id, NodeState::Left, node.now()).await {
            debug!(%error, "leaving the registry failed: this node will be declared dead");
        }
        node.views.cache.node_changed(&node.id);
        node.publish_event(ClusterEvent::Node { change: NodeChange::Left, node_id: node.id.clone() });
        node_hints::publish_departure(node).await;
    }
}

/// Rejects a bus that ends with the process on a store that other nodes use: this node could not reach them, their
/// workers' messages would go unread, and so would this node's assignments.
///
/// The heartbeats of another node show whether it is alive; this node watches them for as long as it takes to declare a
/// node dead. Their timestamps are by another clock: they only save the wait for a node that was last active long ago.
async fn refuse_to_split(node: &Node) -> Result<()> {
    if !node.bus().is_in_process() {
        return Ok(());
    }
    let others = follower::read_registry(node, &node.ownership.peers).await?;
    let horizon = node.now() - CLOCK_SKEW_MAX;
    let may_live = |other: &&NodeRecord| other.node_id != node.id && !other.state.is_gone();
    let recent = others.iter().filter(may_live).find(|other| other.last_heartbeat_at >= horizon);
    let Some(recent) = recent else { return Ok(()) };
    if node.store().is_exclusive() {
        debug!(predecessor = %recent.node_id, "previous node did not stop cleanly");
        return Ok(());
    }
    let patience = node.settings.cluster.dead_node_timeout;
    info!(other_node = %recent.node_id, patience = %convoke_core::duration::format(patience), "another node is registered in this store: waiting to see whether it is alive");
    let deadline = tokio::time::Instant::now() + patience;
    while tokio::time::Instant::now() < deadline {
        tokio::time::sleep((patience / 60).max(Duration::from_millis(5))).await;
        let same =
            |a: &NodeRecord, b: &NodeRecord| (&a.node_id, a.last_heartbeat_at) == (&b.node_id, b.last_heartbeat_at);
        let is_alive = |now: &NodeRecord| may_live(&now) && !others.iter().any(|before| same(before, now));
        if let Some(alive) = node.store().nodes().await?.into_iter().find(is_alive) {
            let message = format!(
                "expected a bus that other nodes share, such as redis://HOST: node {} uses this store too, and a bus in \
                 this process cannot reach it",
                alive.node_id,
            );
            return Err(Invalid::unprocessable("bus.url", message).into());
        }
    }
    Ok(())
}
