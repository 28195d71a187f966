//! A process's knowledge of a namespace's leadership, and when a term counts as over.
//!
//! A state holds for the length of its lease from when it was first seen here, by the monotonic clock. It was written
//! before it was seen, and its holder counts from before it wrote: so a watcher waits longer than the holder leads.
//! Each renewal is another state. Wall clocks are not used: of a state's two times only the difference counts.

use std::collections::VecDeque;
use std::time::Duration;

use convoke_core::Epoch;
use convoke_core::ports::leases::Lease;
use tokio::time::Instant;

use super::documents::State;

/// How many writes of unknown outcome are remembered. A forgotten one is taken for another process's, and its lease
/// must expire.
const UNSURE_MAX: usize = 16;

/// A state of the file, as it was first seen.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub etag: String,
    pub state: State,
    pub since: Instant,
}

impl Sighting {
    pub fn is_over(&self, now: Instant) -> bool {
        self.state.is_ended() || self.remaining(now).is_zero()
    }

    pub fn is_term(&self, holder: &str, epoch: Epoch) -> bool {
        self.state.leader_id == holder && self.state.epoch == epoch.0
    }

    pub fn lease(&self, now: Instant) -> Lease {
        Lease {
            holder: self.state.leader_id.clone(),
            epoch: Epoch(self.state.epoch),
            remaining: self.remaining(now),
            is_foreign: self.state.is_foreign(),
        }
    }

    fn remaining(&self, now: Instant) -> Duration {
        self.state.ttl().saturating_sub(now.saturating_duration_since(self.since))
    }
}

#[derive(Debug, Default)]
pub(super) struct Knowledge {
    pub sighting: Option<Sighting>,
    /// The highest epoch ever seen here: if the file is lost, the next epoch must be higher still.
    pub highest: u64,
    /// Whether the last renewal used one request less than its limit.
    pub has_request_left: bool,
    /// Writes of unknown outcome, each with its start.
    unsure: VecDeque<(String, Instant)>,
}

impl Knowledge {
    /// Records that the file has changed. A state that this process wrote holds from the start of its write: others may
    /// have seen it since.
    pub fn saw(&mut self, etag: String, state: State, now: Instant) {
        self.highest = self.highest.max(state.epoch);
        let since = self.begun(&state).unwrap_or(now);
        self.sighting = Some(Sighting { etag, state, since });
    }

    /// Returns the start of the write that made this state, if its outcome was unknown.
    fn begun(&self, state: &State) -> Option<Instant> {
        let write_id = state.write_id.as_ref()?;
        self.unsure.iter().find(|(unsure, _)| unsure == write_id).map(|(_, begun)| *begun)
    }

    /// Records that the file is missing.
    pub fn saw_nothing(&mut self) {
        self.sighting = None;
    }

    /// Records a write before it is sent: until its outcome is known, it may appear at any time.
    pub fn will_write(&mut self, write_id: &str, now: Instant) {
        if self.unsure.len() == UNSURE_MAX {
            self.unsure.pop_front();
        }
        self.unsure.push_back((write_id.to_owned(), now));
    }

    /// Records a successful write, which is reported to its caller. `anchor` is from before it was sent.
    pub fn wrote(&mut self, etag: String, state: State, anchor: Instant) {
        self.unsure.retain(|(write_id, _)| Some(write_id) != state.write_id.as_ref());
        self.saw(etag, state, anchor);
    }

    /// Returns the term that holds, as far as is known here.
    pub fn present(&self, now: Instant) -> Option<&Sighting> {
        self.sighting.as_ref().filter(|sighting| !sighting.is_over(now))
    }

    /// Returns whether the present state names the candidate and no caller has received the term: others elected it, or
    /// its own write arrived after its caller stopped waiting. A term that this or an earlier process received is not
    /// claimable.
    pub fn is_claimable(&self, candidate: &str) -> bool {
        self.sighting.as_ref().is_some_and(|sighting| {
            let state = &sighting.state;
            state.leader_id == candidate && (state.write_id.is_none() || self.begun(state).is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    fn state(leader: &str, epoch: u64, wall_ms: i64, write_id: &str) -> State {
        State::elected(leader, "pod", epoch, wall_ms, TTL, write_id)
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_holds_for_its_lease_from_when_it_was_first_seen_whatever_clocks_say() {
        for wall_ms in [0, 1_000, 4_000_000_000_000] {
            let mut known = Knowledge::default();
            let start = Instant::now();
            known.saw("1".into(), state("a", 1, wall_ms, "w"), start);
            assert!(known.present(start + TTL - Duration::from_millis(1)).is_some());
            assert!(known.present(start + TTL).is_none());
            known.saw("2".into(), state("a", 1, wall_ms, "x"), start + TTL);
            assert!(known.present(start + TTL).is_some(), "it was renewed");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_arrives_late_holds_from_when_it_was_begun() {
        let mut known = Knowledge::default();
        let begun = Instant::now();
        known.will_write("late", begun);
        known.saw("1".into(), state("a", 1, 0, "late"), begun + TTL / 3);
        let lease = known.present(begun + TTL / 3).expect("it leads").lease(begun + TTL / 3);
        assert_eq!(lease.remaining, TTL - TTL / 3, "others may have seen it before");
        assert!(known.present(begun + TTL).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_highest_epoch_outlives_the_file() {
        let mut known = Knowledge::default();
        known.saw("1".into(), state("a", 9, 0, "w"), Instant::now());
        known.saw_nothing();
        known.saw("2".into(), state("a", 1, 0, "x"), Instant::now());
        assert_eq!(known.highest, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_term_that_nobody_was_given_is_claimed() {
        let mut known = Knowledge::default();
        let now = Instant::now();
        known.saw("1".into(), state("a", 1, 0, "of another process"), now);
        assert!(!known.is_claimable("a"));
        known.will_write("late", now);
        known.saw("2".into(), state("a", 2, 0, "late"), now);
        assert!(known.is_claimable("a") && !known.is_claimable("b"));
        known.will_write("sure", now);
        known.wrote("3".into(), state("a", 3, 0, "sure"), now);
        assert!(!known.is_claimable("a"), "its caller knows it");
        let by_others = State { write_id: None, ..state("a", 4, 0, "") };
        known.saw("4".into(), by_others, now);
        assert!(known.is_claimable("a") && !known.is_claimable("b"));
    }

    #[test]
    fn no_more_than_a_few_writes_are_remembered() {
        let mut known = Knowledge::default();
        for n in 0..1_000 {
            known.will_write(&n.to_string(), Instant::now());
        }
        assert_eq!(known.unsure.len(), UNSURE_MAX);
        assert_eq!(known.unsure.back().map(|(write_id, _)| write_id.as_str()), Some("999"));
    }
}
