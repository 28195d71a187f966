//! The vital signs of an election: how its heartbeats go, and whether they should go on.
//!
//! Shared by everything that beats for a lease, so that all of them count, complain and give up in the same way.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::breaker::{BreakerState, BreakerStatus, CircuitBreaker};
use super::contention::ContentionWatch;
use super::event::ElectionEvent;
use super::latency::{LatencyWindow, Percentiles};
use super::moment::Moment;
use super::settings::Settings;

/// The time, on both clocks: one to measure by, one to show.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub at: Moment,
    pub wall: Timestamp,
}

/// How a heartbeat ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// Everything that it asked for was answered.
    Complete,
    /// The lease is renewed; something else was not waited for, or failed.
    CutShort,
    Failed,
}

#[derive(Debug, Clone)]
pub struct ElectionStats {
    interval: Duration,
    breaker: CircuitBreaker,
    contention: ContentionWatch,
    latency: LatencyWindow,
    metrics: Metrics,
    /// Time spent in heartbeats that failed or were cut short, since the last one that was whole.
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
    pub leader_changes: u64,
    /// Members that joined.
    pub worker_registrations: u64,
    /// Members that are no longer listed, whether they were silent for too long or left: a backend does not tell which.
    pub worker_timeouts: u64,
    pub start_time: Timestamp,
    pub last_heartbeat_time: Option<Timestamp>,
    /// Requests to the leases that failed.
    pub heartbeat_failures: u64,
    /// Requests that were not sent while the circuit breaker was open.
    pub heartbeats_skipped: u64,
    pub heartbeat_latency_ms: Percentiles,
    /// Tasks of other terms that were rejected.
    pub epochs_refused: u64,
}

impl ElectionStats {
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

    /// Whether a heartbeat may go out. One that may must be ended by `record_heartbeat`.
    pub fn may_beat(&mut self, now: Moment) -> bool {
        let allowed = self.on_breaker(|breaker| breaker.allows(now));
        self.metrics.heartbeats_skipped += u64::from(!allowed);
        allowed
    }

    /// A heartbeat that went out at `started` came to its end.
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
        // A beat that hangs is cut off long before the threshold: the time that was spent in vain counts with the next one.
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
        let answer = act(&mut self.breaker);
        let after = self.breaker.status();
        if after.state != before.state {
            self.events.push(match after.state {
                BreakerState::Open => ElectionEvent::BreakerOpen { failure_count: after.failure_count },
                BreakerState::HalfOpen => ElectionEvent::BreakerHalfOpen { failure_count: after.failure_count },
                BreakerState::Closed => ElectionEvent::BreakerClosed { failure_count: after.failure_count },
            });
        }
        answer
    }

    pub fn breaker(&self) -> BreakerStatus {
        self.breaker.status()
    }

    /// When the next heartbeat may go out, where the breaker is open.
    pub fn opens_until(&self) -> Option<Moment> {
        self.breaker.opens_until()
    }

    pub fn metrics(&self) -> Metrics {
        Metrics { heartbeat_latency_ms: self.latency.percentiles(), ..self.metrics.clone() }
    }

    pub fn record_candidacy(&mut self) {
        self.metrics.election_count += 1;
    }

    pub fn election_took(&mut self, duration: Duration) {
        self.metrics.election_duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    }

    pub fn leader_changed(&mut self) {
        self.metrics.leader_changes += 1;
    }

    pub fn members_changed(&mut self, turnover: super::roster::Turnover) {
        self.metrics.worker_registrations += turnover.joined;
        self.metrics.worker_timeouts += turnover.gone;
    }

    pub fn push_event(&mut self, what: ElectionEvent) {
        self.events.push(what);
    }

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

    /// Beats one after the other, each of which takes `each`; tells after how many of them contention was detected.
    fn beats_until_contended(each: Duration, outcomes: &[bool]) -> Option<(usize, Duration)> {
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
        // A Redis that does not respond is given up after 4 s, a renewal at the defaults after 4.25 s.
        for each in [4_000, 4_250].map(Duration::from_millis) {
            assert_eq!(beats_until_contended(each, &[false, false, false, false]), Some((3, each * 3)));
            assert_eq!(beats_until_contended(each, &[false, false, true]), Some((3, each * 3)), "slow, then through");
            assert_eq!(beats_until_contended(each, &[false, true, false, true]), None, "one that gets through ends it");
        }
    }

    #[test]
    fn beats_that_are_cut_short_to_renew_in_time_are_contention_together() {
        // A leader whose backend takes 4 s for each response: the renewal is granted, and nothing else is waited for.
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
        assert_eq!(beats_until_contended(Duration::from_millis(5), &[false; 4]), None);
    }
}
