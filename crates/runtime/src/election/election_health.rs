//! How a campaign's requests to the leases go: for `/v1/cluster`, for metrics, and for whoever watches.
//!
//! The breaker keeps a node that cannot reach the leases from asking for the place again and again. It does not keep a leader
//! from renewing: those attempts end with the lease by themselves, and one that succeeds closes the breaker.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::{BreakerStatus, ElectionStats, HeartbeatOutcome, Metrics, Moment, Now, Settings};
use convoke_core::jobs::event::ClusterEvent;
use convoke_core::ports::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::EventSink;
use super::telemetry;

pub struct ElectionHealth {
    namespace: &'static str,
    stats: Mutex<ElectionStats>,
    clock: Arc<dyn Clock>,
    publish_event: EventSink,
    /// Whether the last request to the leases was answered; none before the first.
    respond: Mutex<Option<bool>>,
    /// From where moments are counted.
    origin: Instant,
}

impl ElectionHealth {
    pub fn new(namespace: &'static str, settings: &Settings, clock: Arc<dyn Clock>, publish_event: EventSink) -> Self {
        telemetry::describe();
        let election_health = ElectionHealth {
            namespace,
            stats: Mutex::new(ElectionStats::new(settings, clock.now())),
            clock,
            publish_event,
            respond: Mutex::default(),
            origin: Instant::now(),
        };
        election_health.publish();
        election_health
    }

    fn moment(&self, instant: Instant) -> Moment {
        Moment(instant.saturating_duration_since(self.origin))
    }

    pub fn metrics(&self) -> Metrics {
        self.stats.lock().metrics()
    }

    pub fn breaker(&self) -> BreakerStatus {
        self.stats.lock().breaker()
    }

    /// Returns whether the leases answered the election's last request; `None` before the first.
    pub fn leases_respond(&self) -> Option<bool> {
        *self.respond.lock()
    }

    /// Notes whether the leases answered a request.
    pub(super) fn asked(&self, answered: bool) {
        *self.respond.lock() = Some(answered);
    }

    /// For how long nothing should be asked.
    pub(super) fn shut_for(&self) -> Option<Duration> {
        let now = self.moment(Instant::now());
        let mut stats = self.stats.lock();
        let is_shut = !stats.may_beat(now);
        let until = stats.opens_until().filter(|_| is_shut);
        drop(stats);
        self.publish();
        until.map(|until| until - now)
    }

    /// A request was answered, or failed, after so long.
    pub(super) fn record_heartbeat(&self, took: Duration, succeeded: bool) {
        self.asked(succeeded);
        let now = Now { at: self.moment(Instant::now()), wall: self.clock.now() };
        let end = if succeeded { HeartbeatOutcome::Complete } else { HeartbeatOutcome::Failed };
        self.stats.lock().record_heartbeat(Moment(now.at.0.saturating_sub(took)), now, end);
        self.publish();
    }

    pub(super) fn record_candidacy(&self) {
        self.stats.lock().record_candidacy();
    }

    pub(super) fn election_took(&self, duration: Duration) {
        self.stats.lock().election_took(duration);
    }

    pub fn leader_changed(&self) {
        self.stats.lock().leader_changed();
    }

    /// Nodes came or went.
    pub fn members_changed(&self, turnover: convoke_core::election::Turnover) {
        self.stats.lock().members_changed(turnover);
    }

    fn publish(&self) {
        let mut stats = self.stats.lock();
        telemetry::stats(self.namespace, stats.metrics().heartbeat_latency_ms, stats.breaker().state);
        let happened = stats.take_events();
        drop(stats);
        for what in happened {
            (self.publish_event)(ClusterEvent::Election { namespace: self.namespace.to_owned(), what });
        }
    }
}
