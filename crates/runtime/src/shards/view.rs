//! The state of the coordinator of shards, for readers while it runs.

use std::sync::Arc;

use convoke_core::duration::DURATION_MAX;
use convoke_core::ports::Clock;
use convoke_core::shards::coordinator::{Coordinator, ServiceView, WorkerView};
use convoke_core::shards::{Shard, Strategy, Version};
use convoke_core::{ServiceName, WorkerId};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

/// Whether this node coordinates shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ShardsState {
    /// Another node leads, or nobody does.
    #[default]
    Standby,
    /// It leads and listens at this address.
    Listening(String),
    /// It leads but cannot listen, for this reason.
    Refused(String),
}

/// A service and the workers that own its shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ShardService))]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The name of the service.
    pub service: ServiceName,
    /// How many shards the service has: they are numbered from 0.
    pub max_shard_count: u32,
    /// The version of the latest assignment.
    pub version: Version,
    /// How shards are distributed among the workers.
    pub strategy: Strategy,
    /// In order of their ids.
    pub workers: Vec<WorkerStatus>,
}

/// A worker of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ShardWorker))]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// The id that the worker chose, unique in its service.
    pub worker_id: WorkerId,
    /// The shards that it owns.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u32>))]
    pub shards: Arc<[Shard]>,
    /// The shards that it was asked to release and has not released yet; absent if there are none.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u32>))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revoking: Vec<Shard>,
    /// The shards that it will own once another worker has released them; absent if there are none.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u32>))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incoming: Vec<Shard>,
    /// Whether it sends heartbeats.
    pub active: bool,
    /// Whether it is asked to release a shard before another worker receives it.
    pub handoff: bool,
    /// When the last heartbeat of the worker was received.
    pub last_heartbeat_at: Timestamp,
}

/// A handle to read the coordinator's state while it runs. Empty on a standby. Cheap to clone.
#[derive(Clone)]
pub struct ShardsView {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    running: Mutex<Option<Running>>,
    state: watch::Sender<ShardsState>,
}

/// The coordinator of the present term.
pub(super) struct Running {
    pub coordinator: Coordinator,
    pub began: Instant,
}

impl ShardsView {
    /// Creates the view of a standby.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = watch::Sender::default();
        ShardsView { inner: Arc::new(Inner { clock, running: Mutex::new(None), state }) }
    }

    /// Returns whether this node coordinates shards now.
    pub fn state(&self) -> ShardsState {
        self.inner.state.borrow().clone()
    }

    /// Returns a receiver for changes of [`state`](Self::state).
    pub fn watch(&self) -> watch::Receiver<ShardsState> {
        self.inner.state.subscribe()
    }

    /// Returns all services, in order of their names; none on a standby.
    pub fn services(&self) -> Vec<ServiceStatus> {
        let running = self.inner.running.lock();
        running
            .as_ref()
            .map(|running| running.coordinator.views().map(|view| self.status(running, view)).collect())
            .unwrap_or_default()
    }

    /// Returns one service; `None` on a standby or if no worker has registered for it.
    pub fn service(&self, name: &ServiceName) -> Option<ServiceStatus> {
        let running = self.inner.running.lock();
        let running = running.as_ref()?;
        Some(self.status(running, running.coordinator.view(name)?))
    }

    fn status(&self, running: &Running, view: ServiceView) -> ServiceStatus {
        let (elapsed, now) = (running.began.elapsed(), self.now());
        let worker = |worker: WorkerView| {
            let WorkerView { worker_id, shards, revoking, incoming, active, handoff, last_heartbeat } = worker;
            let age = elapsed.saturating_sub(last_heartbeat).min(DURATION_MAX);
            let last_heartbeat_at = now - age;
            WorkerStatus { worker_id, shards, revoking, incoming, active, handoff, last_heartbeat_at }
        };
        let ServiceView { service, max_shard_count, version, strategy, workers } = view;
        let workers = workers.into_iter().map(worker).collect();
        ServiceStatus { service, max_shard_count, version, strategy, workers }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    pub(super) fn set_state(&self, state: ShardsState) {
        self.inner.state.send_if_modified(|shown| std::mem::replace(shown, state.clone()) != state);
    }

    pub(super) fn begin(&self, coordinator: Coordinator) {
        *self.inner.running.lock() = Some(Running { coordinator, began: Instant::now() });
    }

    pub(super) fn end(&self) {
        *self.inner.running.lock() = None;
        self.set_state(ShardsState::Standby);
    }

    /// Runs a function on the running coordinator. It must be short: readers wait for it.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Running) -> T) -> Option<T> {
        self.inner.running.lock().as_mut().map(act)
    }
}
