//! The choice of the pending jobs that a dispatch takes, in all stores.
//!
//! The pending jobs of a queue are one range, ordered by [`rank`](Priority::rank), and by the order of storing for
//! equal ranks. A dispatch serves its windows one after the other and takes jobs from the heads of their ranges: as many
//! as the queue has [room](Room) for, and as the executions and the [bytes](DISPATCH_BYTES_MAX) of one dispatch permit
//! ([`Choice`]).
//!
//! The store in memory and that on SQLite choose by these types. The statement of PostgreSQL is a fast path beside them: a case of
//! the conformance suite compares it, as the others, with the rule for generated queues.

use jiff::Timestamp;

use super::priority::{HEAD_START, Priority};
use crate::byte_budget::ByteBudget;
use crate::limits::DISPATCH_BYTES_MAX;

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

/// A pending job, as the choice sees it. The order is that of dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Head {
    /// The rank of the job.
    pub rank: i64,
    /// Its number in the order of storing.
    pub seq: u64,
    /// The size of its arguments.
    pub args_bytes: usize,
}

/// The jobs that one dispatch may still take, over all of its windows.
#[derive(Debug, Clone)]
pub struct Choice {
    executions: usize,
    budget: ByteBudget,
}

impl Choice {
    /// Returns the choice of a dispatch with so many executions.
    pub fn new(executions: usize) -> Self {
        Choice { executions, budget: ByteBudget::new(DISPATCH_BYTES_MAX) }
    }

    /// Begins the next window, of at most `limit` jobs of a queue.
    pub fn window(&mut self, room: Room, limit: usize) -> WindowChoice<'_> {
        let left = room.within(limit).min(self.executions);
        WindowChoice { choice: self, left, is_cut: false }
    }
}

/// The choice of one window: the heads of its queue's range are offered to it in their order.
#[derive(Debug)]
pub struct WindowChoice<'c> {
    choice: &'c mut Choice,
    left: usize,
    is_cut: bool,
}

impl WindowChoice<'_> {
    /// Returns how many more jobs the window takes at most.
    pub fn most(&self) -> usize {
        self.left
    }

    /// Returns whether the next job of the range is taken. After the first that is not, none is.
    pub fn takes(&mut self, args_bytes: usize) -> bool {
        if self.left == 0 {
            return false;
        }
        self.is_cut = !self.choice.budget.admits(args_bytes);
        if self.is_cut {
            self.left = 0;
        } else {
            self.left -= 1;
            self.choice.executions -= 1;
        }
        !self.is_cut
    }

    /// Returns how many of the heads, which are in the order of dispatch, are taken.
    pub fn count(&mut self, heads: &[Head]) -> usize {
        heads.iter().take_while(|head| self.takes(head.args_bytes)).count()
    }

    /// Returns whether a job was left only because its bytes did not fit.
    pub fn is_cut(&self) -> bool {
        self.is_cut
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
    fn windows_share_the_executions_and_the_bytes_of_a_dispatch() {
        let room = Room { paused: false, concurrency: None, in_flight: 0 };
        let heads = |bytes: &[usize]| {
            let head = |(seq, args_bytes): (u64, &usize)| Head { rank: 0, seq, args_bytes: *args_bytes };
            (0..).zip(bytes).map(head).collect::<Vec<_>>()
        };
        let mut choice = Choice::new(5);
        assert_eq!(choice.window(room, 2).count(&heads(&[1, 1, 1])), 2, "the window");
        let mut second = choice.window(room, 9);
        assert_eq!((second.most(), second.count(&heads(&[1; 9])), second.is_cut()), (3, 3, false), "the executions");
        assert_eq!(choice.window(room, 9).count(&heads(&[1])), 0);
        let mut choice = Choice::new(9);
        let mut first = choice.window(room, 9);
        assert_eq!((first.count(&heads(&[2 * DISPATCH_BYTES_MAX, 1])), first.is_cut()), (1, true), "never none");
        let mut next = choice.window(room, 9);
        assert_eq!((next.count(&heads(&[0, 1])), next.is_cut()), (1, true), "no byte is left");
        let mut empty = choice.window(room, 9);
        assert_eq!((empty.count(&[]), empty.is_cut()), (0, false), "nothing was left there");
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
