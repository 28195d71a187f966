//! One file on disk: the store and the leases of an embedded coordinator.
//!
//! Acknowledged writes are in the file and flushed. One thread writes, in transactions of all waiting calls; a few
//! connections read beside it; another thread copies the log into the database. A lock on `<path>.lock` ensures that
//! one process at a time has the store open.
//!
//! While the disk is full or failing, verbs return `Unavailable`. A crash at any moment loses no acknowledged write:
//! SQLite replays its log when the file is next opened.

mod archive;
mod audit;
mod cancel;
mod catalog;
mod checkpoint;
mod columns;
mod dispatch;
mod epoch;
mod failure;
mod fleet;
mod insert;
mod leases;
mod list;
mod lock;
mod logs;
mod queues;
mod readers;
mod record;
mod retention;
mod roster;
mod rows;
mod runs;
mod schedules;
mod schema;
mod store;
mod terms;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use convoke_core::Result;

use checkpoint::Checkpoints;
pub use leases::SqliteLeases;
use lock::StoreLock;
use readers::Purposes;
use store::Engine;
use writer::Writer;

/// The namespace of a coordinator's own leadership.
const COORDINATOR: &str = "coordinator";

const WRITER_CACHE_KIB: u32 = 16 << 10;

/// A store in a SQLite file. Clones are the same store; the file is closed when the last of them, and of their leases,
/// is dropped.
#[derive(Clone)]
pub struct SqliteStore {
    engine: Arc<Engine>,
    path: PathBuf,
    /// Reads with the clients' connections instead of that of the duties.
    for_clients: bool,
}

impl SqliteStore {
    /// Opens the file; creates or migrates it. Returns `Conflict` if another process has it open (the message names
    /// that process), if it is not a database of Convoke, or if a newer version has written it. Blocks: must not be
    /// called from async code.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let lock = StoreLock::take(path)?;
        let mut writer = schema::open_writable(path, WRITER_CACHE_KIB)?;
        // The lock was free: the last leader on this file is dead, so its term can end at once.
        terms::end_term(&writer, COORDINATOR).map_err(|error| schema::describe(path, &error))?;
        let checkpoints = Checkpoints::start(path, &mut writer)?;
        let readers = Purposes::open(path)?;
        let writer = Writer::start(writer, checkpoints, lock)?;
        let address = format!("sqlite:{}", path.display());
        let engine = Arc::new(Engine { readers, writer, address });
        Ok(SqliteStore { engine, path: path.into(), for_clients: false })
    }

    /// Returns leases in the same file.
    pub fn leases(&self) -> SqliteLeases {
        SqliteLeases::of(Arc::clone(&self.engine))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}
