//! One PostgreSQL server and the connections to it.
//!
//! Pools serve reads and occasional writes. Busy verbs have connections of their own ([`Hot`]), whose plans are made
//! once and cannot become scans of the whole table because it was small at the time.
//!
//! A connection that was left in the middle of a request, by an error or because its caller stopped waiting, is not
//! used again.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use convoke_core::{Error, Invalid, Result};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{self, Failure, in_words};
use super::tls;
use super::url::Address;

/// Time limit of a statement, enforced by the server.
const STATEMENT_TIMEOUT: &str = "statement_timeout=10000";
const IDLE_TIMEOUT: &str = "idle_in_transaction_session_timeout=2000";
/// Time limit of every reply: longer than the server's own limit, so that its error arrives.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);
/// How long a server may take to accept a connection and a login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a caller waits for a free connection of a pool.
const POOL_PATIENCE: Duration = Duration::from_secs(5);
/// Busy connections that count in slots of their own; all others share slot 0.
const SLOTS: i32 = 63;
/// How often a transaction that collided with another is retried.
pub(super) const COLLISIONS_MAX: u32 = 5;

/// Estimates are wrong if a table grows after its plan was made, and JIT compilation only costs time here.
const STEADY: [&str; 3] = ["jit=off", "enable_seqscan=off", "enable_bitmapscan=off"];
const BUSY: [&str; 3] = ["plan_cache_mode=force_generic_plan", "enable_hashjoin=off", "enable_mergejoin=off"];

/// The task of a connection.
pub(super) type Dialled = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Whether a commit is on the disk before the server replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    Now,
    Later,
}

impl Flush {
    const fn setting(self) -> &'static str {
        match self {
            Flush::Now => "synchronous_commit=on",
            Flush::Later => "synchronous_commit=off",
        }
    }
}

#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: Address,
    tls: MakeRustlsConnect,
    field: &'static str,
}

impl Server {
    pub(super) fn new(field: &'static str, url: &str) -> Result<Self> {
        let address = Address::parse(field, url)?;
        let tls = tls::connector(field, &address)?;
        Ok(Server { address, tls, field })
    }

    /// Opens a pool of connections: how many a node needs does not depend on its load.
    pub(super) async fn pool(&self, size: usize, flush: Flush) -> Result<Ways> {
        self.pool_with(size, flush, &[]).await
    }

    pub(super) async fn pool_with(&self, size: usize, flush: Flush, further: &[&'static str]) -> Result<Ways> {
        let settings = [&STEADY[..], &[STATEMENT_TIMEOUT, IDLE_TIMEOUT, flush.setting()], further].concat();
        let manager = Manager::from_config(
            self.address.session("convoke", &settings),
            self.tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager).max_size(size).runtime(Runtime::Tokio1).build();
        let pool = pool.map_err(|error| Error::unavailable("store", error.to_string()))?;
        let address = format!("postgres://{}", self.address.shown());
        let ways = Ways { pool, address, what: if self.field.starts_with("leases") { "leases" } else { "store" } };
        let mut lent = Vec::with_capacity(size);
        for _ in 0..size {
            lent.push(ways.lend().await?);
        }
        lent.into_iter().for_each(|lent| lent.return_to_pool(&Ok(())));
        Ok(ways)
    }

    /// Opens the first connection. Its errors describe what a person can do.
    pub(super) async fn greet(&self) -> Result<Client> {
        let settings = ["jit=off", "statement_timeout=60000"];
        match self.connect(&settings).await {
            Ok(client) => Ok(client),
            Err(Failure::Database(error)) => Err(self.explain(&error)),
            Err(failure) => Err(failure.into_error("store")),
        }
    }

    fn explain(&self, error: &tokio_postgres::Error) -> Error {
        let wrong = [
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::INSUFFICIENT_PRIVILEGE,
        ];
        match error.code() {
            Some(code) if wrong.contains(code) => {
                Invalid::new(self.field, format!("{}: {}", self.address.shown(), in_words(error))).into()
            }
            _ => Error::unavailable("store", in_words(error)),
        }
    }

    /// Opens a connection, which the caller has to poll.
    pub(super) async fn dial(&self, settings: &[&str]) -> failure::Result<(Client, Dialled)> {
        let config = self.address.session("convoke", settings);
        // The driver's limit covers only the TCP connection: a port of another service may never reply.
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, config.connect(self.tls.clone()));
        let dialled = connecting.await.map_err(|_| {
            let message = format!("no reply within {CONNECT_TIMEOUT:?}: does PostgreSQL listen there?");
            Error::unavailable("store", message)
        })??;
        Ok(dialled)
    }

