//! Turns addresses into adapters. No other module names the adapters.

use std::sync::{Arc, OnceLock};

use convoke_adapters::gateway::GatewayLink;
pub use convoke_adapters::gateway::{EventStream, Http, ServerEvent, encode};
#[cfg(feature = "testing")]
pub(crate) use convoke_adapters::memory::Kept;
#[cfg(all(feature = "coordinator", not(feature = "testing")))]
use convoke_adapters::memory::MemoryStore;
#[cfg(feature = "testing")]
pub(crate) use convoke_adapters::memory::MemoryStore;
#[cfg(feature = "testing")]
use convoke_adapters::memory::SeededChance;
#[cfg(feature = "coordinator")]
use convoke_adapters::memory::SystemChance;
use convoke_adapters::memory::{MemoryBus, MemoryLeases, MemoryMesh, SystemClock};
#[cfg(all(feature = "coordinator", feature = "postgres"))]
use convoke_adapters::postgres::PostgresStore;
#[cfg(feature = "postgres")]
pub use convoke_adapters::postgres::enqueue_in;
#[cfg(feature = "postgres")]
use convoke_adapters::postgres::{PostgresBus, PostgresLeases};
#[cfg(all(feature = "coordinator", feature = "redis"))]
use convoke_adapters::redis::RedisCache;
#[cfg(feature = "redis")]
use convoke_adapters::redis::{RedisBus, RedisLeases, RedisMesh};
#[cfg(feature = "s3")]
use convoke_adapters::s3::S3Leases;
#[cfg(feature = "sqlite")]
use convoke_adapters::sqlite::SqliteLeases;
#[cfg(all(feature = "coordinator", feature = "sqlite"))]
use convoke_adapters::sqlite::SqliteStore;
#[cfg(feature = "zmq")]
pub use convoke_adapters::zmq::{ZmqCredentials, ZmqKeys, ZmqSecurity};
#[cfg(feature = "zmq")]
use convoke_adapters::zmq::{ZmqDealer, ZmqRouter};
#[cfg(feature = "coordinator")]
use convoke_core::jobs::RetrySettings;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{ClientLink, WorkerLink};
use convoke_core::limits::NAME_BYTES_MAX;
use convoke_core::ports::{Bus, Clock, Leases, MeshLink};
#[cfg(feature = "coordinator")]
use convoke_core::ports::{Chance, SharedCache, Store};
#[cfg(feature = "zmq")]
use convoke_core::ports::{DealerConnecting, RouterBinding};
use convoke_core::{Invalid, Result};
pub use convoke_runtime::jobs::BUS_PREFIX;
use convoke_runtime::jobs::BusClient;
#[cfg(feature = "coordinator")]
use convoke_runtime::jobs::Ports;
use convoke_runtime::jobs::worker::{BusLink, BusLinkSettings};

use crate::mesh::MeshAddress;

/// Returns a JSON client of a coordinator's HTTP API.
pub fn http(url: &str, token: Option<String>) -> Result<Http> {
    Http::connect(url, token)
}

/// Returns a worker's link to a coordinator's gateway. Several addresses, separated by commas, are nodes of one
/// cluster.
pub fn worker_link(url: &str, token: Option<String>) -> Result<Arc<dyn WorkerLink>> {
    Ok(Arc::new(gateway(url, token)?))
}

/// Returns a client's link to a coordinator's HTTP API. Several addresses, separated by commas, are nodes of one
/// cluster.
pub fn client_link(url: &str, token: Option<String>) -> Result<Arc<dyn ClientLink>> {
    Ok(Arc::new(gateway(url, token)?))
}

/// Returns whether this is the address of a bus, rather than of a coordinator.
pub fn is_bus(url: &str) -> bool {
    matches!(url.split_once(':'), Some(("redis" | "rediss" | "redis+sentinel" | "rediss+sentinel", _)))
}

