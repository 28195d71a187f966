//! The socket of the shard coordinator, and the socket of one of its workers.
//!
//! A router receives from any number of peers, each under an address that the router or the peer chose. The address
//! proves nothing: a peer may disappear, return under the same address or use another peer's. The message identifies
//! the sender, never the address.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;

/// The address for replies to a peer, in the transport's own form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub Bytes);

/// One message of a peer: its frames as they were received, without the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The sender's address.
    pub from: Peer,
    /// The frames, in order.
    pub frames: Vec<Bytes>,
}

/// The result of sending one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The message is queued; its arrival is not confirmed.
    Queued,
    /// No peer has that address, or no longer.
    Gone,
    /// The peer does not read; the message was dropped.
    Full,
}

/// Opens the coordinator's socket. Only the leader binds it.
#[async_trait]
pub trait RouterBinding: Send + Sync {
    /// Binds the address; `Conflict` if it is in use.
    async fn bind(&self) -> Result<Box<dyn Router>>;
}

/// The coordinator's socket. Dropping it closes it and frees its address.
#[async_trait]
pub trait Router: Send {
    /// Returns the address that it listens on, with the actual port if 0 was configured.
    fn address(&self) -> &str;
    /// Waits for a message, then returns it with those that have already arrived, up to `max`. Safe to cancel: nothing
    /// is lost.
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>>;
    /// Sends without waiting for a peer. Returns one result for each message, in order.
    async fn send(&mut self, messages: Vec<(Peer, Bytes)>) -> Vec<Sent>;
    /// Returns the counts of connections and messages that were rejected since it was bound.
    fn refusals(&self) -> Refusals;
}

/// Rejections that the socket counts itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Connections that failed the handshake: garbage, a wrong mechanism, a wrong key or password.
    pub handshakes: u64,
    /// Messages over the size limit.
    pub oversized: u64,
}

/// Opens a worker's socket.
#[async_trait]
pub trait DealerConnecting: Send + Sync {
    /// Opens a connection to `address`. Does not wait until it is established.
    async fn connect(&self, address: &str) -> Result<Box<dyn Dealer>>;
}

/// A worker's socket. It reconnects by itself; messages sent in the meantime may be lost or late.
#[async_trait]
pub trait Dealer: Send {
    /// Sends without waiting for the coordinator; `Unavailable` if too many messages are queued.
    async fn send(&mut self, message: Bytes) -> Result<()>;
    /// Waits for the next message. Safe to cancel. If the coordinator rejects the worker's credentials, the error
    /// `is_denied`; the socket connects again at its next use.
    async fn receive(&mut self) -> Result<Vec<Bytes>>;
    /// Closes the socket once the queued messages were sent, or after a short time if they cannot be: for the last
    /// message of a worker that leaves. Dropping the socket may lose it.
    async fn close(self: Box<Self>) {}
}
