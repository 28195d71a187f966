//! The counters of an election and the state of its heartbeats.
//!
//! Shared by everything that holds a lease, so that all of them count, report and stop in the same way.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::breaker::{BreakerState, BreakerStatus, CircuitBreaker};
use super::contention::ContentionWatch;
use super::event::ElectionEvent;
use super::latency::{LatencyWindow, Percentiles};
use super::moment::Moment;
use super::settings::Settings;

/// The time on both clocks: monotonic to measure, wall time to show.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic time.
    pub at: Moment,
    /// Wall time.
    pub wall: Timestamp,
}

/// How a heartbeat ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// Every request had a reply.
    Complete,
    /// The lease is renewed; another request failed or was not waited for.
    CutShort,
    /// The lease was not renewed or not read.
    Failed,
}

/// Counters, circuit breaker and pending events of an elector.
#[derive(Debug, Clone)]
pub struct ElectionStats {
    interval: Duration,
    breaker: CircuitBreaker,
    contention: ContentionWatch,
    latency: LatencyWindow,
    metrics: Metrics,
    /// Time spent in heartbeats that failed or were cut short, since the last complete one.
    cut_off: Duration,
    events: Vec<ElectionEvent>,
}

/// Counters of an election since this process started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ElectionMetrics))]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Requests to the leases that succeeded.
    pub heartbeat_count: u64,
    /// Elections in which this process was a candidate.
    pub election_count: u64,
    /// How long the last election took, from when the lease was seen vacant until a leader was known.
    pub election_duration_ms: u64,
    /// Changes of leader that this process observed.
    pub leader_changes: u64,
    /// Members that joined.
    pub worker_registrations: u64,
    /// Members that are no longer listed: silent for too long, or left. A backend does not show which.
    pub worker_timeouts: u64,
    /// When this process started.
    pub start_time: Timestamp,
    /// When the last successful heartbeat ended.
    pub last_heartbeat_time: Option<Timestamp>,
    /// Requests to the leases that failed.
    pub heartbeat_failures: u64,
    /// Requests that were not sent while the circuit breaker was open.
    pub heartbeats_skipped: u64,
    /// How long the last heartbeats took.
    pub heartbeat_latency_ms: Percentiles,
    /// Tasks of other terms that were rejected.
    pub epochs_refused: u64,
}

impl ElectionStats {
    /// Returns counters that begin at `start`.
    pub fn new(settings: &Settings, start: Timestamp) -> Self {
        ElectionStats {
            interval: settings.heartbeat_interval,
            breaker: CircuitBreaker::new(settings.circuit_breaker),
            contention: ContentionWatch::new(settings.contention),
            latency: LatencyWindow::new(settings.metrics_buffer_size),
            metrics: Metrics {
                heartbeat_count: 0,
                election_count: 0,
                election_duration_ms: 0,
                leader_changes: 0,
                worker_registrations: 0,
                worker_timeouts: 0,
                start_time: start,
                last_heartbeat_time: None,
                heartbeat_failures: 0,
                heartbeats_skipped: 0,
                heartbeat_latency_ms: Percentiles::default(),
                epochs_refused: 0,
            },
            cut_off: Duration::ZERO,
            events: Vec::new(),
        }
    }

    /// Returns whether a heartbeat may be sent. The caller reports its end with `record_heartbeat`.
    pub fn may_send_heartbeat(&mut self, now: Moment) -> bool {
        let allowed = self.on_breaker(|breaker| breaker.allows(now));
        self.metrics.heartbeats_skipped += u64::from(!allowed);
        allowed
    }

    /// Records the end of a heartbeat that was sent at `started`.
    pub fn record_heartbeat(&mut self, started: Moment, now: Now, end: HeartbeatOutcome) {
        let duration = now.at - started;
        let succeeded = end != HeartbeatOutcome::Failed;
        if succeeded {
            self.metrics.heartbeat_count += 1;
            self.metrics.last_heartbeat_time = Some(now.wall);
            self.latency.record(duration);
        } else {
            self.metrics.heartbeat_failures += 1;
        }
        // A heartbeat that hangs is cut off long before the threshold: the lost time is added to the next one.
        let whole = self.cut_off + duration;
        let is_over = match end {
            HeartbeatOutcome::Complete => true,
            // A request that was rejected at once took no time.
            HeartbeatOutcome::CutShort => duration < self.interval / 2,
            HeartbeatOutcome::Failed => false,
        };
        self.cut_off = if is_over { Duration::ZERO } else { whole };
        let contention = self.contention.check(whole, self.interval, now.at);
        self.events.extend(contention.map(ElectionEvent::ContentionDetected));
        self.on_breaker(|breaker| if succeeded { breaker.succeed() } else { breaker.fail(now.at) });
    }