/// Returns the bus of a coordinator that sets none: `postgres:`, the database of the store, if it is in PostgreSQL; else
/// memory.
pub fn default_bus(store: &str) -> &'static str {
    match Address::parse("store.url", store, STORES) {
        Ok(Address::Postgres) => BUS_OF_STORE,
        _ => "memory:",
    }
}

/// Returns the address of a coordinator's bus: `postgres:` is that of the store.
pub fn bus_of<'a>(bus: Option<&'a str>, store: &'a str) -> &'a str {
    match bus.unwrap_or_else(|| default_bus(store)) {
        BUS_OF_STORE if default_bus(store) == BUS_OF_STORE => store,
        url => url,
    }
}

/// Rejects a bus that workers and clients cannot use.
pub(crate) fn check_way(url: &str) -> Result<()> {
    match url.split_once(':') {
        _ if is_bus(url) && !cfg!(feature = "redis") => Err(unsupported("url", url, BUSES)),
        Some(("postgres" | "postgresql", _)) => {
            let message = "expected http://…, https://… or redis://…, got a PostgreSQL URL: workers and clients use the \
                           HTTP API of a node, or a bus on Redis";
            Err(Invalid::new("url", message).into())
        }
        _ => Ok(()),
    }
}

/// Returns a worker's link to the gateway or bus at the address.
pub async fn worker_way(url: &str, token: Option<String>, bus_prefix: &str) -> Result<Arc<dyn WorkerLink>> {
    check_way(url)?;
    if !is_bus(url) {
        return worker_link(url, token);
    }
    Ok(bus_worker_link(open_bus("url", url, bus_prefix).await?, bus_prefix))
}

/// Returns a client's link to the HTTP API or bus at the address.
pub async fn client_way(url: &str, token: Option<String>, bus_prefix: &str) -> Result<Arc<dyn ClientLink>> {
    check_way(url)?;
    if !is_bus(url) {
        return client_link(url, token);
    }
    Ok(bus_client_link(open_bus("url", url, bus_prefix).await?, bus_prefix))
}

/// Returns a worker's link over a bus.
pub fn bus_worker_link(bus: Arc<dyn Bus>, prefix: &str) -> Arc<dyn WorkerLink> {
    Arc::new(BusLink::new(bus, Channels::new(prefix), clock(), BusLinkSettings::default()))
}

/// Returns a client's link over a bus. It can only enqueue.
pub fn bus_client_link(bus: Arc<dyn Bus>, prefix: &str) -> Arc<dyn ClientLink> {
    Arc::new(BusClient::new(bus, Channels::new(prefix), clock()))
}

fn gateway(url: &str, token: Option<String>) -> Result<GatewayLink> {
    match url.split_once(':') {
        Some(("redis" | "rediss", _)) => Err(unsupported("url", url, "an http:// or https:// address")),
        _ => Ok(GatewayLink::new(http(url, token)?)),
    }
}

/// Returns the binding of a shard coordinator: its address, and the credentials that workers need.
#[cfg(feature = "zmq")]
pub fn shard_router(bind: &str, security: ZmqSecurity) -> Result<Arc<dyn RouterBinding>> {
    Ok(Arc::new(ZmqRouter::new(bind)?.security(security)))
}

/// Returns a shard worker's link to its coordinator.
#[cfg(feature = "zmq")]
pub fn shard_dealer(credentials: ZmqCredentials) -> Arc<dyn DealerConnecting> {
    Arc::new(ZmqDealer::new().credentials(credentials))
}

/// Returns the parts of an address that may be shown: scheme, hosts, ports and path. If the address cannot be parsed
/// only the scheme is shown, since a password may be anywhere in it.
pub fn shown(url: &str) -> String {
    let understood = match Address::parse("url", url, LEASES) {
        Ok(Address::Memory | Address::Sqlite(_)) => Some(url.to_owned()),
        Ok(Address::Postgres) if url == BUS_OF_STORE => Some(url.to_owned()),
        #[cfg(feature = "postgres")]
        Ok(Address::Postgres) => convoke_adapters::postgres::shown(url),
        #[cfg(feature = "redis")]
        Ok(Address::Redis) => convoke_adapters::redis::shown(url),
        #[cfg(feature = "s3")]
        Ok(Address::S3) => convoke_adapters::s3::shown(url),
        _ => None,
    };
    understood.unwrap_or_else(|| match url.split_once(':') {
        Some((scheme, _)) => format!("{scheme}:…"),
        None => "…".into(),
    })
}

