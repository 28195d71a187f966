use std::ops::Deref;

use convoke_core::election::Fence;
use convoke_core::jobs::wire::NodeRole;
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
        Term::of(fence, Tenure::new(fence.epoch(), certain_until))
    }

    pub(super) fn of(fence: Fence, tenure: Tenure) -> Self {
        Term { fence, tenure }
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
    /// When the lease was read or renewed last; none before the first time.
    pub seen: Option<Instant>,
    /// When it runs out unless it is renewed.
    pub until: Option<Instant>,
}

impl Leadership {
    /// The same without a leader whose lease has run out since it was seen last.
    pub fn at(mut self, now: Instant) -> Self {
        if self.until.is_some_and(|until| until <= now) {
            (self.leader, self.is_me) = (None, false);
        }
        self
    }

    pub fn role_of(&self, node: &NodeId) -> NodeRole {
        if self.leader.as_ref() == Some(node) { NodeRole::Leader } else { NodeRole::Follower }
    }

    /// Replaces what was known. True if another leads, or in another term: a renewal is nothing to wake anybody for.
    pub(super) fn replace(&mut self, new: Leadership) -> bool {
        let changed = (&self.leader, self.epoch, self.is_me) != (&new.leader, new.epoch, new.is_me);
        *self = new;
        changed
    }
}
