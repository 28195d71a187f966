//! The coordinator's ROUTER.
//!
//! Sending never waits: a message to a peer with a full queue is lost and the caller receives an error, as it does for
//! an unknown peer. Dropping the router closes its port and its connections, on another thread, within moments; so
//! binding is retried briefly if the port is taken, in case its last holder is about to close it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::error::{Error, Result};
use convoke_core::ports::router::{Peer, Received, Refusals, Router, RouterBinding, Sent};
use omq_tokio::{Endpoint, Message, Socket, SocketType, TrySendError};
use tokio::time::{Instant, sleep};

use super::refusals::{self, Tally};
use super::{ZmqLimits, ZmqSecurity, context, endpoint};

/// How long, and how often, binding to a taken port is retried.
const BIND_PATIENCE: Duration = Duration::from_millis(300);
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// The address that the coordinator listens on, and the credentials that it accepts.
#[derive(Debug, Clone)]
pub struct ZmqRouter {
    endpoint: Endpoint,
    security: ZmqSecurity,
    limits: ZmqLimits,
}

impl ZmqRouter {
    /// `tcp://host:port`; with `*` as host every address of the machine, with port 0 any free one.
    pub fn new(address: &str) -> Result<ZmqRouter> {
        Ok(ZmqRouter {
            endpoint: endpoint::parse(address)?,
            security: ZmqSecurity::default(),
            limits: ZmqLimits::default(),
        })
    }

    pub fn security(mut self, security: ZmqSecurity) -> Self {
        self.security = security;
        self
    }

    pub fn limits(mut self, limits: ZmqLimits) -> Self {
        self.limits = limits;
        self
    }

    async fn try_bind(&self) -> Result<BoundRouter> {
        let options = self
            .limits
            .options()
            .router_mandatory(true)
            .max_pending_handshakes(self.limits.handshakes_max.max(1))
            .monitor_capacity(refusals::EVENTS_MAX);
        let context = context::routers();
        let socket = context.socket(SocketType::Router, self.security.secure(options));
        // Before the first peer can connect, so that each is counted.
        let tally = Arc::new(Tally::default());
        context.handle().spawn(refusals::count(socket.monitor(), tally.clone()));
        let bound = socket.bind(self.endpoint.clone()).await;
        let bound = bound.map_err(|error| endpoint::bind_failure(&self.endpoint.to_string(), error))?;
        Ok(BoundRouter { address: bound.to_string(), socket, tally, batch: Vec::new() })
    }
}

#[async_trait]
impl RouterBinding for ZmqRouter {
    async fn bind(&self) -> Result<Box<dyn Router>> {
        let deadline = Instant::now() + BIND_PATIENCE;
        loop {
            match self.try_bind().await {
                Err(Error::Conflict(_)) if Instant::now() < deadline => sleep(BIND_PAUSE).await,
                bound => return Ok(Box::new(bound?)),
            }
        }
    }
}

struct BoundRouter {
    address: String,
    socket: Socket,
    tally: Arc<Tally>,
    /// Empty between two calls; kept for its capacity.
    batch: Vec<Message>,
}

#[async_trait]
impl Router for BoundRouter {
    fn address(&self) -> &str {
        &self.address
    }

    async fn receive(&mut self, max: usize) -> Result<Vec<Received>> {
        let failure = |error| Error::unavailable("the shard socket", error);
        self.socket.recv_many_into(max.max(1), &mut self.batch).await.map_err(failure)?;
        Ok(self.batch.drain(..).filter_map(received).collect())
    }

    async fn send(&mut self, messages: Vec<(Peer, Bytes)>) -> Vec<Sent> {
        messages.into_iter().map(|(peer, message)| self.offer(&peer, message)).collect()
    }

    fn refusals(&self) -> Refusals {
        self.tally.read()
    }
}

impl BoundRouter {
    fn offer(&self, peer: &Peer, message: Bytes) -> Sent {
        match self.socket.try_send_to(&peer.0, Message::single(message)) {
            Ok(()) => Sent::Queued,
            Err(TrySendError::Full(_)) => Sent::Full,
            Err(TrySendError::Closed | TrySendError::Error(_)) => Sent::Gone,
        }
    }
}

/// The library puts the sender's routing id in front.
fn received(mut message: Message) -> Option<Received> {
    let from = Peer(message.pop_front()?);
    let frames = std::iter::from_fn(|| message.pop_front()).collect();
    Some(Received { from, frames })
}
