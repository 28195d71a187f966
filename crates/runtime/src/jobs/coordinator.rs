//! A running node.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::{self, BreakerStatus, Metrics, Moment};
use convoke_core::jobs::event::{ClusterEvent, Event, NodeChange};
use convoke_core::jobs::wire::{Cancel, CoordinatorHeartbeat, HandoffReason, NodeRole, NodeState, V1};
use convoke_core::ports::store::NodeRecord;
use convoke_core::ports::{Clock, Store};
use convoke_core::{Epoch, Invalid, NodeId, Result};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::health::{self, Check};
use super::node::{Node, Ports};
use super::reach::BackendState;
use super::settings::Settings;
use super::{cache, events_forward, follower, gateway, hints, leader, node_hints, telemetry};
use crate::election::{Campaign, CampaignOptions, Duty, Leadership};

/// The namespace whose leader dispatches.
pub const NAMESPACE: &str = "coordinator";

/// How often a node that drains beats at least.
const DRAINING_INTERVAL: Duration = Duration::from_secs(1);

/// Clocks of a cluster are assumed to be no further apart than this if nothing is decided but whether to wait.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(3_600);

/// A node of the cluster; a single one is all of it. Cheap to clone.
#[derive(Clone)]
pub struct Coordinator {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
    tasks: TaskTracker,
    /// Ends the campaign and, with it, the term.
    resign: CancellationToken,
    /// Ends the competition for runs.
    leave: CancellationToken,
    competing: TaskTracker,
    /// Ends everything else.
    stop: CancellationToken,
}

impl Coordinator {
    /// Joins the cluster and begins to work. Ready once it knows who leads.
    pub async fn start(id: NodeId, ports: Ports, settings: Settings) -> Result<Coordinator> {
        Coordinator::start_with(id, ports, settings, Vec::new()).await
    }

    /// The same with more to do for the one that leads.
    pub async fn start_with(
        id: NodeId,
        ports: Ports,
        settings: Settings,
        duties: Vec<Arc<dyn Duty>>,
    ) -> Result<Coordinator> {
        settings.check()?;
        telemetry::describe();
        let (view, leadership) = watch::channel(Leadership::default());
        let node = Arc::new(Node::new(id, ports, settings, leadership).await?);
        refuse_to_split(&node).await?;
        send_heartbeat(&node).await?;
        let owned = follower::recover_owned_runs(&node).await?;
        if owned > 0 {
            info!(runs = owned, "recovered runs owned before the restart");
        }
        let inner = Inner {
            node,
            tasks: TaskTracker::new(),
            resign: CancellationToken::new(),
            leave: CancellationToken::new(),
            competing: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let coordinator = Coordinator { inner: Arc::new(inner) };
        coordinator.spawn_duties(view, duties.into());
        coordinator
            .node()
            .publish_event(ClusterEvent::Node { change: NodeChange::Joined, node_id: coordinator.node_id().clone() });
        Ok(coordinator)
    }

    fn spawn_duties(&self, view: watch::Sender<Leadership>, others: Arc<[Arc<dyn Duty>]>) {
        let Inner { node, tasks, resign, leave, competing, stop } = &*self.inner;
        competing.spawn(follower::consume_assignments(node.clone(), leave.clone()));
        competing.spawn(follower::consume_enqueues(node.clone(), leave.clone()));
        competing.spawn(follower::consume_handoffs(node.clone(), leave.clone()));
        competing.spawn(follower::balance_load(node.clone(), leave.clone()));
        tasks.spawn(follower::receive_peer_heartbeats(node.clone(), stop.clone()));
        tasks.spawn(follower::audit_claims(node.clone(), stop.clone()));
        tasks.spawn(follower::maintain_claims(node.clone(), stop.clone()));
        tasks.spawn(follower::record_channel_events(node.clone(), stop.clone()));
        tasks.spawn(gateway::watch_sessions(node.clone(), stop.clone()));
        tasks.spawn(receive_cancellations(node.clone(), stop.clone()));
        let (fitness, fit) = watch::channel(true);
        tasks.spawn(heartbeats(node.clone(), fitness, stop.clone()));
        tasks.spawn(watch_leadership(node.clone(), stop.clone()));
        tasks.spawn(node_hints::receive_hints(node.clone(), stop.clone()));
        tasks.spawn(node_hints::receive_worker_heartbeats(node.clone(), stop.clone()));
        tasks.spawn(node_hints::publish_hints(node.clone(), stop.clone()));
        tasks.spawn(cache::maintain_connection(node.clone(), stop.clone()));
        tasks.spawn(events_forward::forward(node.clone(), stop.clone()));
        let (hinting, stopping) = (node.clone(), stop.clone());
        tasks.spawn(async move { hints::publish(&hinting, &stopping).await });
        let campaign = campaign(node, view, fit);
        node.election_health.get_or_init(|| campaign.election_health());
        let (leading, resign) = (node.clone(), resign.clone());
        tasks.spawn(campaign.run(resign, move |term| leader::lead(leading.clone(), term, others.clone())));
    }

    pub(super) fn node(&self) -> &Node {
        &self.inner.node
    }

    pub fn node_id(&self) -> &NodeId {
        &self.node().id
    }

    /// Returns the store for clients' requests, for reads.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.node().client_store
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.node().ports.clock
    }

