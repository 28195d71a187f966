//! The state that the parts of a test server share: the node of the moment, its ports, and the two runtimes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use convoke_core::ports::Clock;
use convoke_core::ports::store::{InFlightFilter, RunStore, WorkerStore};
use convoke_core::{Error, Invalid, NodeId, Result, WorkerId};
use convoke_http::{ApiService, AppState, Info, Policy, Site, recorder};
use convoke_runtime::jobs::{Coordinator, NAMESPACE, Settings};
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::clock::{Idle, VirtualClock};
use super::faults::Faults;
use super::presence::Presence;
use super::timeline::{Advanced, Command, Target};
use crate::connect::{InMemory, MemoryStore};

const NODE: &str = "test";
/// How often a poll of a silenced worker looks whether that is over, in real time.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

pub(super) struct Shared {
    /// The runtime of the node, in which time stands still.
    pub virtual_time: Handle,
    /// The runtime of connections and waits.
    pub real_time: Handle,
    pub seed: u64,
    pub started_at: Timestamp,
    pub clock: Arc<VirtualClock>,
    pub idle: Arc<Idle>,
    pub engines: InMemory,
    pub settings: Settings,
    pub policy: Policy,
    pub presence: Arc<Presence>,
    pub faults: Faults,
    /// Notified when a request of a worker has ended.
    pub activity: Notify,
    /// The timeline's requests, one after the other.
    pub commands: mpsc::Sender<Command>,
    pub node: RwLock<Option<RunningNode>>,
}

/// The node of the moment. Another one takes its place when the leader is killed.
#[derive(Clone)]
pub(super) struct RunningNode {
    pub coordinator: Coordinator,
    pub api: ApiService,
    state: AppState,
}

impl Shared {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn store(&self) -> &Arc<MemoryStore> {
        &self.engines.store
    }

    /// Returns the node of the moment.
    pub fn running(&self) -> Result<RunningNode> {
        self.node.read().clone().ok_or_else(|| Error::unavailable("test server", "it is starting"))
    }

    /// Runs a call on the node, in virtual time. It returns when all that follows from it at the present time has
    /// happened, so that the next call does not depend on how fast that is. It is cut off if the result is dropped.
    pub fn call<F, Fut, T>(&self, call: F) -> AbortOnDropHandle<Result<T>>
    where
        F: FnOnce(RunningNode) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send,
        T: Send + 'static,
    {
        let running = self.running();
        let idle = self.idle.clone();
        AbortOnDropHandle::new(self.virtual_time.spawn(async move {
            let result = call(running?).await;
            idle.until_idle().await;
            result
        }))
    }

    /// Returns the workers that are connected and that no fault silences.
    pub fn live_workers(&self) -> Vec<WorkerId> {
        let connected = self.presence.connected().into_iter();
        connected.filter(|worker| !self.faults.is_silent(worker)).collect()
    }

    /// Returns the workers that a fault silences.
    pub fn silent_workers(&self) -> Vec<WorkerId> {
        let connected = self.presence.connected().into_iter();
        connected.filter(|worker| self.faults.is_silent(worker)).collect()
    }

    /// Starts a node and waits until it leads. Wall time stands still meanwhile.
    pub async fn start_node(&self) -> Result<()> {
        self.clock.pin();
        let id = NodeId::new(NODE)?;
        let ports = self.engines.ports.clone();
        let coordinator = Coordinator::start(id, ports, self.settings.clone()).await?;
        coordinator.ready().await;
        let info = Info {
            version: env!("CARGO_PKG_VERSION").into(),
            store: "memory:".into(),
            bus: "memory:".into(),
            leases: "memory:".into(),
        };
        let state =
            AppState::new(coordinator.clone(), None, self.policy.clone(), info, Site::default(), recorder::shared());
        let api = ApiService::new(state.clone());
        *self.node.write() = Some(RunningNode { coordinator, api, state });
        self.clock.unpin();
        Ok(())
    }

    /// Ends the node as a crash does, and frees its lease as its expiry would.
    pub async fn kill_node(&self) -> Result<()> {
        if let Some(running) = self.node.write().take() {
            running.coordinator.abort();
            running.state.closing.cancel();
        }
        let leases = &self.engines.ports.leases;
        if let Some(lease) = leases.read(NAMESPACE).await? {
            leases.resign(NAMESPACE, &lease.holder, lease.epoch).await?;
        }
        Ok(())
    }
}

/// The latest time to which a test may move: rules add years to a time.
const TIME_MAX: &str = "3000-01-01T00:00:00Z";

impl Shared {
    /// Moves time. Returns when everything that was due has happened.
    pub async fn advance(&self, to: Target, patience: Duration) -> Result<Advanced> {
        let now = self.now();
        let (field, at) = match to {
            Target::By(time) => ("advance", now.checked_add(time).unwrap_or(Timestamp::MAX)),
            Target::To(at) => ("to", at),
        };
        if at < now {
            return Err(Invalid::new(field, format!("expected a time that is not before {now}, got {at}")).into());
        }
        check_time(field, at)?;
        self.ask(|reply| Command::Advance { to, patience, reply }).await
    }

    /// Waits until no connected worker has anything to do. Returns the virtual time.
    pub async fn run_until_idle(&self, patience: Duration) -> Result<Timestamp> {
        self.ask(|reply| Command::RunUntilIdle { patience, reply }).await
    }

    /// Kills the node that leads; another takes its place, for another term.
    pub async fn kill_leader(&self) -> Result<()> {
        self.ask(|reply| Command::KillLeader { reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command) -> Result<T> {
        let stopping = || Error::unavailable("test server", "it is stopping");
        let (reply, replied) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| stopping())?;
        replied.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Waits until a worker is not silenced by a fault: another poll would be a sign of life. At most until `deadline`.
    pub async fn until_not_silenced(&self, worker: &WorkerId, deadline: Instant) {
        while self.faults.is_silent(worker) && Instant::now() < deadline {
            let _ = self.real_time.spawn(async { tokio::time::sleep(LOOK_INTERVAL).await }).await;
        }
    }

    /// Returns an id that no worker has: `worker-1`, `worker-2` and so on.
    pub async fn free_worker_id(&self) -> Result<WorkerId> {
        let taken = self.store().workers().await?;
        let mut ids = (1u64..).map(|number| WorkerId::new(format!("worker-{number}")));
        let free = ids.find(|id| !matches!(id, Ok(id) if taken.iter().any(|worker| worker.worker_id == *id)));
        Ok(free.ok_or_else(|| Error::Conflict("there is no free id".into()))??)
    }

    /// Returns whether any run is in progress.
    pub async fn has_runs(&self) -> Result<bool> {
        Ok(!self.store().in_flight(InFlightFilter::default(), None, 1).await?.is_empty())
    }
}

/// Rejects a time that no test needs and that a rule could not add to.
pub(super) fn check_time(field: &'static str, at: Timestamp) -> Result<(), Invalid> {
    let latest: Timestamp = TIME_MAX.parse().unwrap_or(Timestamp::MAX);
    if at < Timestamp::UNIX_EPOCH || at >= latest {
        let message = format!("expected a time from 1970-01-01 to {TIME_MAX}, got {at}");
        return Err(Invalid::new(field, message));
    }
    Ok(())
}
