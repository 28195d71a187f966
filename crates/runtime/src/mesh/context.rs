//! What a handler knows of the call that it answers.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Epoch;
use convoke_core::mesh::{InstanceId, TraceParent};
use tokio::time::Instant;

use super::session::MeshSession;

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
    /// Who called; ourselves where the call was local.
    pub fn caller(&self) -> InstanceId {
        self.caller
    }

    /// How long the caller waits for a sign of life. Heartbeats are sent meanwhile, so that a handler may take longer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When the caller would have given up, had it heard nothing: something to keep to for a handler that wants to be quick.
    pub fn deadline(&self) -> Instant {
        self.received + self.timeout
    }

    /// The term of leadership in whose name the caller acts.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Where the call stands in a trace. Calls that the handler makes carry it on.
    pub fn trace(&self) -> Option<TraceParent> {
        self.trace
    }

    /// Waits until the instance is asked to stop. A handler that answers another instance then has a grace period, and is
    /// dropped after it; one that answers our own call is dropped at once.
    pub async fn cancelled(&self) {
        self.session.stopping.cancelled().await;
    }

    /// Whether the instance was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.session.stopping.is_cancelled()
    }
}
