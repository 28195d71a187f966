use crate::ids::Epoch;

/// Proof that an epoch was sealed in the store: the argument of every write that only a leader may make.
///
/// A store hands one out from `seal` and compares it inside the transaction of each such write, so that the writes of a
/// former leader are refused however late they arrive. Code that acts for the leader takes a `Fence`; without one it does
/// not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence(Epoch);

impl Fence {
    /// For stores only: `epoch` has just been sealed.
    pub fn sealed(epoch: Epoch) -> Self {
        Fence(epoch)
    }

    pub fn epoch(self) -> Epoch {
        self.0
    }
}
