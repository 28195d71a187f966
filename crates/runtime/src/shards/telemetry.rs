//! Metrics of the shard coordinator.
//!
//! The clients choose the names of services and workers, so labels are bounded: the first [`SERVICES_MAX`] services
//! have series of their own and the rest share one, and no series is per worker, since ids of workers that come and go
//! would never be removed. `/v1/shards` shows the shards of one worker.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke_core::ServiceName;
use convoke_core::ports::router::{Refusals, Sent};
use convoke_core::shards::coordinator::{Coordinator, ShardEvent};
use convoke_core::shards::wire::Refusal;
use metrics::{counter, gauge};

const SERVICES_MAX: usize = 1_000;
/// The label that the services beyond the limit share.
const OTHERS: &str = "(others)";

pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge};
    describe_gauge!("convoke_shard_workers", "Live workers of a service");
    describe_counter!("convoke_shard_moves_total", "Shards that were meant for another worker than before");
    describe_counter!("convoke_shard_rebalances_total", "Times that a service's shards were spread anew");
    describe_gauge!("convoke_shards_per_worker", "The least and the most shards that a live worker of a service has");
    describe_gauge!(
        "convoke_shard_heartbeat_age_seconds",
        Unit::Seconds,
        "For how long the most silent live worker of a service has been silent"
    );
    describe_counter!("convoke_shard_messages_total", "Messages of shard workers, by kind");
    describe_counter!("convoke_shard_errors_total", "Messages of shard workers that were refused, by code");
    describe_counter!("convoke_shard_unsent_total", "Messages to shard workers that did not go out, by reason");
}

/// The counts of the present batch, and the known labels.
#[derive(Default)]
pub struct Tally {
    kinds: [u64; 4],
    errors: Vec<(String, u64)>,
    services: BTreeSet<ServiceName>,
    refused: Refusals,
}

const KINDS: [&str; 4] = ["register", "heartbeat", "leave", "released"];

impl Tally {
    pub fn message(&mut self, kind: &str) {
        if let Some(place) = KINDS.iter().position(|known| *known == kind) {
            self.kinds[place] += 1;
        }
    }

    pub fn error(&mut self, code: &str) {
        match self.errors.iter_mut().find(|(known, _)| known == code) {
            Some((_, count)) => *count += 1,
            None => self.errors.push((code.to_owned(), 1)),
        }
    }

    /// Publishes the counts; once a batch, so that a message costs no search for a label.
    pub fn publish(&mut self, refusals: Refusals) {
        for (kind, count) in KINDS.iter().zip(std::mem::take(&mut self.kinds)).filter(|(_, count)| *count > 0) {
            counter!("convoke_shard_messages_total", "kind" => *kind).increment(count);
        }
        for (code, count) in std::mem::take(&mut self.errors) {
            counter!("convoke_shard_errors_total", "code" => code).increment(count);
        }
        let count = |code: &'static str, now: u64, before: u64| {
            if now > before {
                counter!("convoke_shard_errors_total", "code" => code).increment(now - before);
            }
        };
        count("handshake", refusals.handshakes, self.refused.handshakes);
        count("oversized", refusals.oversized, self.refused.oversized);
        self.refused = refusals;
    }

    pub fn sent(&self, outcomes: &[Sent]) {
        for (outcome, reason) in [(Sent::Gone, "gone"), (Sent::Full, "full")] {
            let count = outcomes.iter().filter(|it| **it == outcome).count();
            if count > 0 {
                counter!("convoke_shard_unsent_total", "reason" => reason).increment(count as u64);
            }
        }
    }

    pub fn event(&mut self, event: &ShardEvent, coordinator: &Coordinator, elapsed: Duration) {
        if let ShardEvent::Replaced { .. } = event {
            self.error(Refusal::REPLACED);
        }
        if let ShardEvent::Rebalanced { service, moved, .. } = event {
            let label = self.label(service);
            counter!("convoke_shard_rebalances_total", "service" => label.clone()).increment(1);
            counter!("convoke_shard_moves_total", "service" => label).increment(*moved as u64);
            self.measure(service, coordinator, elapsed);
        }
    }

    /// Publishes the figures of all services, periodically; also of those that are gone.
    pub fn measure_all(&mut self, coordinator: &Coordinator, elapsed: Duration) {
        let names: BTreeSet<ServiceName> = coordinator.service_names().chain(&self.services).cloned().collect();
        names.iter().for_each(|name| self.measure(name, coordinator, elapsed));
    }

    fn measure(&mut self, service: &ServiceName, coordinator: &Coordinator, elapsed: Duration) {
        let label = self.label(service);
        if label == OTHERS {
            return;
        }
        let figures = coordinator.figures(service);
        let age = figures.oldest_heartbeat.map_or(Duration::ZERO, |heartbeat| elapsed.saturating_sub(heartbeat));
        gauge!("convoke_shard_workers", "service" => label.clone()).set(figures.workers as f64);
        gauge!("convoke_shards_per_worker", "service" => label.clone(), "bound" => "min")
            .set(figures.shards_min as f64);
        gauge!("convoke_shards_per_worker", "service" => label.clone(), "bound" => "max")
            .set(figures.shards_max as f64);
        gauge!("convoke_shard_heartbeat_age_seconds", "service" => label).set(age.as_secs_f64());
    }

    fn label(&mut self, service: &ServiceName) -> String {
        if !self.services.contains(service) {
            if self.services.len() >= SERVICES_MAX {
                return OTHERS.to_owned();
            }
            self.services.insert(service.clone());
        }
        service.to_string()
    }

    /// Clears the figures after the term: those of the next leader count.
    pub fn clear(&self) {
        for service in &self.services {
            let label = service.to_string();
            for name in ["convoke_shard_workers", "convoke_shard_heartbeat_age_seconds"] {
                gauge!(name, "service" => label.clone()).set(0.0);
            }
            for bound in ["min", "max"] {
                gauge!("convoke_shards_per_worker", "service" => label.clone(), "bound" => bound).set(0.0);
            }
        }
    }
}
