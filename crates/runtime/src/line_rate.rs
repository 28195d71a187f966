//! Limits the log lines that clients and handlers can cause at will.
//!
//! A flood of failing jobs must not turn into a flood of lines: at most [`LINES_MAX`] are logged in a second, the
//! others are counted, and the count is logged when the second is over. Metrics count all of them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

/// Lines in one [`WINDOW`].
const LINES_MAX: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// Admits log lines of one kind.
pub struct LineRate {
    kind: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LineRate {
    pub fn new(kind: &'static str) -> Self {
        LineRate { kind, state: Mutex::default() }
    }

    /// Returns whether a line may be logged now. A suppressed line is counted.
    pub fn admits(&self) -> bool {
        self.flush();
        let mut state = self.state.lock();
        state.since.get_or_insert_with(Instant::now);
        if state.lines >= LINES_MAX {
            state.suppressed += 1;
            return false;
        }
        state.lines += 1;
        true
    }

    /// Logs how many lines were suppressed, once their second is over. Called periodically, so that the last ones are
    /// reported too.
    pub fn flush(&self) {
        let suppressed = self.take_suppressed(Instant::now());
        if suppressed > 0 {
            warn!(kind = self.kind, count = suppressed, "log lines suppressed: too many in one second");
        }
    }

    fn take_suppressed(&self, now: Instant) -> u64 {
        let mut state = self.state.lock();
        match state.since {
            Some(since) if now.duration_since(since) >= WINDOW => std::mem::take(&mut *state).suppressed,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_cut_off_and_counted_and_the_next_second_begins_anew() {
        let rate = LineRate::new("failed attempts");
        let admitted = (0..10_000).filter(|_| rate.admits()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(rate.take_suppressed(Instant::now()), 0, "the second is not over");
        tokio::time::advance(WINDOW).await;
        assert_eq!(rate.take_suppressed(Instant::now()), 10_000 - u64::from(LINES_MAX));
        assert_eq!(rate.take_suppressed(Instant::now()), 0, "reported once");
        assert!(rate.admits());
    }
}
