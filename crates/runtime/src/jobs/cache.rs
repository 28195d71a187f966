//! The cache of views: finished jobs, and lists of workers and nodes.
//!
//! Only views read through it, never a duty: nothing is decided from a value that may be a moment old. A change of an
//! entry removes it here before the caller gets its reply, and is published on the topic `cache`, whose messages list
//! the keys. A node caches a kind only while it receives the changes of that kind: it subscribes first and reads
//! second, and clears the cache whenever it may have missed a message. If a message is lost all the same, an entry is
//! at most as old as the lifetime of its kind.
//!
//! A value that was read before a change must not be kept after it: each change counts a generation of its kind, and a
//! value that was read in an older one is returned but not kept. Memory is bounded by the weight of the entries.
//!
//! Behind it there may be a cache that nodes share ([`shared`]): a value that one of them has read, the others need not
//! read from the store.

mod keys;
mod shared;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use convoke_core::jobs::wire::{self, Outdated, V1};
use convoke_core::ports::SharedCache;
use convoke_core::{JobId, NodeId, Result, WorkerId};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

pub use keys::{Key, Kind};
pub use shared::maintain_connection;

use self::shared::{Found, Shared};
use super::node::NodeBase;
use super::settings::CacheSettings;
use super::telemetry;
use crate::outage::Outages;

/// Upper bound of the weight of all entries of one kind.
const KIND_CACHE_BYTES_MAX: u64 = 32 << 20;
/// An entry heavier than this is read anew each time, so that it does not evict all others.
const ENTRY_BYTES_MAX: usize = 8 << 20;
/// The weight of an entry beside its value: its key and the bookkeeping of the cache.
const ENTRY_BYTES: usize = 256;
const LIFETIME_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Keys that wait to be published. With more it is cheaper if the other nodes clear their caches.
const UNPUBLISHED_KEYS_MAX: usize = 10_000;
const MESSAGE_KEYS_MAX: usize = 1_000;

pub struct Cache {
    prefix: String,
    kind_caches: [KindCache; 3],
    shared: Option<Shared>,
    /// Keys that are not yet published to the other nodes.
    unpublished: Mutex<BTreeSet<String>>,
    /// Notified when there are keys to publish.
    pub ring: Notify,
    /// Notified when a client reads workers, so that the node subscribes to their heartbeats.
    pub workers_read: Notify,
}

struct KindCache {
    kind: Kind,
    lifetime: Duration,
    entries: moka::sync::Cache<String, Entry>,
    /// Held while an entry is inserted or removed, so that the steps of the two do not interleave.
    generation: Mutex<u64>,
    /// Entries of an older generation are void.
    era: AtomicU64,
    is_subscribed: AtomicBool,
}

#[derive(Clone)]
struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    bytes: u32,
    era: u64,
    until: Instant,
}

/// How long a value may be kept at most, and its weight.
pub struct Keep {
    pub lifetime: Duration,
    pub bytes: usize,
}

impl Cache {
    pub fn new(prefix: &str, settings: &CacheSettings, shared: Option<(Arc<dyn SharedCache>, Arc<Outages>)>) -> Self {
        let lifetimes = [settings.job_ttl, settings.worker_ttl, settings.node_ttl];
        let kind_cache = |kind: Kind| KindCache::new(kind, lifetimes[kind as usize]);
        Cache {
            prefix: prefix.to_owned(),
            kind_caches: Kind::ALL.map(kind_cache),
            shared: shared.map(|(port, outages)| Shared::new(port, outages, Key::Nodes.text(prefix))),
            unpublished: Mutex::default(),
            ring: Notify::new(),
            workers_read: Notify::new(),
        }
    }

