//! Turns addresses into adapters. The only place that names them.

use std::sync::Arc;

use convoke_adapters::gateway::GatewayLink;
pub use convoke_adapters::gateway::{EventStream, Http, ServerEvent, encode};
use convoke_adapters::memory::{MemoryBus, MemoryLeases, MemoryStore, SystemClock};
#[cfg(feature = "sqlite")]
use convoke_adapters::sqlite::{SqliteLeases, SqliteStore};
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

/// The world of a coordinator. Without `leases` they are the store's, or the bus's where the store is memory.
pub async fn backends(store: &str, bus: &str, leases: Option<&str>) -> Result<Ports> {
    let (store, own_leases) = open_store(store)?;
    let leases = match leases {
        None => own_leases,
        Some(url) => open_leases(url)?,
    };
    Ok(Ports { store, bus: open_bus(bus)?, leases, clock: clock() })
}

fn open_store(url: &str) -> Result<(Arc<dyn Store>, Arc<dyn Leases>)> {
    match Address::parse("store.url", url)? {
        Address::Memory => Ok((Arc::new(MemoryStore::default()), Arc::new(MemoryLeases::default()))),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => {
            let store = SqliteStore::open(path)?;
            let leases = store.leases();
            Ok((Arc::new(store), Arc::new(leases)))
        }
        Address::Other => Err(unsupported("store.url", url, "sqlite:PATH or memory:")),
    }
}

fn open_bus(url: &str) -> Result<Arc<dyn Bus>> {
    match Address::parse("bus.url", url)? {
        Address::Memory => Ok(Arc::new(MemoryBus::default())),
        _ => Err(unsupported("bus.url", url, "memory:")),
    }
}

fn open_leases(url: &str) -> Result<Arc<dyn Leases>> {
    match Address::parse("leases.url", url)? {
        Address::Memory => Ok(Arc::new(MemoryLeases::default())),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => Ok(Arc::new(SqliteLeases::open(path)?)),
        Address::Other => Err(unsupported("leases.url", url, "sqlite:PATH or memory:")),
    }
}

enum Address<'a> {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite(&'a str),
    Other,
}

impl<'a> Address<'a> {
    fn parse(field: &str, url: &'a str) -> Result<Self> {
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Address::Memory),
            #[cfg(feature = "sqlite")]
            Some(("sqlite", "")) => {
                Err(Invalid::new(field, "expected a path after sqlite:, as in sqlite:convoke.db").into())
            }
            #[cfg(feature = "sqlite")]
            Some(("sqlite", path)) => Ok(Address::Sqlite(path.strip_prefix("//").unwrap_or(path))),
            Some(_) => Ok(Address::Other),
            None => Err(Invalid::new(field, format!("expected a URL such as memory:, got {url:?}")).into()),
        }
    }
}

/// Names the scheme only: the rest of a URL may hold a password.
fn unsupported(field: &str, url: &str, supported: &str) -> convoke_core::Error {
    let scheme = url.split(':').next().unwrap_or_default();
    Invalid::new(field, format!("expected {supported} in this version, got a {scheme}: URL")).into()
}
