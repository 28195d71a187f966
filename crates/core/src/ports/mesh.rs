//! The connection and the registry of the instances of one mesh.
//!
//! A link belongs to one mesh. Its registry has the number, the host name and the last heartbeat of each instance, by
//! the registry's own clock. Its channels reach the instances that listen at that moment, at most once. Its leader is
//! the holder of the lock; it removes instances that are gone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::mesh::{InstanceId, MeshFigures, MeshNode};

/// The connection to one mesh.
#[async_trait]
pub trait MeshLink: Send + Sync {
    /// Returns the backend's address for display, without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// The name of the mesh; empty if it has none.
    fn key(&self) -> String {
        String::new()
    }
    /// Joins under a number that nobody in this mesh has or had, as far as the registry knows. `inbox` receives what is sent
    /// to it and to all, from before it is registered until the membership is dropped.
    async fn join(&self, hostname: &str, inbox: Arc<dyn MeshInbox>) -> Result<Box<dyn Membership>>;
    /// Returns the instances with a heartbeat within `ttl`, by number. The caller sets `is_self`.
    async fn nodes(&self, ttl: Duration) -> Result<Vec<MeshNode>>;

    /// Sends each message once, in this order, without retries. Returns for each the number of receivers: 0 if there is
    /// no such instance, `Unavailable` if it was not sent, `Unknown` if it may have been.
    async fn send(&self, letters: &[(InstanceId, Bytes)]) -> Vec<Result<u64>>;
    /// Sends a message to every instance, the sender included. Returns the number of receivers.
    async fn broadcast(&self, message: Bytes) -> Result<u64>;

    /// Takes the lock for `ttl` if it is free or already the holder's. Returns false if another has it.
    async fn lead(&self, holder: &str, ttl: Duration) -> Result<bool>;
    /// Prolongs the lock for `ttl` from now on. Returns false if it is lost.
    async fn renew(&self, holder: &str, ttl: Duration) -> Result<bool>;
    /// Releases the lock, if it is the holder's.
    async fn resign(&self, holder: &str) -> Result<()>;
    /// Removes instances without a heartbeat within `ttl`, and returns them. `Fenced` if `holder` has lost the lock.
    async fn sweep(&self, holder: &str, ttl: Duration) -> Result<Vec<InstanceId>>;
}

/// A registered instance. Its inbox receives nothing more after it is dropped.
#[async_trait]
pub trait Membership: Send + Sync {
    /// Returns the number of the instance.
    fn id(&self) -> InstanceId;
    /// Refreshes the registration, and restores it if it was removed. Returns the number of instances with a heartbeat
    /// within `ttl`, this one included. `Fenced` if a registry that lost its data gave the number to another instance:
    /// join again.
    async fn heartbeat(&self, ttl: Duration) -> Result<u64>;
    /// Publishes figures of the instance for lists, for at most `ttl`.
    async fn publish(&self, figures: &MeshFigures, ttl: Duration) -> Result<()>;
    /// Removes the registration. Not an error if it is missing or another instance's.
    async fn leave(&self) -> Result<()>;
}

/// Receives the messages of the link. The link calls it between two messages: it must return quickly and must not block
/// or panic.
pub trait MeshInbox: Send + Sync {
    /// Handles one message.
    fn on_message(&self, message: Bytes);
    /// Handles a reconnect: messages may have been missed, and the registry may have lost this instance.
    fn missed(&self);
}
