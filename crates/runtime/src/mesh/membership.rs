//! Keeps this instance in the registry, and removes dead ones if it leads.
//!
//! A heartbeat also carries the host name, so that an instance that was paused, removed and resumed is listed again as
//! before. After a lost connection a heartbeat is sent at once: the registry may have been emptied. If it was, and the
//! number was given to another instance before the next heartbeat, this instance joins again under a new one; pending
//! calls end by their deadline.
//!
//! An instance that could not reach the registry for a while removes none until the others had time for a heartbeat:
//! they may be alive as well.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::mesh::InstanceId;
use convoke_core::{Error, Result};
use futures_util::FutureExt;
use parking_lot::RwLock;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::serving::panic_message;
use super::session::MeshSession;
use super::telemetry;

/// A failed heartbeat is retried after this part of the interval, so that a short outage does not cost the
/// registration.
const RETRY_PART: u32 = 5;
const RETRY_MAX: Duration = Duration::from_secs(1);

pub(super) type GoneFn = dyn Fn(InstanceId) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;
pub(super) type OnGone = RwLock<Option<Arc<GoneFn>>>;

/// Sends heartbeats and removes dead instances. Never returns. This instance has just been registered.
pub(super) async fn keep(session: &Arc<MeshSession>, on_gone: &OnGone) {
    let (interval, ttl) = (session.settings.heartbeat_interval, session.settings.node_ttl);
    let mut next = Instant::now() + interval;
    // While the registry could not be reached, nobody could send a heartbeat: live instances have until then to do so.
    let (mut received, mut sweep_from) = (Instant::now(), Instant::now() + ttl);
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next) => {}
            () = session.missed.notified() => {}
        }
        let started = Instant::now();
        match heartbeat(session).await {
            Ok(live) => {
                session.outages.succeeded("mesh");
                session.meters.nodes(live);
                publish_figures(session).await;
                if started - received > interval * 3 / 2 {
                    sweep_from = started + ttl;
                }
                (received, next) = (started, started + interval);
                if session.lease.is_held() && started >= sweep_from {
                    sweep(session, on_gone).await;
                }
            }
            Err(error) => {
                session.outages.failed("heartbeat", &error);
                next = Instant::now() + (interval / RETRY_PART).min(RETRY_MAX);
            }
        }
    }
}

/// Publishes what lists show of this instance. They do without it: a failure changes nothing.
async fn publish_figures(session: &MeshSession) {
    let Some(membership) = session.membership() else { return };
    if let Err(error) = membership.publish(&session.figures(), session.settings.node_ttl).await {
        debug!(%error, "publishing the figures of this instance failed: lists show older ones, or none");
    }
}

/// Returns how many instances live. Joins again if another instance has this one's number.
async fn heartbeat(session: &Arc<MeshSession>) -> Result<u64> {
    if let Some(membership) = session.membership() {
        match membership.heartbeat(session.settings.node_ttl).await {
            Err(Error::Fenced { .. }) => {
                warn!(
                    instance = membership.id().0,
                    "the mesh lost its data and gave this instance's number to another: joining anew"
                );
                session.leave_registry();
            }
            other => return other,
        }
    }
    session.join().await?;
    info!(instance = session.id().0, "joined the mesh under a new number");
    let membership = session.membership().ok_or_else(|| Error::unavailable("mesh", "it was stopped meanwhile"))?;
    membership.heartbeat(session.settings.node_ttl).await
}

async fn sweep(session: &MeshSession, on_gone: &OnGone) {
    match session.link.sweep(&session.lease.name, session.settings.node_ttl).await {
        Ok(gone) => {
            telemetry::gone(gone.len());
            for id in gone {
                info!(instance = session.id().0, gone = id.0, "instance is gone from the mesh");
                call_on_gone(session, on_gone, id);
            }
        }
        Err(Error::Fenced { .. }) => session.lease.lost(),
        Err(error @ Error::Unknown { .. }) => {
            warn!(%error, "removing dead instances may have failed: on_gone may not be called for them")
        }
        Err(error) => session.outages.failed("removing dead instances", &error),
    }
}

/// In a task of its own: a callback that takes long or panics does not delay the next ones.
fn call_on_gone(session: &MeshSession, on_gone: &OnGone, id: InstanceId) {
    let Some(callback) = on_gone.read().clone() else { return };
    let abandoned = session.abandoned.clone();
    session.tasks.spawn(async move {
        let call = AssertUnwindSafe(async move { callback(id).await }).catch_unwind();
        if let Some(Err(panic)) = abandoned.run_until_cancelled(call).await {
            warn!(gone = id.0, panic = panic_message(&*panic), "on_gone handler panicked");
        }
    });
}
