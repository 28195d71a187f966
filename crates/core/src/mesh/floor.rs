//! The lowest term of leadership whose requests a handler still accepts.
//!
//! It rises with every accepted caller, and by [`EpochFloor::raise`]. A caller that was paused and still acts in an
//! older term is rejected, and so is a caller that sends no epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::Epoch;

/// The lowest accepted epoch. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct EpochFloor(Arc<AtomicU64>);

impl EpochFloor {
    /// Returns a floor that accepts `lowest` and later epochs.
    pub fn new(lowest: Epoch) -> Self {
        EpochFloor(Arc::new(AtomicU64::new(lowest.0)))
    }

    /// Returns the lowest accepted epoch.
    pub fn lowest(&self) -> Epoch {
        Epoch(self.0.load(Ordering::Acquire))
    }

    /// Rejects callers below `epoch` from now on. The floor never falls.
    pub fn raise(&self, epoch: Epoch) {
        self.0.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Accepts a caller and raises the floor to its epoch, or returns the lowest accepted epoch. Atomic, so that no
    /// older caller is accepted after a newer one.
    pub fn admit(&self, epoch: Option<Epoch>) -> Result<(), Epoch> {
        let Some(epoch) = epoch else { return Err(self.lowest()) };
        let before = self.0.fetch_max(epoch.0, Ordering::AcqRel);
        if epoch.0 < before { Err(Epoch(before)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_caller_is_refused_once_a_newer_one_was_there() {
        let floor = EpochFloor::new(Epoch(3));
        assert_eq!(floor.admit(Some(Epoch(2))), Err(Epoch(3)));
        assert_eq!(floor.admit(Some(Epoch(3))), Ok(()));
        assert_eq!(floor.admit(Some(Epoch(5))), Ok(()));
        assert_eq!(floor.admit(Some(Epoch(4))), Err(Epoch(5)));
        floor.clone().raise(Epoch(9));
        assert_eq!(floor.admit(Some(Epoch(8))), Err(Epoch(9)));
        floor.raise(Epoch(1));
        assert_eq!(floor.lowest(), Epoch(9), "it never falls");
    }

    #[test]
    fn who_names_no_epoch_is_refused() {
        assert_eq!(EpochFloor::default().admit(None), Err(Epoch(0)));
        assert_eq!(EpochFloor::default().admit(Some(Epoch(0))), Ok(()));
    }
}
