//! Log lines about backends and tasks that fail at present.
//!
//! While a backend is unavailable, every duty of a process fails, several times a second. [`Outages`] turns these
//! failures into one line when the outage begins, one line a minute while it lasts, and one when it is over; each names
//! the backend's address. A task that fails for another reason is logged the same way, by the name of the task.
//! Everything in between is logged at debug level.
//!
//! A backend counts as available again when a call to it succeeded and none has failed for `QUIET`: while it recovers,
//! some calls succeed and others fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_core::{Error, duration};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

/// Interval of the log lines while an outage lasts.
const REPEAT: Duration = Duration::from_secs(60);
/// How long no call may have failed before an outage counts as over. Longer than a call to Redis may take: a call that
/// began during the outage may fail after others have succeeded.
const QUIET: Duration = Duration::from_secs(5);

/// The outages of a process: backends that it cannot reach and tasks that fail.
#[derive(Default)]
pub struct Outages {
    backends: Vec<Backend>,
    /// Length of `current`, so that a success need not take the lock.
    count: AtomicUsize,
    current: Mutex<BTreeMap<&'static str, Outage>>,
}

struct Backend {
    /// The names that errors use. Several if one server has several roles.
    names: Vec<&'static str>,
    /// Without credentials.
    address: String,
}

/// One outage, from the first failure on.
struct Outage {
    since: Instant,
    logged_at: Instant,
    failed_at: Instant,
    /// The first success after the last failure.
    succeeded_at: Option<Instant>,
    failures: u64,
}

impl Outage {
    fn begin(now: Instant) -> Self {
        Outage { since: now, logged_at: now, failed_at: now, succeeded_at: None, failures: 1 }
    }

    /// Counts a failure. Returns whether it is time for a line.
    fn fail(&mut self, now: Instant) -> bool {
        (self.failed_at, self.succeeded_at) = (now, None);
        self.failures = self.failures.saturating_add(1);
        let is_due = now.duration_since(self.logged_at) >= REPEAT;
        if is_due {
            self.logged_at = now;
        }
        is_due
    }

    /// Records a success. Returns whether the outage is over.
    fn succeed(&mut self, now: Instant) -> bool {
        self.succeeded_at.get_or_insert(now);
        now.duration_since(self.failed_at) >= QUIET
    }

    fn lasted(&self, now: Instant) -> String {
        in_seconds(now.duration_since(self.since))
    }
}

fn in_seconds(time: Duration) -> String {
    duration::format(Duration::from_secs(time.as_secs_f64().round() as u64))
}

impl Outages {
    /// Watches these backends: the name that errors use for each, and its address. Roles that share an address are one
    /// backend.
    pub fn new(backends: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let mut outages = Outages::default();
        for (name, address) in backends {
            let known = outages.backends.iter_mut().find(|known| !address.is_empty() && known.address == address);
            match known {
                Some(backend) => backend.names.push(name),
                None => outages.backends.push(Backend { names: vec![name], address }),
            }
        }
        outages
    }

    /// Returns the name and address of the backend that an error names. A process with a single backend means that one.
    fn backend(&self, what: &'static str) -> (&'static str, Option<&Backend>) {
        let named = self.backends.iter().find(|backend| backend.names.contains(&what));
        let only = match self.backends.as_slice() {
            [only] => Some(only),
            _ => None,
        };
        let backend = named.or(only);
        (backend.and_then(|backend| backend.names.first().copied()).unwrap_or(what), backend)
    }

    /// Logs that `task` failed, unless that was logged a moment ago.
    pub fn failed(&self, task: &'static str, error: &Error) {
        match error {
            Error::Unavailable { what, .. } | Error::Unknown { what, .. } => self.backend_failed(task, what, error),
            _ => self.task_failed(task, error),
        }
    }

    fn backend_failed(&self, task: &'static str, what: &'static str, error: &Error) {
        let (key, backend) = self.backend(what);
        let names = backend.map_or_else(|| what.to_owned(), |backend| backend.names.join(","));
        let address = backend.map(|backend| backend.address.as_str()).filter(|address| !address.is_empty());
        let now = Instant::now();
        match self.decide(key, now) {
            LogDecision::First => warn!(backend = names, address, task, %error, "backend unavailable"),
            LogDecision::Again { away_for, failures } => {
                warn!(backend = names, address, away_for, failures, task, %error, "backend still unavailable");
            }
            LogDecision::None => debug!(backend = names, address, task, %error, "backend unavailable"),
        }
    }

    /// Logs that requests of clients or workers fail, unless that was logged a moment ago or their backend is known to
    /// be unavailable. One request may fail because of others (a busy pool, a locked row), so it does not count as an
    /// outage of the backend.
    pub fn request_failed(&self, task: &'static str, error: &Error) {
        let (Error::Unavailable { what, .. } | Error::Unknown { what, .. }) = error else { return };
        let is_known = self.current.lock().contains_key(self.backend(what).0);
        match if is_known { LogDecision::None } else { self.decide(task, Instant::now()) } {
            LogDecision::First => warn!(task, %error, "requests fail"),
            LogDecision::Again { away_for, failures } => {
                warn!(task, failing_for = away_for, failures, %error, "requests still fail");
            }
            LogDecision::None => debug!(task, %error, "request failed"),
        }
    }

