//! The dispatch window: how many jobs of a queue may be on their way to its workers.
//!
//! Dispatch stays close to the workers, so that a later job of higher priority still overtakes and a queue without a
//! live worker keeps its jobs pending. The window of a queue is the number of free slots that its workers reported,
//! plus a lookahead, minus the untaken entries on the bus.
//!
//! The lookahead hides the round trip of a heartbeat: it is the number of jobs that the queue has lately dispatched in
//! `LOOKAHEAD`. A queue of no-op jobs is refilled before its workers report that they are idle; a queue of long jobs
//! gets no lookahead. It never exceeds the number of runs that the workers execute at once.
//!
//! [`UntakenBytes`] bounds the window in bytes too, so that a thousand free slots do not put a thousand jobs of a
//! megabyte on the bus at once.
//!
//! Heartbeats are hints. A heartbeat that is older than the last one of its worker is ignored; a silent worker is
//! forgotten with its slots. A run that was dispatched by a wrong hint waits on the bus, and the reconciler publishes
//! it again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::untaken::UntakenBytes;
use super::wire::{WorkerHeartbeat, WorkerState};
use crate::ids::{QueueName, WorkerId};

/// The time for which jobs are dispatched ahead of the workers' heartbeats.
const LOOKAHEAD: Duration = Duration::from_millis(5);

/// The time over which the turnover is averaged. Far longer than the lookahead, so that filling idle workers with long
/// jobs does not count as turnover: a hundred jobs at once add a lookahead of one.
const MEMORY: Duration = Duration::from_millis(500);

/// How late a heartbeat may arrive after a newer one. If it is later than that, a clock was set.
const OUT_OF_ORDER_MAX: Duration = Duration::from_secs(5);

/// The dispatch windows of all queues.
#[derive(Debug, Default)]
pub struct Windows {
    workers: HashMap<WorkerId, Seen>,
    /// Queues with at least one live worker.
    queues: BTreeMap<QueueName, Totals>,
    untaken: UntakenBytes,
}

/// The last heartbeat of a worker. A worker that takes no more runs is remembered without queues, so that a late
/// heartbeat does not make it active again.
#[derive(Debug)]
struct Seen {
    queues: Vec<QueueName>,
    running: u32,
    free: u32,
    /// When it was sent, by the worker's clock.
    reported_at: Timestamp,
    /// When it was received, by the leader's clock.
    seen_at: Timestamp,
}

#[derive(Debug, Default)]
struct Totals {
    workers: usize,
    free: u64,
    running: u64,
    /// Jobs per second, at `turnover_at`.
    turnover: f64,
    turnover_at: Option<Timestamp>,
}

impl Windows {
    /// Returns windows without workers.
    pub fn new() -> Self {
        Windows::default()
    }

    /// Takes in a heartbeat, unless it is older than the last one of its worker.
    pub fn on_heartbeat(&mut self, beat: &WorkerHeartbeat, now: Timestamp) {
        let known = self.workers.remove(&beat.worker_id);
        if let Some(known) = known {
            // A little out of order: the heartbeat is outdated. By more, or if our own clock went back: a clock was
            // set.
            let late = elapsed(beat.at, known.reported_at);
            if !late.is_zero() && late < OUT_OF_ORDER_MAX && now >= known.seen_at {
                self.workers.insert(beat.worker_id.clone(), known);
                return;
            }
            let queues = if known.queues == beat.queues { known.queues.clone() } else { distinct(&beat.queues) };
            self.replace(known, beat, queues, now);
        } else {
            let nothing = Seen { queues: Vec::new(), running: 0, free: 0, reported_at: beat.at, seen_at: now };
            self.replace(nothing, beat, distinct(&beat.queues), now);
        }
    }

    fn replace(&mut self, known: Seen, beat: &WorkerHeartbeat, queues: Vec<QueueName>, now: Timestamp) {
        let queues = if beat.state == WorkerState::Active { queues } else { Vec::new() };
        let seen = Seen { queues, running: beat.running, free: beat.free, reported_at: beat.at, seen_at: now };
        // Add first, then subtract: otherwise a queue with one worker would lose its turnover with every heartbeat.
        self.add(&seen);
        self.subtract(&known);
        self.workers.insert(beat.worker_id.clone(), seen);
    }

