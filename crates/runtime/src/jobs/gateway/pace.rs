//! Enforces rate limits at the handout.
//!
//! The leader grants runs at the rate of their queue and ahead of the polls, so the runs of a worker that polls late
//! gather on the bus. If they were handed out at once, as many would start in one moment as were granted in minutes.
//! Runs that a poll finds beyond the limit are released, and granted again.

use std::collections::BTreeMap;

use convoke_core::QueueName;
use convoke_core::jobs::RateLimit;
use convoke_core::jobs::rate_limit::SlidingWindow;
use jiff::Timestamp;
use parking_lot::Mutex;

/// Fraction of a window: a run may gain or lose a little time on its way relative to the one before it, and must not be
/// released for that.
const STRICTNESS: f64 = 0.9;

#[derive(Default)]
pub struct Pace(Mutex<Windows>);

#[derive(Default)]
struct Windows {
    /// Of all queues together.
    global: Option<SlidingWindow>,
    queues: BTreeMap<QueueName, SlidingWindow>,
}

impl Pace {
    /// Holds a limit over all queues too.
    pub fn new(global: Option<RateLimit>) -> Self {
        let global = global.map(|limit| SlidingWindow::new(relaxed(limit)));
        Pace(Mutex::new(Windows { global, ..Windows::default() }))
    }

    /// Returns whether a run of that queue may be handed out now, and counts it if so.
    pub fn admits(&self, queue: &QueueName, limit: Option<RateLimit>, now: Timestamp) -> bool {
        let mut windows = self.0.lock();
        let Windows { global, queues } = &mut *windows;
        if global.as_mut().is_some_and(|global| global.available(now) == 0) {
            return false;
        }
        if let Some(limit) = limit.map(relaxed) {
            let window = queues.entry(queue.clone()).or_insert_with(|| SlidingWindow::new(limit));
            if window.limit() != limit {
                *window = SlidingWindow::new(limit);
            }
            if window.available(now) == 0 {
                return false;
            }
            window.take(now, 1);
        }
        if let Some(global) = global {
            global.take(now, 1);
        }
        true
    }
}

fn relaxed(limit: RateLimit) -> RateLimit {
    RateLimit { per: limit.per.mul_f64(STRICTNESS), ..limit }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limit(limit: u32) -> RateLimit {
        RateLimit { limit, per: Duration::from_secs(1) }
    }

    #[test]
    fn what_has_gathered_is_handed_out_at_the_rate_of_its_queue() {
        let (pace, start) = (Pace::default(), Timestamp::UNIX_EPOCH);
        let queue = QueueName::new("q").expect("a name");
        let at = |ms| start + Duration::from_millis(ms);
        let admitted = |ms| (0..10).filter(|_| pace.admits(&queue, Some(limit(2)), at(ms))).count();
        assert_eq!([0, 500, 899, 900, 1_000, 1_800].map(admitted), [2, 0, 0, 2, 0, 2]);
        let other = QueueName::new("other").expect("a name");
        assert!(pace.admits(&other, Some(limit(1)), at(1_800)), "queues are apart");
    }

    #[test]
    fn a_limit_that_was_changed_counts_from_then_on() {
        let (pace, now) = (Pace::default(), Timestamp::UNIX_EPOCH);
        let queue = QueueName::new("q").expect("a name");
        assert!(pace.admits(&queue, Some(limit(1)), now) && !pace.admits(&queue, Some(limit(1)), now));
        assert!(pace.admits(&queue, Some(limit(5)), now));
    }

    #[test]
    fn a_limit_over_all_queues_holds_beside_those_of_queues() {
        let (pace, start) = (Pace::new(Some(limit(3))), Timestamp::UNIX_EPOCH);
        let [a, b] = ["a", "b"].map(|name| QueueName::new(name).expect("a name"));
        let admitted = |queue, limit, ms| {
            let now = start + Duration::from_millis(ms);
            (0..10).filter(|_| pace.admits(queue, limit, now)).count()
        };
        assert_eq!(admitted(&a, Some(limit(1)), 0), 1);
        assert_eq!([admitted(&b, None, 0), admitted(&a, Some(limit(1)), 0)], [2, 0]);
        assert_eq!([admitted(&b, None, 900), admitted(&a, Some(limit(1)), 900)], [3, 0]);
        assert_eq!(
            admitted(&a, Some(limit(1)), 1_800),
            1,
            "a run that was refused for all was not counted for its queue"
        );
    }
}
