//! The rate limit of a queue: at most `limit` grants in any window of `per`, exactly.
//!
//! A window is half-open: a grant at `t` counts in every window `(t' - per, t']` that contains it, and expires at `t +
//! per`. There are no buckets, whose borders would allow twice the limit. Grants of one instant are stored as one entry
//! (`runs`), and entries expire from the front, so that a call costs O(1) amortised and memory is bounded by `limit`
//! entries.
//!
//! A clock that goes back delays grants and never adds any: the time stands still here until the clock has caught up.
//! If it went back by more than a window, all stored grants count as granted now, so that the wait stays bounded.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::queue::RateLimit;

/// The grants of one queue in the last window.
#[derive(Debug, Clone)]
pub struct SlidingWindow {
    limit: RateLimit,
    per: SignedDuration,
    /// Grants that have not expired, oldest first: the instant and the number.
    runs: VecDeque<(Timestamp, u64)>,
    granted: u64,
    /// The latest time that a call passed.
    latest: Timestamp,
}

impl SlidingWindow {
    /// Returns a window without grants.
    pub fn new(limit: RateLimit) -> Self {
        let per = SignedDuration::try_from(limit.per).unwrap_or(SignedDuration::MAX);
        SlidingWindow { limit, per, runs: VecDeque::new(), granted: 0, latest: Timestamp::MIN }
    }

    /// Returns the limit that the window applies.
    pub fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Returns how many grants are available at `now`.
    pub fn available(&mut self, now: Timestamp) -> u32 {
        self.advance(now);
        u64::from(self.limit.limit).saturating_sub(self.granted) as u32
    }

    /// Adds `n` grants, even if fewer were available: they have happened. Then none are available until enough have
    /// expired.
    pub fn take(&mut self, now: Timestamp, n: u32) {
        self.advance(now);
        self.add(self.latest, u64::from(n));
    }

    /// Returns when the next grant is available; `None` if one is available now.
    pub fn next_at(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.available(now) > 0 {
            return None;
        }
        // Grants beyond the limit come from `restore` or a lowered limit. All of them, and one more, must expire.
        let mut excess = self.granted - u64::from(self.limit.limit);
        for (at, count) in &self.runs {
            if *count > excess {
                return Some(self.forgotten_at(*at).unwrap_or(Timestamp::MAX));
            }
            excess -= count;
        }
        None
    }

    /// Adds the grants of a former leader, as the store has them.
    pub fn restore(&mut self, grants: impl IntoIterator<Item = (Timestamp, u32)>) {
        let grants = grants.into_iter().map(|(at, count)| (at, u64::from(count)));
        let mut all: Vec<(Timestamp, u64)> = self.runs.drain(..).chain(grants).collect();
        all.sort_by_key(|(at, _)| *at);
        self.granted = 0;
        for (at, count) in all {
            self.latest = self.latest.max(at);
            self.forget();
            self.add(at, count);
        }
    }

    fn add(&mut self, at: Timestamp, count: u64) {
        if count == 0 {
            return;
        }
        self.granted += count;
        match self.runs.back_mut() {
            Some((last, total)) if *last == at => *total += count,
            _ => self.runs.push_back((at, count)),
        }
    }