/// Connects to the engine at this address; errors name the `setting`.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
async fn reach<T>(setting: &str, url: &str, connecting: impl Future<Output = Result<T>>) -> Result<T> {
    let engine = match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => "PostgreSQL",
        Some(("s3", _)) => "S3",
        Some(("redis+sentinel" | "rediss+sentinel", _)) => "Redis by Sentinel",
        _ => "Redis",
    };
    crate::unreachable::connect(engine, &shown(url), setting, connecting).await
}

/// Returns whether data at this address ends with the process.
pub fn is_in_memory(url: &str) -> bool {
    matches!(Address::parse("url", url, LEASES), Ok(Address::Memory))
}

/// Returns the wall clock.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Returns the system's source of random numbers.
#[cfg(feature = "coordinator")]
pub(crate) fn chance() -> Arc<dyn Chance> {
    Arc::new(SystemChance)
}

/// The addresses of a coordinator's engines.
#[cfg(feature = "coordinator")]
#[derive(Debug, Clone, Copy)]
pub struct Addresses<'a> {
    /// URL of the store.
    pub store: &'a str,
    /// URL of the bus; `postgres:` for the database of the store ([`bus_of`]).
    pub bus: &'a str,
    /// Prefix of every name on the bus.
    pub bus_prefix: &'a str,
    /// URL of the leases. `None`: those of the store, or of the bus if the store is `memory:`.
    pub leases: Option<&'a str>,
    /// URL of the cache that nodes share; `memory:` for none.
    pub cache: &'a str,
    /// Defaults of jobs that applications enqueue inside the store without these options.
    pub defaults: RetrySettings,
}

#[cfg(feature = "coordinator")]
impl Default for Addresses<'_> {
    /// All engines in memory.
    fn default() -> Self {
        let (store, bus, cache) = ("memory:", "memory:", "memory:");
        Addresses { store, bus, bus_prefix: BUS_PREFIX, leases: None, cache, defaults: RetrySettings::default() }
    }
}

/// Connects to all engines of a coordinator.
#[cfg(feature = "coordinator")]
pub async fn backends(addresses: Addresses<'_>) -> Result<Ports> {
    let Addresses { store, bus, bus_prefix, leases, cache, defaults } = addresses;
    let bus = bus_of(Some(bus), store);
    if bus == BUS_OF_STORE {
        let message = "expected the URL of a PostgreSQL, since the store is not in one: postgres: alone is the database \
                       of the store";
        return Err(Invalid::new("bus.url", message).into());
    }
    let cache = open_cache(cache)?;
    let (store, own_leases) = open_store(store, &defaults).await?;
    // Opened before the leases, which may use the same URL: an address that is not a bus is then rejected as `bus.url`.
    let channels = open_bus("bus.url", bus, bus_prefix).await?;
    let leases = match (leases, own_leases) {
        (Some(url), _) => open_leases("leases.url", url, bus_prefix).await?,
        (None, Some(leases)) => leases,
        (None, None) => open_leases("bus.url", bus, bus_prefix).await?,
    };
    Ok(Ports { store, bus: channels, leases, cache, clock: clock(), chance: chance() })
}

/// The engines of a test server.
#[cfg(feature = "testing")]
pub(crate) struct InMemory {
    pub ports: Ports,
    /// The same store as in `ports`.
    pub store: Arc<MemoryStore>,
}

/// Returns engines in memory that follow this clock and this seed.
#[cfg(feature = "testing")]
pub(crate) fn in_memory(clock: Arc<dyn Clock>, seed: u64) -> InMemory {
    let store = Arc::new(MemoryStore::default());
    let (bus, leases) = (Arc::new(MemoryBus::default()), Arc::new(MemoryLeases::default()));
    let chance = Arc::new(SeededChance::new(seed));
    InMemory { ports: Ports { store: store.clone(), bus, leases, cache: None, clock, chance }, store }
}

