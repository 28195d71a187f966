//! The nodes of a world: started, killed, drained and started again.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::NodeId;
use convoke_core::jobs::ClusterSettings;
use convoke_core::jobs::event::ClusterEvent;
use convoke_runtime::jobs::{Coordinator, Ports, Settings};

use super::World;
use crate::history::Entry;
use crate::network::Service;
use crate::ports::{SimBus, SimLeases, SimStore, Way};
use crate::process::Process;

/// The node at a place, if one runs there.
#[derive(Default)]
pub struct NodeSlot {
    process: Option<Arc<Process>>,
}

/// The times of a cluster that lives for seconds.
pub fn settings() -> Settings {
    let ms = Duration::from_millis;
    let mut settings = Settings {
        cluster: ClusterSettings {
            heartbeat_interval: ms(500),
            dead_node_timeout: ms(2_000),
            lease_duration: ms(2_000),
            renew_interval: ms(500),
            handoff_ack_timeout: ms(400),
            handoff_max_retries: 2,
            handoff_orphan_wait: ms(500),
            handoff_hard_timeout: ms(3_000),
            orphan_check_interval: ms(1_000),
            ..ClusterSettings::default()
        },
        ..Settings::default()
    };
    settings.worker.heartbeat_interval = ms(500);
    settings.worker.stale_after = ms(2_000);
    settings.worker.shutdown_grace = ms(500);
    settings.retry.initial_delay = ms(100);
    settings.retry.max_delay = ms(500);
    settings.channels.cleanup_delay = ms(1_000);
    settings.channels.scan_interval = ms(500);
    // Deletions are writes of a leader too. What is not there any more has ended before.
    settings.retention.completed = Duration::from_secs(10);
    settings.retention.cancelled = Duration::from_secs(10);
    settings.retention.audit = Duration::from_secs(10);
    settings
}

impl World {
    /// Starts the node at a place, unless one runs there. It tries again until it succeeds or its process is killed.
    pub(super) fn start_node(self: &Arc<Self>, place: usize) {
        let name: Arc<str> = format!("n{}", place + 1).into();
        let process = Process::new(name, place);
        {
            let mut slots = self.nodes.lock();
            if slots[place].process.is_some() {
                return;
            }
            slots[place].process = Some(process.clone());
        }
        self.network.note(&process, || "starts".into());
        let (world, way) =
            (self.clone(), |service| Way { network: self.network.clone(), process: process.clone(), service });
        let ports = Ports {
            store: Arc::new(SimStore { way: way(Service::Store), server: self.store.clone() }),
            bus: Arc::new(SimBus { way: way(Service::Bus), server: self.bus.clone() }),
            leases: Arc::new(SimLeases { way: way(Service::Leases), server: self.leases.clone() }),
            cache: None,
            clock: self.clocks[place].clone(),
            chance: self.chance_of(&format!("{} at {}", process.name, self.network.now_ms())),
        };
        tokio::spawn(async move {
            let id = NodeId::new(&*process.name).expect("a name");
            let starting = async {
                loop {
                    match Coordinator::start(id.clone(), ports.clone(), settings()).await {
                        Ok(node) => return node,
                        Err(error) => world.network.note(&process, || format!("does not start: {error}")),
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            let node = tokio::select! {
                biased;
                () = process.died() => return,
                node = starting => node,
            };
            world.directory.set(place, Some((process.clone(), node.clone())));
            world.watch(&process, &node).await;
        });
    }

    /// Records which ends the events of a node show, until it dies.
    async fn watch(&self, process: &Process, node: &Coordinator) {
        let mut events = node.events();
        loop {
            let event = tokio::select! {
                biased;
                () = process.died() => break node.abort(),
                event = events.recv() => event,
            };
            match event {
                Ok(event) => {
                    if let ClusterEvent::Job { status, job_id, .. } = &event.what
                        && !status.is_live()
                    {
                        let is_stored = self.store.job(*job_id).is_none_or(|job| !job.status.is_live())
                            || self.network.history.is_redriven(job_id);
                        let entry = Entry::Shown { job: *job_id, is_stored };
                        self.network.history.add(self.network.now_ms(), &process.name, entry);
                    }
                }
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => break,
            }
        }
    }

    pub(super) fn node_process(&self, place: usize) -> Option<Arc<Process>> {
        self.nodes.lock()[place].process.clone()
    }

    pub(super) fn kill_node(&self, place: usize) {
        let Some(process) = self.nodes.lock()[place].process.take() else { return };
        self.network.note(&process, || "is killed".into());
        self.directory.set(place, None);
        process.kill();
    }

    /// Hands over and stops, as on SIGTERM; is killed if that takes too long.
    pub(super) async fn drain_node(&self, place: usize) {
        let Some((process, node)) = self.directory.get(place) else { return self.kill_node(place) };
        self.network.note(&process, || "drains".into());
        let draining = async {
            let is_clean = node.hand_over().await;
            self.network.history.reach(if is_clean { "drained cleanly" } else { "drained with orphans left" });
            self.directory.set(place, None);
            node.stop().await;
        };
        tokio::select! {
            biased;
            () = process.died() => {}
            _ = tokio::time::timeout(Duration::from_secs(6), draining) => {}
        }
        // Else another life of it runs by now.
        if self.node_process(place).is_some_and(|present| Arc::ptr_eq(&present, &process)) {
            self.kill_node(place);
        }
    }
}
