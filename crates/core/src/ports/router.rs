//! The socket of the shard coordinator, and the socket of one of its workers.
//!
//! A router hears any number of peers, each under an address that it makes up or that the peer brought along. Nothing on
//! it is certain: a peer may vanish, come back under the same address or take another's. Who somebody is stands in the
//! message, never in the address.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;

/// Where a peer's answers go. Opaque: what the transport calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub Bytes);

/// One message of a peer, its frames as they came, without the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub from: Peer,
    pub frames: Vec<Bytes>,
}

/// What became of a message that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// On its way; nobody says whether it arrives.
    Queued,
    /// Nobody has that address (any more).
    Gone,
    /// The peer does not read; its message was dropped.
    Full,
}

/// Opens the coordinator's socket. A standby does not: only who leads binds.
#[async_trait]
pub trait RouterBinding: Send + Sync {
    /// `Conflict` where the address is taken by another.
    async fn bind(&self) -> Result<Box<dyn Router>>;
}

/// Dropped, it is closed and its address is free again.
#[async_trait]
pub trait Router: Send {
    /// Where it listens, with the port that port 0 turned into.
    fn address(&self) -> &str;
    /// Waits for a message, then takes what else is there already, up to `max`. Safe to cancel: nothing is lost.
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>>;
    /// Never waits for a peer. One answer for each message, in order.
    async fn send(&mut self, messages: Vec<(Peer, Bytes)>) -> Vec<Sent>;
    /// What was refused or dropped before it became a message, since it was bound.
    fn refusals(&self) -> Refusals;
}

/// Counted by the socket itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Connections that did not get through the handshake: garbage, a wrong mechanism, a wrong key or password.
    pub handshakes: u64,
    /// Messages over the limit.
    pub oversized: u64,
}

/// Opens a worker's socket.
#[async_trait]
pub trait DealerConnecting: Send + Sync {
    /// A new connection to `address`; does not wait until somebody is there.
    async fn connect(&self, address: &str) -> Result<Box<dyn Dealer>>;
}

/// A worker's socket. Reconnects by itself; what was sent in the meantime may be lost or arrive late.
#[async_trait]
pub trait Dealer: Send {
    /// Does not wait for the coordinator; fails with `Unavailable` where too much waits already.
    async fn send(&mut self, message: Bytes) -> Result<()>;
    /// The next message. Safe to cancel. A coordinator that turned the worker away for who it is, is an error that
    /// `is_denied`; the socket tries again when it is next used.
    async fn receive(&mut self) -> Result<Vec<Bytes>>;
    /// Closes it once what was sent before has gone out, or a short while after where it cannot: the last word of a worker
    /// that leaves. Merely dropped, it may be lost.
    async fn close(self: Box<Self>) {}
}
