//! An instant that also moves while the machine sleeps.
//!
//! tokio's clock stands still while the machine is suspended; a lease does not. So each instant is stored with the time
//! that the machine had slept until then. Only Linux provides it; elsewhere a machine that was suspended acts as leader
//! for the rest of its lease, or until its next renewal is rejected.

use std::time::Duration;

use tokio::time::Instant;

/// Two clocks are not read at the same moment: a smaller difference is not sleep.
const SLEEP_MIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    at: Instant,
    asleep: Duration,
}

impl Mark {
    pub fn now() -> Self {
        Mark::at(Instant::now())
    }

    /// Returns that instant, unless the machine sleeps from now on.
    pub fn at(at: Instant) -> Self {
        Mark { at, asleep: asleep() }
    }

    fn slept(self) -> Duration {
        Some(asleep().saturating_sub(self.asleep)).filter(|slept| *slept >= SLEEP_MIN).unwrap_or_default()
    }

    pub fn elapsed(self) -> Duration {
        self.at.elapsed().saturating_add(self.slept())
    }

    /// Returns when this much will have passed since, unless the machine sleeps again.
    pub fn after(self, span: Duration) -> Instant {
        self.at + span.saturating_sub(self.slept())
    }

    /// Returns when it will be reached, unless the machine sleeps again.
    pub fn instant(self) -> Instant {
        self.at.checked_sub(self.slept()).unwrap_or(self.at)
    }

    pub fn has_come(self) -> bool {
        Instant::now() + self.slept() >= self.at
    }
}

/// Returns how long the machine has slept since it was started.
#[cfg(all(target_os = "linux", not(test)))]
fn asleep() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let since_boot = |clock| {
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
    };
    // In this order, so that a pause between the two is not taken for sleep.
    let passed = since_boot(ClockId::Boottime);
    passed.saturating_sub(since_boot(ClockId::Monotonic))
}

#[cfg(not(any(target_os = "linux", test)))]
fn asleep() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
fn asleep() -> Duration {
    tests::ASLEEP.get()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// How long the machine has slept, in the tests of this thread.
        pub static ASLEEP: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_counts_and_what_is_too_short_for_it_does_not() {
        let (began, end) = (Mark::now(), Mark::at(Instant::now() + Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(4)).await;
        ASLEEP.set(Duration::from_millis(99));
        assert_eq!(began.elapsed(), Duration::from_secs(4));
        ASLEEP.set(Duration::from_secs(5));
        assert_eq!(began.elapsed(), Duration::from_secs(9));
        assert_eq!(began.after(Duration::from_secs(10)), Instant::now() + Duration::from_secs(1));
        assert_eq!(end.instant(), Instant::now() + Duration::from_secs(1));
        assert!(!end.has_come());
        ASLEEP.set(Duration::from_secs(6));
        assert!(end.has_come());
    }
}
