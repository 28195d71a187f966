//! What the writer remembers between transactions: the ids of queues and types, and each queue's settings and counts.
//!
//! It is the only one that writes, so that what it remembers is what the file says. Counts change here at once and go to the
//! file once for a whole transaction, in that transaction. After a rollback everything is forgotten and read again.

use std::collections::{HashMap, HashSet};

use convoke_core::jobs::dispatch::Room;
use convoke_core::jobs::{Queue, QueueCounts, Status};
use convoke_core::limits::QUEUES_MAX;
use convoke_core::{Invalid, JobType, QueueName};
use rusqlite::{Connection, params, params_from_iter};

use super::columns::sql;
use super::failure::Result;
use super::queues::{COUNTS, QUEUE, read_queue};
use super::rows::{count, get};
use crate::statement::statement;

/// Types come from clients: beyond this many, those remembered are forgotten and looked up again.
const TYPES_REMEMBERED_MAX: usize = 20_000;

pub(super) struct Ledger<'a> {
    pub(super) db: &'a Connection,
    pub(super) books: &'a mut Books,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId(pub(super) i64);

#[derive(Debug)]
struct QueueEntry {
    queue: Queue,
    /// Its counts are not in the file yet.
    dirty: bool,
}

impl QueueEntry {
    fn new(name: QueueName) -> Self {
        let (paused, rate_limit, concurrency, oldest_pending_at) = (false, None, None, None);
        let counts = QueueCounts::default();
        QueueEntry { queue: Queue { name, paused, rate_limit, concurrency, counts, oldest_pending_at }, dirty: false }
    }
}

#[derive(Debug, Default)]
pub(super) struct Books {
    /// By id: the first has id 1. The entry of a deleted queue stays until another takes its id.
    queues: Vec<QueueEntry>,
    /// Deleted queues. A new queue takes the id of one, its own if it was deleted.
    deleted: HashMap<QueueName, QueueId>,
    queues_by_name: HashMap<QueueName, QueueId>,
    types_by_name: HashMap<JobType, i64>,
    types: HashMap<i64, JobType>,
    dirty: Vec<QueueId>,
}

impl Books {
    pub(super) fn read(db: &Connection) -> rusqlite::Result<Self> {
        let mut books = Books::default();
        let text = sql!("select {queue}, {counts} from queues order by id", queue = QUEUE.list, counts = COUNTS);
        let mut statement = db.prepare_cached(text)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, queue) = read_queue(row)?;
            debug_assert_eq!(usize::try_from(id.0), Ok(books.queues.len() + 1));
            let names = if get(row, QUEUE.deleted)? { &mut books.deleted } else { &mut books.queues_by_name };
            names.insert(queue.name.clone(), id);
            books.queues.push(QueueEntry { queue, dirty: false });
        }
        Ok(books)
    }

    pub(super) fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id.0 as usize - 1].queue
    }

    pub(super) fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id.0 as usize - 1].queue
    }

    /// Returns what limits the jobs that the queue may be given.
    pub(super) fn room(&self, id: QueueId) -> Room {
        let queue = self.queue(id);
        let (paused, concurrency) = (queue.paused, queue.concurrency.map(u64::from));
        Room { paused, concurrency, in_flight: queue.counts.in_flight() }
    }

    pub(super) fn find_queue(&self, name: &QueueName) -> Option<QueueId> {
        self.queues_by_name.get(name).copied()
    }

    /// Refuses queues beyond the limit, before any is made.
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
        let free = self.deleted.get_key_value(name).or_else(|| self.deleted.iter().next());
        let id = match free.map(|(name, id)| (name.clone(), *id)) {
            Some((old, id)) => {
                let take = "update queues set name = ?2, deleted = 0 where id = ?1";
                db.prepare_cached(take)?.execute(params![id.0, name.as_str()])?;
                self.deleted.remove(&old);
                self.queues[id.0 as usize - 1] = QueueEntry::new(name.clone());
                id
            }
            None => {
                let id = QueueId(self.queues.len() as i64 + 1);
                let insert = "insert into queues (id, name) values (?1, ?2)";
                db.prepare_cached(insert)?.execute(params![id.0, name.as_str()])?;
                self.queues.push(QueueEntry::new(name.clone()));
                id
            }
        };
        self.queues_by_name.insert(name.clone(), id);
        Ok(id)
    }

    /// Deletes a queue that has no jobs.
    pub(super) fn delete_queue(&mut self, db: &Connection, id: QueueId) -> rusqlite::Result<()> {
        // Its counts, all 0, must be in the file before another queue takes its row.
        self.settle(db)?;
        db.prepare_cached(statement!("sql/delete_queue.sql"))?.execute([id.0])?;
        db.prepare_cached("delete from grants where queue_id = ?1")?.execute([id.0])?;
        let name = self.queue(id).name.clone();
        self.queues_by_name.remove(&name);
        self.deleted.insert(name, id);
        Ok(())
    }

    /// Returns the type's id. Creates the type if it is new.
    pub(super) fn open_type(&mut self, db: &Connection, name: &JobType) -> rusqlite::Result<i64> {
        if let Some(id) = self.types_by_name.get(name) {
            return Ok(*id);
        }
        // The update changes nothing: it makes the statement return the id of a type that is there as well.
        let open =
            "insert into types (name) values (?1) on conflict (name) do update set name = excluded.name returning id";
        let id = db.prepare_cached(open)?.query_row([name.as_str()], |row| row.get(0))?;
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

    /// A job of `queue` went from one state to another; `None` is outside of the store.
    pub(super) fn moved(&mut self, queue: QueueId, from: Option<Status>, to: Option<Status>) {
        let entry = &mut self.queues[queue.0 as usize - 1];
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
    pub(super) fn settle(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        let text =
            sql!("update queues set ({counts}) = (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) where id = ?1", counts = COUNTS);
        let mut statement = db.prepare_cached(text)?;
        for id in self.dirty.drain(..) {
            let entry = &mut self.queues[id.0 as usize - 1];
            let counts = entry.queue.counts.iter().skip(1).map(|(_, jobs)| count(jobs));
            statement.execute(params_from_iter(std::iter::once(id.0).chain(counts)))?;
            entry.dirty = false;
        }
        Ok(())
    }
}
