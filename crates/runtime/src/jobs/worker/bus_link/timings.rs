//! How often a worker on the bus sends heartbeats, and how long it may be silent: set by the leader.
//!
//! The heartbeats of the leader carry both. Until one is received the link sends heartbeats every second, so that a
//! worker is not declared dead before it knows; if none carries them, the link's own settings apply. If a worker sends
//! heartbeats less often than the cluster expects, the link sends them in its place.

use std::time::Duration;

use convoke_core::duration::format;
use convoke_core::jobs::wire::{CoordinatorHeartbeat, NodeRole};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::BusLinkSettings;

/// How often the link sends heartbeats while it does not know the timings of the cluster, and for how long it does so.
const UNPUBLISHED_INTERVAL: Duration = Duration::from_secs(1);
const UNPUBLISHED_FOR: Duration = Duration::from_secs(60);
/// Lower bound, however short the leader's interval is.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

pub(super) struct Timings {
    configured: BusLinkSettings,
    started: Instant,
    reported: Mutex<Option<BusLinkSettings>>,
    changed: Notify,
}

impl Timings {
    pub(super) fn new(configured: BusLinkSettings) -> Self {
        Timings { configured, started: Instant::now(), reported: Mutex::default(), changed: Notify::new() }
    }

    /// Returns the timings that apply now.
    pub(super) fn current(&self) -> BusLinkSettings {
        self.reported.lock().unwrap_or(self.configured)
    }

    /// Follows a leader's heartbeat.
    pub(super) fn follow(&self, heartbeat: &CoordinatorHeartbeat) {
        if heartbeat.role != Some(NodeRole::Leader) {
            return;
        }
        // A leader without timings in its heartbeat sets none.
        let settings = BusLinkSettings {
            heartbeat_interval: heartbeat.worker_heartbeat_interval.unwrap_or(self.configured.heartbeat_interval),
            stale_after: heartbeat.worker_stale_after.unwrap_or(self.configured.stale_after),
        };
        if self.reported.lock().replace(settings) == Some(settings) {
            return;
        }
        if settings.heartbeat_interval < self.configured.heartbeat_interval {
            tracing::warn!(
                heartbeat_interval = %format(settings.heartbeat_interval),
                stale_after = %format(settings.stale_after),
                configured = %format(self.configured.heartbeat_interval),
                "heartbeat interval is longer than the cluster's: the shorter one applies"
            );
        }
        self.changed.notify_waiters();
    }

    /// Returns how often the link has to send heartbeats. `None` if the worker's own are enough.
    fn interval(&self) -> Option<Duration> {
        let (reported, configured) = (*self.reported.lock(), self.configured.heartbeat_interval);
        let interval = match reported {
            Some(reported) => reported.heartbeat_interval.max(INTERVAL_MIN),
            None if self.started.elapsed() < UNPUBLISHED_FOR => UNPUBLISHED_INTERVAL,
            None => configured,
        };
        (interval < configured).then_some(interval)
    }

    /// Returns when it is time for a heartbeat of the link's own.
    pub(super) async fn due(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.interval() {
                Some(interval) => {
                    if tokio::time::timeout(interval, changed).await.is_err() {
                        return;
                    }
                }
                None => changed.await,
            }
        }
    }
}
