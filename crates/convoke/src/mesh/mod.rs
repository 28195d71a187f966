//! Typed calls between the instances of an application.
//!
//! ```no_run
//! use convoke::{InstanceId, Mesh, Request};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct GetStatus { verbose: bool }
//! #[derive(Serialize, Deserialize)]
//! struct Status { uptime: u64 }
//! impl Request for GetStatus { const TYPE: &'static str = "getStatus"; type Response = Status; }
//!
//! # async fn both() -> Result<(), convoke::MeshError> {
//! let mesh = Mesh::connect("redis://127.0.0.1", "my-app").await?
//!     .on(|_: GetStatus| async move { Ok(Status { uptime: 1 }) }).start().await?;
//! let status = mesh.invoke(InstanceId(2), GetStatus { verbose: true }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A call is sent at most once, and ends once: with a reply, or with a [`MeshError`] that names the instance and the type.
//! A handler may take as long as it needs: while it runs, its instance sends heartbeats, and each restarts the timeout
//! of the call. The instances of an existing system on Node.js may be part of the same mesh.

mod address;
mod failure;
mod fanout;
mod request;

use std::sync::Arc;
use std::time::Duration;

pub use convoke_core::mesh::TraceParent;
use convoke_core::mesh::{EpochFloor, Fault, InstanceId, MeshError, MeshNode};
use convoke_core::ports::MeshLink;
use convoke_core::{Invalid, Json};
pub use convoke_runtime::mesh::{
    CallOptions, Context as MeshContext, Settings as MeshSettings, current_trace, in_trace,
};
use convoke_runtime::mesh::{Demand, Instance};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::address::MeshAddress;
pub use self::failure::HandlerError;
pub use self::fanout::Replies;
pub use self::request::{Broadcast, Request};
use crate::connect;

/// An instance of a mesh. Clones are the same instance.
///
/// Handlers may be added before and after the start; a second handler of a type replaces the first. A handler that
/// holds a clone of its own mesh keeps the mesh alive until it is stopped.
#[derive(Clone)]
pub struct Mesh {
    instance: Instance,
    turns: Arc<fanout::Turns>,
}

impl Mesh {
    /// Connects to the mesh `key` at an address: `redis://…`, `rediss://…`, `redis+sentinel://…`, or `memory:` for the
    /// instances of this process. The prefix of names in Redis comes from the environment, see [`MeshAddress`].
    pub async fn connect(url: &str, key: &str) -> Result<Mesh, MeshError> {
        Mesh::at(&MeshAddress::with_env(url), key).await
    }

    /// Connects to the mesh `key` at the address in the environment.
    pub async fn from_env(key: &str) -> Result<Mesh, MeshError> {
        Mesh::at(&MeshAddress::from_env()?, key).await
    }

    /// Connects to the mesh `key` at the given address and prefix.
    pub async fn at(address: &MeshAddress, key: &str) -> Result<Mesh, MeshError> {
        let link = connect::mesh_link(address, key).await.map_err(|error| match error {
            convoke_core::Error::Invalid(invalid) => MeshError::Invalid(invalid),
            source => MeshError::Unavailable { instance: InstanceId::NOBODY, what: "connect".into(), source },
        })?;
        Ok(Mesh::over(link))
    }

    /// Returns an instance on the given link to a mesh.
    pub fn over(link: Arc<dyn MeshLink>) -> Mesh {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Mesh::named(link, hostname)
    }

    /// Like [`over`](Self::over), with another host name than the machine's.
    pub fn named(link: Arc<dyn MeshLink>, hostname: impl Into<String>) -> Mesh {
        Mesh { instance: Instance::new(link, hostname, MeshSettings::default()), turns: Arc::default() }
    }

    /// Sets the options of the next start. The defaults are those of the existing system.
    pub fn settings(self, settings: MeshSettings) -> Self {
        self.instance.set(|present| *present = settings);
        self
    }

    /// Sets how long a call waits for a reply or a heartbeat, unless the call sets its own timeout. Default: 10 s.
    pub fn request_timeout(self, timeout: Duration) -> Self {
        self.instance.set(|settings| settings.request_timeout = timeout);
        self
    }

