//! PostgreSQL: the store and the leases of a cluster.
//!
//! What is acknowledged is committed and flushed. What is only bookkeeping (dispatches, promotions, heartbeats, cleaning up) is
//! committed without waiting for the disk: the log is written in order, so that whatever is acknowledged later implies it.
//!
//! Several nodes write to one database, none of them alone. What must not be done twice is compared in the statement that
//! does it: a leader's epoch, a run's execution, a run's owner. Busy verbs have connections of their own and take all calls
//! that wait into one statement (`lane`). The rest use pools: clients' lists, clients' other reads, clients' writes and the
//! duties of the node each have their own, so that a flood of requests of one kind delays only requests of that kind.
//!
//! Where a job is says what it does: in `convoke_waiting` it waits, in `convoke_runs` it is in flight, in `convoke_ended`
//! it has ended. Its own row is written when it comes and when it ends, and nothing that then changes is indexed.
//!
//! All connections are opened at the start, and there are never more. They are prepared once and keep settings of their session: a pooler in between must keep a session to a client.
//!
//! A server that is away is answered with `Unavailable`, one that went away in the middle of a commit with `Unknown`;
//! everything connects again by itself.

mod apply_reports;
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
/// Connections for clients' lists of jobs, the most expensive requests there are.
const CLIENT_LISTS: usize = 2;
/// Connections for clients' rare writes: cancel, retry, purge, settings.
const CLIENT_WRITES: usize = 2;
/// Connections for bookkeeping.
const BOOKKEEPERS: usize = 3;
/// Connections for each kind of insert, and for records: while one waits for the disk or for a lock, the other works.
const BUSY: usize = 2;
/// A client's write does not wait for long for a lock that an application's transaction keeps.
const CLIENT_LOCK_TIMEOUT: &str = "lock_timeout=500";

/// A store in a PostgreSQL database. Clones are the same store; its connections are closed when the last is dropped.
#[derive(Clone)]
pub struct PostgresStore {
    engine: Arc<Engine>,
    /// Uses the clients' pools instead of that of the duties.
    for_clients: bool,
}

impl PostgresStore {
    /// Connects and migrates. `Invalid` where the URL, the user or the database is wrong, by the field `store.url`;
    /// `Unavailable` where the server cannot be reached; `Conflict` where a newer version has migrated the database.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, &RetrySettings::default()).await
    }

    /// The same; `defaults` are the options of jobs that applications enqueue by `convoke_enqueue` and leave them out.
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

    /// Leases in the same database, by connections of their own.
    pub fn leases(&self) -> PostgresLeases {
        self.engine.leases.clone()
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

/// For a verb of one item: its answer.
fn only<T>(answers: Vec<T>) -> Result<T> {
    answers.into_iter().next().ok_or_else(|| Error::unknown("store", "no answer"))
}