    /// Forgets workers that were last seen `stale_after` ago or longer.
    pub fn forget_stale(&mut self, now: Timestamp, stale_after: Duration) {
        // A worker seen in the future: our clock went back. Its silence counts from now.
        self.workers.values_mut().for_each(|seen| seen.seen_at = seen.seen_at.min(now));
        let stale = self.workers.extract_if(|_, seen| elapsed(seen.seen_at, now) >= stale_after);
        let stale: Vec<Seen> = stale.map(|(_, seen)| seen).collect();
        for seen in stale {
            self.subtract(&seen);
        }
    }

    /// Returns the free slots that the workers of the queue reported. A worker of several queues counts for each.
    pub fn free(&self, queue: &QueueName) -> u32 {
        self.queues.get(queue).map_or(0, |totals| u32::try_from(totals.free).unwrap_or(u32::MAX))
    }

    /// Returns the number of live workers that take runs of the queue.
    pub fn workers(&self, queue: &QueueName) -> usize {
        self.queues.get(queue).map_or(0, |totals| totals.workers)
    }

    /// Returns the queues that have such a worker, by name.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.keys()
    }

    /// Returns how many jobs of the queue may be dispatched now. `backlog` is the number of its untaken entries on the
    /// bus.
    pub fn limit(&mut self, queue: &QueueName, backlog: u64, now: Timestamp) -> usize {
        self.untaken.observe(queue, backlog);
        let Some(totals) = self.queues.get(queue) else { return 0 };
        let ahead = (totals.turnover_by(now) * LOOKAHEAD.as_secs_f64()) as u64;
        let window = totals.free + ahead.min(totals.free + totals.running);
        let window = usize::try_from(window.saturating_sub(backlog)).unwrap_or(usize::MAX);
        window.min(self.untaken.limit(queue))
    }

    /// Returns the sizes of the runs that are published and untaken.
    pub fn untaken(&mut self) -> &mut UntakenBytes {
        &mut self.untaken
    }

    /// Adds `n` dispatched jobs to the turnover of the queue.
    pub fn dispatched(&mut self, queue: &QueueName, n: usize, now: Timestamp) {
        if let Some(totals) = self.queues.get_mut(queue) {
            totals.turnover = totals.turnover_by(now) + n as f64 / MEMORY.as_secs_f64();
            totals.turnover_at = totals.turnover_at.max(Some(now));
        }
    }

    fn add(&mut self, seen: &Seen) {
        for queue in &seen.queues {
            if !self.queues.contains_key(queue) {
                self.queues.insert(queue.clone(), Totals::default());
            }
            if let Some(totals) = self.queues.get_mut(queue) {
                totals.workers += 1;
                totals.free += u64::from(seen.free);
                totals.running += u64::from(seen.running);
            }
        }
    }

    fn subtract(&mut self, seen: &Seen) {
        for queue in &seen.queues {
            let Some(totals) = self.queues.get_mut(queue) else { continue };
            totals.workers -= 1;
            totals.free -= u64::from(seen.free);
            totals.running -= u64::from(seen.running);
            if totals.workers == 0 {
                self.queues.remove(queue);
            }
        }
    }
}

impl Totals {
    /// Returns the turnover, decayed to `now`.
    fn turnover_by(&self, now: Timestamp) -> f64 {
        let Some(at) = self.turnover_at else { return 0.0 };
        self.turnover * (-elapsed(at, now).as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }
}

/// Returns the time between two instants, or zero if the clock went back.
fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

fn distinct(queues: &[QueueName]) -> Vec<QueueName> {
    let mut seen = BTreeSet::new();
    queues.iter().filter(|queue| seen.insert(*queue)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::V1;
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).expect("in range")
    }

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    fn beat(worker: &str, queues: &[&str], running: u32, free: u32, ms: i64) -> WorkerHeartbeat {
        WorkerHeartbeat {
            v: V1,
            worker_id: WorkerId::new(worker).expect("a name"),
            queues: queues.iter().map(|name| queue(name)).collect(),
            running,
            free,
            state: WorkerState::Active,
            at: at(ms),
            name: None,
            concurrency: None,
            via: None,
            executions: None,
        }
    }

