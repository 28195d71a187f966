//! How the instances of one mesh reach each other, and how they know of each other.
//!
//! A link is to one mesh. Its registry has the number and the host name of each instance and when it was last heard of, all
//! by the registry's own clock. Its channels reach whoever listens at that moment, at most once. Its leader is whoever holds
//! the lock: it sweeps out those that are gone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::mesh::{InstanceId, MeshNode};

#[async_trait]
pub trait MeshLink: Send + Sync {
    /// Where it is, for people to read and without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// The name of the mesh; empty if it has none.
    fn key(&self) -> String {
        String::new()
    }
    /// A number that nobody in this mesh has or had, as far as the registry knows. `inbox` hears what is sent to it and to
    /// all, from before it is registered until the membership is dropped.
    async fn join(&self, hostname: &str, inbox: Arc<dyn MeshInbox>) -> Result<Box<dyn Membership>>;
    /// Those heard of within `ttl`, by number; `is_self` is for the caller to say.
    async fn nodes(&self, ttl: Duration) -> Result<Vec<MeshNode>>;

    /// Sends each once, in this order, and never again by itself. Answers for each how many listen: 0 where there is no such
    /// instance. `Unavailable` where it was not sent, `Unknown` where it may have been.
    async fn send(&self, letters: &[(InstanceId, Bytes)]) -> Vec<Result<u64>>;
    /// One to every instance, the sender included.
    async fn broadcast(&self, message: Bytes) -> Result<u64>;

    /// Takes the lock for `ttl` where nobody has it, or has it already. False where somebody else does.
    async fn lead(&self, holder: &str, ttl: Duration) -> Result<bool>;
    /// Has it for `ttl` from now on. False where it is lost.
    async fn renew(&self, holder: &str, ttl: Duration) -> Result<bool>;
    /// Lets go of it, where it is the holder's.
    async fn resign(&self, holder: &str) -> Result<()>;
    /// Removes those not heard of within `ttl`, and names them. `Fenced` where `holder` has lost the lock.
    async fn sweep(&self, holder: &str, ttl: Duration) -> Result<Vec<InstanceId>>;
}

/// Who has joined. Dropped, it hears no more.
#[async_trait]
pub trait Membership: Send + Sync {
    fn id(&self) -> InstanceId;
    /// It is alive; one that was swept out is there again. Answers how many were heard of within `ttl`, itself included.
    /// `Fenced` where a registry that had lost its data gave the number to another meanwhile: it must join anew.
    async fn heartbeat(&self, ttl: Duration) -> Result<u64>;
    /// Takes it off the registry. Not an error where it is not there, or is another's by now.
    async fn leave(&self) -> Result<()>;
}

/// Called by the link, between two messages: it must be quick, must not wait, and must not panic.
pub trait MeshInbox: Send + Sync {
    fn on_message(&self, message: Bytes);
    /// The connection was lost for a while and is there again: messages may have been missed, and the registry may have
    /// forgotten us.
    fn missed(&self);
}
