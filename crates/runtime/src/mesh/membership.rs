//! Keeps the registry: says that we are alive, and where we lead, removes those that are not.
//!
//! A beat also says our host name, so that an instance that was paused, swept out and woken is there again as it was. After
//! a lost connection it beats at once: the registry may have been emptied.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::Error;
use convoke_core::mesh::InstanceId;
use futures_util::FutureExt;
use parking_lot::RwLock;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::serving::panic_message;
use super::station::Station;
use super::telemetry;

/// A beat that failed is tried again after this part of the interval, so that a short outage does not cost the place.
const RETRY_PART: u32 = 5;
const RETRY_MAX: Duration = Duration::from_secs(1);

pub(super) type GoneFn = dyn Fn(InstanceId) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;
pub(super) type OnGone = RwLock<Option<Arc<GoneFn>>>;

/// Beats and sweeps, for ever. We have just been registered.
pub(super) async fn keep(station: &Station, on_gone: &OnGone) {
    let interval = station.settings.heartbeat_interval;
    let mut next = Instant::now() + interval;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = station.missed.notified() => {}
        }
        let started = Instant::now();
        next = match station.link.beat(station.id(), &station.hostname).await {
            Ok(()) => started + interval,
            Err(error) => {
                warn!(%error, instance = station.id().0, "cannot tell the mesh that we are alive");
                Instant::now() + (interval / RETRY_PART).min(RETRY_MAX)
            }
        };
        if station.lease.is_held() {
            sweep(station, on_gone).await;
        }
        if let Ok(nodes) = station.link.nodes(station.settings.node_ttl).await {
            station.meters.nodes(nodes.len());
        }
    }
}

async fn sweep(station: &Station, on_gone: &OnGone) {
    match station.link.sweep(&station.lease.holder, station.settings.node_ttl).await {
        Ok(gone) => {
            telemetry::gone(gone.len());
            for id in gone {
                info!(instance = id.0, "an instance is gone from the mesh");
                tell_gone(station, on_gone, id);
            }
        }
        Err(Error::Fenced { .. }) => station.lease.lost(),
        Err(error) => debug!(%error, "cannot sweep the mesh"),
    }
}

/// In a task of its own: one that takes long or panics keeps nobody else from being told of.
fn tell_gone(station: &Station, on_gone: &OnGone, id: InstanceId) {
    let Some(callback) = on_gone.read().clone() else { return };
    let abandoned = station.abandoned.clone();
    station.tasks.spawn(async move {
        let telling = AssertUnwindSafe(async move { callback(id).await }).catch_unwind();
        if let Some(Err(panic)) = abandoned.run_until_cancelled(telling).await {
            warn!(instance = id.0, panic = panic_message(&*panic), "who was told of a lost instance panicked");
        }
    });
}
