//! A circuit breaker: stops sending requests to a backend that does not respond.
//!
//! While it is closed, every heartbeat is sent. After `failure_threshold` failures in a row it opens: heartbeats are
//! skipped, and a leader, whose lease is then not renewed, fences itself. After `reset_timeout` it is half-open: a few
//! attempts decide whether it closes or opens again.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::moment::Moment;
use super::settings::BreakerSettings;
use crate::duration;

/// A circuit breaker for the heartbeats of one elector.
#[derive(Debug, Clone)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    state: State,
    failures: u32,
    trips: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Moment },
    HalfOpen { attempts: u32 },
}

/// Whether requests are sent: all of them (`closed`), none (`open`), or a few to find out (`half-open`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BreakerState {
    /// All requests are sent.
    #[default]
    Closed,
    /// No request is sent.
    Open,
    /// A few requests are sent, to test the backend.
    HalfOpen,
}

/// The state of a circuit breaker. JSON has the reset timeout also in milliseconds, as `resetTimeoutMs`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerStatus {
    /// Whether requests are sent.
    pub state: BreakerState,
    /// Failures in a row.
    pub failure_count: u32,
    /// Failures in a row after which it opens.
    pub failure_threshold: u32,
    /// How long it stays open.
    #[serde(with = "crate::duration")]
    pub reset_timeout: Duration,
    /// How often it opened.
    pub trips: u64,
}

/// The JSON of a [`BreakerStatus`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Breaker, description = "The state of a circuit breaker."))]
struct Shown {
    state: BreakerState,
    /// Failures in a row.
    failure_count: u32,
    /// Failures in a row after which it opens.
    failure_threshold: u32,
    /// How long it stays open.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "30s"))]
    #[serde(with = "crate::duration")]
    reset_timeout: Duration,
    /// The same in milliseconds.
    #[cfg_attr(feature = "openapi", schema(example = 30_000))]
    reset_timeout_ms: u64,
    /// How often it opened.
    trips: u64,
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for BreakerStatus {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        Shown::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for BreakerStatus {
    fn name() -> std::borrow::Cow<'static, str> {
        Shown::name()
    }

    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
        Shown::schemas(schemas);
    }
}

impl Serialize for BreakerStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let BreakerStatus { state, failure_count, failure_threshold, reset_timeout, trips } = *self;
        let reset_timeout_ms = duration::ms(reset_timeout);
        Shown { state, failure_count, failure_threshold, reset_timeout, reset_timeout_ms, trips }.serialize(serializer)
    }
}

impl CircuitBreaker {
    /// Returns a closed breaker.
    pub fn new(settings: BreakerSettings) -> Self {
        CircuitBreaker { settings, state: State::Closed, failures: 0, trips: 0 }
    }

    /// Returns whether an attempt may be made. The caller reports its end with `succeed` or `fail`.
    pub fn allows(&mut self, now: Moment) -> bool {
        if matches!(self.state, State::Open { until } if now >= until) {
            self.state = State::HalfOpen { attempts: 0 };
        }
        match &mut self.state {
            State::Closed => true,
            State::Open { .. } => false,
            State::HalfOpen { attempts } => {
                *attempts += 1;
                *attempts <= self.settings.half_open_max_attempts
            }
        }
    }

    /// Records a successful attempt: closes the breaker.
    pub fn succeed(&mut self) {
        self.state = State::Closed;
        self.failures = 0;
    }

    /// Records a failed attempt: may open the breaker.
    pub fn fail(&mut self, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            State::Closed => self.failures >= self.settings.failure_threshold,
            State::HalfOpen { attempts } => attempts >= self.settings.half_open_max_attempts,
            State::Open { .. } => false,
        };
        if opens {
            self.state = State::Open { until: now + self.settings.reset_timeout };
            self.trips += 1;
        }
    }

    /// Returns the present state.
    pub fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns when the next attempt may be made; `None` if one may be made now.
    pub fn opens_until(&self) -> Option<Moment> {
        match self.state {
            State::Open { until } => Some(until),
            _ => None,
        }
    }

    /// Returns the state and the counters, for display.
    pub fn status(&self) -> BreakerStatus {
        BreakerStatus {
            state: self.state(),
            failure_count: self.failures,
            failure_threshold: self.settings.failure_threshold,
            reset_timeout: self.settings.reset_timeout,
            trips: self.trips,
        }
    }
}

impl BreakerState {
    /// Returns the value of the gauge: 0 closed, 1 half-open, 2 open.
    pub const fn as_number(self) -> u8 {
        match self {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: Duration = Duration::from_secs(30);

    fn tripped(now: Moment, half_open_max_attempts: u32) -> CircuitBreaker {
        let settings = BreakerSettings { half_open_max_attempts, ..BreakerSettings::default() };
        let mut breaker = CircuitBreaker::new(settings);
        for _ in 0..5 {
            assert!(breaker.allows(now), "closed until the threshold");
            breaker.fail(now);
        }
        breaker
    }

    #[test]
    fn it_opens_at_the_threshold_of_failures_in_a_row() {
        let now = Moment::default();
        let mut breaker = CircuitBreaker::new(BreakerSettings::default());
        for _ in 0..4 {
            breaker.fail(now);
        }
        breaker.succeed();
        assert_eq!(breaker.status().failure_count, 0, "a success begins the row anew");
        let mut breaker = tripped(now, 1);
        assert!(!breaker.allows(now + (RESET - Duration::from_millis(1))));
        let json = serde_json::to_string(&breaker.status()).expect("serializes");
        let expected = r#"{"state":"open","failureCount":5,"failureThreshold":5,"resetTimeout":"30s","resetTimeoutMs":30000,"trips":1}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<BreakerStatus>(&json).expect("is read back"), breaker.status());
    }

    #[test]
    fn half_open_it_closes_by_a_success_and_opens_by_a_failure() {
        let now = Moment::default();
        let mut breaker = tripped(now, 1);
        assert!(breaker.allows(now + RESET));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(!breaker.allows(now + RESET), "one attempt at a time");
        breaker.fail(now + RESET);
        assert_eq!((breaker.state(), breaker.status().trips), (BreakerState::Open, 2));
        assert!(!breaker.allows(now + RESET));
        assert!(breaker.allows(now + RESET * 2));
        breaker.succeed();
        assert_eq!((breaker.state(), breaker.status().failure_count), (BreakerState::Closed, 0));
    }

    #[test]
    fn half_open_it_makes_as_many_attempts_as_it_may() {
        let now = Moment::default();
        let mut breaker = tripped(now, 3);
        for _ in 0..3 {
            assert!(breaker.allows(now + RESET));
            assert_eq!(breaker.state(), BreakerState::HalfOpen);
            breaker.fail(now + RESET);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}
