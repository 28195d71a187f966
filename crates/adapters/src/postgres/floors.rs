//! Lower bounds of the ranges in which pending jobs are searched.
//!
//! While an old snapshot of the database is held (a dump, a forgotten transaction), the server cannot remove the index
//! entries of dispatched jobs, and would walk over all of them with each dispatch. Jobs are served in order, so the
//! rest begin after the last served one. But a job may arrive late, through a slow transaction or a retry. So the whole
//! range is searched again from time to time, and always as long as that is quick: then the order is exact.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use convoke_core::QueueName;

/// A search of the whole range that took longer than this was slow.
const SLOW: Duration = Duration::from_millis(50);
/// The slow searches in a row after which a floor is used. One slow search is a busy machine; an old snapshot slows all.
const SLOW_IN_A_ROW: u32 = 3;
/// Additional time allowed per job taken.
const PER_JOB: Duration = Duration::from_micros(100);
/// The least time for which a late job may be overlooked; longer if the search itself takes long.
const OVERLOOKED: Duration = Duration::from_secs(1);
const SEARCH_SHARE: u32 = 10;

/// The floor of the whole range. A floor is a rank: no job below it was pending.
pub(super) const NONE: i64 = i64::MIN;

#[derive(Debug, Default)]
pub(super) struct Floors(HashMap<QueueName, Place>);

#[derive(Debug)]
struct Place {
    floor: i64,
    /// Slow searches of the whole range in a row.
    slow: u32,
    /// The time until which the floor may be used.
    until: Instant,
}

impl Floors {
    pub(super) fn of(&self, queue: &QueueName, now: Instant) -> i64 {
        self.0
            .get(queue)
            .filter(|place| place.slow >= SLOW_IN_A_ROW && now < place.until)
            .map_or(NONE, |place| place.floor)
    }

    /// Records a search: it began at `floor`, `highest` was the last rank served, and it took `elapsed` until `now`.
    pub(super) fn served(
        &mut self,
        queue: &QueueName,
        floor: i64,
        highest: i64,
        taken: usize,
        elapsed: Duration,
        now: Instant,
    ) {
        if floor == NONE {
            let expected = SLOW + PER_JOB.saturating_mul(u32::try_from(taken).unwrap_or(u32::MAX));
            if elapsed <= expected {
                self.0.remove(queue);
                return;
            }
            let until = now + OVERLOOKED.max(elapsed.saturating_mul(SEARCH_SHARE));
            let slow = self.0.get(queue).map_or(0, |place| place.slow).saturating_add(1);
            self.0.insert(queue.clone(), Place { floor: highest, slow, until });
        } else if let Some(place) = self.0.get_mut(queue) {
            place.floor = place.floor.max(highest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    /// As many searches of the whole range as it takes until a floor is used, the last of them at `now`.
    fn searched_slowly(floors: &mut Floors, elapsed: Duration, now: Instant) {
        for _ in 0..SLOW_IN_A_ROW {
            floors.served(&queue("q"), NONE, 5, 10, elapsed, now);
        }
    }

    #[test]
    fn one_slow_search_changes_nothing() {
        let (mut floors, now) = (Floors::default(), Instant::now());
        floors.served(&queue("q"), NONE, 5, 10, Duration::from_millis(80), now);
        floors.served(&queue("q"), NONE, 5, 10, Duration::from_millis(80), now);
        assert_eq!(floors.of(&queue("q"), now), NONE);
        floors.served(&queue("q"), NONE, 5, 10, Duration::from_millis(5), now);
        floors.served(&queue("q"), NONE, 5, 10, Duration::from_millis(80), now);
        assert_eq!(floors.of(&queue("q"), now), NONE, "a quick one was between");
    }

    #[test]
    fn as_long_as_looking_is_quick_the_whole_range_is_looked_through() {
        let (mut floors, now) = (Floors::default(), Instant::now());
        floors.served(&queue("q"), NONE, 5, 10, Duration::from_millis(5), now);
        assert_eq!(floors.of(&queue("q"), now), NONE);
        floors.served(&queue("q"), NONE, 5, 10_000, Duration::from_millis(900), now);
        assert_eq!(floors.of(&queue("q"), now), NONE, "many jobs take their time");
    }

    #[test]
    fn where_looking_is_slow_it_begins_where_the_last_was_served() {
        let (mut floors, now) = (Floors::default(), Instant::now());
        searched_slowly(&mut floors, Duration::from_millis(80), now);
        assert_eq!((floors.of(&queue("q"), now), floors.of(&queue("other"), now)), (5, NONE));
        floors.served(&queue("q"), 5, 9, 10, Duration::from_millis(80), now);
        assert_eq!(floors.of(&queue("q"), now), 9);
        floors.served(&queue("q"), 9, NONE, 0, Duration::from_millis(80), now);
        assert_eq!(floors.of(&queue("q"), now), 9, "nothing was served");
    }

    #[test]
    fn what_came_late_is_found_after_a_while() {
        let (mut floors, now) = (Floors::default(), Instant::now());
        searched_slowly(&mut floors, Duration::from_millis(80), now);
        assert_eq!(floors.of(&queue("q"), now + OVERLOOKED), NONE);
        let slow = Duration::from_secs(2);
        floors.served(&queue("q"), NONE, 5, 10, slow, now);
        assert_eq!(floors.of(&queue("q"), now + OVERLOOKED), 5, "the search must not take all the time");
        assert_eq!(floors.of(&queue("q"), now + slow * SEARCH_SHARE), NONE);
        floors.served(&queue("q"), NONE, 7, 10, Duration::from_millis(1), now);
        assert_eq!(floors.of(&queue("q"), now), NONE, "quick again");
    }
}
