//! Workers that send no heartbeats: known only by their reads of `job.dispatch.{queue}` in the group of workers.
//!
//! | a reader | is |
//! | --- | --- |
//! | that read since the leader began to look at its queue, and in the last `stale_after` | a worker with [`READER_SLOTS`] slots, less its pending entries |
//! | that read longer ago and has pending entries or runs | busy: it gets nothing, and nothing of it is lost |
//! | that read [`BUSY_SILENCE`] times `stale_after` ago | dead: its runs are lost |
//! | that read longer ago and has nothing | gone |
//! | of which no read was observed | unproven: one run is sent as a probe if nobody else serves the queue |
//!
//! A bus may not list a reader that waits and was never given anything; it may know that somebody waits, but not where. Then
//! a probe is sent as well. A run that nobody takes is recalled as any run of a queue without workers, and the next probe
//! comes later each time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::wire::{V1, WorkerHeartbeat, WorkerState};
use crate::election::Moment;
use crate::ids::{QueueName, WorkerId};
use crate::ports::QueueReaders;

/// Slots of a worker that does not say how many it has.
pub const READER_SLOTS: u32 = 10;
/// A reader that is busy may be silent for so many times as long as a worker with heartbeats.
pub const BUSY_SILENCE: u32 = 10;
/// How many queues are looked at.
const WATCHED_MAX: usize = 1_000;
/// How many workers that left are remembered. One that is not may be given a run once more before its silence shows.
const LEFT_MAX: usize = 10_000;
/// For how long a queue without readers is looked at after it was last asked for.
const WATCHED_FOR: Duration = Duration::from_secs(90);
/// A bus measures idle times by its own clock, and rounds them.
const ROUNDING: Duration = Duration::from_millis(2);
const PROBE_FIRST: Duration = Duration::from_secs(4);
const PROBE_MAX: Duration = Duration::from_secs(30);
/// How often the queues are looked at: while readers are at work, and at other times.
const LOOK_BUSY: Duration = Duration::from_millis(200);
const LOOK_IDLE: Duration = Duration::from_secs(1);

/// Returns the name under which the registry has a reader, by which the next leader knows it.
pub fn reader_name(worker: &WorkerId) -> String {
    format!("{worker} (reader)")
}

/// The observations of one leader.
#[derive(Debug)]
pub struct Readers {
    stale_after: Duration,
    queues: BTreeMap<QueueName, Watched>,
    /// Readers that the registry had when the term began.
    expected: HashSet<WorkerId>,
    /// Workers that left or died: only a later read brings them back.
    left: HashMap<WorkerId, Moment>,
}

#[derive(Debug)]
struct Watched {
    wanted_at: Moment,
    looked_at: Option<Moment>,
    readers: BTreeMap<WorkerId, Reading>,
    /// Somebody may wait there who is not listed.
    is_awaited: bool,
    /// When a probe was last sent, and when the next may be.
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
    pub worker: WorkerId,
    pub queues: Vec<QueueName>,
    pub pending: u32,
    pub silent_for: Duration,
    /// It read lately.
    pub is_reading: bool,
}

impl Reader {
    /// Returns what the reader would say if it sent heartbeats; `has_runs` is whether the store has runs of it.
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
        }
    }
}

impl Readers {
    pub fn new(stale_after: Duration, expected: HashSet<WorkerId>) -> Self {
        Readers { stale_after, queues: BTreeMap::new(), expected, left: HashMap::new() }
    }

    /// Looks at a queue from now on: it has jobs, or somebody may read it. Returns whether it is new.
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
            looked_at: None,
            readers: BTreeMap::new(),
            is_awaited: false,
            probed_at: None,
            probe_at: now,
            probe_pause: PROBE_FIRST,
        };
        self.queues.insert(queue.clone(), watched);
        true
    }

    /// Returns the queues to look at, and forgets those that nobody reads or asks for.
    pub fn watched(&mut self, now: Moment) -> Vec<QueueName> {
        self.queues.retain(|_, watched| !watched.readers.is_empty() || now - watched.wanted_at < WATCHED_FOR);
        self.forget_left(now);
        self.queues.keys().cloned().collect()
    }

    /// A reader that left so long ago is silent for that long as well.
    fn forget_left(&mut self, now: Moment) {
        let stale_after = self.stale_after;
        self.left.retain(|_, at| now - *at < stale_after);
    }

    /// Returns how long to wait before the next look.
    pub fn pause(&self, now: Moment) -> Duration {
        let is_recent = |at: Moment| now - at < LOOK_IDLE * 2;
        let is_busy = |watched: &Watched| {
            let is_read = watched.readers.values().any(|reading| reading.is_proven);
            is_read && is_recent(watched.wanted_at) || watched.probed_at.is_some_and(is_recent)
        };
        if self.queues.values().any(is_busy) { LOOK_BUSY } else { LOOK_IDLE }
    }

    /// Takes in what the bus said of a queue, which was asked and answered at these moments; nothing if the queue has no group.
    pub fn observe(&mut self, queue: &QueueName, seen: Option<&QueueReaders>, asked: Moment, answered: Moment) {
        let Some(watched) = self.queues.get_mut(queue) else { return };
        let before = watched.looked_at.replace(asked);
        watched.is_awaited = seen.is_some_and(|seen| seen.is_awaited);
        let mut known = std::mem::take(&mut watched.readers);
        for reader in seen.into_iter().flat_map(|seen| &seen.readers).filter(|reader| !reader.is_consumer) {
            let Ok(worker) = WorkerId::new(reader.name.as_str()) else { continue };
            // When it was measured is known no better than this.
            let last = Moment(asked.0.saturating_sub(reader.idle));
            let last_at_most = Moment(answered.0.saturating_sub(reader.idle)) + ROUNDING;
            let is_expected = self.expected.contains(&worker);
            let left = self.left.get(&worker).copied();
            // A reader that was not listed before has read since.
            let after = before.map_or(last_at_most, |before| Moment(before.0.saturating_sub(ROUNDING)));
            let after = left.map_or(after, |left| left.max(after));
            let unknown = Reading { after, last, pending: 0, is_proven: is_expected };
            let mut reading = known.remove(&worker).unwrap_or(unknown);
            (reading.last, reading.pending) = (last, reader.pending);
            reading.is_proven |= last > reading.after;
            if reading.is_proven && answered - last < self.stale_after {
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

    /// Returns queues of which a reader has entries that it did not acknowledge. What nobody is known to have started may be its.
    pub fn queues_held(&self, now: Moment) -> HashSet<QueueName> {
        let patience = self.stale_after * BUSY_SILENCE;
        let is_held = |watched: &Watched| {
            watched.readers.values().any(|reading| reading.pending > 0 && now - reading.last < patience)
        };
        self.queues.iter().filter(|(_, watched)| is_held(watched)).map(|(queue, _)| queue.clone()).collect()
    }

    /// A worker left, or was declared dead: what it read before does not bring it back.
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

    /// Returns whether one run of the queue, which has jobs and no worker, is to be sent to find out who reads it. If so, the
    /// next one is sent after a pause.
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