    /// Returns who leads by the lease, as this node knows it.
    pub fn cluster(&self) -> Leadership {
        self.node().leadership.borrow().clone().at(tokio::time::Instant::now())
    }

    /// How its election goes.
    pub fn election(&self) -> Option<(Metrics, BreakerStatus)> {
        self.node().election_health.get().map(|election_health| (election_health.metrics(), election_health.breaker()))
    }

    /// Returns why the node takes no work now; `None` if it is ready. It is ready once it has known a leader, until it
    /// drains, and while it reaches its store and its bus.
    pub fn unready(&self) -> Option<&'static str> {
        let node = self.node();
        if node.draining.is_cancelled() {
            Some("this node is draining")
        } else if node.leadership.borrow().epoch == Epoch::default() {
            Some("this node is starting: it does not know yet who leads")
        } else if !node.store_reach.is_reachable() {
            Some("this node cannot reach its store")
        } else if !node.bus_reach.is_reachable() {
            Some("this node cannot reach its bus")
        } else {
            None
        }
    }

    /// Returns whether the node reaches its store and its bus, as its own duties have observed.
    pub fn backends(&self) -> [BackendState; 2] {
        [self.node().store_reach.state(), self.node().bus_reach.state()]
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        let mut leadership = self.node().leadership.clone();
        // Fails only where the campaign is over: then nobody waits for it.
        let _ = leadership.wait_for(|view| view.leader.is_some()).await;
    }

    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.node().watch()
    }

    /// Returns whether each part works. However often it is called, the backends are probed once a second at most.
    pub async fn health(&self) -> Vec<Check> {
        let stopped = self.inner.stop.is_cancelled();
        let detail = stopped.then(|| "stopped".to_owned());
        let own = Check { component: "Coordinator", is_healthy: !stopped, detail };
        let backends = health::backends(&self.inner.node).await;
        std::iter::once(own).chain(backends.iter().cloned()).collect()
    }

    /// Takes no new work: polls that wait answer at once, and it is no longer ready.
    pub fn drain(&self) {
        self.node().begin_draining();
    }

    /// Hands everything over before it stops: resigns first, then finds another owner for each run. False where some were left
    /// as orphans. With no other node there is nobody to hand over to, and nothing to wait for.
    pub async fn hand_over(&self) -> bool {
        self.drain();
        let Inner { node, resign, leave, competing, .. } = &*self.inner;
        resign.cancel();
        leave.cancel();
        // Or it would take its own offers.
        competing.close();
        competing.wait().await;
        let mut leadership = node.leadership.clone();
        // Fails only where the campaign is over already.
        let _ = leadership.wait_for(|view| !view.is_me).await;
        if let Err(error) = send_heartbeat(node).await {
            node.outages.failed("heartbeat", &error);
        }
        if follower::prospects(node).await == follower::Prospects::None {
            return true;
        }
        follower::persist_claims(node, Duration::ZERO).await;
        follower::offer_runs(node, node.claims.all(), HandoffReason::Shutdown).await
    }

    /// Ends everything that the node does, without waiting: it hands nothing over and stays in the registry, as after a crash.
    /// Other nodes declare it dead once its heartbeats are missing.
    pub fn abort(&self) {
        let Inner { resign, leave, stop, .. } = &*self.inner;
        self.drain();
        resign.cancel();
        leave.cancel();
        stop.cancel();
    }

    /// Writes down what is only remembered, and leaves the registry.
    pub async fn stop(&self) {
        self.drain();
        let Inner { node, tasks, resign, leave, competing, stop } = &*self.inner;
        resign.cancel();
        leave.cancel();
        stop.cancel();
        tasks.close();
        competing.close();
        tokio::join!(tasks.wait(), competing.wait());
        gateway::leave_queues(node).await;
        // What it still owns, if nobody took it, is to be seen.
        if let Err(error) = send_heartbeat(node).await {
            debug!(%error, "last heartbeat failed");
        }
        if let Err(error) = node.store().retire_node(None, &node.id, NodeState::Left, node.now()).await {
            debug!(%error, "leaving the registry failed: this node will be declared dead");
        }
        node.cache.node_changed(&node.id);
        node.publish_event(ClusterEvent::Node { change: NodeChange::Left, node_id: node.id.clone() });
        node_hints::publish_departure(node).await;
    }
}

