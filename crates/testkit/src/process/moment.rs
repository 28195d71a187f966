//! The time of an event, comparable between all processes of a machine.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all processes share.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}
