//! Runs that are known to have ended lately, in case their messages are still on their way.

use std::collections::{BTreeSet, VecDeque};

use convoke_core::ExecutionId;

/// How many are remembered, the latest.
const KEPT_MAX: usize = 16_384;

#[derive(Default)]
pub struct Over {
    known: BTreeSet<ExecutionId>,
    order: VecDeque<ExecutionId>,
}

impl Over {
    pub fn insert(&mut self, execution: ExecutionId) {
        if self.known.insert(execution) {
            self.order.push_back(execution);
            if self.order.len() > KEPT_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }

    pub fn contains(&self, execution: &ExecutionId) -> bool {
        self.known.contains(execution)
    }
}