    /// Returns the entry of `key`, else the result of `load`, which is then kept if `keep` returns a lifetime.
    pub async fn read<T: Serialize + DeserializeOwned + Send + Sync + 'static>(
        &self,
        key: Key<'_>,
        load: impl Future<Output = Result<T>>,
        keep: impl FnOnce(&T) -> Option<Keep>,
    ) -> Result<Arc<T>> {
        let Some(kind_cache) =
            key.kind().map(|kind| self.kind_cache(kind)).filter(|kind_cache| !kind_cache.lifetime.is_zero())
        else {
            return load.await.map(Arc::new);
        };
        if kind_cache.kind == Kind::Worker {
            self.workers_read.notify_one();
        }
        let text = key.text(&self.prefix);
        let found = kind_cache.get::<T>(&text);
        telemetry::cache_asked(kind_cache.kind, found.is_some());
        if let Some(value) = found {
            return Ok(value);
        }
        let generation = *kind_cache.generation.lock();
        let shared = self.shared.as_ref().filter(|_| kind_cache.is_subscribed.load(Ordering::SeqCst));
        let found = match shared {
            Some(shared) => shared.get::<T>(&text).await,
            None => Found::Nothing(None),
        };
        let (value, left, permit) = match found {
            Found::Value(value, left) => (value, left, None),
            Found::Nothing(permit) => (load.await?, Duration::MAX, permit),
        };
        let value = Arc::new(value);
        if let Some(keep) = keep(&value).filter(|keep| keep.bytes <= ENTRY_BYTES_MAX) {
            let lifetime = keep.lifetime.min(left).min(kind_cache.lifetime);
            if let (Some(shared), Some(permit)) = (shared, permit) {
                shared.put(&text, &*value, lifetime, permit).await;
            }
            kind_cache.put(text, value.clone(), Keep { lifetime, ..keep }, generation);
        }
        Ok(value)
    }

    /// Returns the cache that nodes share, if there is one.
    fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref()
    }

    fn lifetime_max(&self) -> Duration {
        self.kind_caches.iter().map(|kind_cache| kind_cache.lifetime).max().unwrap_or_default()
    }

    /// Removes a finished job that has changed: it runs again, or is gone.
    pub fn job_changed(&self, id: JobId) {
        self.changed(&[Key::Job(id)]);
    }

    /// Removes a worker that came or went, or whose heartbeats were written.
    pub fn worker_changed(&self, id: &WorkerId) {
        self.changed(&[Key::Worker(id), Key::Workers]);
    }

    /// Removes a worker of which a heartbeat was received.
    pub fn worker_heartbeat_received(&self, id: &WorkerId) {
        self.forget(&[Key::Worker(id), Key::Workers]);
    }

    /// Removes a node that came, went, or wrote its state.
    pub fn node_changed(&self, id: &NodeId) {
        self.changed(&[Key::Node(id), Key::Nodes, Key::JobsOf(id)]);
    }

    /// Removes a node of which a heartbeat was received: it has written its state, or is about to and will publish
    /// that.
    pub fn node_heartbeat_received(&self, id: &NodeId) {
        self.forget(&[Key::Node(id), Key::Nodes, Key::JobsOf(id)]);
    }

    /// Removes the entries that another node has published as changed.
    pub fn apply_outdated(&self, outdated: &Outdated) {
        let is_all = |text: &String| keys::kinds_of(&self.prefix, text).len() == Kind::ALL.len();
        if let Some(shared) = &self.shared {
            // The node that changed them may not have reached the shared cache.
            let ours = outdated.keys.iter().filter(|text| !keys::kinds_of(&self.prefix, text).is_empty());
            shared.outdate(ours.filter(|text| !is_all(text)).cloned(), self.lifetime_max());
            if outdated.keys.iter().any(is_all) {
                shared.outdate_all(self.lifetime_max());
            }
        }
        for text in &outdated.keys {
            for kind in keys::kinds_of(&self.prefix, text) {
                match text.ends_with(":*") {
                    true => self.kind_cache(*kind).void(),
                    false => self.kind_cache(*kind).forget(text),
                }
            }
        }
    }

    /// From now on this node receives all changes of `kinds`.
    pub fn mark_subscribed(&self, kinds: &[Kind]) {
        for kind in kinds {
            self.kind_cache(*kind).is_subscribed.store(true, Ordering::SeqCst);
        }
    }

    /// Changes of `kinds` may be missed from now on, or were missed.
    pub fn deaf(&self, kinds: &[Kind]) {
        for kind in kinds {
            self.kind_cache(*kind).is_subscribed.store(false, Ordering::SeqCst);
            self.kind_cache(*kind).void();
        }
    }

    /// Some changes of `kinds` were missed.
    pub fn missed(&self, kinds: &[Kind]) {
        kinds.iter().for_each(|kind| self.kind_cache(*kind).void());
    }

    pub fn lifetime(&self, kind: Kind) -> Duration {
        self.kind_cache(kind).lifetime
    }

    fn kind_cache(&self, kind: Kind) -> &KindCache {
        &self.kind_caches[kind as usize]
    }

    fn forget(&self, keys: &[Key<'_>]) {
        for key in keys {
            if let Some(kind) = key.kind() {
                self.kind_cache(kind).forget(&key.text(&self.prefix));
            }
        }
    }

    fn changed(&self, keys: &[Key<'_>]) {
        self.forget(keys);
        if let Some(shared) = &self.shared {
            shared.outdate(keys.iter().map(|key| key.text(&self.prefix)), self.lifetime_max());
        }
        let mut unpublished = self.unpublished.lock();
        if unpublished.len() >= UNPUBLISHED_KEYS_MAX {
            *unpublished = BTreeSet::from([Key::Everything.text(&self.prefix)]);
        } else {
            unpublished.extend(keys.iter().map(|key| key.text(&self.prefix)));
        }
        drop(unpublished);
        self.ring.notify_one();
    }
}

impl KindCache {
    fn new(kind: Kind, lifetime: Duration) -> Self {
        let entries = moka::sync::Cache::builder()
            .max_capacity(KIND_CACHE_BYTES_MAX)
            .weigher(|_, entry: &Entry| entry.bytes)
            // An entry is void after its time in any case; this frees its memory.
            .time_to_live(lifetime.clamp(Duration::from_millis(1), LIFETIME_MAX))
            .build();
        let (generation, era, is_subscribed) = (Mutex::new(0), AtomicU64::new(0), AtomicBool::new(false));
        // Bounded, because the sum of an instant and a long duration must not overflow.
        let lifetime = lifetime.min(LIFETIME_MAX);
        KindCache { kind, lifetime, entries, generation, era, is_subscribed }
    }

    fn get<T: Send + Sync + 'static>(&self, key: &str) -> Option<Arc<T>> {
        let entry = self.entries.get(key)?;
        let holds = entry.era == self.era.load(Ordering::SeqCst) && Instant::now() < entry.until;
        holds.then(|| entry.value.downcast::<T>().ok()).flatten()
    }

    fn put(&self, key: String, value: Arc<dyn Any + Send + Sync>, keep: Keep, read_in: u64) {
        let until = Instant::now() + keep.lifetime.min(self.lifetime);
        let bytes = u32::try_from(keep.bytes + ENTRY_BYTES).unwrap_or(u32::MAX);
        let generation = self.generation.lock();
        if *generation == read_in && self.is_subscribed.load(Ordering::SeqCst) {
            self.entries.insert(key, Entry { value, bytes, era: self.era.load(Ordering::SeqCst), until });
        }
    }

    fn forget(&self, key: &str) {
        let mut generation = self.generation.lock();
        *generation += 1;
        self.entries.invalidate(key);
    }

    fn void(&self) {
        let mut generation = self.generation.lock();
        *generation += 1;
        self.era.fetch_add(1, Ordering::SeqCst);
        self.entries.invalidate_all();
    }
}

/// Publishes the keys that have changed since the last call.
pub async fn publish_outdated(node: &NodeBase, cache: &Cache) {
    let keys: Vec<String> = std::mem::take(&mut *cache.unpublished.lock()).into_iter().collect();
    for keys in keys.chunks(MESSAGE_KEYS_MAX) {
        let message = wire::encode(&Outdated { v: V1, keys: keys.to_vec() });
        if let Err(error) = node.bus().publish(&node.channels.cache(), message).await {
            // A node that cannot be reached has lost its subscription too, and clears its cache.
            debug!(%error, "publishing cache invalidations failed");
        }
    }
}

#[cfg(test)]
mod tests;