    async fn connect(&self, settings: &[&str]) -> failure::Result<Client> {
        Ok(self.connect_listening(settings, |_| {}).await?.0)
    }

    /// Opens a connection whose notifications go to `receive`. Its task ends with the connection.
    pub(super) async fn connect_listening(
        &self,
        settings: &[&str],
        mut receive: impl FnMut(&str) + Send + 'static,
    ) -> failure::Result<(Client, JoinHandle<()>)> {
        let (client, mut connection) = self.dial(settings).await?;
        // Ends with the client. An error is reported by the verb that meets it.
        let task = tokio::spawn(async move {
            while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => receive(notification.payload()),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(error = in_words(&error), "connection to PostgreSQL ended");
                        return;
                    }
                }
            }
        });
        Ok((client, task))
    }

    /// Opens a connection for one busy verb.
    pub(super) async fn hot(&self, flush: Flush, lock_timeout: &str) -> failure::Result<Hot> {
        let settings = [&STEADY[..], &BUSY, &[STATEMENT_TIMEOUT, IDLE_TIMEOUT, lock_timeout, flush.setting()]].concat();
        let client = self.connect(&settings).await?;
        // Held for as long as the connection lives. Losing it would cost a wait, no correctness.
        let take = "select s from generate_series(1, $1) s \
                    where pg_try_advisory_lock(hashtext('convoke slot ' || current_schema()), s) limit 1";
        let slot = client.query_opt(take, &[&SLOTS]).await?.map_or(0, |row| row.get::<_, i32>("s"));
        Ok(Hot { client, slot: i16::try_from(slot).unwrap_or(0), statements: HashMap::new() })
    }
}

/// A connection whose statements are prepared once.
pub(super) struct Hot {
    pub(super) client: Client,
    /// The slot in which it counts.
    pub(super) slot: i16,
    statements: HashMap<usize, Statement>,
}

impl Hot {
    /// `sql` is a static text: its address in memory is its key.
    pub(super) async fn prepared(&mut self, sql: &'static str) -> failure::Result<Statement> {
        let place = sql.as_ptr() as usize;
        if let Some(statement) = self.statements.get(&place) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(place, statement.clone());
        Ok(statement)
    }
}

/// A pool.
#[derive(Clone)]
pub(super) struct Ways {
    pool: Pool,
    pub(super) what: &'static str,
    address: String,
}

impl Ways {
    /// Returns the address of the server, without credentials.
    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    pub(super) async fn lend(&self) -> Result<PooledConnection> {
        match tokio::time::timeout(POOL_PATIENCE, self.pool.get()).await {
            Ok(Ok(client)) => Ok(PooledConnection { client: Some(client) }),
            Ok(Err(PoolError::Backend(error))) => Err(Failure::Database(error).into_error(self.what)),
            Ok(Err(error)) => Err(Error::unavailable(self.what, error.to_string())),
            Err(_) => Err(Error::unavailable(self.what, "all connections to the database are busy")),
        }
    }
}

/// A connection of a pool. It is closed if it is dropped before its return to the pool.
pub(super) struct PooledConnection {
    client: Option<Object>,
}

impl PooledConnection {
    pub(super) fn client(&mut self) -> &mut Object {
        self.client.as_mut().expect("it is there until it is returned")
    }

    pub(super) fn return_to_pool<T>(mut self, result: &failure::Result<T>) {
        let broken = matches!(result, Err(failure) if failure.is_disconnection());
        if !broken {
            drop(self.client.take());
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

/// Waits for the reply, with a time limit.
pub(super) async fn patiently<T>(kind: Kind, verb: impl Future<Output = failure::Result<T>>) -> failure::Result<T> {
    match tokio::time::timeout(PATIENCE, verb).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Late(kind)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Runs a verb on a connection of a pool, and again if it collided with another transaction.
macro_rules! lent {
    ($kind:ident, $ways:expr, |$db:ident| $verb:expr) => {{
        let ways: &$crate::postgres::server::Ways = $ways;
        let mut collisions = 0;
        loop {
            let mut lent = ways.lend().await?;
            let result = {
                let $db = lent.client();
                $crate::postgres::server::patiently($crate::postgres::server::Kind::$kind, $verb).await
            };
            lent.return_to_pool(&result);
            match result {
                Ok(result) => break Ok(result),
                Err(failure) if failure.is_collision() && collisions < $crate::postgres::server::COLLISIONS_MAX => {
                    collisions += 1;
                }
                Err(failure) => break Err(failure.into_error(ways.what)),
            }
        }
    }};
}
pub(super) use lent;
