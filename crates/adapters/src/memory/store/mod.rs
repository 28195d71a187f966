//! The store in memory: the plainest definition of each verb.
//!
//! One lock around everything makes every verb a transaction. A verb that rejects does so before it changes anything.
//! There is no clock, no random source and no unordered map, so that a simulation that runs on it can be repeated.

mod audit;
mod insert;
mod jobs;
mod members;
mod queues;
mod row;
mod runs;
mod schedules;
mod state;

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::mutant::mutant;
use convoke_core::ports::store::EpochStore;
use convoke_core::{Epoch, Error, Result};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

pub use state::Kept;
use state::State;

#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many runs were dispatched so far.
    pub fn dispatched(&self) -> u64 {
        self.state().dispatched
    }

    /// Returns the next time after `now` at which a job, a schedule, a deadline or a retention is due.
    pub fn next_due_at(&self, now: Timestamp, kept: &Kept) -> Option<Timestamp> {
        self.state().next_due_at(now, kept)
    }

    /// For verbs without a fence.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// For verbs of a leader: compares the fence under the lock of the write itself.
    fn fenced(&self, fence: Fence, what: &'static str) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.sealed == fence.epoch() || is_unfenced(what) { Ok(state) } else { Err(Error::Fenced { what }) }
    }

    /// Like [`fenced`](Self::fenced) if there is a fence, else without a check.
    fn fenced_if(&self, fence: Option<Fence>, what: &'static str) -> Result<MutexGuard<'_, State>> {
        match fence {
            Some(fence) => self.fenced(fence, what),
            None => Ok(self.state()),
        }
    }
}

/// Whether the simulator has removed the comparison of the epoch from this verb.
fn is_unfenced(what: &str) -> bool {
    match what {
        "promote" => mutant("epoch on promotions"),
        "dispatch" => mutant("epoch on dispatches"),
        "end_as_leader" => mutant("epoch on ends by the leader"),
        "tick" => mutant("epoch on ticks"),
        "mark_cleaned" => mutant("epoch on cleaning"),
        "expire" => mutant("epoch on deletions"),
        "remove_workers" => mutant("epoch on dead workers"),
        "retire_node" => mutant("epoch on dead nodes"),
        _ => false,
    }
}

#[async_trait]
impl EpochStore for MemoryStore {
    fn is_lasting(&self) -> bool {
        false
    }

    async fn raise_seal(&self, epoch: Epoch) -> Result<()> {
        let mut state = self.state();
        if epoch <= state.sealed && !mutant("seal rises") {
            return Err(Error::Fenced { what: "seal" });
        }
        state.sealed = epoch;
        Ok(())
    }

    async fn sealed(&self) -> Result<Epoch> {
        Ok(self.state().sealed)
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }
}
