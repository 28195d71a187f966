//! Metrics of elections, by the names of the interface.

use convoke_core::Epoch;
use convoke_core::election::{BreakerState, Elector as Rules, Percentiles};
use metrics::gauge;

pub fn describe() {
    use metrics::{Unit, describe_gauge};
    describe_gauge!("convoke_leader", "1 on the node that leads");
    describe_gauge!("convoke_epoch", "The present term of leadership");
    describe_gauge!(
        "convoke_election_heartbeat_seconds",
        Unit::Seconds,
        "How long the last heartbeats of an election took, by quantile"
    );
    describe_gauge!("convoke_circuit_breaker_state", "0 closed, 1 half-open, 2 open: no heartbeats go out");
}

/// Publishes the durations and counts of a holder's heartbeats.
pub(super) fn publish_gauges(namespace: &str, rules: &Rules) {
    stats(namespace, rules.metrics().heartbeat_latency_ms, rules.breaker().state);
}

/// Publishes whether the holder of these rules leads. A lock has no epoch.
pub(super) fn held(namespace: &str, rules: &Rules) {
    let leads = rules.term().is_some();
    if rules.conduct().is_lock { leader(namespace, leads) } else { self::leads(namespace, leads, rules.epoch()) }
}

pub(crate) fn leads(namespace: &str, is_me: bool, epoch: Epoch) {
    leader(namespace, is_me);
    gauge!("convoke_epoch", "namespace" => namespace.to_owned()).set(epoch.0 as f64);
}

fn leader(namespace: &str, is_me: bool) {
    gauge!("convoke_leader", "namespace" => namespace.to_owned()).set(if is_me { 1.0 } else { 0.0 });
}

fn stats(namespace: &str, latency: Percentiles, breaker: BreakerState) {
    for (quantile, ms) in [("0.5", latency.p50), ("0.95", latency.p95), ("0.99", latency.p99)] {
        gauge!("convoke_election_heartbeat_seconds", "namespace" => namespace.to_owned(), "quantile" => quantile)
            .set(ms / 1_000.0);
    }
    gauge!("convoke_circuit_breaker_state", "namespace" => namespace.to_owned()).set(f64::from(breaker.as_number()));
}

/// Publishes that this process no longer leads.
pub(super) fn forget(namespace: &str) {
    leader(namespace, false);
}
