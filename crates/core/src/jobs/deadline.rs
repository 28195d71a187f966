//! When a run's time is up, although no two clocks agree.
//!
//! A worker, the node that records its run and the leader each have a clock, and these may be minutes apart. A run's deadline
//! is its timeout after its start, and the start is bounded by what is certain: it did not happen before the run was
//! dispatched, by the leader's clock, nor after it was reported. So a leader that dispatched a run judges it by its own clock
//! alone. The deadline of a run that another leader dispatched is by another clock: the leader must have led for the
//! run's timeout before it acts on it, or for [`CLOCKS_APART_MAX`] if that is shorter.

use std::time::Duration;

use jiff::Timestamp;

use crate::ids::ExecutionId;

/// Clocks that are further apart than this may end a run with a longer timeout too early after a change of leader.
pub const CLOCKS_APART_MAX: Duration = Duration::from_secs(300);

/// Returns when something happened in a run that is `said` to have happened then, and was reported at `now`.
pub fn happened_at(execution: ExecutionId, said: Timestamp, now: Timestamp) -> Timestamp {
    said.min(now).max(execution.minted_at().unwrap_or(Timestamp::MIN))
}

/// For how long a leader has judged by its clock.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// By the clock itself.
    pub since_at: Timestamp,
    /// By the monotonic clock.
    pub lasted: Duration,
}

impl Watch {
    /// Whether a run that was dispatched then, and whose `deadline` has passed, has had its time for certain.
    pub fn is_certain(&self, dispatched_at: Timestamp, deadline: Timestamp) -> bool {
        // At least its timeout: a run starts after its dispatch.
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

    /// Made at second 1000.
    fn execution() -> ExecutionId {
        let id = ExecutionId(uuid::Uuid::from_u128((1_000_000_u128 << 80) | (7 << 76) | (2 << 62)));
        assert_eq!(id.minted_at(), Some(at(1_000)));
        id
    }

    #[test]
    fn nothing_happens_in_a_run_before_its_dispatch_or_after_it_is_reported() {
        for (said, happened) in [(940, 1_000), (1_000, 1_000), (1_005, 1_005), (1_060, 1_010)] {
            assert_eq!(happened_at(execution(), at(said), at(1_010)), at(happened), "said {said}");
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
