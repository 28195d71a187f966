use std::sync::{Arc, OnceLock};
use std::time::Duration;

use convoke_core::election::Fence;
use convoke_core::{Epoch, NodeId};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One term of leadership: the fence its writes carry, and when to stop.
#[derive(Debug, Clone)]
pub struct Term {
    fence: Fence,
    over: CancellationToken,
    /// Until when the lease is certain. A process that was paused finds out by itself that its time is up.
    certain_until: Arc<Mutex<Instant>>,
}

impl Term {
    pub fn new(fence: Fence, certain_until: Instant) -> Self {
        Term { fence, over: CancellationToken::new(), certain_until: Arc::new(Mutex::new(certain_until)) }
    }

    pub fn prolong(&self, certain_until: Instant) {
        *self.certain_until.lock() = certain_until;
    }

    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Ends it early: a write came back `Fenced`, or the node stops.
    pub fn end(&self) {
        self.over.cancel();
    }

    pub fn is_over(&self) -> bool {
        self.over.is_cancelled() || (Instant::now() >= *self.certain_until.lock() && !overstays())
    }

    pub async fn ended(&self) {
        self.over.cancelled().await;
    }

    /// Sleeps unless the term ends before: then false.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::select! {
            () = self.ended() => false,
            () = tokio::time::sleep(duration) => !self.is_over(),
        }
    }
}

/// A failpoint, in builds with debug assertions only: with `CONVOKE_FAILPOINT=overstay` a leader does not notice that its time
/// is up, so that a test can see the store refuse what it writes.
pub(super) fn overstays() -> bool {
    static OVERSTAYS: OnceLock<bool> = OnceLock::new();
    cfg!(debug_assertions)
        && *OVERSTAYS.get_or_init(|| std::env::var_os("CONVOKE_FAILPOINT").is_some_and(|name| name == "overstay"))
}

/// Who leads, as this node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leader: Option<NodeId>,
    pub epoch: Epoch,
    pub is_me: bool,
}
