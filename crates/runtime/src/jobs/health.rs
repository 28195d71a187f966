//! Whether each part of a node works, for `/health`.
//!
//! `/health` is open to every client, so its cost must not depend on the number of requests: one probe of the store and
//! the bus is in flight at a time, and its result is shared for a second. The probe is a task of its own, so that a
//! client that disconnects does not make the next one start it again. The leases are not probed at all. Their
//! connections are the leader's, on S3 every request is paid for, and each attempt of the election shows whether they
//! respond.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::{Error, Result};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::node::{Node, NodeBase};
use crate::election::ElectionHealth;

/// Whether a part of the node works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The part of the node, as `/health` names it.
    pub component: &'static str,
    /// Whether the part responded to its last probe or request.
    pub is_healthy: bool,
    /// May quote a backend: do not show it to unauthorized clients.
    pub detail: Option<String>,
}

impl Check {
    fn of(component: &'static str, result: Result<()>) -> Self {
        let detail = result.err().map(|error| error.to_string());
        Check { component, is_healthy: detail.is_none(), detail }
    }
}

/// The last result.
#[derive(Default)]
pub struct Health(Arc<Mutex<Option<Probed>>>);

struct Probed {
    at: Instant,
    checks: Arc<[Check]>,
}

/// How long a result is shared.
const SHARED_FOR: Duration = Duration::from_secs(1);
/// A backend that does not respond within this is unhealthy.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// Returns the checks of the store, the bus and the leases: at most a second old.
pub async fn backends(node: &Arc<Node>) -> Arc<[Check]> {
    // Held by the probe until it has its result: others wait here and share it.
    let mut last = node.views.health.0.clone().lock_owned().await;
    if let Some(probed) = last.as_ref().filter(|probed| probed.at.elapsed() < SHARED_FOR) {
        return probed.checks.clone();
    }
    let probing = node.clone();
    let probed = tokio::spawn(async move {
        let checks: Arc<[Check]> = probe(&probing, probing.election.health()).await.into();
        *last = Some(Probed { at: Instant::now(), checks: checks.clone() });
        checks
    });
    probed.await.unwrap_or_else(|error| {
        let failed = Err(Error::unavailable("probe", error));
        Arc::new([Check::of("Store", failed)])
    })
}

async fn probe(node: &NodeBase, election: Option<Arc<ElectionHealth>>) -> Vec<Check> {
    let (store, bus) = tokio::join!(in_time("store", node.ports.store.ping()), in_time("bus", node.ports.bus.ping()));
    let store = node.reach.store.record_result(store, node.now());
    let bus = node.reach.bus.record_result(bus, node.now());
    let store = match node.reach.store_failures.recent() {
        Some(what) => store.and(Err(Error::unavailable("store", what))),
        None => store,
    };
    let leases = match election.and_then(|election| election.leases_respond()) {
        Some(true) => Ok(()),
        Some(false) => Err(Error::unavailable("leases", "the last request of the election failed")),
        None => Err(Error::unavailable("leases", "the election has not begun yet")),
    };
    vec![Check::of("Store", store), Check::of("Bus", bus), Check::of("Leases", leases)]
}

async fn in_time(what: &'static str, ping: impl Future<Output = Result<()>>) -> Result<()> {
    let silent = || Error::unavailable(what, format!("no response within {PROBE_PATIENCE:?}"));
    tokio::time::timeout(PROBE_PATIENCE, ping).await.unwrap_or_else(|_| Err(silent()))
}
