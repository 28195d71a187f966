//! Wall time: the machine's, or a test's.

use std::time::Duration;

use convoke_core::ports::Clock;
use jiff::Timestamp;
use parking_lot::Mutex;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }
}

/// A clock that stands still until it is told otherwise, forwards or back.
#[derive(Debug)]
pub struct SettableClock(Mutex<Timestamp>);

impl SettableClock {
    pub fn new(at: Timestamp) -> Self {
        SettableClock(Mutex::new(at))
    }

    pub fn set(&self, at: Timestamp) {
        *self.0.lock() = at;
    }

    /// Stops at the end of time rather than beyond it.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock();
        *now = now.checked_add(by).unwrap_or(Timestamp::MAX);
    }
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}