/// Connects to the leases of electors. All electors of the process share those at `memory:`.
pub async fn leases(url: &str, prefix: &str) -> Result<Arc<dyn Leases>> {
    static SHARED: OnceLock<Arc<MemoryLeases>> = OnceLock::new();
    match Address::parse("leases.url", url, LEASES)? {
        Address::Memory => Ok(SHARED.get_or_init(Arc::default).clone()),
        _ => open_leases("leases.url", url, prefix).await,
    }
}

/// Opens a store, with its leases if other processes can see them.
#[cfg(feature = "coordinator")]
async fn open_store(
    url: &str,
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "of that feature alone"))]
    defaults: &RetrySettings,
) -> Result<(Arc<dyn Store>, Option<Arc<dyn Leases>>)> {
    match Address::parse("store.url", url, STORES)? {
        Address::Memory => Ok((Arc::new(MemoryStore::default()), None)),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => {
            let store = SqliteStore::open(path)?;
            let leases = store.leases();
            Ok((Arc::new(store), Some(Arc::new(leases))))
        }
        #[cfg(feature = "postgres")]
        Address::Postgres => {
            let store = reach("store.url", url, PostgresStore::connect_with(url, defaults)).await?;
            let leases = store.leases();
            Ok((Arc::new(store), Some(Arc::new(leases))))
        }
        _ => Err(unsupported("store.url", url, STORES)),
    }
}

#[cfg_attr(
    not(any(feature = "postgres", feature = "redis")),
    allow(unused_variables, reason = "of these engines alone")
)]
async fn open_bus(field: &'static str, url: &str, prefix: &str) -> Result<Arc<dyn Bus>> {
    match Address::parse(field, url, BUSES)? {
        Address::Memory => Ok(Arc::new(MemoryBus::default())),
        #[cfg(feature = "redis")]
        Address::Redis => Ok(Arc::new(reach(field, url, RedisBus::connect(url, Channels::new(prefix))).await?)),
        #[cfg(feature = "postgres")]
        Address::Postgres => Ok(Arc::new(reach(field, url, PostgresBus::connect(field, url, prefix)).await?)),
        _ => Err(unsupported(field, url, BUSES)),
    }
}

/// Opens a cache. It is optional, so it connects in the background.
#[cfg(feature = "coordinator")]
fn open_cache(url: &str) -> Result<Option<Arc<dyn SharedCache>>> {
    match Address::parse("cache.url", url, REDIS)? {
        Address::Memory => Ok(None),
        #[cfg(feature = "redis")]
        Address::Redis => Ok(Some(Arc::new(RedisCache::open(url)?))),
        _ => Err(unsupported("cache.url", url, REDIS)),
    }
}

#[cfg_attr(not(feature = "redis"), allow(unused_variables, reason = "of that engine alone"))]
async fn open_leases(field: &str, url: &str, prefix: &str) -> Result<Arc<dyn Leases>> {
    match Address::parse(field, url, LEASES)? {
        Address::Memory => Ok(Arc::new(MemoryLeases::default())),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => Ok(Arc::new(SqliteLeases::open(path)?)),
        #[cfg(feature = "postgres")]
        Address::Postgres => Ok(Arc::new(reach(field, url, PostgresLeases::connect(url)).await?)),
        #[cfg(feature = "redis")]
        Address::Redis => Ok(Arc::new(reach(field, url, RedisLeases::connect(url, prefix)).await?)),
        #[cfg(feature = "s3")]
        Address::S3 => Ok(Arc::new(reach(field, url, S3Leases::connect(url, environment(), clock())).await?)),
        _ => Err(unsupported(field, url, LEASES)),
    }
}

