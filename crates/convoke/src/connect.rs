//! Turns addresses into adapters. The only place that names them.

use std::sync::Arc;

use convoke_adapters::gateway::GatewayLink;
pub use convoke_adapters::gateway::{EventStream, Http, ServerEvent, encode};
use convoke_adapters::memory::{MemoryBus, MemoryLeases, MemoryStore, SystemClock};
#[cfg(feature = "postgres")]
use convoke_adapters::postgres::{PostgresLeases, PostgresStore};
#[cfg(feature = "redis")]
use convoke_adapters::redis::{RedisBus, RedisLeases};
#[cfg(feature = "sqlite")]
use convoke_adapters::sqlite::{SqliteLeases, SqliteStore};
#[cfg(feature = "redis")]
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{ClientLink, WorkerLink};
use convoke_core::ports::{Bus, Clock, Leases, Store};
use convoke_core::{Invalid, Result};
use convoke_runtime::jobs::Ports;

/// A JSON client of a coordinator's HTTP API.
pub fn http(url: &str, token: Option<String>) -> Result<Http> {
    Http::connect(url, token)
}

/// A worker's way to a coordinator.
pub fn worker_link(url: &str, token: Option<String>) -> Result<Arc<dyn WorkerLink>> {
    Ok(Arc::new(gateway(url, token)?))
}

/// A client's way to a coordinator.
pub fn client_link(url: &str, token: Option<String>) -> Result<Arc<dyn ClientLink>> {
    Ok(Arc::new(gateway(url, token)?))
}

fn gateway(url: &str, token: Option<String>) -> Result<GatewayLink> {
    match url.split_once(':') {
        Some(("redis" | "rediss", _)) => Err(unsupported("url", url, "an http:// or https:// address")),
        _ => Ok(GatewayLink::new(http(url, token)?)),
    }
}

/// Wall time.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Where a coordinator's engines are.
#[derive(Debug, Clone, Copy)]
pub struct Addresses<'a> {
    pub store: &'a str,
    pub bus: &'a str,
    /// Before every name on the bus.
    pub bus_prefix: &'a str,
    /// Absent: the store's, or the bus's where the store is memory.
    pub leases: Option<&'a str>,
}

impl Default for Addresses<'_> {
    /// All in memory.
    fn default() -> Self {
        Addresses { store: "memory:", bus: "memory:", bus_prefix: "convoke", leases: None }
    }
}

/// The world of a coordinator.
pub async fn backends(addresses: Addresses<'_>) -> Result<Ports> {
    let Addresses { store, bus, bus_prefix, leases } = addresses;
    let (store, own_leases) = open_store(store).await?;
    let leases = match (leases, own_leases) {
        (Some(url), _) => open_leases("leases.url", url, bus_prefix).await?,
        (None, Some(leases)) => leases,
        (None, None) => open_leases("bus.url", bus, bus_prefix).await?,
    };
    Ok(Ports { store, bus: open_bus(bus, bus_prefix).await?, leases, clock: clock() })
}

/// A store, with leases of its own where other processes can see them.
async fn open_store(url: &str) -> Result<(Arc<dyn Store>, Option<Arc<dyn Leases>>)> {
    match Address::parse("store.url", url)? {
        Address::Memory => Ok((Arc::new(MemoryStore::default()), None)),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => {
            let store = SqliteStore::open(path)?;
            let leases = store.leases();
            Ok((Arc::new(store), Some(Arc::new(leases))))
        }
        #[cfg(feature = "postgres")]
        Address::Postgres => {
            let store = PostgresStore::connect(url).await?;
            let leases = store.leases();
            Ok((Arc::new(store), Some(Arc::new(leases))))
        }
        _ => Err(unsupported("store.url", url, "postgres://…, sqlite:PATH or memory:")),
    }
}

async fn open_bus(url: &str, prefix: &str) -> Result<Arc<dyn Bus>> {
    match Address::parse("bus.url", url)? {
        Address::Memory => Ok(Arc::new(MemoryBus::default())),
        #[cfg(feature = "redis")]
        Address::Redis => Ok(Arc::new(RedisBus::connect(url, Channels::new(prefix)).await?)),
        _ => Err(unsupported("bus.url", url, "redis://… or memory:")),
    }
}

async fn open_leases(field: &str, url: &str, prefix: &str) -> Result<Arc<dyn Leases>> {
    match Address::parse(field, url)? {
        Address::Memory => Ok(Arc::new(MemoryLeases::default())),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => Ok(Arc::new(SqliteLeases::open(path)?)),
        #[cfg(feature = "postgres")]
        Address::Postgres => Ok(Arc::new(PostgresLeases::connect(url).await?)),
        #[cfg(feature = "redis")]
        Address::Redis => Ok(Arc::new(RedisLeases::connect(url, prefix).await?)),
        _ => Err(unsupported(field, url, "postgres://…, redis://…, sqlite:PATH or memory:")),
    }
}

enum Address<'a> {
    Memory,
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "opened by that feature alone"))]
    Sqlite(&'a str),
    Postgres,
    Redis,
    Other,
}

impl<'a> Address<'a> {
    fn parse(field: &str, url: &'a str) -> Result<Self> {
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Address::Memory),
            Some(("sqlite", "")) => {
                Err(Invalid::new(field, "expected a path after sqlite:, as in sqlite:convoke.db").into())
            }
            Some(("sqlite", path)) => Ok(Address::Sqlite(path.strip_prefix("//").unwrap_or(path))),
            Some(("postgres" | "postgresql", _)) => Ok(Address::Postgres),
            Some(("redis" | "rediss" | "redis+sentinel" | "rediss+sentinel", _)) => Ok(Address::Redis),
            Some(_) => Ok(Address::Other),
            None => Err(Invalid::new(field, format!("expected a URL such as memory:, got {url:?}")).into()),
        }
    }
}

/// Names the scheme only: the rest of a URL may hold a password.
fn unsupported(field: &str, url: &str, supported: &str) -> convoke_core::Error {
    let scheme = url.split(':').next().unwrap_or_default();
    Invalid::new(field, format!("expected {supported}, got a {scheme}: URL")).into()
}
