//! How a campaign's requests to the leases go: for `/v1/cluster`, for metrics, and for whoever watches.
//!
//! The breaker keeps a node that cannot reach the leases from asking for the place again and again. It does not keep a leader
//! from renewing: those attempts end with the lease by themselves, and one that succeeds closes the breaker.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::{Beat, BreakerStatus, Metrics, Moment, Now, Pulse, Settings};
use convoke_core::jobs::event::Happening;
use convoke_core::ports::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Tell;
use super::telemetry;

pub struct Vitals {
    namespace: &'static str,
    pulse: Mutex<Pulse>,
    clock: Arc<dyn Clock>,
    tell: Tell,
    /// Whether the last request to the leases was answered; none before the first.
    respond: Mutex<Option<bool>>,
    /// From where moments are counted.
    origin: Instant,
}

impl Vitals {
    pub fn new(namespace: &'static str, settings: &Settings, clock: Arc<dyn Clock>, tell: Tell) -> Self {
        telemetry::describe();
        let vitals = Vitals {
            namespace,
            pulse: Mutex::new(Pulse::new(settings, clock.now())),
            clock,
            tell,
            respond: Mutex::default(),
            origin: Instant::now(),
        };
        vitals.publish();
        vitals
    }

    fn moment(&self, instant: Instant) -> Moment {
        Moment(instant.saturating_duration_since(self.origin))
    }

    pub fn metrics(&self) -> Metrics {
        self.pulse.lock().metrics()
    }

    pub fn breaker(&self) -> BreakerStatus {
        self.pulse.lock().breaker()
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
        let mut pulse = self.pulse.lock();
        let is_shut = !pulse.may_beat(now);
        let until = pulse.opens_until().filter(|_| is_shut);
        drop(pulse);
        self.publish();
        until.map(|until| until - now)
    }

    /// A request was answered, or failed, after so long.
    pub(super) fn beaten(&self, took: Duration, succeeded: bool) {
        self.asked(succeeded);
        let now = Now { at: self.moment(Instant::now()), wall: self.clock.now() };
        let end = if succeeded { Beat::Whole } else { Beat::Failed };
        self.pulse.lock().beaten(Moment(now.at.0.saturating_sub(took)), now, end);
        self.publish();
    }

    pub(super) fn stood(&self) {
        self.pulse.lock().stood();
    }

    pub(super) fn election_took(&self, duration: Duration) {
        self.pulse.lock().election_took(duration);
    }

    pub fn leader_changed(&self) {
        self.pulse.lock().leader_changed();
    }

    /// Nodes came or went.
    pub fn members_changed(&self, turnover: convoke_core::election::Turnover) {
        self.pulse.lock().members_changed(turnover);
    }

    fn publish(&self) {
        let mut pulse = self.pulse.lock();
        telemetry::pulse(self.namespace, pulse.metrics().heartbeat_latency_ms, pulse.breaker().state);
        let happened = pulse.take_events();
        drop(pulse);
        for what in happened {
            (self.tell)(Happening::Election { namespace: self.namespace.to_owned(), what });
        }
    }
}
