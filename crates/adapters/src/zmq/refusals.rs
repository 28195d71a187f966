//! Counts the library's rejections, from its events about connections.
//!
//! The library keeps the last few thousand events and drops the rest, so that a flood is counted incompletely and never
//! fills memory. The counting ends with the socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use convoke_core::ports::router::Refusals;
use omq_tokio::{DisconnectReason, MonitorEvent, MonitorRecvError, MonitorStream};
use tracing::debug;

/// Events that wait to be counted.
pub(super) const EVENTS_MAX: usize = 4096;

/// The start of the library's error for a message over the limit; there is no other sign of it.
const TOO_LARGE: &str = "message too large";

#[derive(Debug, Default)]
pub(super) struct Tally {
    handshakes: AtomicU64,
    oversized: AtomicU64,
}

impl Tally {
    pub(super) fn read(&self) -> Refusals {
        Refusals {
            handshakes: self.handshakes.load(Ordering::Relaxed),
            oversized: self.oversized.load(Ordering::Relaxed),
        }
    }

    fn count(&self, event: &MonitorEvent) {
        match event {
            MonitorEvent::HandshakeFailed { peer_ident, reason, .. } => {
                debug!(peer = %peer_ident, %reason, "handshake of a shard worker failed");
                self.handshakes.fetch_add(1, Ordering::Relaxed);
            }
            MonitorEvent::Disconnected { peer, reason: DisconnectReason::Error(reason), .. } => {
                let address = peer.peer_address.as_ref().map(ToString::to_string);
                debug!(peer = address, %reason, "connection of a shard worker closed by an error");
                if reason.contains(TOO_LARGE) {
                    self.oversized.fetch_add(1, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }
}

pub(super) async fn count(mut events: MonitorStream, tally: Arc<Tally>) {
    loop {
        match events.recv().await {
            Ok(event) => tally.count(&event),
            Err(MonitorRecvError::Lagged(missed)) => {
                debug!(missed, "connection events dropped before they were counted")
            }
            Err(_) => return,
        }
    }
}
