//! The wall clock of a process: it follows virtual time, and may be wrong.

use std::sync::atomic::{AtomicI64, Ordering};

use convoke_core::ports::Clock;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The wall time at which every world begins: 2030-01-01T00:00:00Z.
const BEGAN_AT_S: i64 = 1_893_456_000;

/// Shows virtual time, so many milliseconds ahead.
pub struct SimClock {
    began: Instant,
    ahead_ms: AtomicI64,
}

impl SimClock {
    pub fn new() -> Self {
        SimClock { began: Instant::now(), ahead_ms: AtomicI64::new(0) }
    }

    pub fn set_ahead(&self, ms: i64) {
        self.ahead_ms.store(ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_millis(self.ahead_ms.load(Ordering::Relaxed));
        let began = Timestamp::from_second(BEGAN_AT_S).unwrap_or_default();
        let passed = SignedDuration::from_millis(self.began.elapsed().as_millis() as i64);
        began.saturating_add(passed + ahead).unwrap_or(began)
    }
}
