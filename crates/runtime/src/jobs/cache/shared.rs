//! The cache that nodes share, behind the one in memory.
//!
//! Requests use it only while it is known to respond: they never wait for a connection, and the first that gets no
//! response in time disables it until [`maintain_connection`] reaches it again. A key that has changed, here or by a
//! message of another node, is not read from it until it was outdated there. So this node does not show a value that it
//! knows to be old, and a change that it missed is hidden for the lifetime of the kind at most.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_core::ports::SharedCache;
use convoke_core::ports::cache::{Lookup, TICKET_LIFETIME, Ticket, VALUE_BYTES_MAX};
use convoke_core::{Error, Result};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::node::Node;
use crate::outage::Outages;

/// How long a request waits for the shared cache.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long its background task waits, and how often that retries.
const TASK_PATIENCE: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a failure it is probed now and then, so that the end of an outage is logged.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);
/// Keys that wait to be outdated. With more the cache is not used until all its entries have expired.
const OUTDATED_MAX: usize = 10_000;

pub struct Shared {
    port: Arc<dyn SharedCache>,
    outages: Arc<Outages>,
    /// The key of the probe.
    probe: String,
    is_up: AtomicBool,
    failed_at: Mutex<Option<Instant>>,
    outdated: Mutex<Outdated>,
    ring: Notify,
}

#[derive(Default)]
struct Outdated {
    keys: BTreeSet<String>,
    /// Too much has changed to list it: no entry that was put before is used until then.
    all_until: Option<Instant>,
}

/// The result of a lookup.
pub enum Found<T> {
    Value(T, Duration),
    /// The store must be read; with a permit, the value can be shared.
    Nothing(Option<Permit>),
}

pub struct Permit {
    ticket: Ticket,
    issued: Instant,
}

impl Shared {
    pub fn new(port: Arc<dyn SharedCache>, outages: Arc<Outages>, probe: String) -> Self {
        let (is_up, failed_at) = (AtomicBool::new(false), Mutex::new(None));
        Shared { port, outages, probe, is_up, failed_at, outdated: Mutex::default(), ring: Notify::new() }
    }

    fn is_usable(&self, key: &str) -> bool {
        if !self.is_up.load(Ordering::SeqCst) {
            return false;
        }
        let mut outdated = self.outdated.lock();
        outdated.all_until.take_if(|until| *until <= Instant::now());
        outdated.all_until.is_none() && !outdated.keys.contains(key)
    }

    /// Reads a key. Never fails and never takes long: without a response it finds nothing.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Found<T> {
        if !self.is_usable(key) {
            return Found::Nothing(None);
        }
        let issued = Instant::now();
        let lookup = self.in_time(self.port.get(key)).await;
        // It may have changed during the lookup.
        if !self.is_usable(key) {
            return Found::Nothing(None);
        }
        match lookup {
            Some(Lookup::Found { value, left }) => match serde_json::from_str(&value) {
                Ok(value) => Found::Value(value, left),
                // Written by another version: it is replaced once it has expired.
                Err(_) => Found::Nothing(None),
            },
            Some(Lookup::Missing(ticket)) => Found::Nothing(Some(Permit { ticket, issued })),
            Some(Lookup::Foreign) | None => Found::Nothing(None),
        }
    }

    pub async fn put(&self, key: &str, value: &impl Serialize, lifetime: Duration, permit: Permit) {
        if permit.issued.elapsed() >= TICKET_LIFETIME / 2 || !self.is_usable(key) {
            return;
        }
        let Ok(text) = serde_json::to_string(value) else { return };
        if text.len() <= VALUE_BYTES_MAX {
            self.in_time(self.port.put(key, &text, lifetime, &permit.ticket)).await;
        }
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T>>) -> Option<T> {
        let result = tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| Err(silent(PATIENCE)));
        // One slow response is no outage: the background task decides that.
        result.inspect_err(|error| self.switch_off(error)).ok()
    }

    fn switch_off(&self, error: &Error) {
        debug!(%error, "shared cache disabled until it responds again");
        *self.failed_at.lock() = Some(Instant::now());
        self.is_up.store(false, Ordering::SeqCst);
        self.ring.notify_one();
    }

    /// Marks keys that have changed in the store.
    pub fn outdate(&self, keys: impl IntoIterator<Item = String>, lifetime_max: Duration) {
        let mut outdated = self.outdated.lock();
        outdated.keys.extend(keys);
        if outdated.keys.len() > OUTDATED_MAX {
            outdated.keys.clear();
            outdated.all_until = Some(Instant::now() + lifetime_max);
        }
        drop(outdated);
        self.ring.notify_one();
    }

    /// Marks everything: all may have changed in the store.
    pub fn outdate_all(&self, lifetime_max: Duration) {
        self.outdated.lock().all_until = Some(Instant::now() + lifetime_max);
    }

    /// Outdates the keys that have changed, and probes whether the cache responds in time.
    async fn refresh(&self) {
        let keys: Vec<String> = self.outdated.lock().keys.iter().cloned().collect();
        let call = async {
            if !keys.is_empty() {
                self.port.outdate(&keys).await?;
            }
            let asked = Instant::now();
            self.port.get(&self.probe).await.map(|_| asked.elapsed())
        };
        match tokio::time::timeout(TASK_PATIENCE, call).await.unwrap_or_else(|_| Err(silent(TASK_PATIENCE))) {
            Ok(elapsed) => {
                let mut outdated = self.outdated.lock();
                keys.iter().for_each(|key| {
                    outdated.keys.remove(key);
                });
                drop(outdated);
                self.outages.succeeded("cache");
                self.is_up.store(elapsed < PATIENCE / 2, Ordering::SeqCst);
            }
            Err(error) => {
                self.switch_off(&error);
                self.outages.failed("shared cache", &error);
            }
        }
    }

    fn must_refresh(&self) -> bool {
        let failed_lately = || self.failed_at.lock().is_some_and(|at| at.elapsed() < RECOVERED_AFTER);
        !self.is_up.load(Ordering::SeqCst) || !self.outdated.lock().keys.is_empty() || failed_lately()
    }
}

fn silent(patience: Duration) -> Error {
    Error::unavailable("cache", format!("no response within {patience:?}"))
}

/// Keeps the shared cache of a node usable.
pub async fn maintain_connection(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let Some(shared) = node.views.cache.shared() else { return Ok(()) };
    loop {
        if shared.must_refresh() {
            shared.refresh().await;
        }
        let must_retry = shared.must_refresh();
        let woken = run.wait(async {
            tokio::select! {
                biased;
                () = tokio::time::sleep(RETRY_INTERVAL), if must_retry => {}
                () = shared.ring.notified(), if shared.is_up.load(Ordering::SeqCst) => {}
                // It was disabled just now.
                else => {}
            }
        });
        if woken.await.is_none() {
            return Ok(());
        }
    }
}
