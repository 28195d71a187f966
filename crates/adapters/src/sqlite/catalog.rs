//! The writer's memory between transactions: the ids of queues and types, and each queue's settings and counts.
//!
//! The writer is the only one that writes, so its memory equals the file. Counts change here at once and are written
//! once per transaction, in that transaction. After a rollback everything is dropped and read again.

use std::collections::{HashMap, HashSet};

use convoke_core::jobs::dispatch::Room;
use convoke_core::jobs::{Queue, QueueCounts, Status};
use convoke_core::limits::QUEUES_MAX;
use convoke_core::{Invalid, JobType, QueueName};
use rusqlite::{Connection, params, params_from_iter};

use super::failure::Result;
use super::queues::{COUNTS, QUEUE, read_queue};
use super::rows::{count, duration_micros, get};
use crate::statement::sql;

/// Types come from clients: beyond this many, all remembered ones are dropped and looked up again.
const TYPES_REMEMBERED_MAX: usize = 20_000;

pub(super) struct WriteTx<'a> {
    pub(super) db: &'a Connection,
    pub(super) catalog: &'a mut Catalog,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueId(pub(super) i64);

#[derive(Debug)]
struct QueueEntry {
    queue: Queue,
    /// Its counts are not in the file yet.
    dirty: bool,
}

#[derive(Debug, Default)]
pub(super) struct Catalog {
    queues: HashMap<QueueId, QueueEntry>,
    queues_by_name: HashMap<QueueName, QueueId>,
    types_by_name: HashMap<JobType, i64>,
    types: HashMap<i64, JobType>,
    dirty: Vec<QueueId>,
}

