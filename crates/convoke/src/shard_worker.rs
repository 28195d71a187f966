//! A worker of a sharded service.
//!
//! ```no_run
//! use convoke::ShardWorker;
//!
//! # async fn work() -> convoke::Result<()> {
//! let shards = ShardWorker::connect("tcp://127.0.0.1:5555", "my-service", "worker-1", 100).await?;
//! let mut changes = shards.changes();
//! while let Some(change) = changes.next().await {
//!     println!("{:?} came, {:?} went", change.added, change.removed);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A worker owns its assigned shards for as long as the coordinator acknowledges its heartbeats. If it does not, the
//! worker releases all shards by a change, before they are assigned to another worker, and registers again. Every write
//! for a shard should carry the version of the assignment, and the storage should reject lower versions: that protects
//! also against a worker that was paused between [`owns`](ShardWorker::owns) and its write.

use std::time::Duration;

use convoke_core::Invalid;
use convoke_core::shards::{Shard, Version};
use convoke_runtime::shards::{self as runtime, Changes, WorkerOptions};

use crate::connect::{self, ZmqCredentials};
use crate::error::Result;

/// Holds shards of a service. Cheap to clone. When the last clone is dropped, heartbeats stop, and its shards move
/// after the coordinator's timeout; [`leave`](Self::leave) moves them at once.
#[derive(Clone)]
pub struct ShardWorker {
    worker: runtime::ShardWorker,
}

/// Options of a worker that has not connected. [`connect`](Self::connect) connects it.
#[must_use = "it does nothing until it connects"]
pub struct ShardWorkerBuilder {
    url: String,
    options: WorkerOptions,
    credentials: ZmqCredentials,
}

impl ShardWorker {
    /// Registers as `worker_id` of `service`, which has `max_shards` shards. Does not wait for a coordinator: the
    /// worker registers as soon as there is one. Several addresses, separated by commas, are coordinators of which one
    /// leads.
    pub async fn connect(
        url: &str,
        service: impl Into<String>,
        worker_id: impl Into<String>,
        max_shards: u32,
    ) -> Result<ShardWorker> {
        ShardWorker::builder(url, service, worker_id, max_shards).connect().await
    }

    /// Returns a builder, for further options.
    pub fn builder(
        url: &str,
        service: impl Into<String>,
        worker_id: impl Into<String>,
        max_shards: u32,
    ) -> ShardWorkerBuilder {
        let options = WorkerOptions::new(service, worker_id, max_shards);
        ShardWorkerBuilder { url: url.to_owned(), options, credentials: ZmqCredentials::Open }
    }

    /// Returns the shards that it owns now, in order. Empty while it is uncertain whether the coordinator considers it
    /// alive.
    pub fn shards(&self) -> Vec<Shard> {
        self.worker.shards()
    }

    /// Returns whether it owns a shard now. Check it before each piece of work.
    pub fn owns(&self, shard: Shard) -> bool {
        self.worker.owns(shard)
    }

    /// Returns the version of the latest assignment: the fence for writes.
    pub fn version(&self) -> Version {
        self.worker.version()
    }

    /// Returns whether another worker has registered under its id. It has then released its shards and stopped.
    pub fn is_replaced(&self) -> bool {
        self.worker.is_replaced()
    }

    /// Returns whether a coordinator has replied lately.
    pub fn is_connected(&self) -> bool {
        self.worker.is_connected()
    }

    /// Waits until a coordinator has replied.
    pub async fn ready(&self) {
        self.worker.ready().await;
    }

    /// Returns the stream of changes, which begins with all shards that are owned now. There is one stream: another
    /// call ends the previous one.
    ///
    /// A change is done when the next one is requested, by `done()`, or when the stream is dropped. With
    /// [`handoff`](ShardWorkerBuilder::handoff) a removed shard moves to its next owner only then, so stop working on
    /// it first. Without a stream the coordinator does not wait.
    pub fn changes(&self) -> Changes {
        self.worker.changes()
    }

    /// Leaves the service: a last change removes all shards, and they move to other workers when that change is done.
    /// Waits for that and for the coordinator's acknowledgement; returns false if it took longer than the grace period.
    /// The stream of changes then ends. Do not call this in the task that reads the stream: it would wait for itself.
    pub async fn leave(&self) -> bool {
        self.worker.leave().await
    }
}

impl ShardWorkerBuilder {
    /// Sets whether the coordinator requests a shard's release, and waits for it, before it assigns the shard to
    /// another worker.
    pub fn handoff(mut self, handoff: bool) -> Self {
        self.options.handoff = handoff;
        self
    }

    /// Sets the time between heartbeats. Default: a third of the coordinator's timeout.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.options.heartbeat_interval = Some(interval);
        self
    }

    /// Sets how long [`ShardWorker::leave`] waits. Default: 25 s.
    pub fn leave_grace(mut self, grace: Duration) -> Self {
        self.options.leave_grace = grace;
        self
    }

    /// Sets the credentials that the coordinator requires. Default: none.
    pub fn credentials(mut self, credentials: ZmqCredentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Starts the worker, which registers as soon as a coordinator is reachable. Rejects addresses other than
    /// `tcp://HOST:PORT`.
    pub async fn connect(self) -> Result<ShardWorker> {
        let addresses: Vec<String> = self.url.split(',').map(|address| address.trim().to_owned()).collect();
        if let Some(address) = addresses.iter().find(|address| !address.starts_with("tcp://")) {
            return Err(Invalid::new("url", format!("expected tcp://HOST:PORT, got {address:?}")).into());
        }
        let dealer = connect::shard_dealer(self.credentials);
        Ok(ShardWorker { worker: runtime::ShardWorker::connect(dealer, addresses, self.options).await? })
    }
}
