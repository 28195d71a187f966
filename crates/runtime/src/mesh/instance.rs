//! The public handle of an instance.
//!
//! It is created idle, started and stopped, and may be started again under a new number. Starting and stopping take
//! turns; everything else may happen at any time, from any task. An instance that is dropped without a stop ends its
//! calls and handlers and sends no more heartbeats: the leader removes it.

use std::sync::Arc;

use convoke_core::Json;
use convoke_core::election::{BreakerStatus, Metrics};
use convoke_core::mesh::{Fault, InstanceId, MeshError, MeshNode, envelope};
use convoke_core::ports::MeshLink;
use parking_lot::RwLock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::debug;

use super::calling::{self, CallOptions, unavailable};
use super::handlers::Handlers;
use super::membership::{self, OnGone};
use super::outbox::OutgoingMessage;
use super::session::MeshSession;
use super::settings::Settings;
use super::{lease, outbox, serving, telemetry};

/// An instance of a mesh. Clones share it.
#[derive(Clone)]
pub struct Instance(Arc<Inner>);

struct Inner {
    link: Arc<dyn MeshLink>,
    hostname: String,
    settings: RwLock<Settings>,
    handlers: Arc<Handlers>,
    on_gone: Arc<OnGone>,
    running: RwLock<Option<Running>>,
    /// Serializes starts and stops.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Instance {
    /// Creates an idle instance: it sends nothing before it is started.
    pub fn new(link: Arc<dyn MeshLink>, hostname: impl Into<String>, settings: Settings) -> Self {
        Instance(Arc::new(Inner {
            link,
            hostname: hostname.into(),
            settings: RwLock::new(settings),
            handlers: Arc::default(),
            on_gone: Arc::default(),
            running: RwLock::new(None),
            turn: Arc::default(),
        }))
    }

    /// Returns the handlers of this instance. They may be changed at any time.
    pub fn handlers(&self) -> &Handlers {
        &self.0.handlers
    }

