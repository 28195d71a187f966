//! Leases in a SQLite file, for the processes of one machine, which share its clock.
//!
//! On a file of its own, or of another process, it has its own connection and waits for its turn to write. On the file
//! of a [`SqliteStore`](super::SqliteStore) it uses that store's writer: a busy store would otherwise delay a renewal
//! until the lease is lost.
//!
//! A file notifies nobody, so a watch of resignations reads one row at short intervals, while somebody waits for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::leases::{Floor, Lease};
use convoke_core::ports::{Leases, Resignations};
use convoke_core::{Epoch, Error, Result};
use parking_lot::Mutex;
use rusqlite::{Connection, TransactionBehavior};

use super::failure::{self, unavailable};
use super::store::Engine;
use super::{epoch, schema, terms};

const CACHE_KIB: u32 = 256;
/// How often a watch reads the row of its namespace. Forty reads a second take about half a percent of a core.
const WATCH_INTERVAL: Duration = Duration::from_millis(25);

#[derive(Clone)]
pub struct SqliteLeases {
    way: Way,
    /// The file, as a URL.
    address: String,
}

#[derive(Clone)]
enum Way {
    Own(Arc<Mutex<Connection>>),
    Store(Arc<Engine>),
}

impl SqliteLeases {
    /// Opens or creates the file. A store need not be open; an open one, in any process, is not disturbed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let connection = schema::open_writable(path, CACHE_KIB)?;
        // On a file without a store, no checkpoint thread shortens its log.
        connection.pragma_update(None, "wal_autocheckpoint", 1_000).map_err(unavailable)?;
        let address = format!("sqlite:{}", path.display());
        Ok(SqliteLeases { way: Way::Own(Arc::new(Mutex::new(connection))), address })
    }

    pub(super) fn of(engine: Arc<Engine>) -> Self {
        let address = engine.address.clone();
        SqliteLeases { way: Way::Store(engine), address }
    }

    async fn write<T, F>(&self, mut verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> failure::Result<T> + Send + 'static,
    {
        match &self.way {
            Way::Store(engine) => engine.writer.call(1, move |tx| verb(tx.db)).await,
            Way::Own(connection) => {
                let connection = Arc::clone(connection);
                off_the_runtime(move || write_alone(&mut connection.lock(), verb)).await
            }
        }
    }

    async fn read_only<T, F>(&self, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> failure::Result<T> + Send + 'static,
    {
        match &self.way {
            Way::Store(engine) => engine.readers.duties.call(verb).await,
            Way::Own(connection) => {
                let connection = Arc::clone(connection);
                off_the_runtime(move || Ok(verb(&connection.lock())?)).await
            }
        }
    }
}

async fn off_the_runtime<T: Send + 'static>(verb: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(verb).await;
    done.map_err(|error| Error::unknown("leases", error))?
}

fn write_alone<T>(db: &mut Connection, mut verb: impl FnMut(&Connection) -> failure::Result<T>) -> Result<T> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(unavailable)?;
    let result = verb(&transaction)?;
    match transaction.commit() {
        Ok(()) => Ok(result),
        Err(error) if failure::is_undone(&error) => Err(unavailable(error)),
        Err(error) => Err(Error::unknown("leases", error)),
    }
}

#[async_trait]
impl Leases for SqliteLeases {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn carries_reports(&self) -> bool {
        true
    }

    async fn publish(&self, namespace: &str, report: &str) -> Result<()> {
        let (namespace, report) = (namespace.to_owned(), report.to_owned());
        self.write(move |db| terms::publish(db, &namespace, &report)).await
    }

    async fn published(&self, namespace: &str) -> Result<Option<String>> {
        let namespace = namespace.to_owned();
        self.read_only(move |db| terms::published(db, &namespace)).await
    }

    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        let (namespace, member) = (namespace.to_owned(), member.to_owned());
        self.write(move |db| terms::enroll(db, &namespace, &member, ttl)).await
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        let (namespace, member) = (namespace.to_owned(), member.to_owned());
        self.write(move |db| terms::withdraw(db, &namespace, &member)).await
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        let namespace = namespace.to_owned();
        self.read_only(move |db| terms::roster(db, &namespace)).await
    }

    async fn namespaces(&self, limit: usize) -> Result<Option<Vec<String>>> {
        self.read_only(move |db| terms::namespaces(db, limit)).await.map(Some)
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        let namespace = namespace.to_owned();
        self.read_only(move |db| terms::read(db, &namespace)).await
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        let (namespace, candidate) = (namespace.to_owned(), candidate.to_owned());
        self.write(move |db| terms::elect(db, &namespace, &candidate, ttl, floor)).await
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        let (namespace, holder) = (namespace.to_owned(), holder.to_owned());
        self.write(move |db| terms::renew(db, &namespace, &holder, epoch, ttl)).await
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        let (namespace, holder) = (namespace.to_owned(), holder.to_owned());
        self.write(move |db| terms::resign(db, &namespace, &holder, epoch)).await
    }

    fn watch_resignations(&self, namespace: &str) -> Box<dyn Resignations> {
        Box::new(RowWatch { leases: self.clone(), namespace: namespace.to_owned(), noticed: None })
    }

    async fn ping(&self) -> Result<()> {
        self.write(epoch::ping).await
    }
}

/// Reads the row of a namespace until it shows a term that was resigned.
struct RowWatch {
    leases: SqliteLeases,
    namespace: String,
    /// The last term whose resignation was returned as a notice.
    noticed: Option<Epoch>,
}

#[async_trait]
impl Resignations for RowWatch {
    async fn next(&mut self) {
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            let namespace = self.namespace.clone();
            // An error is not reported here: the reads of the lease meet it too.
            let resigned = self.leases.read_only(move |db| terms::resigned(db, &namespace)).await.ok().flatten();
            if resigned.is_some() && resigned != self.noticed {
                self.noticed = resigned;
                return;
            }
        }
    }
}
