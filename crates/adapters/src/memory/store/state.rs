//! The contents of the store, and the indexes over its jobs.
//!
//! An index is a function of the rows: a row is removed from all of them, changed, and added again. So no verb can
//! forget one, and counters cannot drift from the rows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use convoke_core::audit::Act;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::{Job, NewJob, QueueCounts, RateLimit, Status};
use convoke_core::ports::store::{NodeRecord, WorkerRecord};
use convoke_core::shards::ShardMember;
use convoke_core::{Epoch, JobId, NodeId, QueueName, ScheduleName, WorkerId};
use jiff::Timestamp;

use super::row::Row;

#[derive(Default)]
pub(super) struct State {
    pub(super) sealed: Epoch,
    /// By the order in which they were stored.
    pub(super) rows: BTreeMap<u64, Row>,
    pub(super) ids: BTreeMap<JobId, u64>,
    pub(super) indexes: Indexes,
    pub(super) queues: BTreeMap<QueueName, QueueSettings>,
    pub(super) keys: BTreeMap<String, UniqueKey>,
    /// Keys of deleted jobs, by the time at which they become free.
    spent_keys: BTreeSet<(Timestamp, String)>,
    /// The job of each tick.
    pub(super) ticks: BTreeMap<(ScheduleName, Timestamp), JobId>,
    pub(super) schedules: BTreeMap<ScheduleName, Schedule>,
    pub(super) workers: BTreeMap<WorkerId, WorkerRecord>,
    pub(super) nodes: BTreeMap<NodeId, NodeRecord>,
    pub(super) shard_roster: BTreeSet<ShardMember>,
    /// How many runs were dispatched.
    pub(super) dispatched: u64,
    pub(super) audit: BTreeMap<u64, Act>,
    pub(super) audit_seq: u64,
    pub(super) values: BTreeMap<String, Vec<u8>>,
    last_seq: u64,
}

/// How long ended jobs are kept.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Completed ones.
    pub completed: Duration,
    /// Cancelled ones.
    pub cancelled: Duration,
    /// Dead letters.
    pub dead: Duration,
    /// Channels of any of them.
    pub channels: Duration,
}

#[derive(Default)]
pub(super) struct QueueSettings {
    pub(super) paused: bool,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) concurrency: Option<u32>,
    pub(super) grants: VecDeque<(Timestamp, u32)>,
}

#[derive(Clone, Copy)]
pub(super) struct UniqueKey {
    pub(super) job: JobId,
    pub(super) until: Option<Timestamp>,
}

/// A time and a row: in order of time, first stored first.
type When = (Timestamp, u64);

/// The cutoff that applies to an ended job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Completed,
    Cancelled,
    Dead,
}

#[derive(Default)]
pub(super) struct Indexes {
    counts: BTreeMap<QueueName, QueueCounts>,
    /// By rank, first stored first.
    pending: BTreeMap<QueueName, BTreeSet<(i64, u64)>>,
    pub(super) scheduled: BTreeSet<When>,
    pub(super) in_flight: BTreeSet<JobId>,
    pub(super) deadlines: BTreeSet<When>,
    pub(super) uncleaned: BTreeSet<When>,
    /// Ended and cleaned.
    pub(super) expiring: BTreeSet<(Kind, Timestamp, u64)>,
    pub(super) live_of_schedule: BTreeMap<ScheduleName, BTreeSet<u64>>,
    /// Search keys, each with its jobs.
    keys: BTreeSet<(String, u64)>,
}

fn put<T: Ord>(set: &mut BTreeSet<T>, value: T, there: bool) {
    if there {
        set.insert(value);
    } else {
        set.remove(&value);
    }
}

impl Indexes {
    /// Adds a row to every index it belongs to, or removes it from them.
    fn set(&mut self, row: &Row, there: bool) {
        let job = &row.job;
        let counts = self.counts.entry(job.definition.queue.clone()).or_default();
        let count = counts.get(job.status);
        counts.set(job.status, if there { count + 1 } else { count - 1 });
        match (job.status, job.completed_at) {
            (Status::Pending, _) => {
                let pending = self.pending.entry(job.definition.queue.clone()).or_default();
                put(pending, (job.definition.priority.rank(row.due_at), row.seq), there);
            }
            (Status::Scheduled, _) => put(&mut self.scheduled, (row.due_at, row.seq), there),
            (Status::Dispatched | Status::Running, _) => put(&mut self.in_flight, job.id, there),
            (_, Some(ended_at)) if job.channels_cleaned => {
                put(&mut self.expiring, (kind(job), ended_at, row.seq), there)
            }
            (_, Some(ended_at)) => put(&mut self.uncleaned, (ended_at, row.seq), there),
            _ => {}
        }
        for key in job.search_keys() {
            put(&mut self.keys, (key, row.seq), there);
        }
        if let Some(deadline) = row.deadline {
            put(&mut self.deadlines, (deadline, row.seq), there);
        }
        if let Some(schedule) = job.schedule.as_ref().filter(|_| job.status.is_live()) {
            put(self.live_of_schedule.entry(schedule.clone()).or_default(), row.seq, there);
        }
    }

