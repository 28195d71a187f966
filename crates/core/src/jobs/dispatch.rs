//! The choice of the pending jobs that a dispatch takes, in all stores.
//!
//! The pending jobs of a queue are one range, ordered by [`rank`](Priority::rank), and by the order of storing for
//! equal ranks. A dispatch takes jobs from its head: as many as the queue has [room](Room) for and as fit the
//! [bytes](crate::limits::DISPATCH_BYTES_MAX) of one dispatch.

use jiff::Timestamp;

use super::priority::{HEAD_START, Priority};

/// The settings that limit the dispatches of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Whether the queue is paused: it gets no jobs.
    pub paused: bool,
    /// Upper bound of `in_flight`. None: no bound.
    pub concurrency: Option<u64>,
    /// Its jobs that are dispatched or running.
    pub in_flight: u64,
}

impl Room {
    /// Returns how many jobs of the queue may be dispatched, at most `limit`.
    pub fn within(self, limit: usize) -> usize {
        if self.paused {
            return 0;
        }
        let free = self.concurrency.map_or(u64::MAX, |most| most.saturating_sub(self.in_flight));
        limit.min(usize::try_from(free).unwrap_or(usize::MAX))
    }
}

/// Jobs at the head of a queue's range that are read for [`oldest_due`].
pub const HEADS_READ: usize = 100;

/// The lead of the highest priority over the lowest, in microseconds: a job that ranks later than the first one by more
/// than this was due later.
pub const LEAD_MAX_US: i64 = HEAD_START.as_micros() as i64 * (Priority::ALL.len() as i64 - 1);

/// Returns the due time of the pending job that has waited longest. `heads` are the due times of the first
/// [`HEADS_READ`] jobs of the queue's range. A job of lower priority behind them may have waited longer, by at most
/// [`LEAD_MAX_US`].
pub fn oldest_due(heads: impl IntoIterator<Item = Timestamp>) -> Option<Timestamp> {
    heads.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_gets_what_is_asked_for_up_to_its_concurrency() {
        let room = Room { paused: false, concurrency: None, in_flight: 7 };
        assert_eq!(room.within(5), 5);
        assert_eq!(Room { concurrency: Some(10), ..room }.within(5), 3);
        assert_eq!(Room { concurrency: Some(7), ..room }.within(5), 0);
        assert_eq!(Room { concurrency: Some(3), ..room }.within(5), 0, "the limit was lowered");
    }

    #[test]
    fn a_paused_queue_gets_nothing() {
        assert_eq!(Room { paused: true, concurrency: None, in_flight: 0 }.within(5), 0);
    }

    #[test]
    fn the_oldest_of_the_heads_may_be_of_any_priority() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let (low, critical) = (Priority::Low.rank(at(1)), Priority::Critical.rank(at(100)));
        assert!(critical < low, "the critical one is served first");
        assert_eq!(oldest_due([at(100), at(1)]), Some(at(1)));
        assert_eq!(oldest_due([]), None);
        assert_eq!(LEAD_MAX_US, Priority::Low.rank(at(0)) - Priority::Critical.rank(at(0)));
    }
}
