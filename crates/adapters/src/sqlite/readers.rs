//! Readers: connections that cannot write, apart from the writer's, so that a slow list never delays a commit.
//!
//! Each read runs in one transaction of its own and sees one state of the store, at least as new as the last write that
//! was answered. There are few of them; a read waits for a free one.

use std::path::Path;
use std::sync::Arc;

use convoke_core::{Error, Result};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::failure;
use super::schema;

const READERS: usize = 2;
const CACHE_KIB: u32 = 4 << 10;

pub(super) struct Readers {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let free = (0..READERS).map(|_| schema::open_read_only(path, CACHE_KIB)).collect::<Result<Vec<_>>>()?;
        Ok(Readers { free: Arc::new(Mutex::new(free)), permits: Arc::new(Semaphore::new(READERS)) })
    }

    pub(super) async fn call<T, F>(&self, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> failure::Result<T> + Send + 'static,
    {
        let gone = || Error::unavailable("store", "its readers are closed");
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| gone())?;
        let free = Arc::clone(&self.free);
        // The connection goes back from within, also where the caller has stopped waiting.
        let read = tokio::task::spawn_blocking(move || {
            let connection = free.lock().pop().ok_or_else(gone)?;
            let lent = Lent { connection: Some(connection), free, _permit: permit };
            read_in_transaction(lent.connection(), verb)
        });
        read.await.map_err(|error| Error::unavailable("store", error))?
    }
}

fn read_in_transaction<T>(db: &Connection, verb: impl FnOnce(&Connection) -> failure::Result<T>) -> Result<T> {
    let transaction = db.unchecked_transaction().map_err(failure::unavailable)?;
    let answer = verb(&transaction)?;
    transaction.finish().map_err(failure::unavailable)?;
    Ok(answer)
}

/// A connection that finds its way back, even from a panic.
struct Lent {
    connection: Option<Connection>,
    free: Arc<Mutex<Vec<Connection>>>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Lent {
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.free.lock().push(connection);
        }
    }
}
