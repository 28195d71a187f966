//! The call that a handler serves.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Epoch;
use convoke_core::mesh::{InstanceId, TraceParent};
use tokio::time::Instant;

use super::session::MeshSession;

/// The call that a handler serves: its caller, its times and its term.
#[derive(Clone)]
pub struct Context {
    pub(super) caller: InstanceId,
    pub(super) timeout: Duration,
    pub(super) received: Instant,
    pub(super) epoch: Option<Epoch>,
    pub(super) trace: Option<TraceParent>,
    pub(super) session: Arc<MeshSession>,
}

impl Context {
    /// Returns the caller; this instance itself if the call was local.
    pub fn caller(&self) -> InstanceId {
        self.caller
    }

    /// Returns how long the caller waits for a reply or a heartbeat. Heartbeats are sent meanwhile, so that a handler
    /// may take longer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns when the caller would give up without heartbeats: a target for a handler that wants to be quick.
    pub fn deadline(&self) -> Instant {
        self.received + self.timeout
    }

    /// Returns the term of leadership on whose behalf the caller acts.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Returns the position of the call in a trace. Calls of the handler continue that trace.
    pub fn trace(&self) -> Option<TraceParent> {
        self.trace
    }

    /// Waits until the instance is stopping. A handler that serves another instance then has a grace period, and is
    /// dropped after it; a handler that serves a local call is dropped at once.
    pub async fn cancelled(&self) {
        self.session.stopping.cancelled().await;
    }

    /// Returns whether the instance is stopping.
    pub fn is_cancelled(&self) -> bool {
        self.session.stopping.is_cancelled()
    }
}
