//! Who sweeps: the holder of the mesh's lock.
//!
//! The lock is a uuid that is new for every run. Its holder counts from the moment before it asked, on its own clock, and
//! stops believing in it a little before it ends there: a slow answer cannot stretch it, and an instance that was paused
//! knows at once that it may have lost it. The registry is fenced by it besides.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;
use uuid::Uuid;

use super::session::MeshSession;
use super::telemetry::Meters;

/// The part of a lock's time that the holder does not count on.
const MARGIN_PART: u32 = 10;

pub(super) struct Lease {
    pub holder: String,
    until: Mutex<Option<Instant>>,
    meters: Arc<Meters>,
}

impl Lease {
    pub(super) fn new(meters: Arc<Meters>) -> Self {
        Lease { holder: Uuid::now_v7().to_string(), until: Mutex::new(None), meters }
    }

    pub(super) fn is_held(&self) -> bool {
        self.until.lock().is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn lost(&self) {
        *self.until.lock() = None;
        self.meters.leads(false);
    }

    fn held(&self, asked: Instant, ttl: Duration) {
        *self.until.lock() = Some(asked + believed(ttl));
        self.meters.leads(true);
    }
}

/// How long who is given a lock counts on it.
pub(super) fn believed(ttl: Duration) -> Duration {
    ttl - ttl / MARGIN_PART
}

/// Takes the lock when it is free and keeps it, for ever.
pub(super) async fn compete_for_lease(session: &MeshSession) {
    let settings = &session.settings;
    loop {
        let asked = Instant::now();
        match session.link.lead(&session.lease.holder, settings.leader_ttl).await {
            Ok(true) => {
                session.lease.held(asked, settings.leader_ttl);
                info!(instance = session.id().0, "this instance leads its mesh");
                keep(session).await;
                session.lease.lost();
                info!(instance = session.id().0, "this instance no longer leads its mesh");
            }
            Ok(false) => {}
            Err(error) => session.outages.failed("election", &error),
        }
        tokio::time::sleep(settings.leader_retry_delay).await;
    }
}

/// Until it is lost.
async fn keep(session: &MeshSession) {
    let settings = &session.settings;
    loop {
        tokio::time::sleep(settings.leader_renew_interval).await;
        let asked = Instant::now();
        match session.link.renew(&session.lease.holder, settings.leader_ttl).await {
            Ok(true) => session.lease.held(asked, settings.leader_ttl),
            Ok(false) => return,
            Err(error) => {
                session.outages.failed("lock renewal", &error);
                if !session.lease.is_held() {
                    return;
                }
            }
        }
    }
}
