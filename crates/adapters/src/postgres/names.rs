//! The ids of queues and of types of jobs, by name, for inserts.
//!
//! No row of either is ever deleted (that of a deleted queue is only marked), and an id is remembered only after its
//! transaction is committed: a remembered id stays valid, whichever node writes.

use std::collections::HashMap;

use convoke_core::jobs::NewJob;
use parking_lot::RwLock;
use tokio_postgres::Client;

use super::failure::Result;
use super::rows::get;

/// Types come from clients: beyond this many, all remembered ones are dropped and looked up again.
const REMEMBERED_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Names {
    queues: Book,
    types: Book,
}

type Book = RwLock<HashMap<String, i32>>;

impl Names {
    /// Returns the ids of a job's queue and type, if both are remembered.
    pub(super) fn of(&self, job: &NewJob) -> Option<(i32, i32)> {
        let id = |book: &Book, name: &str| book.read().get(name).copied();
        Some((id(&self.queues, job.definition.queue.as_str())?, id(&self.types, job.definition.job_type.as_str())?))
    }

    /// Looks up the names that are not remembered.
    pub(super) async fn learn(&self, db: &Client, jobs: &[NewJob]) -> Result<()> {
        let queues = jobs.iter().map(|job| job.definition.queue.as_str());
        let select = "select id, name from convoke_queues where name = any ($1) and not deleted";
        learn(db, &self.queues, select, queues).await?;
        let types = jobs.iter().map(|job| job.definition.job_type.as_str());
        learn(db, &self.types, "select id, name from convoke_types where name = any ($1)", types).await
    }
}

async fn learn(db: &Client, book: &Book, select: &str, wanted: impl Iterator<Item = &str>) -> Result<()> {
    let mut missing: Vec<&str> = {
        let known = book.read();
        wanted.filter(|name| !known.contains_key(*name)).collect()
    };
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    for row in db.query(select, &[&missing]).await? {
        let (id, name) = (get(&row, "id")?, get(&row, "name")?);
        let mut known = book.write();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(name, id);
    }
    Ok(())
}
