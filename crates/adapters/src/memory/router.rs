//! Routers and dealers in memory: the sockets of shard coordinators and their workers, without a network.
//!
//! As on a network, a message to an address without a listener is lost, and so is a message to a peer that is gone or
//! does not read. Nothing is reordered, and a dealer outlives its router: the next router that binds there receives its
//! messages.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::ports::router::{Dealer, DealerConnecting, Peer, Received, Refusals, Router, RouterBinding, Sent};
use convoke_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Messages that wait for a router; as many as a burst of workers sends.
const ROUTER_BACKLOG: usize = 100_000;
/// Messages that wait for a dealer.
const DEALER_BACKLOG: usize = 1_000;

/// A network of its own. Cheap to clone.
#[derive(Clone, Default)]
pub struct MemoryRouting {
    hub: Arc<Mutex<Hub>>,
}

#[derive(Default)]
struct Hub {
    routers: HashMap<String, mpsc::Sender<Received>>,
    dealers: HashMap<Peer, mpsc::Sender<Bytes>>,
    last_peer: u64,
}

impl MemoryRouting {
    /// Returns a binding of a router to `address`.
    pub fn binding(&self, address: impl Into<String>) -> MemoryBinding {
        MemoryBinding { hub: self.hub.clone(), address: address.into() }
    }
}

pub struct MemoryBinding {
    hub: Arc<Mutex<Hub>>,
    address: String,
}

#[async_trait]
impl RouterBinding for MemoryBinding {
    async fn bind(&self) -> Result<Box<dyn Router>> {
        let mut hub = self.hub.lock();
        if hub.routers.contains_key(&self.address) {
            return Err(Error::Conflict(format!("{} is already bound", self.address)));
        }
        let (sender, receiver) = mpsc::channel(ROUTER_BACKLOG);
        hub.routers.insert(self.address.clone(), sender);
        Ok(Box::new(MemoryRouter { hub: self.hub.clone(), address: self.address.clone(), receiver }))
    }
}

struct MemoryRouter {
    hub: Arc<Mutex<Hub>>,
    address: String,
    receiver: mpsc::Receiver<Received>,
}

#[async_trait]
impl Router for MemoryRouter {
    fn address(&self) -> &str {
        &self.address
    }

    async fn receive(&mut self, max: usize) -> Result<Vec<Received>> {
        let mut received = Vec::new();
        self.receiver.recv_many(&mut received, max).await;
        Ok(received)
    }

    async fn send(&mut self, messages: Vec<(Peer, Bytes)>) -> Vec<Sent> {
        let hub = self.hub.lock();
        let send = |(peer, message)| match hub.dealers.get(&peer).map(|dealer| dealer.try_send(message)) {
            Some(Ok(())) => Sent::Queued,
            Some(Err(mpsc::error::TrySendError::Full(_))) => Sent::Full,
            Some(Err(mpsc::error::TrySendError::Closed(_))) | None => Sent::Gone,
        };
        messages.into_iter().map(send).collect()
    }

    fn refusals(&self) -> Refusals {
        Refusals::default()
    }
}

impl Drop for MemoryRouter {
    fn drop(&mut self) {
        self.hub.lock().routers.remove(&self.address);
    }
}

#[async_trait]
impl DealerConnecting for MemoryRouting {
    async fn connect(&self, address: &str) -> Result<Box<dyn Dealer>> {
        let mut hub = self.hub.lock();
        hub.last_peer += 1;
        let peer = Peer(Bytes::copy_from_slice(&hub.last_peer.to_be_bytes()));
        let (sender, receiver) = mpsc::channel(DEALER_BACKLOG);
        hub.dealers.insert(peer.clone(), sender);
        Ok(Box::new(MemoryDealer { hub: self.hub.clone(), address: address.to_owned(), peer, receiver }))
    }
}

struct MemoryDealer {
    hub: Arc<Mutex<Hub>>,
    address: String,
    peer: Peer,
    receiver: mpsc::Receiver<Bytes>,
}

#[async_trait]
impl Dealer for MemoryDealer {
    async fn send(&mut self, message: Bytes) -> Result<()> {
        let hub = self.hub.lock();
        let received = Received { from: self.peer.clone(), frames: vec![message] };
        match hub.routers.get(&self.address).map(|router| router.try_send(received)) {
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                Err(Error::unavailable("shard coordinator", "too many messages wait for it"))
            }
            // No router is bound: the message is lost.
            _ => Ok(()),
        }
    }

    async fn receive(&mut self) -> Result<Vec<Bytes>> {
        match self.receiver.recv().await {
            Some(message) => Ok(vec![message]),
            None => Err(Error::unavailable("shard coordinator", "the network is gone")),
        }
    }
}

impl Drop for MemoryDealer {
    fn drop(&mut self) {
        self.hub.lock().dealers.remove(&self.peer);
    }
}
