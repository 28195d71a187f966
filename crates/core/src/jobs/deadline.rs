//! The deadline of a run, although clocks differ.
//!
//! A worker, the node that records its run and the leader each have a clock, and these may be minutes apart. The
//! deadline of a run is its start plus its timeout. The start is bounded by known times: it is not before the dispatch,
//! by the leader's clock, and not after the report. So a leader that dispatched a run compares times of its own clock
//! only. The deadline of a run that another leader dispatched is by another clock: the leader must have led for the
//! run's timeout before it acts on it, or for [`CLOCKS_APART_MAX`] if that is shorter.

use std::time::Duration;

use jiff::Timestamp;

use crate::ids::ExecutionId;

/// The largest supported difference of clocks. Beyond it, a run with a longer timeout may be timed out too early after
/// a change of leader.
pub const CLOCKS_APART_MAX: Duration = Duration::from_secs(300);

/// Returns the time of an event of a run: `stated`, which is the worker's time, but not before the dispatch and not after
/// `now`.
pub fn happened_at(execution: ExecutionId, stated: Timestamp, now: Timestamp) -> Timestamp {
    stated.min(now).max(execution.minted_at().unwrap_or(Timestamp::MIN))
}

/// The time for which a leader has led.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// The begin of its term, by its wall clock.
    pub since_at: Timestamp,
    /// The time since then, by its monotonic clock.
    pub lasted: Duration,
}

impl Watch {
    /// Returns whether a run whose `deadline` has passed has certainly had its whole timeout.
    pub fn is_certain(&self, dispatched_at: Timestamp, deadline: Timestamp) -> bool {
        // At least the timeout of the run, because a run starts after its dispatch.
        let allowed = Duration::try_from(deadline.duration_since(dispatched_at)).unwrap_or_default();
        dispatched_at >= self.since_at || self.lasted >= allowed.min(CLOCKS_APART_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("an instant")
    }

    /// An execution id minted at second 1000.
    fn execution() -> ExecutionId {
        let id = ExecutionId(uuid::Uuid::from_u128((1_000_000_u128 << 80) | (7 << 76) | (2 << 62)));
        assert_eq!(id.minted_at(), Some(at(1_000)));
        id
    }

    #[test]
    fn nothing_happens_in_a_run_before_its_dispatch_or_after_it_is_reported() {
        for (stated, happened) in [(940, 1_000), (1_000, 1_000), (1_005, 1_005), (1_060, 1_010)] {
            assert_eq!(happened_at(execution(), at(stated), at(1_010)), at(happened), "stated {stated}");
        }
    }

    #[test]
    fn a_clock_that_is_behind_the_leaders_counts_from_the_dispatch() {
        assert_eq!(happened_at(execution(), at(945), at(950)), at(1_000));
    }

    #[test]
    fn a_leader_judges_what_it_dispatched_by_its_own_clock() {
        let watch = Watch { since_at: at(100), lasted: Duration::ZERO };
        assert!(watch.is_certain(at(100), at(130)) && watch.is_certain(at(200), at(230)));
    }

    #[test]
    fn a_leader_watches_what_another_dispatched_for_as_long_as_the_timeout_and_no_longer_than_five_minutes() {
        let watch = |lasted| Watch { since_at: at(100_000), lasted: Duration::from_secs(lasted) };
        let dispatched_at = at(90_000);
        assert!(!watch(29).is_certain(dispatched_at, at(90_030)) && watch(30).is_certain(dispatched_at, at(90_030)));
        assert!(!watch(299).is_certain(dispatched_at, at(99_000)) && watch(300).is_certain(dispatched_at, at(99_000)));
        assert!(watch(0).is_certain(dispatched_at, at(80_000)), "one that ended before it began is over");
    }
}