    fn on_breaker<T>(&mut self, act: impl FnOnce(&mut CircuitBreaker) -> T) -> T {
        let before = self.breaker.status();
        let result = act(&mut self.breaker);
        let after = self.breaker.status();
        if after.state != before.state {
            self.events.push(match after.state {
                BreakerState::Open => ElectionEvent::BreakerOpen { failure_count: after.failure_count },
                BreakerState::HalfOpen => ElectionEvent::BreakerHalfOpen { failure_count: after.failure_count },
                BreakerState::Closed => ElectionEvent::BreakerClosed { failure_count: after.failure_count },
            });
        }
        result
    }

    /// Returns the state of the circuit breaker.
    pub fn breaker(&self) -> BreakerStatus {
        self.breaker.status()
    }

    /// Returns when the next heartbeat may be sent, if the breaker is open.
    pub fn opens_until(&self) -> Option<Moment> {
        self.breaker.opens_until()
    }

    /// Returns the counters.
    pub fn metrics(&self) -> Metrics {
        Metrics { heartbeat_latency_ms: self.latency.percentiles(), ..self.metrics.clone() }
    }

    /// Counts an election in which this member is a candidate.
    pub fn record_candidacy(&mut self) {
        self.metrics.election_count += 1;
    }

    /// Records how long the last election took.
    pub fn election_took(&mut self, duration: Duration) {
        self.metrics.election_duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    }

    /// Counts a change of leader.
    pub fn leader_changed(&mut self) {
        self.metrics.leader_changes += 1;
    }

    /// Counts members that joined and left.
    pub fn members_changed(&mut self, turnover: super::roster::Turnover) {
        self.metrics.worker_registrations += turnover.joined;
        self.metrics.worker_timeouts += turnover.gone;
    }

    /// Adds an event for the watchers.
    pub fn push_event(&mut self, what: ElectionEvent) {
        self.events.push(what);
    }

    /// Returns the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<ElectionEvent> {
        std::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contended(stats: &mut ElectionStats) -> Option<Duration> {
        stats.take_events().into_iter().find_map(|what| match what {
            ElectionEvent::ContentionDetected(contention) => Some(contention.duration),
            _ => None,
        })
    }

    /// Sends heartbeats that take `each`; returns after how many of them contention was detected.
    fn heartbeats_until_contended(each: Duration, outcomes: &[bool]) -> Option<(usize, Duration)> {
        let ends: Vec<_> = outcomes
            .iter()
            .map(|through| if *through { HeartbeatOutcome::Complete } else { HeartbeatOutcome::Failed })
            .collect();
        contended_after(each, &ends)
    }

    fn contended_after(each: Duration, ends: &[HeartbeatOutcome]) -> Option<(usize, Duration)> {
        let settings = Settings::default();
        let mut stats = ElectionStats::new(&settings, Timestamp::UNIX_EPOCH);
        let mut at = Moment::default();
        ends.iter().enumerate().find_map(|(place, end)| {
            let started = at;
            stats.record_heartbeat(started, Now { at: started + each, wall: Timestamp::UNIX_EPOCH }, *end);
            at = started + each + settings.heartbeat_interval;
            contended(&mut stats).map(|duration| (place + 1, duration))
        })
    }

    #[test]
    fn beats_that_are_cut_off_below_the_threshold_are_contention_together() {
        // A request to Redis without a reply ends after 4 s, a renewal with the default settings after 4.25 s.
        for each in [4_000, 4_250].map(Duration::from_millis) {
            assert_eq!(heartbeats_until_contended(each, &[false, false, false, false]), Some((3, each * 3)));
            assert_eq!(
                heartbeats_until_contended(each, &[false, false, true]),
                Some((3, each * 3)),
                "slow, then through"
            );
            assert_eq!(
                heartbeats_until_contended(each, &[false, true, false, true]),
                None,
                "one that gets through ends it"
            );
        }
    }

    #[test]
    fn beats_that_are_cut_short_to_renew_in_time_are_contention_together() {
        // A leader whose backend takes 4 s per reply: the renewal is granted, and nothing else is waited for.
        let each = Duration::from_millis(5_001);
        assert_eq!(contended_after(each, &[HeartbeatOutcome::CutShort; 4]), Some((2, each * 2)));
        assert_eq!(
            contended_after(
                each,
                &[HeartbeatOutcome::CutShort, HeartbeatOutcome::Complete, HeartbeatOutcome::CutShort]
            ),
            Some((2, each * 2))
        );
        let quick = Duration::from_millis(4_000);
        assert_eq!(
            contended_after(
                quick,
                &[
                    HeartbeatOutcome::CutShort,
                    HeartbeatOutcome::Complete,
                    HeartbeatOutcome::CutShort,
                    HeartbeatOutcome::Complete
                ]
            ),
            None
        );
        assert_eq!(
            contended_after(Duration::from_secs(1), &[HeartbeatOutcome::CutShort; 100]),
            None,
            "refused, not slow"
        );
    }

    #[test]
    fn beats_that_are_refused_at_once_are_an_outage_and_no_contention() {
        assert_eq!(heartbeats_until_contended(Duration::from_millis(5), &[false; 4]), None);
    }
}