impl Catalog {
    pub(super) fn read(db: &Connection) -> rusqlite::Result<Self> {
        let mut catalog = Catalog::default();
        let text = sql!("select {queue}, {counts} from queues", queue = QUEUE.list, counts = COUNTS);
        let mut statement = db.prepare_cached(text)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, queue) = read_queue(row)?;
            catalog.add(id, queue);
        }
        Ok(catalog)
    }

    fn add(&mut self, id: QueueId, queue: Queue) {
        self.queues_by_name.insert(queue.name.clone(), id);
        self.queues.insert(id, QueueEntry { queue, dirty: false });
    }

    pub(super) fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[&id].queue
    }

    /// Returns the limits of the next dispatch from the queue.
    pub(super) fn room(&self, id: QueueId) -> Room {
        let queue = self.queue(id);
        let (paused, concurrency) = (queue.paused, queue.concurrency.map(u64::from));
        Room { paused, concurrency, in_flight: queue.counts.in_flight() }
    }

    pub(super) fn find_queue(&self, name: &QueueName) -> Option<QueueId> {
        self.queues_by_name.get(name).copied()
    }

    /// Rejects queues beyond the limit, before any is created.
    pub(super) fn admit<'n>(&self, names: impl Iterator<Item = &'n QueueName>) -> Result<()> {
        let mut fresh: HashSet<&QueueName> = HashSet::new();
        for name in names.filter(|name| !self.queues_by_name.contains_key(*name)) {
            fresh.insert(name);
            if self.queues_by_name.len() + fresh.len() > QUEUES_MAX {
                let message = format!("expected one of the {QUEUES_MAX} queues there are, got {:?}", name.as_str());
                return Err(Invalid::new("queue", message).into());
            }
        }
        Ok(())
    }

    /// Returns the queue's id. Creates the queue if it is new.
    pub(super) fn open_queue(&mut self, db: &Connection, name: &QueueName) -> rusqlite::Result<QueueId> {
        if let Some(id) = self.find_queue(name) {
            return Ok(id);
        }
        db.prepare_cached("insert into queues (name) values (?1)")?.execute([name.as_str()])?;
        let id = QueueId(db.last_insert_rowid());
        let (paused, rate_limit, concurrency, oldest_pending_at) = (false, None, None, None);
        let (name, counts) = (name.clone(), QueueCounts::default());
        self.add(id, Queue { name, paused, rate_limit, concurrency, counts, oldest_pending_at });
        Ok(id)
    }

    /// Writes the settings of a queue.
    pub(super) fn configure(&mut self, db: &Connection, id: QueueId, queue: &Queue) -> rusqlite::Result<()> {
        let rate = queue.rate_limit;
        let (limit, per) = (rate.map(|rate| rate.limit), rate.map(|rate| duration_micros(rate.per)));
        let update = "update queues set paused = ?2, rate_limit = ?3, rate_per = ?4, concurrency = ?5 where id = ?1";
        db.prepare_cached(update)?.execute(params![id.0, queue.paused, limit, per, queue.concurrency])?;
        if let Some(entry) = self.queues.get_mut(&id) {
            entry.queue = queue.clone();
        }
        Ok(())
    }

    /// Deletes a queue that has no jobs.
    pub(super) fn delete_queue(&mut self, db: &Connection, id: QueueId) -> rusqlite::Result<()> {
        db.prepare_cached("delete from queues where id = ?1")?.execute([id.0])?;
        db.prepare_cached("delete from grants where queue_id = ?1")?.execute([id.0])?;
        self.queues.remove(&id).map(|entry| self.queues_by_name.remove(&entry.queue.name));
        Ok(())
    }

    /// Returns the type's id. Creates the type if it is new.
    pub(super) fn open_type(&mut self, db: &Connection, name: &JobType) -> rusqlite::Result<i64> {
        if let Some(id) = self.types_by_name.get(name) {
            return Ok(*id);
        }
        // The update changes nothing: it makes the statement return the id of an existing type as well.
        let open =
            "insert into types (name) values (?1) on conflict (name) do update set name = excluded.name returning id";
        let id = db.prepare_cached(open)?.query_row([name.as_str()], |row| row.get("id"))?;
        self.remember_type(id, name.clone());
        Ok(id)
    }

    pub(super) fn job_type(&mut self, db: &Connection, id: i64) -> rusqlite::Result<JobType> {
        if let Some(name) = self.types.get(&id) {
            return Ok(name.clone());
        }
        let mut statement = db.prepare_cached("select name from types where id = ?1")?;
        let name: JobType = statement.query_row([id], |row| get(row, "name"))?;
        self.remember_type(id, name.clone());
        Ok(name)
    }

    fn remember_type(&mut self, id: i64, name: JobType) {
        if self.types.len() >= TYPES_REMEMBERED_MAX {
            self.types.clear();
            self.types_by_name.clear();
        }
        self.types.insert(id, name.clone());
        self.types_by_name.insert(name, id);
    }

    /// Moves a job of `queue` from one state to another; `None` means outside of the store.
    pub(super) fn moved(&mut self, queue: QueueId, from: Option<Status>, to: Option<Status>) {
        let Some(entry) = self.queues.get_mut(&queue) else { return };
        let counts = &mut entry.queue.counts;
        if let Some(from) = from {
            counts.set(from, counts.get(from).saturating_sub(1));
        }
        if let Some(to) = to {
            counts.set(to, counts.get(to) + 1);
        }
        if !std::mem::replace(&mut entry.dirty, true) {
            self.dirty.push(queue);
        }
    }

    /// Writes the counts that changed.
    pub(super) fn write_counts(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        let text =
            sql!("update queues set ({counts}) = (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) where id = ?1", counts = COUNTS);
        let mut statement = db.prepare_cached(text)?;
        for id in self.dirty.drain(..) {
            let Some(entry) = self.queues.get_mut(&id) else { continue };
            let counts = entry.queue.counts.iter().skip(1).map(|(_, jobs)| count(jobs));
            statement.execute(params_from_iter(std::iter::once(id.0).chain(counts)))?;
            entry.dirty = false;
        }
        Ok(())
    }
}
