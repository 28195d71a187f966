//! The wall clock.

use jiff::Timestamp;

/// Wall time to the microsecond, which every store can keep, so that a time reads the same now and later. Monotonic
/// time is tokio's, so that tests can pause it.
pub trait Clock: Send + Sync {
    /// Returns the present time.
    fn now(&self) -> Timestamp;
}
