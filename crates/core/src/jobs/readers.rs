//! Workers that send no heartbeats: observed only by their reads of `job.dispatch.{queue}` in the consumer group of
//! workers.
//!
//! | last read of a reader | it is |
//! | --- | --- |
//! | after the leader began to inspect the queue, and within `stale_after` | a worker with [`READER_SLOTS`] slots, minus its pending entries |
//! | longer ago, with pending entries or runs | busy: it gets no runs and loses none |
//! | longer ago, without pending entries and runs | gone |
//! | [`BUSY_SILENCE`] times `stale_after` ago | dead: its runs are lost |
//! | never observed | unproven: one run is sent as a probe if no other worker serves the queue |
//!
//! A bus may not list a reader that waits and has never received an entry; it may only report that some reader waits. A
//! probe is sent in that case as well. A probe that no reader takes is requeued like any run of a queue without
//! workers, and the pause before the next probe doubles.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::wire::{V1, WorkerHeartbeat, WorkerState};
use crate::election::Moment;
use crate::ids::{QueueName, WorkerId};
use crate::ports::QueueReaders;

/// The slots of a worker that does not report how many it has.
pub const READER_SLOTS: u32 = 10;
/// A busy reader may be silent this many times as long as a worker with heartbeats.
pub const BUSY_SILENCE: u32 = 10;
/// Upper bound of the queues that are inspected.
const WATCHED_MAX: usize = 1_000;
/// Upper bound of the remembered workers that left. A worker beyond it may receive one more run before it counts as
/// silent.
const LEFT_MAX: usize = 10_000;
/// How long a queue without readers is inspected after it was last watched.
const WATCHED_FOR: Duration = Duration::from_secs(90);
/// The error of idle times: a bus measures them by its own clock and rounds them.
const ROUNDING: Duration = Duration::from_millis(2);
const PROBE_FIRST: Duration = Duration::from_secs(4);
const PROBE_MAX: Duration = Duration::from_secs(30);
/// The pauses between two inspections of the queues: while readers have work, and otherwise.
const PAUSE_BUSY: Duration = Duration::from_millis(200);
const PAUSE_IDLE: Duration = Duration::from_secs(1);

/// Returns the name of a reader in the registry, by which the next leader recognises it.
pub fn reader_name(worker: &WorkerId) -> String {
    format!("{worker} (reader)")
}

/// The observations of one leader.
#[derive(Debug)]
pub struct Readers {
    stale_after: Duration,
    queues: BTreeMap<QueueName, Watched>,
    /// Readers in the registry when the term began.
    expected: BTreeSet<WorkerId>,
    /// Workers that left or died, and when: only a later read makes them active again.
    left: BTreeMap<WorkerId, Moment>,
}

#[derive(Debug)]
struct Watched {
    wanted_at: Moment,
    inspected_at: Option<Moment>,
    readers: BTreeMap<WorkerId, Reading>,
    /// Whether a reader may wait that the bus does not list.
    is_awaited: bool,
    /// When a probe was last sent. `probe_at` is when the next may be sent.
    probed_at: Option<Moment>,
    probe_at: Moment,
    probe_pause: Duration,
}

/// One reader of one queue.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// A read counts if it is later than this.
    after: Moment,
    /// Its last read was not before this.
    last: Moment,
    pending: u64,
    is_proven: bool,
}

/// A reader of which a read was observed, over all its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// The name of the consumer, which is the id of the worker.
    pub worker: WorkerId,
    /// The queues that it reads.
    pub queues: Vec<QueueName>,
    /// Entries that it received and did not acknowledge.
    pub pending: u32,
    /// The time since its last read.
    pub silent_for: Duration,
    /// Whether its last read is at most `stale_after` ago.
    pub is_reading: bool,
}

impl Reader {
    /// Returns the heartbeat that stands for the reader. `has_runs` is whether the store has runs of it.
    pub fn heartbeat(&self, has_runs: bool, at: jiff::Timestamp) -> WorkerHeartbeat {
        let state = match (self.is_reading, self.pending > 0 || has_runs) {
            (true, _) => WorkerState::Active,
            (false, true) => WorkerState::Draining,
            (false, false) => WorkerState::Gone,
        };
        let free = if self.is_reading { READER_SLOTS.saturating_sub(self.pending) } else { 0 };
        WorkerHeartbeat {
            v: V1,
            worker_id: self.worker.clone(),
            queues: self.queues.clone(),
            running: self.pending,
            free,
            state,
            at,
            name: Some(reader_name(&self.worker)),
            concurrency: Some(READER_SLOTS),
            via: None,
            executions: None,
            inbox: None,
        }
    }
}

impl Readers {
    /// Returns the observations of a leader whose term begins. `expected` are the readers that the registry has.
    pub fn new(stale_after: Duration, expected: BTreeSet<WorkerId>) -> Self {
        Readers { stale_after, queues: BTreeMap::new(), expected, left: BTreeMap::new() }
    }

    /// Inspects a queue from now on, because it has jobs or may have readers. Returns whether it was not inspected
    /// before.
    pub fn watch(&mut self, queue: &QueueName, now: Moment) -> bool {
        if let Some(watched) = self.queues.get_mut(queue) {
            watched.wanted_at = now;
            return false;
        }
        if self.queues.len() >= WATCHED_MAX {
            return false;
        }
        let watched = Watched {
            wanted_at: now,
            inspected_at: None,
            readers: BTreeMap::new(),
            is_awaited: false,
            probed_at: None,
            probe_at: now,
            probe_pause: PROBE_FIRST,
        };
        self.queues.insert(queue.clone(), watched);
        true
    }

