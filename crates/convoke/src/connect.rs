//! Turns addresses into adapters. The only place that names them.

use std::sync::Arc;

use convoke_adapters::gateway::GatewayLink;
pub use convoke_adapters::gateway::{EventStream, Http, ServerEvent, encode};
use convoke_adapters::memory::{MemoryBus, MemoryLeases, MemoryStore, SystemClock};
#[cfg(feature = "sqlite")]
use convoke_adapters::sqlite::{SqliteLeases, SqliteStore};
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{ClientLink, WorkerLink};
use convoke_core::ports::{Bus, Clock, Leases, Store};
use convoke_core::{Invalid, Result};
use convoke_runtime::jobs::worker::{BusLink, BusLinkSettings};
use convoke_runtime::jobs::{BusClient, Ports};

/// A JSON client of a coordinator's HTTP API.
pub fn http(url: &str, token: Option<String>) -> Result<Http> {
    Http::connect(url, token)
}

/// A worker's way to a coordinator's gateway; to any of several, where their addresses have commas between.
pub fn worker_link(url: &str, token: Option<String>) -> Result<Arc<dyn WorkerLink>> {
    Ok(Arc::new(gateway(url, token)?))
}

/// A client's way to a coordinator's HTTP interface; to any of several, where their addresses have commas between.
pub fn client_link(url: &str, token: Option<String>) -> Result<Arc<dyn ClientLink>> {
    Ok(Arc::new(gateway(url, token)?))
}

/// The prefix of channels where none is named.
pub const BUS_PREFIX: &str = "convoke";

/// Whether this is the address of a bus, rather than of a coordinator.
pub fn is_bus(url: &str) -> bool {
    matches!(url.split_once(':'), Some(("redis" | "rediss" | "redis+sentinel" | "rediss+sentinel", _)))
}

/// A worker's way by whatever the address is of.
pub async fn worker_way(url: &str, token: Option<String>, bus_prefix: &str) -> Result<Arc<dyn WorkerLink>> {
    if !is_bus(url) {
        return worker_link(url, token);
    }
    Ok(bus_worker_link(remote_bus(url, bus_prefix).await?, bus_prefix))
}

/// A client's way by whatever the address is of.
pub async fn client_way(url: &str, token: Option<String>, bus_prefix: &str) -> Result<Arc<dyn ClientLink>> {
    if !is_bus(url) {
        return client_link(url, token);
    }
    Ok(bus_client_link(remote_bus(url, bus_prefix).await?, bus_prefix))
}

/// A worker's way by a bus.
pub fn bus_worker_link(bus: Arc<dyn Bus>, prefix: &str) -> Arc<dyn WorkerLink> {
    Arc::new(BusLink::new(bus, Channels::new(prefix), clock(), BusLinkSettings::default()))
}

/// A client's way by a bus. It can enqueue, and no more.
pub fn bus_client_link(bus: Arc<dyn Bus>, prefix: &str) -> Arc<dyn ClientLink> {
    Arc::new(BusClient::new(bus, Channels::new(prefix), clock()))
}

/// Whether workers and clients could speak by the bus at an address, if it were there.
pub fn check_bus(url: &str) -> Result<()> {
    Err(unsupported("url", url, "an http:// or https:// address"))
}

/// The bus at an address, for one who is no coordinator.
async fn remote_bus(url: &str, _prefix: &str) -> Result<Arc<dyn Bus>> {
    check_bus(url)?;
    Err(unsupported("url", url, "an http:// or https:// address"))
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
