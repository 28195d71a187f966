use std::ops::Deref;

use convoke_core::election::Fence;
use convoke_core::{Epoch, NodeId};
use tokio::time::Instant;

use super::tenure::Tenure;

/// One term of leadership over a store: the fence its writes carry, and when to stop.
#[derive(Debug, Clone)]
pub struct Term {
    fence: Fence,
    tenure: Tenure,
}

impl Term {
    pub fn new(fence: Fence, certain_until: Instant) -> Self {
        Term { fence, tenure: Tenure::new(fence.epoch(), certain_until) }
    }

    pub fn prolong(&self, certain_until: Instant) {
        self.tenure.prolong(certain_until);
    }

    pub fn fence(&self) -> Fence {
        self.fence
    }
}

impl Deref for Term {
    type Target = Tenure;

    fn deref(&self) -> &Tenure {
        &self.tenure
    }
}

/// Who leads, as this node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    pub leader: Option<NodeId>,
    pub epoch: Epoch,
    pub is_me: bool,
}
