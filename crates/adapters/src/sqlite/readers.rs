//! Readers: read-only connections apart from the writer's, so that a slow list never delays a commit.
//!
//! Each read runs in one transaction of its own and sees one state of the store, at least as new as the last
//! acknowledged write. There are few of them; a read waits for a free one. Clients' lists, clients' other reads and the
//! duties of the coordinator each have their own, so that a flood of requests of one kind delays only requests of that
//! kind.

use std::path::Path;
use std::sync::Arc;

use convoke_core::{Error, Result};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::failure;
use super::schema;

const CACHE_KIB: u32 = 4 << 10;

/// All read-only connections, by purpose.
pub(super) struct Purposes {
    pub(super) duties: Readers,
    pub(super) client_reads: Readers,
    pub(super) client_lists: Readers,
}

impl Purposes {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Purposes {
            duties: Readers::open(path, 1)?,
            client_reads: Readers::open(path, 2)?,
            client_lists: Readers::open(path, 1)?,
        })
    }
}

pub(super) struct Readers {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    fn open(path: &Path, count: usize) -> Result<Self> {
        let free = (0..count).map(|_| schema::open_read_only(path, CACHE_KIB)).collect::<Result<Vec<_>>>()?;
        Ok(Readers { free: Arc::new(Mutex::new(free)), permits: Arc::new(Semaphore::new(count)) })
    }

    pub(super) async fn call<T, F>(&self, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> failure::Result<T> + Send + 'static,
    {
        let gone = || Error::unavailable("store", "the store is closed");
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| gone())?;
        let free = Arc::clone(&self.free);
        // The connection returns to the pool in here, even if the caller has stopped waiting.
        let read = tokio::task::spawn_blocking(move || {
            let connection = free.lock().pop().ok_or_else(gone)?;
            let lent = PooledConnection { connection: Some(connection), free, _permit: permit };
            read_in_transaction(lent.connection(), verb)
        });
        read.await.map_err(|error| Error::unavailable("store", error))?
    }
}

fn read_in_transaction<T>(db: &Connection, verb: impl FnOnce(&Connection) -> failure::Result<T>) -> Result<T> {
    let transaction = db.unchecked_transaction().map_err(failure::unavailable)?;
    let result = verb(&transaction)?;
    transaction.finish().map_err(failure::unavailable)?;
    Ok(result)
}

/// A connection that returns to the pool on drop, even after a panic.
struct PooledConnection {
    connection: Option<Connection>,
    free: Arc<Mutex<Vec<Connection>>>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl PooledConnection {
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.free.lock().push(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn lists_that_take_long_delay_no_other_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("convoke.db");
        drop(schema::open_writable(&path, CACHE_KIB).expect("created"));
        let readers = Arc::new(Purposes::open(&path).expect("opens"));
        let (began, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let lists = Arc::clone(&readers);
        let slow = tokio::spawn(async move {
            let list = move |_: &Connection| {
                let _ = began.send(());
                Ok(may_end.recv().is_ok())
            };
            lists.client_lists.call(list).await
        });
        has_begun.await.expect("it runs");
        let waiting = Arc::clone(&readers);
        let next = tokio::spawn(async move { waiting.client_lists.call(|_| Ok(())).await });
        readers.client_reads.call(|_| Ok(())).await.expect("a client's read");
        readers.duties.call(|_| Ok(())).await.expect("a read of a duty");
        assert!(!next.is_finished(), "another list waits");
        end.send(()).expect("it waits for this");
        assert!(slow.await.expect("no panic").expect("listed"));
        next.await.expect("no panic").expect("listed");
    }
}
