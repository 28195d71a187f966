//! A worker's DEALER.
//!
//! It connects by itself, and again after a loss of the connection, each dealer with its own pauses, so that the
//! workers of a restarted coordinator do not all connect at once. Messages sent in the meantime wait, up to a limit,
//! and are sent late or lost with a connection that failed its handshake: a worker repeats its messages, and their
//! reader expects old ones. After a coordinator has rejected the worker, the library does not reconnect; the dealer
//! returns the error and opens a new connection with its next use, without the messages that waited on the old one.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::error::{Error, Result};
use convoke_core::ports::router::{Dealer, DealerConnecting};
use omq_tokio::{
    DisconnectReason, Endpoint, Message, MonitorEvent, MonitorRecvError, MonitorStream, Options, ReconnectPolicy,
    Socket, SocketType, TrySendError,
};
use rand::RngExt;

use super::{ZmqCredentials, ZmqLimits, context, endpoint};

/// The shortest and the longest pause before a reconnect; each dealer chooses its own between half and one and a half
/// of it.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(2);

/// Unread events of its connection; only the last matters.
const EVENTS_MAX: usize = 8;

/// Connects workers, all with the same credentials.
#[derive(Debug, Clone, Default)]
pub struct ZmqDealer {
    credentials: ZmqCredentials,
    limits: ZmqLimits,
    routing_id: Option<Bytes>,
}

impl ZmqDealer {
    pub fn new() -> ZmqDealer {
        ZmqDealer::default()
    }

    pub fn credentials(mut self, credentials: ZmqCredentials) -> Self {
        self.credentials = credentials;
        self
    }

    pub fn limits(mut self, limits: ZmqLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the address of replies, 1 to 255 bytes that do not begin with zero. By default the coordinator chooses one,
    /// which is better: a chosen id can be taken by another worker.
    pub fn routing_id(mut self, id: impl Into<Bytes>) -> Self {
        self.routing_id = Some(id.into());
        self
    }

    fn options(&self) -> Result<Options> {
        self.credentials.check()?;
        let mut random = rand::rng();
        let mut around = |pause: Duration| pause.mul_f64(random.random_range(0.5..1.5));
        let reconnect = ReconnectPolicy::Exponential { min: around(RECONNECT_MIN), max: around(RECONNECT_MAX) };
        let mut options =
            self.limits.options().reconnect(reconnect).linger(self.limits.linger).monitor_capacity(EVENTS_MAX);
        if let Some(id) = &self.routing_id {
            options = options.identity(id.clone());
        }
        let options = self.credentials.secure(options);
        let invalid = |error: omq_tokio::Error| convoke_core::error::Invalid::new("routingId", error.to_string());
        options.validate().map_err(invalid)?;
        Ok(options)
    }
}

#[async_trait]
impl DealerConnecting for ZmqDealer {
    async fn connect(&self, address: &str) -> Result<Box<dyn Dealer>> {
        let endpoint = endpoint::parse(address)?;
        let options = self.options()?;
        let dealer_socket = DealerSocket::open(&endpoint, &options).await?;
        Ok(Box::new(ConnectedDealer { endpoint, options, dealer_socket, refused: false }))
    }
}

struct ConnectedDealer {
    endpoint: Endpoint,
    options: Options,
    dealer_socket: DealerSocket,
    /// The socket is unusable until it is opened again.
    refused: bool,
}

/// A socket, and the library's events about its connection.
struct DealerSocket {
    socket: Socket,
    events: MonitorStream,
}

impl DealerSocket {
    async fn open(endpoint: &Endpoint, options: &Options) -> Result<DealerSocket> {
        let socket = context::dealers().socket(SocketType::Dealer, options.clone());
        let events = socket.monitor();
        socket.connect(endpoint.clone()).await.map_err(unavailable)?;
        Ok(DealerSocket { socket, events })
    }
}

fn unavailable(error: omq_tokio::Error) -> Error {
    Error::unavailable("the shard coordinator", error)
}

#[async_trait]
impl Dealer for ConnectedDealer {
    async fn send(&mut self, message: Bytes) -> Result<()> {
        self.reopen_refused().await?;
        match self.dealer_socket.socket.try_send(Message::single(message)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => {
                // The library also returns this after a rejection; the next receive distinguishes the two.
                Err(Error::unavailable(
                    "the shard coordinator",
                    "it cannot be reached, or too many messages wait for it",
                ))
            }
            Err(TrySendError::Closed) => Err(unavailable(omq_tokio::Error::Closed)),
            Err(TrySendError::Error(error)) => Err(unavailable(error)),
        }
    }

    async fn receive(&mut self) -> Result<Vec<Bytes>> {
        self.reopen_refused().await?;
        let DealerSocket { socket, events } = &mut self.dealer_socket;
        tokio::select! {
            biased;
            message = socket.recv() => {
                let mut message = message.map_err(unavailable)?;
                Ok(std::iter::from_fn(|| message.pop_front()).collect())
            }
            reason = refusal(events) => {
                self.refused = true;
                Err(Error::denied(format!("{} rejected the worker: {reason}", self.endpoint)))
            }
        }
    }

    async fn close(self: Box<Self>) {
        // Waits at most for the linger time of the options; a lost message can no longer be reported.
        let _ = self.dealer_socket.socket.close().await;
    }
}

impl ConnectedDealer {
    async fn reopen_refused(&mut self) -> Result<()> {
        if self.refused {
            self.dealer_socket = DealerSocket::open(&self.endpoint, &self.options).await?;
            self.refused = false;
        }
        Ok(())
    }
}

/// Waits until the library stops reconnecting. Safe to cancel.
async fn refusal(events: &mut MonitorStream) -> String {
    loop {
        match events.recv().await {
            Ok(MonitorEvent::ConnectStopped { reason: DisconnectReason::HandshakeRefused(refusal), .. }) => {
                return refusal.to_string();
            }
            Ok(MonitorEvent::ConnectStopped { reason, .. }) => return format!("{reason:?}"),
            Ok(_) | Err(MonitorRecvError::Lagged(_)) => {}
            // The socket is closed; receiving on it returns the error.
            Err(_) => std::future::pending().await,
        }
    }
}
