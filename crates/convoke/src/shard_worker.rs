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
//! It owns what the coordinator assigned to it for as long as its heartbeats are answered. When they are not it drops
//! everything by a change, before anybody else is given it, and registers again. Whatever is written for a shard should
//! carry the version of the assignment, and what has a lower one be refused: that holds also against a worker that was
//! paused between [`owns`](ShardWorker::owns) and its write.

use std::time::Duration;

use convoke_core::Invalid;
use convoke_core::shards::{Shard, Version};
use convoke_runtime::shards::{self as runtime, Changes, WorkerOptions};

use crate::connect::{self, ZmqCredentials};
use crate::error::Result;

/// Holds shards of a service. Cheap to clone; when the last clone is dropped it falls silent, and its shards move once it
/// is taken for dead. [`leave`](Self::leave) is better.
#[derive(Clone)]
pub struct ShardWorker {
    worker: runtime::ShardWorker,
}

/// A worker that is yet to connect. Options first, then [`connect`](Self::connect).
#[must_use = "it does nothing until it connects"]
pub struct ShardWorkerBuilder {
    url: String,
    options: WorkerOptions,
    credentials: ZmqCredentials,
}

impl ShardWorker {
    /// Registers as `worker_id` of `service`, which has `max_shards` shards. Waits for no coordinator: it registers as soon as
    /// one is there. Several addresses, with commas between, are coordinators of which one leads.
    pub async fn connect(
        url: &str,
        service: impl Into<String>,
        worker_id: impl Into<String>,
        max_shards: u32,
    ) -> Result<ShardWorker> {
        ShardWorker::builder(url, service, worker_id, max_shards).connect().await
    }

    /// The same, with options.
    pub fn builder(
        url: &str,
        service: impl Into<String>,
        worker_id: impl Into<String>,
        max_shards: u32,
    ) -> ShardWorkerBuilder {
        let options = WorkerOptions::new(service, worker_id, max_shards);
        ShardWorkerBuilder { url: url.to_owned(), options, credentials: ZmqCredentials::Open }
    }

    /// What it owns now, in order. Nothing while it is not certain that the coordinator thinks it alive.
    pub fn shards(&self) -> Vec<Shard> {
        self.worker.shards()
    }

    /// Whether it owns a shard at this moment: worth asking before each piece of work.
    pub fn owns(&self, shard: Shard) -> bool {
        self.worker.owns(shard)
    }

    /// Of the latest assignment: the fence to write with.
    pub fn version(&self) -> Version {
        self.worker.version()
    }

    /// Whether another worker has registered under its id. It has given up its shards then, and is over.
    pub fn is_replaced(&self) -> bool {
        self.worker.is_replaced()
    }

    /// Whether a coordinator has answered lately.
    pub fn is_connected(&self) -> bool {
        self.worker.is_connected()
    }

    /// Waits until a coordinator has answered.
    pub async fn ready(&self) {
        self.worker.ready().await;
    }

    /// What changes, beginning with all that is owned now. There is one such stream: another call ends the one before.
    ///
    /// A change counts as done when the next one is asked for, by `done()`, or when the stream is dropped. With
    /// [`handoff`](ShardWorkerBuilder::handoff) a shard that was removed reaches its next owner only then, so stop working on
    /// it first. Without a stream nobody is waited for.
    pub fn changes(&self) -> Changes {
        self.worker.changes()
    }

    /// Leaves: a last change removes all shards, and they go to others as soon as that is done. Waits for that, and until the
    /// coordinator has heard; false where that took longer than the grace. The stream of changes is over then. Do not
    /// wait here in the task that follows the stream: it would wait for itself.
    pub async fn leave(&self) -> bool {
        self.worker.leave().await
    }
}

impl ShardWorkerBuilder {
    /// To be asked to let go of a shard, and waited for, before another worker is given it.
    pub fn handoff(mut self, handoff: bool) -> Self {
        self.options.handoff = handoff;
        self
    }

    /// A third of the coordinator's timeout unless told.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.options.heartbeat_interval = Some(interval);
        self
    }

    /// How long [`ShardWorker::leave`] waits; 25 s unless told.
    pub fn leave_grace(mut self, grace: Duration) -> Self {
        self.options.leave_grace = grace;
        self
    }

    /// What the coordinator asks for: nothing unless told.
    pub fn credentials(mut self, credentials: ZmqCredentials) -> Self {
        self.credentials = credentials;
        self
    }

    pub async fn connect(self) -> Result<ShardWorker> {
        let addresses: Vec<String> = self.url.split(',').map(|address| address.trim().to_owned()).collect();
        if let Some(address) = addresses.iter().find(|address| !address.starts_with("tcp://")) {
            return Err(Invalid::new("url", format!("expected tcp://HOST:PORT, got {address:?}")).into());
        }
        let dealer = connect::shard_dealer(self.credentials);
        Ok(ShardWorker { worker: runtime::ShardWorker::connect(dealer, addresses, self.options).await? })
    }
}
