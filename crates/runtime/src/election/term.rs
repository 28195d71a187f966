use std::time::Duration;

use convoke_core::election::Fence;
use convoke_core::{Epoch, NodeId};
use tokio_util::sync::CancellationToken;

/// One term of leadership: the fence its writes carry, and when to stop.
#[derive(Debug, Clone)]
pub struct Term {
    fence: Fence,
    over: CancellationToken,
}

impl Term {
    pub fn new(fence: Fence) -> Self {
        Term { fence, over: CancellationToken::new() }
    }

    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Ends it early: a write came back `Fenced`, or the node stops.
    pub fn end(&self) {
        self.over.cancel();
    }

    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    pub async fn ended(&self) {
        self.over.cancelled().await;
    }

    /// Sleeps unless the term ends before: then false.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::select! {
            () = self.ended() => false,
            () = tokio::time::sleep(duration) => true,
        }
    }
}

/// Who leads, as this node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leader: Option<NodeId>,
    pub epoch: Epoch,
    pub is_me: bool,
}