/// The node's own election. A breaker that opened does not keep it out for longer than a renewal: an outage that is over must
/// not cost more than a failover does.
fn campaign(node: &Arc<Node>, view: watch::Sender<Leadership>, fit: watch::Receiver<bool>) -> Campaign {
    let mut settings = node.settings.election.clone();
    let reset_timeout = &mut settings.circuit_breaker.reset_timeout;
    *reset_timeout = node.settings.cluster.renew_interval.min(*reset_timeout);
    let telling = Arc::downgrade(node);
    let publish_event = Arc::new(move |what| {
        if let Some(node) = telling.upgrade() {
            node.publish_event(what);
        }
    });
    Campaign::new(CampaignOptions {
        namespace: NAMESPACE,
        candidate: node.id.clone(),
        leases: node.ports.leases.clone(),
        store: node.ports.store.clone(),
        clock: node.ports.clock.clone(),
        ttl: node.settings.cluster.lease_duration,
        renew_interval: node.settings.cluster.renew_interval,
        settings,
        view,
        vacancy: node.peers.vacancy.clone(),
        fit,
        publish_event,
        outages: node.outages.clone(),
    })
}

/// Refuses a bus that ends with the process on a store that other nodes use: it could not reach them, their workers' messages
/// would go unread, and this node's assignments too.
///
/// Whether another node is alive shows in its heartbeats, which this node watches for as long as a dead one is silent. Their
/// timestamps are another clock's: they only spare the wait for a node that was last there long ago.
async fn refuse_to_split(node: &Node) -> Result<()> {
    if !node.bus().is_in_process() {
        return Ok(());
    }
    let others = follower::read_registry(node).await?;
    let horizon = node.now() - CLOCK_SKEW_MAX;
    let may_live = |other: &&NodeRecord| other.node_id != node.id && !other.state.is_gone();
    let recent = others.iter().filter(may_live).find(|other| other.last_heartbeat_at >= horizon);
    let Some(recent) = recent else { return Ok(()) };
    if node.store().is_exclusive() {
        debug!(predecessor = %recent.node_id, "the node before this one did not stop cleanly");
        return Ok(());
    }
    let patience = node.settings.cluster.dead_node_timeout;
    info!(other_node = %recent.node_id, patience = %convoke_core::duration::format(patience), "another node is registered in this store: waiting to see whether it is alive");
    let deadline = tokio::time::Instant::now() + patience;
    while tokio::time::Instant::now() < deadline {
        tokio::time::sleep((patience / 60).max(Duration::from_millis(5))).await;
        let same =
            |a: &NodeRecord, b: &NodeRecord| (&a.node_id, a.last_heartbeat_at) == (&b.node_id, b.last_heartbeat_at);
        let beats = |now: &NodeRecord| may_live(&now) && !others.iter().any(|before| same(before, now));
        if let Some(alive) = node.store().nodes().await?.into_iter().find(beats) {
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

/// Beats until `stop`, and says whether the node could lead: it must reach both the bus and the store.
async fn heartbeats(node: Arc<Node>, fitness: watch::Sender<bool>, stop: CancellationToken) {
    let interval = node.settings.cluster.heartbeat_interval;
    let (mut failures, mut roster) = (0_u32, election::Roster::default());
    loop {
        // After a failure it tries sooner: it must not be taken for dead because of one.
        let pause = if failures == 0 { interval } else { interval / 3 };
        // While it drains somebody may watch what is left.
        let pause = if node.draining.is_cancelled() { pause.min(DRAINING_INTERVAL) } else { pause };
        tokio::select! {
            () = stop.cancelled() => return,
            () = node.draining.cancelled(), if !node.draining.is_cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
        failures = match send_heartbeat(&node).await {
            Ok(()) => 0,
            Err(error) => {
                node.outages.failed("heartbeat", &error);
                failures.saturating_add(1)
            }
        };
        node.job_lines.flush();
        let is_fit = failures < 2;
        fitness.send_if_modified(|fit| std::mem::replace(fit, is_fit) != is_fit);
        match follower::read_registry(&node).await {
            Ok(nodes) => publish_members(&node, &nodes, &mut roster),
            Err(error) => node.outages.failed("node registry", &error),
        }
    }
}

/// Tells watchers who is there, where that has changed.
fn publish_members(node: &Node, nodes: &[NodeRecord], roster: &mut election::Roster) {
    let timeout = node.settings.cluster.dead_node_timeout;
    let live =
        nodes.iter().filter(|other| !other.state.is_gone() && node.peers.unchanged_for(&other.node_id) <= timeout);
    let workers: Vec<String> = live.map(|other| other.node_id.to_string()).collect();
    let turnover = roster.update(&workers, Moment::default(), timeout);
    if !turnover.is_none() {
        if let Some(election_health) = node.election_health.get() {
            election_health.members_changed(turnover);
        }
        let what = election::ElectionEvent::WorkersUpdated { workers };
        node.publish_event(ClusterEvent::Election { namespace: NAMESPACE.to_owned(), what });
    }
}

/// Says that this node is there, and how much it has to do. By the bus first: a node that nobody can reach by it can record
/// nothing that workers say there, and is better taken for dead.
async fn send_heartbeat(node: &Node) -> Result<()> {
    let now = node.now();
    let leadership = node.leadership.borrow().clone();
    let role = if leadership.is_me { NodeRole::Leader } else { NodeRole::Follower };
    let ((state, since), job_count, epoch) = (node.state(), node.claims.len() as u64, leadership.epoch);
    let message = CoordinatorHeartbeat {
        v: V1,
        node_id: node.id.clone(),
        job_count,
        state,
        role: Some(role),
        epoch,
        at: now,
        worker_heartbeat_interval: Some(node.settings.worker.heartbeat_interval),
        worker_stale_after: Some(node.settings.worker.stale_after),
    };
    let body = node.settings.bus.format().encode(&message);
    let published = node.bus().publish(&node.channels.coordinator_heartbeat(), body).await;
    node.bus_reach.record_result(published, node.now())?;
    node.outages.succeeded("bus");
    let record = NodeRecord {
        node_id: node.id.clone(),
        role,
        state,
        since,
        job_count,
        started_at: node.started_at,
        last_heartbeat_at: now,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    node.store_reach.record_result(node.store().record_node_heartbeat(record).await, node.now())?;
    node.outages.succeeded("store");
    node.cache.node_changed(&node.id);
    Ok(())
}

/// Tells watchers and the registry when the leader changes.
async fn watch_leadership(node: Arc<Node>, stop: CancellationToken) {
    let mut leadership = node.leadership.clone();
    let (mut shown, mut last_leader) = (None, None);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = leadership.changed() => if changed.is_err() { return },
        }
        let view = leadership.borrow_and_update().clone();
        crate::election::telemetry::leads(NAMESPACE, view.is_me, view.epoch);
        if view.leader != shown {
            let (namespace, new_leader, epoch) = (NAMESPACE.to_owned(), view.leader.clone(), view.epoch);
            // Over a vacancy the one before it is remembered.
            let previous_leader = last_leader.clone();
            info!(
                previous_leader = previous_leader.as_ref().map(NodeId::as_str),
                new_leader = new_leader.as_ref().map(NodeId::as_str),
                epoch = epoch.0,
                "leader changed"
            );
            node.publish_event(ClusterEvent::LeaderChanged { namespace, previous_leader, new_leader, epoch });
            last_leader = view.leader.clone().or(last_leader);
            shown = view.leader;
            if let Err(error) = send_heartbeat(&node).await {
                node.outages.failed("heartbeat", &error);
            }
        }
    }
}

/// Passes cancellations on to the workers of this node.
async fn receive_cancellations(node: Arc<Node>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let Ok(mut topic) = node.bus().subscribe(&[node.channels.cancel()]).await else {
            tokio::time::sleep(Duration::from_millis(250)).await;
            continue;
        };
        loop {
            let message = tokio::select! {
                () = stop.cancelled() => return,
                message = topic.next() => message,
            };
            match message {
                Ok(Some(message)) => match serde_json::from_slice::<Cancel>(&message.body) {
                    Ok(cancel) => node.sessions.cancel(cancel.execution_id),
                    Err(error) => telemetry::poison(&node, message.channel, message.body, &error).await,
                },
                // What was missed is refused when it is reported.
                Ok(None) => {}
                Err(error) => {
                    node.outages.failed("cancellations", &error);
                    break;
                }
            }
        }
    }
}
