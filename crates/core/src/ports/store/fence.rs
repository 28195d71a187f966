use crate::ids::Epoch;

/// Proof that an epoch was sealed in the store: the argument of every write that only a leader may make.
///
/// Only [`EpochStore::seal`](super::EpochStore::seal) makes one, once the store has raised its sealed epoch. A store compares
/// it inside the transaction of each such write, so that the writes of a former leader are rejected however late they arrive.
/// Code that acts for the leader takes a `Fence`; without one it does not compile.
///
/// Nothing else can make one:
///
/// ```compile_fail
/// use convoke_core::{Epoch, election::Fence};
/// let forged = Fence(Epoch(7));
/// ```
///
/// ```compile_fail
/// use convoke_core::{Epoch, election::Fence};
/// let forged = Fence::sealed(Epoch(7));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence(Epoch);

impl Fence {
    /// For [`EpochStore::seal`](super::EpochStore::seal) alone: `epoch` has just been sealed.
    pub(super) fn sealed(epoch: Epoch) -> Self {
        Fence(epoch)
    }

    /// Returns the sealed epoch that the writes carry.
    pub fn epoch(self) -> Epoch {
        self.0
    }
}
