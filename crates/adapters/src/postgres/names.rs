//! The ids of queues and of types of jobs, by name and back.
//!
//! No row of either is ever deleted (that of a deleted queue is only marked), and an id is only remembered once its transaction is committed: what is remembered stays true,
//! whoever else writes.

use std::collections::HashMap;
use std::hash::Hash;

use convoke_core::{JobType, QueueName};
use parking_lot::RwLock;
use tokio_postgres::{Row, ToStatement};

use super::failure::{Failure, Result};
use super::rows;

/// Types come from clients: beyond this many, those remembered are forgotten and looked up again.
const REMEMBERED_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) queues: Book<QueueName>,
    pub(super) types: Book<JobType>,
}

#[derive(Debug)]
pub(super) struct Book<N> {
    pages: RwLock<Pages<N>>,
}

#[derive(Debug)]
struct Pages<N> {
    ids: HashMap<N, i32>,
    names: HashMap<i32, N>,
}

impl<N> Default for Book<N> {
    fn default() -> Self {
        Book { pages: RwLock::new(Pages { ids: HashMap::new(), names: HashMap::new() }) }
    }
}

impl<N: Named> Book<N> {
    pub(super) fn id(&self, name: &N) -> Option<i32> {
        self.pages.read().ids.get(name).copied()
    }

    fn remember(&self, id: i32, name: N) {
        let mut pages = self.pages.write();
        if pages.ids.len() >= REMEMBERED_MAX {
            pages.ids.clear();
            pages.names.clear();
        }
        pages.names.insert(id, name.clone());
        pages.ids.insert(name, id);
    }

    /// Those of `wanted` that are not remembered, once each.
    fn missing(&self, wanted: impl Iterator<Item = N>) -> Vec<N> {
        let pages = self.pages.read();
        let mut missing: Vec<N> = wanted.filter(|name| !pages.ids.contains_key(name)).collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// Looks up the names that are not remembered, by [`Named::BY_NAME`] or a statement that was prepared from it.
    pub(super) async fn learn<S: ?Sized + ToStatement>(
        &self,
        db: &tokio_postgres::Client,
        by_name: &S,
        wanted: impl Iterator<Item = N>,
    ) -> Result<()> {
        let missing = self.missing(wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let texts: Vec<&str> = missing.iter().map(AsRef::as_ref).collect();
        for row in db.query(by_name, &[&texts]).await? {
            self.remember(rows::get(&row, 0)?, N::read(&row, 1)?);
        }
        Ok(())
    }

    /// The names of `ids`, all of which are there.
    pub(super) async fn named(&self, db: &tokio_postgres::Client, ids: &[i32]) -> Result<HashMap<i32, N>> {
        let mut found = HashMap::new();
        let mut missing = Vec::new();
        {
            let pages = self.pages.read();
            for id in ids {
                if found.contains_key(id) {
                    continue;
                }
                match pages.names.get(id) {
                    Some(name) => drop(found.insert(*id, name.clone())),
                    None => missing.push(*id),
                }
            }
        }
        if !missing.is_empty() {
            for row in db.query(N::BY_ID, &[&missing]).await? {
                let (id, name) = (rows::get(&row, 0)?, N::read(&row, 1)?);
                self.remember(id, name.clone());
                found.insert(id, name);
            }
        }
        Ok(found)
    }
}

/// The name of `id` among those that were looked up.
pub(super) fn of<N: Named>(names: &HashMap<i32, N>, id: i32) -> Result<N> {
    names.get(&id).cloned().ok_or_else(|| Failure::Unreadable(format!("a name is missing: {id}")))
}

pub(super) trait Named: Clone + Eq + Ord + Hash + AsRef<str> {
    const BY_NAME: &'static str;
    const BY_ID: &'static str;
    fn read(row: &Row, column: usize) -> Result<Self>;
}

impl Named for QueueName {
    const BY_NAME: &'static str = "select id, name from convoke_queues where name = any ($1) and not deleted";
    const BY_ID: &'static str = "select id, name from convoke_queues where id = any ($1)";

    fn read(row: &Row, column: usize) -> Result<Self> {
        rows::queue_name(row, column)
    }
}

impl Named for JobType {
    const BY_NAME: &'static str = "select id, name from convoke_types where name = any ($1)";
    const BY_ID: &'static str = "select id, name from convoke_types where id = any ($1)";

    fn read(row: &Row, column: usize) -> Result<Self> {
        rows::job_type(row, column)
    }
}