    fn advance(&mut self, now: Timestamp) {
        if now >= self.latest {
            self.latest = now;
        } else if self.latest.duration_since(now) > self.per {
            self.latest = now;
            self.runs.clear();
            if self.granted > 0 {
                self.runs.push_back((now, self.granted));
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        while let Some((at, count)) = self.runs.front().copied()
            && self.forgotten_at(at).is_some_and(|at| at <= self.latest)
        {
            self.runs.pop_front();
            self.granted -= count;
        }
    }

    /// Returns when a grant expires; `None` if that is beyond the range of [`Timestamp`].
    fn forgotten_at(&self, at: Timestamp) -> Option<Timestamp> {
        at.checked_add(self.per).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn window(limit: u32, per_ms: u64) -> SlidingWindow {
        SlidingWindow::new(RateLimit { limit, per: Duration::from_millis(per_ms) })
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).expect("in range")
    }

    #[test]
    fn a_grant_is_forgotten_exactly_a_window_later() {
        let mut window = window(2, 1_000);
        window.take(at(0), 1);
        window.take(at(600), 1);
        assert_eq!((window.available(at(999)), window.next_at(at(999))), (0, Some(at(1_000))));
        assert_eq!((window.available(at(1_000)), window.next_at(at(1_000))), (1, None));
        assert_eq!(window.available(at(1_599)), 1);
        assert_eq!(window.available(at(1_600)), 2);
    }

    #[test]
    fn the_border_of_a_second_lets_no_more_through() {
        let mut window = window(100, 1_000);
        window.take(at(999), 100);
        assert_eq!(window.available(at(1_000)), 0);
        assert_eq!(window.available(at(1_998)), 0);
        assert_eq!(window.available(at(1_999)), 100);
    }

    #[test]
    fn a_clock_that_goes_back_a_little_stands_still() {
        let mut window = window(2, 1_000);
        window.take(at(5_000), 1);
        assert_eq!(window.available(at(4_500)), 1);
        window.take(at(4_500), 1);
        // The grant at 4,500 counts as a grant at 5,000.
        assert_eq!((window.available(at(5_999)), window.next_at(at(5_999))), (0, Some(at(6_000))));
        assert_eq!(window.available(at(6_000)), 2);
    }

    #[test]
    fn a_clock_that_goes_back_far_makes_nobody_wait_for_it() {
        let mut window = window(2, 1_000);
        window.take(at(3_600_000), 2);
        assert_eq!((window.available(at(0)), window.next_at(at(0))), (0, Some(at(1_000))));
        assert_eq!((window.available(at(999)), window.available(at(1_000))), (0, 2));
    }

    #[test]
    fn restored_grants_count_as_if_they_were_ours() {
        let mut window = window(3, 1_000);
        window.take(at(900), 1);
        window.restore([(at(-500), 3), (at(500), 1), (at(800), 1)]);
        assert_eq!((window.available(at(1_400)), window.next_at(at(1_400))), (0, Some(at(1_500))));
        assert_eq!(window.available(at(1_500)), 1);
        assert_eq!(window.available(at(1_900)), 3);
    }

    #[test]
    fn under_a_lowered_limit_it_waits_for_all_that_exceeds() {
        let mut window = window(2, 1_000);
        window.restore([(at(0), 3), (at(10), 4), (at(20), 1)]);
        assert_eq!(window.next_at(at(20)), Some(at(1_010)));
        assert_eq!((window.available(at(1_009)), window.available(at(1_010))), (0, 1));
    }

    #[test]
    fn memory_is_bounded_by_the_limit() {
        let mut window = window(10, 1_000);
        for ms in 0..100_000 {
            let n = window.available(at(ms)).min(1);
            window.take(at(ms), n);
            assert!(window.runs.len() <= 10);
        }
        let mut burst = super::SlidingWindow::new(RateLimit { limit: 1_000_000, per: Duration::from_secs(1) });
        (0..1_000).for_each(|_| burst.take(at(0), 1_000));
        assert_eq!((burst.runs.len(), burst.available(at(999)), burst.available(at(1_000))), (1, 0, 1_000_000));
    }

    #[test]
    fn the_longest_window_at_the_end_of_time_does_not_overflow() {
        let mut window = SlidingWindow::new(RateLimit { limit: 1, per: Duration::MAX });
        window.take(Timestamp::MAX, u32::MAX);
        window.take(Timestamp::MIN, u32::MAX);
        assert_eq!((window.available(Timestamp::MIN), window.next_at(Timestamp::MIN)), (0, Some(Timestamp::MAX)));
    }

    proptest! {
        /// Compares with a list of all grants, by a clock that also goes back.
        #[test]
        fn no_window_ever_has_more_than_the_limit(
            limit in 1..20u32,
            per_ms in 1..50i64,
            steps in prop::collection::vec((-20..40i64, 0..10u32), 1..300),
        ) {
            let mut window = window(limit, per_ms as u64);
            let (mut clock, mut now) = (0i64, i64::MIN / 2);
            let mut grants: Vec<i64> = Vec::new();
            for (step, wanted) in steps {
                clock += step;
                if now - clock > per_ms {
                    grants.retain(|at| *at > now - per_ms);
                    grants.fill(clock);
                    now = clock;
                }
                now = now.max(clock);
                let count = |now: i64| grants.iter().filter(|at| **at > now - per_ms && **at <= now).count();
                prop_assert!(count(now) <= limit as usize);
                let free = limit as usize - count(now);
                prop_assert_eq!(window.available(at(clock)) as usize, free);
                let next = (now + 1..).find(|later| count(*later) < limit as usize);
                prop_assert_eq!(window.next_at(at(clock)), if free > 0 { None } else { next.map(at) });
                let taken = wanted.min(free as u32);
                window.take(at(clock), taken);
                grants.extend((0..taken).map(|_| now));
            }
        }

        #[test]
        fn a_new_leader_that_restores_grants_the_same(
            limit in 1..20u32,
            per_ms in 1..50i64,
            steps in prop::collection::vec((0..20i64, 0..10u32), 1..100),
        ) {
            let mut old = window(limit, per_ms as u64);
            let (mut clock, mut stored) = (0i64, Vec::new());
            for (step, wanted) in steps {
                clock += step;
                let taken = wanted.min(old.available(at(clock)));
                old.take(at(clock), taken);
                stored.push((at(clock), taken));
                let mut new = window(limit, per_ms as u64);
                new.restore(stored.iter().copied());
                prop_assert_eq!(new.available(at(clock)), old.available(at(clock)));
                prop_assert_eq!(new.next_at(at(clock)), old.next_at(at(clock)));
            }
        }
    }
}