    /// Returns the queues to inspect. Drops the queues without readers that were not watched lately.
    pub fn watched(&mut self, now: Moment) -> Vec<QueueName> {
        self.queues.retain(|_, watched| !watched.readers.is_empty() || now - watched.wanted_at < WATCHED_FOR);
        self.forget_left(now);
        self.queues.keys().cloned().collect()
    }

    /// Drops workers that left longer than `stale_after` ago: their last read is at least as old.
    fn forget_left(&mut self, now: Moment) {
        let stale_after = self.stale_after;
        self.left.retain(|_, at| now - *at < stale_after);
    }

    /// Returns how long to wait before the next inspection.
    pub fn pause(&self, now: Moment) -> Duration {
        let is_recent = |at: Moment| now - at < PAUSE_IDLE * 2;
        let is_busy = |watched: &Watched| {
            let is_read = watched.readers.values().any(|reading| reading.is_proven);
            is_read && is_recent(watched.wanted_at) || watched.probed_at.is_some_and(is_recent)
        };
        if self.queues.values().any(is_busy) { PAUSE_BUSY } else { PAUSE_IDLE }
    }

    /// Records the readers of a queue. The request was sent at `asked`, the reply received at `received`. `seen` is
    /// `None` if the queue has no consumer group.
    pub fn observe(&mut self, queue: &QueueName, seen: Option<&QueueReaders>, asked: Moment, received: Moment) {
        let Some(watched) = self.queues.get_mut(queue) else { return };
        let before = watched.inspected_at.replace(asked);
        watched.is_awaited = seen.is_some_and(|seen| seen.is_awaited);
        let mut known = std::mem::take(&mut watched.readers);
        for reader in seen.into_iter().flat_map(|seen| &seen.readers).filter(|reader| !reader.is_consumer) {
            let Ok(worker) = WorkerId::new(reader.name.as_str()) else { continue };
            // The bus measured the idle time between `asked` and `received`.
            let last = Moment(asked.0.saturating_sub(reader.idle));
            let last_at_most = Moment(received.0.saturating_sub(reader.idle)) + ROUNDING;
            let is_expected = self.expected.contains(&worker);
            let left = self.left.get(&worker).copied();
            // A reader that the last inspection did not list has read since then.
            let after = before.map_or(last_at_most, |before| Moment(before.0.saturating_sub(ROUNDING)));
            let after = left.map_or(after, |left| left.max(after));
            let unknown = Reading { after, last, pending: 0, is_proven: is_expected };
            let mut reading = known.remove(&worker).unwrap_or(unknown);
            (reading.last, reading.pending) = (last, reader.pending);
            reading.is_proven |= last > reading.after;
            if reading.is_proven && received - last < self.stale_after {
                watched.probe_pause = PROBE_FIRST;
            }
            watched.readers.insert(worker, reading);
        }
    }

    /// Returns the readers of which a read was observed.
    pub fn readers(&self, now: Moment) -> Vec<Reader> {
        let mut all: BTreeMap<&WorkerId, (BTreeSet<&QueueName>, u64, Moment)> = BTreeMap::new();
        for (queue, watched) in &self.queues {
            for (worker, reading) in watched.readers.iter().filter(|(_, reading)| reading.is_proven) {
                let (queues, pending, last) = all.entry(worker).or_insert((BTreeSet::new(), 0, reading.last));
                queues.insert(queue);
                *pending += reading.pending;
                *last = (*last).max(reading.last);
            }
        }
        let reader = |(worker, (queues, pending, last)): (&WorkerId, (BTreeSet<&QueueName>, u64, Moment))| {
            let silent_for = now - last;
            Reader {
                worker: worker.clone(),
                queues: queues.into_iter().cloned().collect(),
                pending: u32::try_from(pending).unwrap_or(u32::MAX),
                silent_for,
                is_reading: silent_for < self.stale_after,
            }
        };
        all.into_iter().map(reader).collect()
    }

    /// Returns the queues with a reader that has unacknowledged entries. It may have the runs that no worker reported
    /// as started.
    pub fn queues_held(&self, now: Moment) -> BTreeSet<QueueName> {
        let patience = self.stale_after * BUSY_SILENCE;
        let is_held = |watched: &Watched| {
            watched.readers.values().any(|reading| reading.pending > 0 && now - reading.last < patience)
        };
        self.queues.iter().filter(|(_, watched)| is_held(watched)).map(|(queue, _)| queue.clone()).collect()
    }

    /// Records that a worker left or was declared dead. Earlier reads do not make it active again.
    pub fn leave(&mut self, worker: &WorkerId, now: Moment) {
        self.expected.remove(worker);
        if self.left.len() >= LEFT_MAX {
            self.forget_left(now);
        }
        if self.left.len() < LEFT_MAX {
            self.left.insert(worker.clone(), now);
        }
        for reading in self.queues.values_mut().filter_map(|watched| watched.readers.get_mut(worker)) {
            (reading.after, reading.is_proven) = (now, false);
        }
    }

    /// Returns whether to send one run of the queue, which has jobs and no worker, as a probe for readers. If so, the
    /// pause before the next probe begins.
    pub fn probe(&mut self, queue: &QueueName, now: Moment) -> bool {
        let stale_after = self.stale_after;
        let Some(watched) = self.queues.get_mut(queue) else { return false };
        let is_fresh = |reading: &Reading| now - reading.last < stale_after;
        if now < watched.probe_at || !(watched.is_awaited || watched.readers.values().any(is_fresh)) {
            return false;
        }
        watched.probed_at = Some(now);
        watched.probe_at = now + watched.probe_pause;
        watched.probe_pause = (watched.probe_pause * 2).min(PROBE_MAX);
        true
    }
}

#[cfg(test)]
mod tests;