    /// Registers the handler of requests of the type `Q`.
    pub fn on<Q, F, Fut>(self, handler: F) -> Self
    where
        Q: Request,
        F: Fn(Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Response, HandlerError>> + Send + 'static,
    {
        self.on_with(move |_, request| handler(request))
    }

    /// Registers the handler of requests of the type `Q`, with a context: the caller, the deadline, and whether the
    /// instance stops.
    pub fn on_with<Q, F, Fut>(self, handler: F) -> Self
    where
        Q: Request,
        F: Fn(MeshContext, Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Response, HandlerError>> + Send + 'static,
    {
        self.add(Q::TYPE, Demand::default(), handler)
    }

    /// Registers the handler of requests of the type `Q`, with a state that handlers share.
    pub fn on_shared<S, Q, F, Fut>(self, state: Arc<S>, handler: F) -> Self
    where
        S: Send + Sync + 'static,
        Q: Request,
        F: Fn(Arc<S>, MeshContext, Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Response, HandlerError>> + Send + 'static,
    {
        self.on_with(move |context, request| handler(state.clone(), context, request))
    }

    /// Registers the handler of requests of the type `Q` that carry the epoch of a current term. Requests with a lower
    /// epoch or none are rejected.
    pub fn on_fenced<Q, F, Fut>(self, floor: EpochFloor, handler: F) -> Self
    where
        Q: Request,
        F: Fn(MeshContext, Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Response, HandlerError>> + Send + 'static,
    {
        self.add(Q::TYPE, Demand { epoch: Some(floor) }, handler)
    }

    /// Registers the handler of a request type that has no Rust type in this program.
    pub fn on_raw<F, Fut>(self, request_type: &str, handler: F) -> Self
    where
        F: Fn(MeshContext, serde_json::Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<serde_json::Value, HandlerError>> + Send + 'static,
    {
        self.add(request_type, Demand::default(), handler)
    }

    fn add<Q, R, F, Fut>(self, request_type: &str, demand: Demand, handler: F) -> Self
    where
        Q: DeserializeOwned,
        R: Serialize + 'static,
        F: Fn(MeshContext, Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        let name: Arc<str> = request_type.into();
        self.instance.handlers().on(request_type, demand, move |context, data| match serde_json::from_str(&data) {
            Ok(request) => {
                let answer = handler(context, request);
                Box::pin(async move {
                    let response = answer.await.map_err(HandlerError::into_fault)?;
                    Json::of(&response)
                        .map_err(|error| Fault::Handler(format!("the result cannot be written: {error}")))
                })
            }
            Err(error) => {
                let fault = Fault::Handler(format!("the data is not that of {name}: {error}"));
                Box::pin(std::future::ready(Err(fault)))
            }
        });
        self
    }

    /// Subscribes to broadcasts of the type `B`. The handler receives the sender's number.
    pub fn on_broadcast<B, F, Fut>(self, handler: F) -> Self
    where
        B: Broadcast,
        F: Fn(InstanceId, B) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.instance.handlers().on_broadcast(B::TYPE, move |sender, data| match serde_json::from_str(&data) {
            Ok(broadcast) => Box::pin(handler(sender, broadcast)),
            Err(error) => {
                tracing::warn!(%error, sender = sender.0, broadcast_type = B::TYPE, "broadcast could not be read");
                Box::pin(std::future::ready(()))
            }
        });
        self
    }

    /// Calls back for each instance that is gone without having stopped. Only the leading instance does so.
    pub fn on_node_gone<F, Fut>(self, callback: F) -> Self
    where
        F: Fn(InstanceId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.instance.on_gone(callback);
        self
    }

    /// Joins the mesh. When it returns, this instance can call and be called.
    pub async fn start(&self) -> Result<Mesh, MeshError> {
        self.instance.start().await?;
        Ok(self.clone())
    }

    /// Leaves the mesh: calls end as [`MeshError::Stopped`], running handlers have a grace period. May be called at any
    /// time.
    pub async fn stop(&self) {
        self.instance.stop().await;
    }

    /// Returns this instance's number; [`InstanceId::NOBODY`] before the start and after the stop.
    pub fn instance_id(&self) -> InstanceId {
        self.instance.id()
    }

    /// Returns whether this instance leads: it removes the instances that are gone.
    pub fn is_leader(&self) -> bool {
        self.instance.is_leader()
    }

    /// Returns how many calls of this instance are open.
    pub fn calls_open(&self) -> usize {
        self.instance.calls_open()
    }

    /// Returns how many handlers run in this instance.
    pub fn handlers_running(&self) -> usize {
        self.instance.handlers_running()
    }

    /// Returns how many messages could not be read since the start.
    pub fn messages_malformed(&self) -> u64 {
        self.instance.messages_malformed()
    }

    /// Returns the live instances, by number. Works before the start.
    pub async fn nodes(&self) -> Result<Vec<MeshNode>, MeshError> {
        self.instance.nodes().await
    }

    /// Calls one instance. A call to this instance itself does not use the link.
    pub async fn invoke<Q: Request>(&self, instance: InstanceId, request: Q) -> Result<Q::Response, MeshError> {
        self.invoke_with(instance, request, CallOptions::default()).await
    }

    /// Like [`invoke`](Self::invoke), with its own timeout.
    pub async fn invoke_with_timeout<Q: Request>(
        &self,
        instance: InstanceId,
        request: Q,
        timeout: Duration,
    ) -> Result<Q::Response, MeshError> {
        self.invoke_with(instance, request, CallOptions { timeout: Some(timeout), ..CallOptions::default() }).await
    }

    /// Like [`invoke`](Self::invoke), with a timeout and an epoch.
    pub async fn invoke_with<Q: Request>(
        &self,
        instance: InstanceId,
        request: Q,
        options: CallOptions,
    ) -> Result<Q::Response, MeshError> {
        let data = encode(&request)?;
        self.call(instance, Q::TYPE, &data, options).await
    }

    /// Calls an instance with a request type that has no Rust type in this program.
    pub async fn invoke_raw(
        &self,
        instance: InstanceId,
        request_type: &str,
        data: &serde_json::Value,
        options: CallOptions,
    ) -> Result<serde_json::Value, MeshError> {
        self.call(instance, request_type, &encode(data)?, options).await
    }

    async fn call<R: DeserializeOwned>(
        &self,
        instance: InstanceId,
        request_type: &str,
        data: &Json,
        options: CallOptions,
    ) -> Result<R, MeshError> {
        let read = |reply: String| serde_json::from_str(&reply);
        self.instance.call(instance, request_type, data, options, read).await
    }

    /// Sends a broadcast to every instance, this one first. There are no replies. Returns how many other instances
    /// received it.
    pub async fn broadcast<B: Broadcast>(&self, broadcast: B) -> Result<u64, MeshError> {
        self.instance.broadcast(B::TYPE, &encode(&broadcast)?, false).await
    }

    /// Sends a broadcast to every instance except this one.
    pub async fn broadcast_to_others<B: Broadcast>(&self, broadcast: B) -> Result<u64, MeshError> {
        self.instance.broadcast(B::TYPE, &encode(&broadcast)?, true).await
    }
}

fn encode(value: &impl Serialize) -> Result<Json, MeshError> {
    Json::of(value).map_err(|error| Invalid::new("data", format!("it cannot be written as JSON: {error}")).into())
}
