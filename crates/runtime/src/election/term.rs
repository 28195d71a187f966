use std::ops::Deref;

use convoke_core::election::Fence;
use convoke_core::jobs::wire::NodeRole;
use convoke_core::{Epoch, NodeId};
use tokio::time::Instant;

use super::tenure::Tenure;

/// One term of leadership over a store: the fence that its writes carry, and its end.
#[derive(Debug, Clone)]
pub struct Term {
    fence: Fence,
    tenure: Tenure,
}

impl Term {
    /// Creates a term whose lease is certain until then.
    pub fn new(fence: Fence, certain_until: Instant) -> Self {
        Term::of(fence, Tenure::new(fence.epoch(), certain_until))
    }

    pub(super) fn of(fence: Fence, tenure: Tenure) -> Self {
        Term { fence, tenure }
    }

    /// Extends the term after a renewal, unless it has ended.
    pub fn prolong(&self, certain_until: Instant) {
        self.tenure.prolong(certain_until);
    }

    /// Returns the fence for the writes of this term.
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

/// The leader, as this node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// `None` if nobody leads or the leader is unknown.
    pub leader: Option<NodeId>,
    /// The highest epoch that this node knows of.
    pub epoch: Epoch,
    /// Whether this node leads.
    pub is_me: bool,
    /// When the lease was read or renewed last; `None` before the first time.
    pub seen: Option<Instant>,
    /// When the lease expires unless it is renewed.
    pub until: Option<Instant>,
}

impl Leadership {
    /// Returns it without a leader whose lease has expired by `now`.
    pub fn at(mut self, now: Instant) -> Self {
        if self.until.is_some_and(|until| until <= now) {
            (self.leader, self.is_me) = (None, false);
        }
        self
    }

    /// Returns the role of `node`: any node but the leader is a follower.
    pub fn role_of(&self, node: &NodeId) -> NodeRole {
        if self.leader.as_ref() == Some(node) { NodeRole::Leader } else { NodeRole::Follower }
    }

    /// Replaces the state. Returns whether leader or term changed: a renewal wakes no watcher.
    pub(super) fn replace(&mut self, new: Leadership) -> bool {
        let changed = (&self.leader, self.epoch, self.is_me) != (&new.leader, new.epoch, new.is_me);
        *self = new;
        changed
    }
}
