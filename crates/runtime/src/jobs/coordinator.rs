//! A running node.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::event::{Event, Happening, NodeChange};
use convoke_core::jobs::wire::{self, Cancel, CoordinatorHeartbeat, NodeRole, NodeState, V1};
use convoke_core::ports::store::NodeRecord;
use convoke_core::ports::{Clock, Store};
use convoke_core::{Error, NodeId, Result};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::node::{Node, Ports};
use super::settings::Settings;
use super::{events_forward, follower, gateway, hints, leader, neighbours, telemetry};
use crate::election::{Campaign, Leadership};

/// The namespace whose leader dispatches.
pub const NAMESPACE: &str = "coordinator";

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
    /// Ends everything else.
    stop: CancellationToken,
}

/// Whether a part of the node works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub component: &'static str,
    pub is_healthy: bool,
    pub detail: Option<String>,
}

impl Coordinator {
    /// Joins the cluster and begins to work. Ready once it knows who leads.
    pub async fn start(id: NodeId, ports: Ports, settings: Settings) -> Result<Coordinator> {
        settings.check()?;
        telemetry::describe();
        let (view, leadership) = watch::channel(Leadership::default());
        let node = Arc::new(Node::new(id, ports, settings, leadership).await?);
        beat(&node, NodeState::Active).await?;
        let inner =
            Inner { node, tasks: TaskTracker::new(), resign: CancellationToken::new(), stop: CancellationToken::new() };
        let coordinator = Coordinator { inner: Arc::new(inner) };
        coordinator.spawn_duties(view);
        coordinator.node().tell(Happening::Node { change: NodeChange::Joined, node_id: coordinator.node_id().clone() });
        Ok(coordinator)
    }

    fn spawn_duties(&self, view: watch::Sender<Leadership>) {
        let Inner { node, tasks, resign, stop } = &*self.inner;
        tasks.spawn(follower::consume_assignments(node.clone(), stop.clone()));
        tasks.spawn(follower::settle_claims(node.clone(), stop.clone()));
        tasks.spawn(follower::record_channel_events(node.clone(), stop.clone()));
        tasks.spawn(gateway::watch_sessions(node.clone(), stop.clone()));
        tasks.spawn(hear_cancellations(node.clone(), stop.clone()));
        tasks.spawn(heartbeats(node.clone(), stop.clone()));
        tasks.spawn(watch_leadership(node.clone(), stop.clone()));
        tasks.spawn(neighbours::hear(node.clone(), stop.clone()));
        tasks.spawn(neighbours::hear_workers(node.clone(), stop.clone()));
        tasks.spawn(neighbours::speak(node.clone(), stop.clone()));
        tasks.spawn(events_forward::forward(node.clone(), stop.clone()));
        let (hinting, stopping) = (node.clone(), stop.clone());
        tasks.spawn(async move { hints::publish(&hinting, &stopping).await });
        let campaign = Campaign {
            namespace: NAMESPACE,
            candidate: node.id.clone(),
            leases: node.ports.leases.clone(),
            store: node.ports.store.clone(),
            ttl: node.settings.cluster.lease_duration,
            renew_interval: node.settings.cluster.renew_interval,
            view,
        };
        let (leading, resign) = (node.clone(), resign.clone());
        tasks.spawn(campaign.run(resign, move |term| leader::lead(leading.clone(), term)));
    }

    pub(super) fn node(&self) -> &Node {
        &self.inner.node
    }

    pub fn node_id(&self) -> &NodeId {
        &self.node().id
    }

