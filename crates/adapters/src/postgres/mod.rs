//! PostgreSQL: the store, the leases and the bus of a cluster.
//!
//! Acknowledged writes are committed and flushed. Bookkeeping (dispatches, promotions, heartbeats, cleaning up) is
//! committed without waiting for the disk: the log is written in order, so a later acknowledged write implies it.
//!
//! Several nodes write to one database. A change that must not happen twice is fenced in the statement that makes it:
//! by a leader's epoch, a run's execution, a run's owner. Busy verbs have connections of their own and combine all
//! waiting calls into one statement (`lane`). The rest use pools: clients' lists, clients' other reads, clients' writes
//! and the duties of the node each have their own, so that a flood of requests of one kind delays only requests of that
//! kind.
//!
//! A job's own row is written at its insertion and at its end, and the columns that change then are not indexed. Its changes
//! in between are in other tables, many jobs to a row: those that wait in `convoke_waiting`, runs as they were
//! dispatched in `convoke_flights`. A run to which anything but its completion happens, or that lasts, gets a row of its
//! own in `convoke_runs`. The migration has a comment on every table, decision 27 the reasons.
//!
//! All connections are opened at the start, and there are never more. They prepare their statements once and keep
//! settings of their session: a pooler in between must bind a session to a client.
//!
//! If the server cannot be reached, verbs return `Unavailable`; if the connection breaks during a commit, `Unknown`.
//! All connections reconnect by themselves.

mod apply_reports;
mod audit;
mod bus;
mod cancel;
mod counts;
mod dispatch;
mod enqueue;
mod epoch;
mod failure;
mod fleet;
mod floors;
mod history;
mod insert;
mod lane;
mod leases;
mod list;
mod locked_keys;
mod migrate;
mod names;
mod outcome;
#[doc(hidden)]
pub mod plans;
mod queues;
mod record;
mod resignations;
mod retention;
mod roster;
mod rows;
mod runs;
mod schedules;
mod server;
mod sql;
mod store;
mod tls;
mod url;

use std::sync::Arc;

use convoke_core::jobs::RetrySettings;
use convoke_core::{Error, Result};

pub use bus::PostgresBus;
use dispatch::DispatchWork;
pub use enqueue::enqueue_in;
use insert::{CarefulInsert, PlainInsert};
use lane::Lane;
pub use leases::PostgresLeases;
use locked_keys::LockedKeys;
use names::Names;
use record::{EndAsLeaderWork, RecordWork};
use server::{Flush, Server};
use store::Engine;
pub use url::shown;

/// Connections for the reads and the rare writes of the node's duties.
const DUTIES: usize = 3;
/// Connections for clients' reads of single jobs, queues, workers and so on.
const CLIENT_READS: usize = 3;
/// Connections for clients' lists of jobs, the most expensive requests.
const CLIENT_LISTS: usize = 2;
/// Connections for clients' rare writes: cancel, retry, purge, settings.
const CLIENT_WRITES: usize = 2;
/// Connections for bookkeeping.
const BOOKKEEPERS: usize = 3;
/// Connections for each kind of insert, and for records: while one waits for the disk or for a lock, the other works.
const BUSY: usize = 2;
/// A client's write does not wait long for a lock that an application's transaction holds.
const CLIENT_LOCK_TIMEOUT: &str = "lock_timeout=500";

/// A store in a PostgreSQL database. Clones are the same store; its connections are closed when the last clone is
/// dropped.
#[derive(Clone)]
pub struct PostgresStore {
    engine: Arc<Engine>,
    /// Uses the clients' pools instead of that of the duties.
    for_clients: bool,
}

impl PostgresStore {
    /// Connects and migrates. Returns `Invalid` for the field `store.url` if the URL, the user or the database is
    /// wrong; `Unavailable` if the server cannot be reached; `Conflict` if a newer version has migrated the database.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, &RetrySettings::default()).await
    }

    /// Like [`connect`](Self::connect); `defaults` are the options that `convoke_enqueue` gives jobs that leave them
    /// out.
    pub async fn connect_with(url: &str, defaults: &RetrySettings) -> Result<Self> {
        let server = Server::new("store.url", url)?;
        migrate::migrate(&server, Some(defaults)).await?;
        let locked = Arc::new(LockedKeys::default());
        let engine = Engine {
            duties: server.pool(DUTIES, Flush::Now).await?,
            client_reads: server.pool(CLIENT_READS, Flush::Now).await?,
            client_lists: server.pool(CLIENT_LISTS, Flush::Now).await?,
            client_writes: server.pool_with(CLIENT_WRITES, Flush::Now, &[CLIENT_LOCK_TIMEOUT]).await?,
            bookkeepers: server.pool(BOOKKEEPERS, Flush::Later).await?,
            inserts: Lane::start(&server, Flush::Now, BUSY, PlainInsert).await?,
            careful_inserts: Lane::start(&server, Flush::Now, BUSY, CarefulInsert { locked: Arc::clone(&locked) })
                .await?,
            dispatches: Lane::start(&server, Flush::Later, 1, DispatchWork::default()).await?,
            records: Lane::start(&server, Flush::Now, BUSY, RecordWork).await?,
            judgements: Lane::start(&server, Flush::Now, 1, EndAsLeaderWork).await?,
            leases: PostgresLeases::of(&server).await?,
            names: Names::default(),
            locked,
        };
        Ok(PostgresStore { engine: Arc::new(engine), for_clients: false })
    }

    /// Returns leases in the same database, with connections of their own.
    pub fn leases(&self) -> PostgresLeases {
        self.engine.leases.clone()
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

/// Returns the only result of a verb with one item.
fn only<T>(results: Vec<T>) -> Result<T> {
    results.into_iter().next().ok_or_else(|| Error::unknown("store", "no reply"))
}
