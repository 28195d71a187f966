//! Who leads, for which numbered term.

mod fence;

pub use fence::Fence;
