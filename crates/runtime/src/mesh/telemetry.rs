//! Metrics of an instance.
//!
//! A type is a label only if our own code calls it: types that other processes send make no new labels. Even so their
//! number is limited. Each start creates its counters anew, so that a recorder that was installed before it receives
//! them all.
//!
//! Instances in one process share these names. Calls and handlers add up, and so do those that lead; the number of
//! nodes is that of the last update. An instance takes its own contribution back when it stops or is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use parking_lot::{Mutex, RwLock};

/// Beyond this many types, calls are counted under [`OTHER`].
const TYPES_MAX: usize = 1_000;
/// The calls whose times are kept, for the figures that an instance publishes.
const RECENT_MAX: usize = 256;
const OTHER: &str = "other";
const OK: &str = "ok";

/// Describes every metric, so that `/metrics` explains itself.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!("convoke_mesh_calls_total", "Calls that ended, by type and by how they did");
    describe_histogram!("convoke_mesh_call_seconds", Unit::Seconds, "From a call to its reply or its failure");
    describe_gauge!("convoke_mesh_in_flight", "Calls that wait for their reply");
    describe_gauge!("convoke_mesh_handlers", "Handlers that run");
    describe_gauge!("convoke_mesh_nodes", "Live instances of the mesh, as this one sees it");
    describe_gauge!("convoke_mesh_leader", "Instances of this process that sweep out those that are gone");
    describe_counter!("convoke_mesh_malformed_total", "Messages on the mesh's channels that could not be read");
    describe_counter!("convoke_mesh_stray_total", "Replies that came too late, or twice, or for nobody");
    describe_counter!("convoke_mesh_dropped_total", "What could not be delivered, by what it was");
    describe_counter!("convoke_mesh_gone_total", "Instances that were swept out");
    // Registered from the start, so that the first one shows as a rise from zero.
    counter!("convoke_mesh_malformed_total").absolute(0);
    counter!("convoke_fenced_total", "what" => "mesh").absolute(0);
}

/// The counters of one run, created once: every call updates them.
pub(super) struct Meters {
    seconds: Histogram,
    in_flight: Gauge,
    handlers: Gauge,
    nodes: Gauge,
    leader: Gauge,
    malformed: Counter,
    stray: Counter,
    by_type: RwLock<BTreeMap<Box<str>, Arc<Outcomes>>>,
    recent: Mutex<RecentTimes>,
    standing: Mutex<Standing>,
}

/// How long the last calls took, in microseconds.
#[derive(Default)]
struct RecentTimes {
    times_us: Vec<u32>,
    next: usize,
}

impl RecentTimes {
    fn add(&mut self, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if self.times_us.len() < RECENT_MAX {
            self.times_us.push(us);
        } else {
            self.times_us[self.next] = us;
        }
        self.next = (self.next + 1) % RECENT_MAX;
    }

    fn percentiles(&self) -> Option<(u32, u32)> {
        let mut sorted = self.times_us.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1).min(last)];
        Some((at(50), at(99)))
    }
}

type Outcomes = RwLock<BTreeMap<&'static str, Counter>>;

/// The role that this run has published.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Follows,
    Leads,
    /// It publishes no more: a task that is being ended may still call.
    Left,
}

impl Meters {
    pub(super) fn new() -> Self {
        Meters {
            seconds: histogram!("convoke_mesh_call_seconds"),
            in_flight: gauge!("convoke_mesh_in_flight"),
            handlers: gauge!("convoke_mesh_handlers"),
            nodes: gauge!("convoke_mesh_nodes"),
            leader: gauge!("convoke_mesh_leader"),
            malformed: counter!("convoke_mesh_malformed_total"),
            stray: counter!("convoke_mesh_stray_total"),
            by_type: RwLock::default(),
            recent: Mutex::default(),
            standing: Mutex::new(Standing::Follows),
        }
    }

    pub(super) fn began(&self) {
        self.in_flight.increment(1.0);
    }

    pub(super) fn ended(&self) {
        self.in_flight.decrement(1.0);
    }

    /// Counts a call that ended; `failure` is its outcome if it failed.
    pub(super) fn called(&self, request_type: &str, failure: Option<&'static str>, took: Duration) {
        self.seconds.record(took.as_secs_f64());
        self.recent.lock().add(took);
        let outcome = failure.unwrap_or(OK);
        let outcomes = self.outcomes(request_type);
        if let Some(counter) = outcomes.read().get(outcome) {
            return counter.increment(1);
        }
        let label = if self.by_type.read().contains_key(request_type) { request_type } else { OTHER }.to_owned();
        let counter = counter!("convoke_mesh_calls_total", "type" => label, "outcome" => outcome);
        counter.increment(1);
        outcomes.write().insert(outcome, counter);
    }

    /// Returns the median and the 99th percentile of the last calls, in microseconds.
    pub(super) fn recent_times(&self) -> Option<(u32, u32)> {
        self.recent.lock().percentiles()
    }

    fn outcomes(&self, request_type: &str) -> Arc<Outcomes> {
        if let Some(known) = self.by_type.read().get(request_type) {
            return known.clone();
        }
        let mut by_type = self.by_type.write();
        let label = if by_type.len() < TYPES_MAX { request_type } else { OTHER };
        by_type.entry(label.into()).or_default().clone()
    }

    pub(super) fn handler_began(&self) {
        self.handlers.increment(1.0);
    }

    pub(super) fn handler_ended(&self) {
        self.handlers.decrement(1.0);
    }

    pub(super) fn malformed(&self) {
        self.malformed.increment(1);
    }

    pub(super) fn stray(&self) {
        self.stray.increment(1);
    }

    pub(super) fn nodes(&self, count: u64) {
        if *self.standing.lock() != Standing::Left {
            self.nodes.set(count as f64);
        }
    }

    pub(super) fn leads(&self, is_me: bool) {
        let mut standing = self.standing.lock();
        match (*standing, is_me) {
            (Standing::Follows, true) => {
                *standing = Standing::Leads;
                self.leader.increment(1.0);
            }
            (Standing::Leads, false) => {
                *standing = Standing::Follows;
                self.leader.decrement(1.0);
            }
            _ => {}
        }
    }

    /// Takes back the contribution of this run, which is over.
    pub(super) fn left(&self) {
        let mut standing = self.standing.lock();
        if *standing == Standing::Leads {
            self.leader.decrement(1.0);
        }
        *standing = Standing::Left;
        self.nodes.set(0.0);
    }
}

/// Counts a caller that was rejected because its term is over.
pub(super) fn fenced() {
    counter!("convoke_fenced_total", "what" => "mesh").increment(1);
}

/// Counts a reply, a refusal, a heartbeat or a broadcast that was not delivered.
pub(super) fn dropped(what: &'static str) {
    counter!("convoke_mesh_dropped_total", "what" => what).increment(1);
}

pub(super) fn gone(count: usize) {
    counter!("convoke_mesh_gone_total").increment(count as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_the_last_calls_are_kept_and_older_ones_are_not() {
        let mut recent = RecentTimes::default();
        assert_eq!(recent.percentiles(), None);
        recent.add(Duration::from_millis(7));
        assert_eq!(recent.percentiles(), Some((7_000, 7_000)));
        for us in 1..=1_000 {
            recent.add(Duration::from_micros(us));
        }
        assert_eq!(recent.times_us.len(), RECENT_MAX);
        assert_eq!(recent.percentiles(), Some((872, 998)), "of the calls 745 to 1000");
    }
}