    /// Changes the settings for the next start.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.0.settings.write());
    }

    /// Sets the callback for each dead instance that this one removes. The last one set wins.
    pub fn on_gone<F, Fut>(&self, callback: F)
    where
        F: Fn(InstanceId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        *self.0.on_gone.write() = Some(Arc::new(move |id| Box::pin(callback(id))));
    }

    /// Joins the mesh: after it returns, this instance can call and be called.
    pub async fn start(&self) -> Result<InstanceId, MeshError> {
        let _turn = self.0.turn.lock().await;
        if let Some(running) = &*self.0.running.read() {
            return Err(MeshError::AlreadyRunning { instance: running.session.id() });
        }
        let settings = self.0.settings.read().clone();
        settings.check()?;
        telemetry::describe();
        let (link, hostname) = (self.0.link.clone(), self.0.hostname.clone());
        let (session, outgoing_messages) = MeshSession::new(link, settings, hostname, self.0.handlers.clone());
        session.join().await.map_err(|source| unavailable(InstanceId::NOBODY, "start", source))?;
        let id = session.id();
        *self.0.running.write() = Some(Running::new(session, outgoing_messages, self.0.on_gone.clone()));
        Ok(id)
    }

    /// Leaves the mesh: calls end as stopped, and handlers have the grace period to finish. Does nothing if it does not
    /// run.
    pub async fn stop(&self) {
        let turn = self.0.turn.clone().lock_owned().await;
        let running = self.0.running.write().take();
        if let Some(running) = running {
            // In a task of its own: the caller may be dropped meanwhile, for example a handler of this instance.
            let stop = async move {
                running.stop().await;
                drop(turn);
            };
            let _ = tokio::spawn(stop).await;
        }
    }

    /// Returns its number; `NOBODY` if it does not run.
    pub fn id(&self) -> InstanceId {
        self.0.running.read().as_ref().map_or(InstanceId::NOBODY, |running| running.session.id())
    }

    /// Returns whether this instance leads its mesh, which removes dead instances.
    pub fn is_leader(&self) -> bool {
        self.0.running.read().as_ref().is_some_and(|running| running.session.lease.is_held())
    }

    /// Returns the health of its attempts to lead; `None` if it does not run.
    pub fn election(&self) -> Option<(Metrics, BreakerStatus)> {
        self.0.running.read().as_ref().map(|running| running.session.lease.election())
    }

    /// Returns the number of its pending calls.
    pub fn calls_open(&self) -> usize {
        self.0.running.read().as_ref().map_or(0, |running| running.session.pending.len())
    }

    /// Returns the number of handlers that run here.
    pub fn handlers_running(&self) -> usize {
        self.0.running.read().as_ref().map_or(0, |running| running.session.running())
    }

    /// Returns how many received messages could not be read since the start.
    pub fn messages_malformed(&self) -> u64 {
        self.0.running.read().as_ref().map_or(0, |running| running.session.malformed())
    }

    /// Lists the live instances, by number. Needs no start.
    pub async fn nodes(&self) -> Result<Vec<MeshNode>, MeshError> {
        let (id, ttl) = (self.id(), self.0.settings.read().node_ttl);
        let nodes = self.0.link.nodes(ttl).await;
        let nodes = nodes.map_err(|source| unavailable(InstanceId::NOBODY, "nodes", source))?;
        let mark = |node: MeshNode| MeshNode { is_self: node.instance_id == id, ..node };
        Ok(nodes.into_iter().map(mark).collect())
    }

    /// Calls an instance. Returns the result of `read` for the reply's JSON text.
    pub async fn call<T>(
        &self,
        to: InstanceId,
        request_type: &str,
        data: &Json,
        options: CallOptions,
        read: impl FnOnce(String) -> serde_json::Result<T>,
    ) -> Result<T, MeshError> {
        let session = self.session(to, request_type)?;
        calling::call(&session, to, request_type, data, options, read).await
    }

    /// Sends a broadcast to all instances, this one first unless `skip_self`. Returns how many others listen.
    pub async fn broadcast(&self, kind: &str, data: &Json, skip_self: bool) -> Result<u64, MeshError> {
        let session = self.session(InstanceId::NOBODY, kind)?;
        calling::check_type(kind)?;
        calling::check_size(data)?;
        if !skip_self {
            serving::dispatch_broadcast(&session, session.id(), kind, data.as_str());
        }
        let message = envelope::encode_broadcast(session.id(), kind, data.as_raw());
        let received = session.link.broadcast(message.into()).await;
        let received = received.map_err(|source| unavailable(InstanceId::NOBODY, kind, source))?;
        Ok(received.saturating_sub(1))
    }

    fn session(&self, to: InstanceId, what: &str) -> Result<Arc<MeshSession>, MeshError> {
        let running = self.0.running.read();
        let session = running.as_ref().map(|running| running.session.clone());
        session.ok_or_else(|| MeshError::of(Fault::Stopped, to, what))
    }
}

/// The tasks that end when an instance stops or is dropped.
struct Running {
    session: Arc<MeshSession>,
    /// The tasks that act in the registry.
    duties: JoinSet<()>,
    /// The task that holds the lock.
    standing: JoinSet<()>,
    /// The tasks that calls and replies need.
    _plumbing: JoinSet<()>,
}

impl Running {
    fn new(
        session: Arc<MeshSession>,
        outgoing_messages: mpsc::Receiver<OutgoingMessage>,
        on_gone: Arc<OnGone>,
    ) -> Self {
        let (mut duties, mut standing, mut plumbing) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let (renewed, pending) = (session.clone(), session.pending.clone());
        duties.spawn(async move { membership::keep(&renewed, &on_gone).await });
        standing.spawn(lease::compete_for_lease(session.clone()));
        plumbing.spawn(async move { pending.watch().await });
        plumbing.spawn(outbox::send_all(session.link.clone(), session.pending.clone(), outgoing_messages));
        Running { session, duties, standing, _plumbing: plumbing }
    }

    async fn stop(mut self) {
        let session = self.session.clone();
        session.pending.close();
        session.stopping.cancel();
        // No heartbeat may be sent after this instance has left.
        self.duties.shutdown().await;
        session.lease.quit();
        while self.standing.join_next().await.is_some() {}
        if let Some(membership) = session.membership()
            && let Err(error) = membership.leave().await
        {
            debug!(%error, "leaving failed: the leader removes this instance");
        }
        session.leave_registry();
        session.tasks.close();
        if tokio::time::timeout(session.settings.stop_grace, session.tasks.wait()).await.is_err() {
            session.abandoned.cancel();
            session.tasks.wait().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.pending.close();
        self.session.stopping.cancel();
        self.session.abandoned.cancel();
        self.session.lease.abandon();
        self.session.leave_registry();
        self.session.meters.left();
    }
}