    /// For reads.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.node().ports.store
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.node().ports.clock
    }

    /// Who leads, as this node knows it.
    pub fn cluster(&self) -> Leadership {
        self.node().leadership.borrow().clone()
    }

    /// Knows who leads, and is not on its way out.
    pub fn is_ready(&self) -> bool {
        !self.node().draining.is_cancelled() && self.node().leadership.borrow().leader.is_some()
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

    pub async fn health(&self) -> Vec<Check> {
        let ports = &self.node().ports;
        let (store, bus, leases) = tokio::join!(ports.store.ping(), ports.bus.ping(), ports.leases.ping());
        let check = |component, answer: Result<()>| {
            let detail = answer.err().map(|error| error.to_string());
            Check { component, is_healthy: detail.is_none(), detail }
        };
        let store = match self.node().trouble.recent() {
            Some(what) => store.and(Err(Error::unavailable("store", what))),
            None => store,
        };
        let stopped = self.inner.stop.is_cancelled();
        let detail = stopped.then(|| "stopped".to_owned());
        vec![
            Check { component: "Coordinator", is_healthy: !stopped, detail },
            check("Store", store),
            check("Bus", bus),
            check("Leases", leases),
        ]
    }

    /// Takes no new work: polls that wait answer at once, and it is no longer ready.
    pub fn drain(&self) {
        let node = self.node();
        if !node.draining.is_cancelled() {
            node.draining.cancel();
            node.tell(Happening::Node { change: NodeChange::Draining, node_id: node.id.clone() });
            node.cache.node_changed(&node.id);
        }
    }

    /// Resigns, writes down what is only remembered, and leaves the registry.
    pub async fn stop(&self) {
        self.drain();
        let Inner { node, tasks, resign, stop } = &*self.inner;
        resign.cancel();
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        if let Err(error) = node.store().remove_node(None, &node.id).await {
            debug!(%error, "cannot leave the registry; it will be struck off");
        }
        node.tell(Happening::Node { change: NodeChange::Left, node_id: node.id.clone() });
        neighbours::farewell(node).await;
    }
}

async fn heartbeats(node: Arc<Node>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(node.settings.cluster.heartbeat_interval) => {}
        }
        let state = if node.draining.is_cancelled() { NodeState::Draining } else { NodeState::Active };
        if let Err(error) = beat(&node, state).await {
            warn!(%error, "cannot beat");
        }
    }
}

/// Says that this node is there, and how much it has to do.
async fn beat(node: &Node, state: NodeState) -> Result<()> {
    let now = node.now();
    let leadership = node.leadership.borrow().clone();
    let role = if leadership.is_me { NodeRole::Leader } else { NodeRole::Follower };
    let job_count = node.claims.len() as u64;
    let record = NodeRecord {
        node_id: node.id.clone(),
        role,
        state,
        job_count,
        started_at: node.started_at,
        last_heartbeat_at: now,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    node.store().beat_node(record).await?;
    node.cache.node_beaten(&node.id);
    let epoch = leadership.epoch;
    let message = CoordinatorHeartbeat { v: V1, node_id: node.id.clone(), job_count, state, role, epoch, at: now };
    node.bus().publish(&node.channels.coordinator_heartbeat(), wire::encode(&message)).await
}

/// Tells watchers and the registry when the leader changes.
async fn watch_leadership(node: Arc<Node>, stop: CancellationToken) {
    let mut leadership = node.leadership.clone();
    let mut previous_leader = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = leadership.changed() => if changed.is_err() { return },
        }
        let view = leadership.borrow_and_update().clone();
        telemetry::leads(view.is_me, view.epoch.0);
        if view.leader != previous_leader {
            let (namespace, new_leader, epoch) = (NAMESPACE.to_owned(), view.leader.clone(), view.epoch);
            node.tell(Happening::LeaderChanged { namespace, previous_leader, new_leader, epoch });
            previous_leader = view.leader;
            if let Err(error) = beat(&node, NodeState::Active).await {
                debug!(%error, "cannot beat");
            }
        }
    }
}

/// Passes cancellations on to the workers of this node.
async fn hear_cancellations(node: Arc<Node>, stop: CancellationToken) {
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
                    warn!(%error, "cannot hear cancellations");
                    break;
                }
            }
        }
    }
}