/// Connects to a mesh. Instances of one process with the same key at `memory:` are in the same mesh.
pub async fn mesh_link(address: &MeshAddress, key: &str) -> Result<Arc<dyn MeshLink>> {
    if key.is_empty() || key.len() > NAME_BYTES_MAX || key.chars().any(char::is_control) {
        let message = format!("expected a name of 1 to {NAME_BYTES_MAX} bytes without control characters");
        return Err(Invalid::new("mesh.key", message).into());
    }
    match Address::parse("mesh.url", &address.url, REDIS)? {
        Address::Memory => Ok(Arc::new(MemoryMesh::shared(key))),
        #[cfg(feature = "redis")]
        Address::Redis => {
            address.warn();
            let MeshAddress { url, prefix, lock_prefix, .. } = address;
            let connecting = RedisMesh::connect(url, prefix, lock_prefix, key);
            Ok(Arc::new(reach("mesh.url", url, connecting).await?))
        }
        _ => Err(unsupported("mesh.url", &address.url, REDIS)),
    }
}

/// Returns the environment variables that are valid text.
#[cfg(feature = "s3")]
fn environment() -> Vec<(String, String)> {
    let variables = std::env::vars_os();
    variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// The bus in the database of the store.
const BUS_OF_STORE: &str = "postgres:";

/// The accepted addresses of each setting, for error messages.
const STORES: &str = "postgres://…, sqlite:PATH or memory:";
const BUSES: &str =
    "redis://…, rediss://…, redis+sentinel://…, rediss+sentinel://…, postgres://…, postgres: (the store's) or memory:";
const REDIS: &str = "redis://…, rediss://…, redis+sentinel://…, rediss+sentinel://… or memory:";
const LEASES: &str =
    "postgres://…, redis://… (rediss, redis+sentinel, rediss+sentinel), s3://…, sqlite:PATH or memory:";

enum Address<'a> {
    Memory,
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "opened by that feature alone"))]
    Sqlite(&'a str),
    Postgres,
    Redis,
    S3,
    Other,
}

impl<'a> Address<'a> {
    fn parse(field: &str, url: &'a str, supported: &str) -> Result<Self> {
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Address::Memory),
            Some(("sqlite", "")) if supported.contains("sqlite:") => {
                Err(Invalid::new(field, "expected a path after sqlite:, as in sqlite:convoke.db").into())
            }
            Some(("sqlite", path)) => Ok(Address::Sqlite(path.strip_prefix("//").unwrap_or(path))),
            Some(("postgres" | "postgresql", _)) => Ok(Address::Postgres),
            Some(("redis" | "rediss" | "redis+sentinel" | "rediss+sentinel", _)) => Ok(Address::Redis),
            Some(("s3", _)) => Ok(Address::S3),
            Some(_) => Ok(Address::Other),
            None => Err(Invalid::new(field, format!("expected {supported}, got text without a scheme")).into()),
        }
    }

    /// Returns the feature that opens the address, if it is off.
    fn missing_feature(&self) -> Option<&'static str> {
        let (feature, is_on) = match self {
            Address::Sqlite(_) => ("sqlite", cfg!(feature = "sqlite")),
            Address::Postgres => ("postgres", cfg!(feature = "postgres")),
            Address::Redis => ("redis", cfg!(feature = "redis")),
            Address::S3 => ("s3", cfg!(feature = "s3")),
            Address::Memory | Address::Other => return None,
        };
        (!is_on).then_some(feature)
    }
}

/// Returns the error for an address that the setting does not accept, or whose engine is a feature that is off. The
/// message names only the scheme: the rest of a URL may contain a password.
fn unsupported(field: &str, url: &str, supported: &str) -> convoke_core::Error {
    let scheme = url.split(':').next().unwrap_or_default();
    let message = match Address::parse(field, url, supported).ok().and_then(|address| address.missing_feature()) {
        Some(feature) if supported.contains(&format!("{feature}:")) => format!(
            "expected an address that this program can open, got a {scheme}: URL, which needs the feature {feature:?} of \
             the crate convoke"
        ),
        _ => format!("expected {supported}, got a {scheme}: URL"),
    };
    Invalid::new(field, message).into()
}