    fn task_failed(&self, task: &'static str, error: &Error) {
        match self.decide(task, Instant::now()) {
            LogDecision::First => error!(task, %error, "task failed"),
            LogDecision::Again { away_for, failures } => {
                error!(task, failing_for = away_for, failures, %error, "task still fails")
            }
            LogDecision::None => debug!(task, %error, "task failed"),
        }
    }

    fn decide(&self, key: &'static str, now: Instant) -> LogDecision {
        let mut current = self.current.lock();
        let known = current.get_mut(key).filter(|outage| now.duration_since(outage.failed_at) < REPEAT);
        let line = match known {
            None => {
                current.insert(key, Outage::begin(now));
                LogDecision::First
            }
            Some(outage) => {
                let is_due = outage.fail(now);
                let again = || LogDecision::Again { away_for: outage.lasted(now), failures: outage.failures };
                if is_due { again() } else { LogDecision::None }
            }
        };
        self.count.store(current.len(), Ordering::Relaxed);
        line
    }

    /// Logs that a backend is available again, if it was not. Called after a call to it succeeded.
    pub fn succeeded(&self, what: &'static str) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (key, backend) = self.backend(what);
        let now = Instant::now();
        let Some(outage) = self.end(key, now) else { return };
        let (away_for, failures) = (outage.lasted(outage.succeeded_at.unwrap_or(now)), outage.failures);
        match backend {
            Some(Backend { names, address }) => {
                let (backend, address) = (names.join(","), Some(address.as_str()).filter(|text| !text.is_empty()));
                info!(backend, address, away_for, failures, "backend available again");
            }
            None => info!(task = what, failing_for = away_for, failures, "task succeeds again"),
        }
    }

    fn end(&self, key: &'static str, now: Instant) -> Option<Outage> {
        let mut current = self.current.lock();
        let is_over = current.get_mut(key).is_some_and(|outage| outage.succeed(now));
        let outage = if is_over { current.remove(key) } else { None };
        self.count.store(current.len(), Ordering::Relaxed);
        outage
    }

    /// Returns whether a backend is unavailable.
    #[cfg(test)]
    fn is_away(&self, what: &'static str) -> bool {
        self.current.lock().contains_key(self.backend(what).0)
    }
}

/// The log line for a failure, if any.
#[derive(Debug, PartialEq, Eq)]
enum LogDecision {
    First,
    Again { away_for: String, failures: u64 },
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outages() -> Outages {
        Outages::new([
            ("store", "postgres://db/app".to_owned()),
            ("bus", "redis://bus:6379".to_owned()),
            ("leases", "postgres://db/app".to_owned()),
        ])
    }

    fn away(what: &'static str) -> Error {
        Error::unavailable(what, "connection refused")
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_a_line_at_its_beginning_and_one_a_minute() {
        let outages = outages();
        let mut lines = Vec::new();
        // Four failures a second, for two and a half minutes.
        for _ in 0..600 {
            lines.push(outages.decide("bus", Instant::now()));
            tokio::time::advance(Duration::from_millis(250)).await;
        }
        assert_eq!(lines[0], LogDecision::First);
        let logged: Vec<_> = lines.iter().filter(|line| **line != LogDecision::None).collect();
        let again = |away_for: &str, failures| LogDecision::Again { away_for: away_for.into(), failures };
        assert_eq!(logged, [&LogDecision::First, &again("1m", 241), &again("2m", 481)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_is_back_once_a_call_succeeds_and_none_has_failed_lately() {
        let outages = outages();
        outages.failed("heartbeat", &away("bus"));
        outages.succeeded("bus");
        assert!(outages.is_away("bus"), "a success among failures does not end it");
        tokio::time::advance(QUIET).await;
        outages.succeeded("store");
        assert!(outages.is_away("bus"), "another backend's success does not end it");
        outages.succeeded("bus");
        assert!(!outages.is_away("bus"));
        assert_eq!(outages.decide("bus", Instant::now()), LogDecision::First, "the next outage is logged again");
    }

    #[tokio::test(start_paused = true)]
    async fn roles_that_share_a_server_are_one_backend() {
        let outages = outages();
        outages.failed("heartbeat", &away("leases"));
        assert!(outages.is_away("store") && !outages.is_away("bus"));
        assert_eq!(outages.backend("leases").1.map(|backend| backend.names.join(",")).as_deref(), Some("store,leases"));
        let single = Outages::new([("the coordinator", "http://c:3000".to_owned())]);
        single.failed("poll", &away("bus"));
        assert!(single.is_away("the coordinator"), "a process with one backend means that one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_fails_is_no_outage_of_its_backend() {
        let outages = outages();
        outages.request_failed("enqueue", &away("store"));
        assert!(!outages.is_away("store"));
        assert_eq!(outages.decide("enqueue", Instant::now()), LogDecision::None, "logged once");
        outages.request_failed("cancel", &Error::Conflict("over".into()));
        assert_eq!(outages.decide("cancel", Instant::now()), LogDecision::First, "a refusal is the client's business");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_for_its_own_reasons_is_logged_by_its_name() {
        let outages = outages();
        outages.failed("dispatcher", &Error::Conflict("taken".into()));
        assert_eq!(outages.decide("dispatcher", Instant::now()), LogDecision::None);
        assert!(!outages.is_away("bus") && !outages.is_away("store"));
    }
}
