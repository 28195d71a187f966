//! Limits of a peer's resources. Each is a setting, with a default for ten thousand workers.

use std::time::Duration;

/// Limits of a peer's resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZmqLimits {
    /// A larger message ends its connection. A heartbeat that reports 100,000 shards takes 700 KB.
    pub message_bytes_max: usize,
    /// Messages that wait for one peer, in each direction. Further messages to a peer that does not read are lost.
    pub peer_queue_max: u32,
    /// Connections in the handshake; one remote host may have an eighth of them, this host all.
    pub handshakes_max: usize,
    /// Time limit from the connection to the end of the handshake.
    pub handshake_timeout: Duration,
    /// How often a silent peer is pinged.
    pub ping_interval: Duration,
    /// A peer that sent nothing, or did not read, for this long is disconnected.
    pub silence_max: Duration,
    /// How long sent messages may still go out after a dealer was closed.
    pub linger: Duration,
}

impl Default for ZmqLimits {
    fn default() -> Self {
        ZmqLimits {
            message_bytes_max: 1 << 20,
            peer_queue_max: 32,
            handshakes_max: 4096,
            handshake_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(10),
            silence_max: Duration::from_secs(30),
            linger: Duration::from_secs(1),
        }
    }
}

impl ZmqLimits {
    /// Returns the options that both kinds of socket share.
    pub(super) fn options(&self) -> omq_tokio::Options {
        omq_tokio::Options::new()
            .send_hwm(self.peer_queue_max)
            .recv_hwm(self.peer_queue_max)
            .transmit_slot_cap(TRANSMIT_BYTES_MAX)
            .max_message_size(self.message_bytes_max)
            .handshake_timeout(self.handshake_timeout)
            .heartbeat_interval(self.ping_interval)
            .heartbeat_timeout(self.silence_max)
            .tcp_user_timeout(self.silence_max)
    }
}

/// Bytes framed ahead for one peer. The library's default of two megabytes would be 20 GB for ten thousand peers that
/// do not read.
const TRANSMIT_BYTES_MAX: usize = 64 << 10;
