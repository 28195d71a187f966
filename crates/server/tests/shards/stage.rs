//! A coordinator that listens for workers, and what it shows of them.

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::{MemoryBus, MemoryLeases, MemoryStore, SystemClock};
use convoke_adapters::zmq::ZmqRouter;
use convoke_core::shards::{Settings, Strategy};
use convoke_core::{NodeId, ServiceName};
use convoke_runtime::jobs::{Coordinator, Ports};
use convoke_runtime::shards::{ShardsDuty, ShardsState, ShardsView};
use convoke_testkit::process::Javascript;

pub struct Stage {
    _coordinator: Coordinator,
    view: ShardsView,
    address: String,
}

/// A worker as the coordinator shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub worker: String,
    pub shards: Vec<u32>,
    pub active: bool,
}

impl Stage {
    pub async fn start(strategy: Strategy, heartbeat_timeout: Duration, check_interval: Duration) -> Stage {
        let clock = Arc::new(SystemClock);
        let settings = Settings { strategy, heartbeat_timeout, check_interval, ..Settings::default() };
        let router = ZmqRouter::new("tcp://127.0.0.1:0").expect("an address");
        let duty = Arc::new(ShardsDuty::new(Arc::new(router), settings, false, clock.clone()));
        let view = duty.view();
        let ports = Ports {
            store: Arc::new(MemoryStore::default()),
            bus: Arc::new(MemoryBus::default()),
            leases: Arc::new(MemoryLeases::default()),
            clock,
        };
        let node = NodeId::new("node").expect("a name");
        let started = Coordinator::start_with(node, ports, convoke_runtime::jobs::Settings::default(), vec![duty]);
        let coordinator = started.await.expect("it starts");
        let mut states = view.watch();
        let listening = states.wait_for(|state| matches!(state, ShardsState::Listening(_))).await;
        let ShardsState::Listening(address) = listening.expect("it leads").clone() else { unreachable!("waited for") };
        Stage { _coordinator: coordinator, view, address }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The workers of a service, in order of their ids.
    pub async fn workers(&self, service: &str) -> Vec<Shown> {
        let name = ServiceName::new(service).expect("a name");
        let status = self.view.service(&name);
        let workers = status.map(|status| status.workers).unwrap_or_default();
        let shown = |worker: convoke_runtime::shards::WorkerStatus| Shown {
            worker: worker.worker_id.to_string(),
            shards: worker.shards.to_vec(),
            active: worker.active,
        };
        workers.into_iter().map(shown).collect()
    }

    /// What each active worker of the service owns.
    pub async fn owned(&self, service: &str) -> Vec<(String, Vec<u32>)> {
        let workers = self.workers(service).await;
        workers.into_iter().filter(|it| it.active).map(|it| (it.worker, it.shards)).collect()
    }
}

/// The scripts beside this file.
pub async fn javascript() -> Javascript {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shards/node");
    Javascript::install(sources, env!("CARGO_TARGET_TMPDIR")).await
}