    fn after(beats: &[WorkerHeartbeat]) -> Windows {
        let (mut windows, mut now) = (Windows::new(), Timestamp::MIN);
        for beat in beats {
            now = now.max(beat.at);
            windows.on_heartbeat(beat, now);
        }
        windows
    }

    #[test]
    fn without_a_worker_nothing_is_dispatched() {
        let mut windows = Windows::new();
        windows.dispatched(&queue("a"), 1_000_000, at(0));
        assert_eq!((windows.limit(&queue("a"), 0, at(0)), windows.free(&queue("a"))), (0, 0));
        assert_eq!(windows.queues().count(), 0);
    }

    #[test]
    fn the_window_is_what_is_free_less_what_waits_on_the_bus() {
        let mut windows = after(&[beat("w1", &["a"], 2, 3, 0), beat("w2", &["a", "b"], 0, 4, 0)]);
        assert_eq!((windows.free(&queue("a")), windows.workers(&queue("a"))), (7, 2));
        assert_eq!((windows.free(&queue("b")), windows.workers(&queue("b"))), (4, 1));
        assert_eq!(windows.limit(&queue("a"), 0, at(0)), 7);
        assert_eq!(windows.limit(&queue("a"), 5, at(0)), 2);
        assert_eq!(windows.limit(&queue("a"), u64::MAX, at(0)), 0);
        assert_eq!(windows.queues().map(QueueName::as_str).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_new_report_takes_the_place_of_the_old() {
        let windows = after(&[beat("w", &["a", "b"], 0, 9, 0), beat("w", &["b", "c", "c"], 5, 4, 1)]);
        assert_eq!(windows.queues().map(QueueName::as_str).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!((windows.free(&queue("c")), windows.workers(&queue("c"))), (4, 1));
    }

    #[test]
    fn a_late_report_is_ignored() {
        let windows = after(&[beat("w", &["a"], 9, 1, 10), beat("w", &["a"], 0, 10, 9)]);
        assert_eq!(windows.free(&queue("a")), 1);
    }

    #[test]
    fn a_clock_that_was_set_back_silences_nobody() {
        let hour = 3_600_000;
        let mut windows = after(&[beat("w", &["a"], 10, 0, hour)]);
        windows.on_heartbeat(&beat("w", &["a"], 0, 10, 1_000), at(1_000));
        assert_eq!(windows.free(&queue("a")), 10);
        let mut windows = after(&[beat("w", &["a"], 0, 10, hour)]);
        windows.forget_stale(at(1_000), Duration::from_secs(30));
        windows.forget_stale(at(32_000), Duration::from_secs(30));
        assert_eq!(windows.workers(&queue("a")), 0);
    }

    #[test]
    fn a_worker_that_drains_or_is_gone_offers_nothing_even_if_an_older_report_follows() {
        for state in [WorkerState::Draining, WorkerState::Gone] {
            let last = WorkerHeartbeat { state, ..beat("w", &["a"], 1, 9, 10) };
            let mut windows = after(&[beat("w", &["a"], 0, 10, 0), last, beat("w", &["a"], 0, 10, 5)]);
            assert_eq!((windows.workers(&queue("a")), windows.limit(&queue("a"), 0, at(10))), (0, 0));
            windows.on_heartbeat(&beat("w", &["a"], 0, 3, 11), at(11));
            assert_eq!(windows.limit(&queue("a"), 0, at(11)), 3);
        }
    }

    #[test]
    fn a_silent_worker_is_forgotten_by_our_clock() {
        let mut windows = after(&[beat("w1", &["a"], 0, 1, 0), beat("w2", &["a"], 0, 2, 500)]);
        windows.forget_stale(at(999), Duration::from_secs(1));
        assert_eq!(windows.free(&queue("a")), 3);
        windows.forget_stale(at(1_000), Duration::from_secs(1));
        assert_eq!((windows.free(&queue("a")), windows.workers(&queue("a"))), (2, 1));
        // A forgotten worker may return, even with a wrong clock.
        windows.on_heartbeat(&beat("w1", &["a"], 0, 5, -1_000_000), at(1_001));
        assert_eq!(windows.free(&queue("a")), 7);
        windows.forget_stale(at(10_000), Duration::from_secs(1));
        assert_eq!((windows.queues().count(), windows.workers.len()), (0, 0));
    }

    #[test]
    fn fast_jobs_are_sent_ahead() {
        let mut windows = after(&[beat("w", &["a"], 100, 0, 0)]);
        // Fifty per millisecond for three seconds: the turnover converges to 50,000 per second.
        for ms in 0..3_000 {
            windows.dispatched(&queue("a"), 50, at(ms));
        }
        // The turnover allows 250, the worker executes fewer at once.
        assert_eq!(windows.limit(&queue("a"), 0, at(3_000)), 100);
        assert_eq!(windows.limit(&queue("a"), 90, at(3_000)), 10);
        windows.on_heartbeat(&beat("w", &["a"], 1_000, 20, 3_000), at(3_000));
        let limit = windows.limit(&queue("a"), 0, at(3_000));
        assert!((20 + 245..=20 + 255).contains(&limit), "{limit}");
        // The lookahead decays after the last dispatch.
        assert_eq!(windows.limit(&queue("a"), 0, at(10_000)), 20);
    }

    #[test]
    fn filling_idle_workers_with_long_jobs_is_no_turnover() {
        let mut windows = after(&[beat("w", &["a"], 0, 100, 0)]);
        windows.dispatched(&queue("a"), 100, at(0));
        windows.on_heartbeat(&beat("w", &["a"], 100, 0, 1), at(1));
        assert_eq!(windows.limit(&queue("a"), 0, at(1)), 0);
        // Nor is a single job that ends and is followed by another.
        for ms in (0..5_000).step_by(50) {
            windows.dispatched(&queue("a"), 1, at(ms));
        }
        assert_eq!(windows.limit(&queue("a"), 0, at(5_000)), 0);
    }

    #[test]
    fn a_clock_that_goes_back_does_not_inflate_the_turnover() {
        let mut windows = after(&[beat("w", &["a"], 1_000_000, 0, 0)]);
        windows.dispatched(&queue("a"), 10_000, at(10_000));
        let limit = windows.limit(&queue("a"), 0, at(10_000));
        assert_eq!(windows.limit(&queue("a"), 0, at(0)), limit);
        windows.dispatched(&queue("a"), 0, at(0));
        assert_eq!(windows.limit(&queue("a"), 0, at(10_000)), limit);
    }

    proptest! {
        /// The totals equal a count over the last heartbeats.
        #[test]
        fn totals_agree_with_a_count(beats in prop::collection::vec(
            (0..4usize, prop::collection::vec(0..4usize, 0..5), 0..10u32, 0..10u32, 0..3usize, 0..100i64), 1..60,
        )) {
            let (workers, names) = (["w0", "w1", "w2", "w3"], ["a", "b", "c", "d"]);
            let mut windows = Windows::new();
            let mut last: HashMap<usize, WorkerHeartbeat> = HashMap::new();
            for (worker, queues, running, free, state, ms) in beats {
                let queues: Vec<&str> = queues.into_iter().map(|index| names[index]).collect();
                let state = [WorkerState::Active, WorkerState::Draining, WorkerState::Gone][state];
                let beat = WorkerHeartbeat { state, ..beat(workers[worker], &queues, running, free, ms) };
                windows.on_heartbeat(&beat, at(0));
                if last.get(&worker).is_none_or(|last| last.at <= beat.at) {
                    last.insert(worker, beat);
                }
                for name in names {
                    let of = |beat: &&WorkerHeartbeat| beat.state == WorkerState::Active && beat.queues.contains(&queue(name));
                    prop_assert_eq!(windows.workers(&queue(name)), last.values().filter(of).count());
                    prop_assert_eq!(windows.free(&queue(name)), last.values().filter(of).map(|beat| beat.free).sum::<u32>());
                }
            }
        }
    }
}