    /// Returns the jobs below `before` that have the search key, the newest first.
    pub(super) fn of_key(&self, key: String, before: u64) -> impl Iterator<Item = u64> {
        let range = (key.clone(), 0)..(key, before);
        self.keys.range(range).rev().map(|(_, seq)| *seq)
    }

    pub(super) fn counts(&self, queue: &QueueName) -> QueueCounts {
        self.counts.get(queue).copied().unwrap_or_default()
    }

    /// Returns the jobs of the queue in the order of dispatch.
    pub(super) fn pending<'a>(&'a self, queue: &QueueName) -> impl Iterator<Item = u64> + use<'a> {
        self.pending.get(queue).into_iter().flatten().map(|(_, seq)| *seq)
    }
}

/// Returns the first moment after a time has passed.
fn past(at: Timestamp, time: Duration) -> Timestamp {
    at.checked_add(time + Duration::from_millis(1)).unwrap_or(Timestamp::MAX)
}

fn kind(job: &Job) -> Kind {
    match job.status {
        Status::Completed => Kind::Completed,
        Status::Cancelled => Kind::Cancelled,
        _ => Kind::Dead,
    }
}

impl State {
    pub(super) fn row(&self, id: JobId) -> Option<&Row> {
        self.rows.get(self.ids.get(&id)?)
    }

    pub(super) fn next_due_at(&self, now: Timestamp, kept: &Kept) -> Option<Timestamp> {
        let schedules = self.schedules.values().filter(|schedule| !schedule.paused);
        let schedules = schedules.filter_map(|schedule| schedule.next_run_at).filter(|at| *at > now);
        let next =
            |times: &BTreeSet<When>, after: Timestamp| times.range((after, u64::MAX)..).next().map(|(at, _)| *at);
        let Indexes { scheduled, deadlines, uncleaned, expiring, .. } = &self.indexes;
        let cleanable = next(uncleaned, now - kept.channels).map(|at| past(at, kept.channels));
        let ends = [(Kind::Completed, kept.completed), (Kind::Cancelled, kept.cancelled), (Kind::Dead, kept.dead)];
        let expiries = ends.into_iter().filter_map(|(kind, kept)| {
            let from = (kind, now - kept, 0);
            let (_, ended_at, _) = expiring.range(from..).next().filter(|(other, ..)| *other == kind)?;
            Some(past(*ended_at, kept))
        });
        let runs = next(scheduled, now).into_iter().chain(next(deadlines, now));
        schedules.chain(expiries).chain(runs).chain(cleanable).min()
    }

    /// The only way to change a row.
    pub(super) fn change<T>(&mut self, seq: u64, act: impl FnOnce(&mut Row) -> T) -> T {
        let row = self.rows.get_mut(&seq).expect("indexes name only rows that are there");
        self.indexes.set(row, false);
        let result = act(row);
        self.indexes.set(row, true);
        result
    }

    pub(super) fn store(&mut self, new: NewJob) {
        self.last_seq += 1;
        self.queues.entry(new.definition.queue.clone()).or_default();
        if let (Some(schedule), Some(tick)) = (&new.schedule, new.run_at) {
            self.ticks.insert((schedule.clone(), tick), new.id);
        }
        self.free_keys(new.created_at);
        if let Some(key) = &new.definition.unique_key {
            self.hold_key(key.clone(), UniqueKey { job: new.id, until: new.unique_until });
        }
        let row = Row::new(self.last_seq, new);
        self.indexes.set(&row, true);
        self.ids.insert(row.job.id, row.seq);
        self.rows.insert(row.seq, row);
    }

    pub(super) fn delete(&mut self, seq: u64) {
        let Some(row) = self.rows.remove(&seq) else { return };
        self.indexes.set(&row, false);
        self.ids.remove(&row.job.id);
        if let (Some(schedule), Some(tick)) = (&row.job.schedule, row.job.scheduled_at) {
            self.ticks.remove(&(schedule.clone(), tick));
        }
        let Some(key) = row.job.definition.unique_key else { return };
        let Some(held) = self.keys.get(&key).filter(|held| held.job == row.job.id) else { return };
        match held.until {
            Some(until) => {
                self.spent_keys.insert((until, key));
            }
            None => {
                self.keys.remove(&key);
            }
        }
    }

    /// Returns the holder of the key: a live job, or an ended one until the key expires.
    pub(super) fn key_holder(&self, key: &str, now: Timestamp) -> Option<JobId> {
        let held = self.keys.get(key)?;
        let reserved = held.until.is_some_and(|until| until > now);
        let live = self.row(held.job).is_some_and(|row| row.job.status.is_live());
        (reserved || live).then_some(held.job)
    }

    pub(super) fn hold_key(&mut self, key: String, held: UniqueKey) {
        if let Some(UniqueKey { until: Some(until), .. }) = self.keys.get(&key) {
            self.spent_keys.remove(&(*until, key.clone()));
        }
        self.keys.insert(key, held);
    }

    fn free_keys(&mut self, now: Timestamp) {
        while self.spent_keys.first().is_some_and(|(until, _)| *until <= now)
            && let Some((_, key)) = self.spent_keys.pop_first()
        {
            self.keys.remove(&key);
        }
    }
}
