//! Whether the node reaches its store and its bus, as its own duties observe with every heartbeat and subscription.
//!
//! No request is sent for this: `/readyz` and `/v1/cluster` cost a backend nothing, however often they are requested.

use std::time::Duration;

use convoke_core::Result;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The observed state of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendState {
    /// The backend, as `/v1/cluster` and errors name it.
    pub component: &'static str,
    /// Whether the last requests reached it.
    pub is_reachable: bool,
    /// Since when that is so, by this node's clock.
    pub since: Timestamp,
    /// The last error of an unavailable backend.
    pub detail: Option<String>,
}

pub struct Backend {
    component: &'static str,
    observed: Mutex<Observed>,
}

struct Observed {
    /// In a row.
    failures: u32,
    since: Timestamp,
    detail: Option<String>,
}

/// A single failure may be a connection that was reset. This many in a row are an outage.
const FAILURES_MIN: u32 = 2;

impl Backend {
    pub fn new(component: &'static str, now: Timestamp) -> Self {
        Backend { component, observed: Mutex::new(Observed { failures: 0, since: now, detail: None }) }
    }

    /// Records the result of a request, and returns it. A backend that rejects a request is reachable.
    pub fn record_result<T>(&self, result: Result<T>, now: Timestamp) -> Result<T> {
        let error = result.as_ref().err().filter(|error| error.is_transient());
        let mut observed = self.observed.lock();
        match error {
            None if observed.failures >= FAILURES_MIN => *observed = Observed { failures: 0, since: now, detail: None },
            None => observed.failures = 0,
            Some(error) => {
                observed.failures = observed.failures.saturating_add(1);
                if observed.failures == FAILURES_MIN {
                    observed.since = now;
                }
                observed.detail = Some(error.to_string());
            }
        }
        result
    }

    pub fn state(&self) -> BackendState {
        let observed = self.observed.lock();
        let is_reachable = observed.failures < FAILURES_MIN;
        let detail = observed.detail.clone().filter(|_| !is_reachable);
        BackendState { component: self.component, is_reachable, since: observed.since, detail }
    }

    pub fn is_reachable(&self) -> bool {
        self.observed.lock().failures < FAILURES_MIN
    }
}

/// Whether a node reaches its backends.
pub struct Reach {
    pub store: Backend,
    pub bus: Backend,
    pub store_failures: StoreFailures,
}

impl Reach {
    pub fn new(now: Timestamp) -> Self {
        Reach {
            store: Backend::new("Store", now),
            bus: Backend::new("Bus", now),
            store_failures: StoreFailures::default(),
        }
    }
}

/// Whether the store lately failed requests of clients and workers. A full disk may still accept the small write by
/// which a store is probed.
#[derive(Default)]
pub struct StoreFailures(Mutex<Option<(Instant, String)>>);

impl StoreFailures {
    /// How long a failure counts if there was no request since.
    const REMEMBERED_FOR: Duration = Duration::from_secs(5);

    pub fn record_result<T>(&self, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => *self.0.lock() = None,
            Err(error) if error.is_transient() && !error.is_locked() => {
                *self.0.lock() = Some((Instant::now(), error.to_string()))
            }
            Err(_) => {}
        }
        result
    }

    pub fn recent(&self) -> Option<String> {
        let last = self.0.lock();
        last.as_ref().filter(|(at, _)| at.elapsed() < Self::REMEMBERED_FOR).map(|(_, what)| what.clone())
    }
}

#[cfg(test)]
mod tests {
    use convoke_core::Error;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn two_failures_in_a_row_are_an_outage_and_one_success_ends_it() {
        let backend = Backend::new("Bus", at(0));
        let fails = |second| backend.record_result::<()>(Err(Error::unavailable("bus", "reset")), at(second)).is_err();
        assert!(fails(1) && backend.record_result(Ok(()), at(2)).is_ok() && fails(3));
        assert!(backend.is_reachable());
        assert!(fails(4) && fails(5));
        let state = backend.state();
        assert_eq!((state.is_reachable, state.since), (false, at(4)));
        assert!(state.detail.is_some_and(|detail| detail.contains("reset")));
        let rejected: Result<()> = Err(Error::Conflict("taken".into()));
        assert!(backend.record_result(rejected, at(6)).is_err());
        assert_eq!(backend.state(), BackendState { component: "Bus", is_reachable: true, since: at(6), detail: None });
    }
}
