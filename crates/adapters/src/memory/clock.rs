//! Wall time: the machine's, or a test's.

use std::sync::OnceLock;
use std::time::Duration;

use convoke_core::ports::Clock;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = Timestamp::now().saturating_add(skew()).unwrap_or(Timestamp::MAX);
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }
}

/// A failpoint, in builds with debug assertions only: `CONVOKE_FAILPOINT=clock:-300` sets the process's clock back by
/// so many seconds, so that tests can run a cluster whose clocks differ.
fn skew() -> SignedDuration {
    static SKEW: OnceLock<SignedDuration> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return SignedDuration::ZERO;
    }
    *SKEW.get_or_init(|| {
        let failpoint = std::env::var("CONVOKE_FAILPOINT").ok();
        let seconds = failpoint.and_then(|name| name.strip_prefix("clock:")?.parse().ok());
        SignedDuration::from_secs(seconds.unwrap_or_default())
    })
}

/// A clock that stands still until it is set, forwards or back.
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
