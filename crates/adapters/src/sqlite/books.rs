//! What the writer remembers between transactions: the ids of queues and types, and each queue's settings and counts.
//!
//! It is the only one that writes, so that what it remembers is what the file says. Counts change here at once and go to the
//! file once for a whole transaction, in that transaction. After a rollback everything is forgotten and read again.

use std::collections::{HashMap, HashSet};

use convoke_core::jobs::Status;
use convoke_core::limits::QUEUES_MAX;
use convoke_core::{Invalid, JobType, QueueName};
use rusqlite::{Connection, params};

use super::failure::Result;

/// Types come from clients: beyond this many, those remembered are forgotten and looked up again.
const TYPES_REMEMBERED_MAX: usize = 20_000;

pub(super) struct Ledger<'a> {
    pub(super) db: &'a Connection,
    pub(super) books: &'a mut Books,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueId(pub(super) i64);

#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) id: QueueId,
    pub(super) name: QueueName,
    pub(super) paused: bool,
    pub(super) concurrency: Option<u64>,
    counts: [i64; Status::ALL.len()],
    dirty: bool,
}

impl QueueEntry {
    fn new(id: QueueId, name: QueueName) -> Self {
        let counts = [0; Status::ALL.len()];
        QueueEntry { id, name, paused: false, concurrency: None, counts, dirty: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    pub(super) fn count(&self, status: Status) -> u64 {
        u64::try_from(self.counts[usize::from(status.code())]).unwrap_or(0)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.count(Status::Dispatched) + self.count(Status::Running)
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
        let mut statement = db.prepare_cached(include_str!("sql/books.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut counts = [0; Status::ALL.len()];
            for (index, count) in counts.iter_mut().skip(1).enumerate() {
                *count = row.get(4 + index)?;
            }
            let entry = QueueEntry {
                id: QueueId(row.get(0)?),
                name: super::rows::queue_name(row, 1)?,
                paused: row.get(2)?,
                concurrency: row.get::<_, Option<i64>>(3)?.map(|limit| limit.max(0) as u64),
                counts,
                dirty: false,
            };
            books.enter(entry, row.get(4 + Status::ALL.len() - 1)?);
        }
        Ok(books)
    }

    fn enter(&mut self, entry: QueueEntry, is_deleted: bool) -> QueueId {
        let id = entry.id;
        debug_assert_eq!(usize::try_from(id.0), Ok(self.queues.len() + 1));
        let names = if is_deleted { &mut self.deleted } else { &mut self.queues_by_name };
        names.insert(entry.name.clone(), id);
        self.queues.push(entry);
        id
    }

    pub(super) fn queue(&self, id: QueueId) -> &QueueEntry {
        &self.queues[id.0 as usize - 1]
    }

    pub(super) fn queue_mut(&mut self, id: QueueId) -> &mut QueueEntry {
        &mut self.queues[id.0 as usize - 1]
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

    /// The queue's id; makes it where it is new.
    pub(super) fn open_queue(&mut self, db: &Connection, name: &QueueName) -> rusqlite::Result<QueueId> {
        if let Some(id) = self.find_queue(name) {
            return Ok(id);
        }
        let taken =
            if self.deleted.contains_key(name) { Some(name.clone()) } else { self.deleted.keys().next().cloned() };
        if let Some(id) = taken.and_then(|taken| self.deleted.remove(&taken)) {
            db.prepare_cached("update queues set name = ?2, deleted = 0 where id = ?1")?
                .execute(params![id.0, name.as_str()])?;
            *self.queue_mut(id) = QueueEntry::new(id, name.clone());
            self.queues_by_name.insert(name.clone(), id);
            return Ok(id);
        }
        let id = QueueId(self.queues.len() as i64 + 1);
        db.prepare_cached("insert into queues (id, name) values (?1, ?2)")?.execute(params![id.0, name.as_str()])?;
        Ok(self.enter(QueueEntry::new(id, name.clone()), false))
    }

    /// Deletes a queue that has no jobs.
    pub(super) fn delete_queue(&mut self, db: &Connection, id: QueueId) -> rusqlite::Result<()> {
        // Its counts, all 0, must be in the file before another queue takes its row.
        self.settle(db)?;
        db.prepare_cached(include_str!("sql/delete_queue.sql"))?.execute([id.0])?;
        db.prepare_cached("delete from grants where queue_id = ?1")?.execute([id.0])?;
        let name = self.queue(id).name.clone();
        self.queues_by_name.remove(&name);
        self.deleted.insert(name, id);
        Ok(())
    }

    /// The type's id; makes it where it is new.
    pub(super) fn open_type(&mut self, db: &Connection, name: &JobType) -> rusqlite::Result<i64> {
        if let Some(id) = self.types_by_name.get(name) {
            return Ok(*id);
        }
        // The update changes nothing: it makes the statement answer for a type that is there as well.
        let id = db.prepare_cached(include_str!("sql/open_type.sql"))?.query_row([name.as_str()], |row| row.get(0))?;
        self.remember_type(id, name.clone());
        Ok(id)
    }

    pub(super) fn job_type(&mut self, db: &Connection, id: i64) -> rusqlite::Result<JobType> {
        if let Some(name) = self.types.get(&id) {
            return Ok(name.clone());
        }
        let name = db
            .prepare_cached("select name from types where id = ?1")?
            .query_row([id], |row| super::rows::job_type(row, 0))?;
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
        if let Some(from) = from {
            entry.counts[usize::from(from.code())] -= 1;
        }
        if let Some(to) = to {
            entry.counts[usize::from(to.code())] += 1;
        }
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(queue);
        }
    }

    /// Writes the counts that changed.
    pub(super) fn settle(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        let mut statement = db.prepare_cached(include_str!("sql/settle.sql"))?;
        for id in self.dirty.drain(..) {
            let entry = &mut self.queues[id.0 as usize - 1];
            let [_, pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled] = entry.counts;
            statement.execute(params![
                id.0, pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled
            ])?;
            entry.dirty = false;
        }
        Ok(())
    }
}
