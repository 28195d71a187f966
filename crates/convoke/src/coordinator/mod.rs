//! A coordinator inside an application's own process: the node that `convoke serve` runs, as a value.
//!
//! ```no_run
//! use convoke::Coordinator;
//!
//! # async fn run() -> convoke::Result<()> {
//! let coordinator =
//!     Coordinator::builder().store("sqlite:app.db").bus("memory:").http("127.0.0.1:3000").start().await?;
//! coordinator.client().enqueue_raw("email.send", "a@b.c").await?;
//! // …
//! coordinator.drain().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Several such nodes, in one process or in many, are a cluster if they share a store and a bus that processes can share,
//! and `convoke serve` can be one of them. A node serves the HTTP API on a port of its own ([`CoordinatorBuilder::http`]),
//! inside the application's axum server ([`Coordinator::router`]), on both or on neither.
//!
//! [`Coordinator::drain`] ends a node without losing time: it resigns and hands its runs over. A [`Coordinator`] that
//! is dropped instead is aborted, as by a crash. Acknowledged work is not lost then either: other nodes detect the loss
//! after `cluster.dead_node_timeout`, and its runs go on with another owner.

mod builder;
mod history;
#[cfg(feature = "zmq")]
mod shards;

use std::net::SocketAddr;
use std::sync::Arc;

use convoke_core::NodeId;
use convoke_http::AppState;
use convoke_runtime::decisions::Recorder;
use convoke_runtime::jobs;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::worker::Worker;

pub use builder::CoordinatorBuilder;
#[cfg(feature = "zmq")]
pub use convoke_core::shards::Settings as ShardSettings;
pub use convoke_http::{Color, DashboardSettings, Info, ListenError, PublicPaths, Role, Token};
pub use convoke_runtime::jobs::{
    BusSettings, CacheSettings, ChannelSettings, ClusterSettings, LeaseSettings, RateLimitSettings, RetentionSettings,
    RetrySettings, Settings, StoreSettings, WorkerSettings,
};
pub use convoke_runtime::shards::ShardsState;
#[cfg(feature = "zmq")]
pub use shards::check_shards;

/// A node that runs in this process. Call [`drain`](Self::drain) before the process ends; dropping it aborts the node.
pub struct Coordinator {
    node: jobs::Coordinator,
    state: AppState,
    server: Option<Server>,
    /// Writes the history, if there is one.
    recorder: Option<Arc<Recorder>>,
    /// Whether every run found another owner. Set by the drain.
    drained: OnceCell<bool>,
    _background: Vec<AbortOnDropHandle<()>>,
}

/// The HTTP server of a node.
struct Server {
    address: SocketAddr,
    /// Cancelled to end the server.
    closing: CancellationToken,
    /// Cancelled when the server has ended.
    ended: CancellationToken,
}

impl Coordinator {
    /// Returns a builder: all in one process, kept in `sqlite:convoke.db`, without HTTP.
    pub fn builder() -> CoordinatorBuilder {
        CoordinatorBuilder::default()
    }

    /// Returns the node's name in the cluster.
    pub fn node_id(&self) -> &NodeId {
        self.node.node_id()
    }

    /// Returns what runs, with passwords removed from the addresses.
    pub fn info(&self) -> &Info {
        &self.state.info
    }

    /// Returns the address of the HTTP server, if the node has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|server| server.address)
    }

    /// Returns the node as the runtime knows it, for requests that [`Client`] does not have, such as schedules.
    pub fn node(&self) -> &jobs::Coordinator {
        &self.node
    }

    /// Returns a client that calls this node directly, without HTTP.
    pub fn client(&self) -> Client {
        Client::over(Arc::new(self.node.clone()))
    }

    /// Returns a worker that takes its jobs from this node directly, without HTTP. Stop it before the node is drained
    /// ([`Worker::run_until`]): it has no other node to go to.
    pub fn worker(&self) -> Worker {
        Worker::over(Arc::new(self.node.clone()))
    }

    /// Returns the routes of the HTTP API and the dashboard for the application's own server. Mount them under a path with `nest`, beside other
    /// routes with `merge`, or as `fallback_service`. Clients and workers then connect to that path, such as
    /// `http://127.0.0.1:8080/convoke`.
    ///
    /// Access is checked as on a port of the node's own: by token if there are any. Without tokens only requests from this
    /// machine are served, for which the application's server has to provide the address of the client
    /// (`into_make_service_with_connect_info::<SocketAddr>()`). An application that checks access itself sets
    /// [`insecure`](CoordinatorBuilder::insecure). Limits on connections are those of the application's server.
    ///
    /// Drain the node before that server shuts down: workers report to it until their runs have another owner.
    pub fn router(&self) -> axum::Router {
        convoke_http::router(self.state.clone())
    }

    /// Waits until the node takes work: it knows who leads and, if it leads itself, listens for shard workers. Fails if the
    /// address of a required shard coordinator cannot be listened on.
    pub async fn ready(&self) -> Result<()> {
        self.node.ready().await;
        let Some(shards) = &self.state.shards else { return Ok(()) };
        let mut state = shards.view.watch();
        while self.node.cluster().is_me && *state.borrow_and_update() == ShardsState::Standby {
            // Fails only if the node is gone.
            if state.changed().await.is_err() {
                break;
            }
        }
        shards.health().map_err(|why| convoke_core::Error::Conflict(why).into())
    }

    /// Returns whether the node coordinates shards, and where; `None` if that is switched off.
    pub fn shards(&self) -> Option<ShardsState> {
        self.state.shards.as_ref().map(|shards| shards.view.state())
    }

    /// Completes when the node was asked to drain from outside, by `convoke cluster drain` or over HTTP. The application then
    /// calls [`drain`](Self::drain).
    pub async fn drain_requested(&self) {
        self.node.drain_requested().await;
    }

    /// Completes when the node's HTTP server has ended: after a drain, or because it panicked. Never, if it has none.
    pub async fn http_ended(&self) {
        match &self.server {
            Some(server) => server.ended.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Leaves the cluster cleanly: takes no new work, resigns if it leads, hands its runs over to other nodes, ends requests
    /// that wait, closes its HTTP server and leaves the registry. A single node cannot hand over and does not wait;
    /// it recovers its runs when it starts again.
    ///
    /// Fails with [`Error::RunsOrphaned`] if some runs found no other owner in time; the node has left nevertheless. If the
    /// future is dropped before it completes, call it again, or drop the node. A second call returns the result of the first.
    pub async fn drain(&self) -> Result<()> {
        let is_clean = *self.drained.get_or_init(|| self.leave()).await;
        if is_clean { Ok(()) } else { Err(Error::RunsOrphaned) }
    }

    async fn leave(&self) -> bool {
        // Workers go on reporting to this node until its runs have another owner.
        let is_clean = self.node.hand_over().await;
        self.state.closing.cancel();
        if let Some(server) = &self.server {
            server.closing.cancel();
            server.ended.cancelled().await;
        }
        self.node.stop().await;
        if let Some(recorder) = &self.recorder {
            recorder.end().await;
        }
        is_clean
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.node.abort();
        self.state.closing.cancel();
        // Not aborted: connections would outlive it, and hold on to the store.
        if let Some(server) = &self.server {
            server.closing.cancel();
        }
    }
}
