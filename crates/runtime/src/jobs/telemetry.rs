//! Metrics of a coordinator, by the names of the interface.
//!
//! On the hot path figures are tallied per batch and published once, so that a job costs no search for a label. Clients
//! choose the names of types, and a series lives as long as its process, so their number is limited; that of queues is
//! limited by the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use convoke_core::jobs::Status;
use convoke_core::jobs::rejections::producer_of;
use convoke_core::jobs::wire::{self, Poison};
use convoke_core::ports::store::Change;
use convoke_core::{Error, JobType, QueueName, Result};
use jiff::Timestamp;
use metrics::{Counter, Histogram, counter, gauge, histogram};
use parking_lot::RwLock;
use tokio::time::Instant;
use tracing::warn;

use super::cache::Kind;
use super::duty::Duty;
use super::node::NodeBase;
use super::traffic::{Happened, Traffic};

/// This many types, each once for every queue it is seen in, are counted by name; the rest of a queue as [`OTHER`].
const TYPES_MAX: usize = 1_000;
const OTHER: &str = "other";

/// Describes every metric, so that `/metrics` explains itself.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!("convoke_jobs_total", "Jobs that were enqueued or whose run ended, by the status that gave");
    describe_gauge!("convoke_queue_depth", "Jobs of a queue in each status");
    describe_gauge!(
        "convoke_queue_oldest_pending_seconds",
        Unit::Seconds,
        "How long the longest waiting job has waited"
    );
    describe_histogram!("convoke_job_wait_seconds", Unit::Seconds, "From when a job could run until it started");
    describe_histogram!("convoke_job_run_seconds", Unit::Seconds, "From a run's start to its end");
    describe_histogram!("convoke_dispatch_batch_size", "Jobs dispatched in one write");
    describe_counter!("convoke_fenced_total", "Writes of former owners that were refused");
    describe_gauge!("convoke_owned_jobs", "Runs whose events this node records");
    describe_counter!("convoke_bus_poison_total", "Messages that could not be read");
    describe_histogram!("convoke_store_seconds", Unit::Seconds, "How long the store took, by verb");
    describe_gauge!("convoke_workers", "Live workers by state");
    describe_counter!("convoke_schedule_ticks_total", "Ticks of schedules, by what became of them");
    describe_counter!("convoke_handoffs_total", "Jobs handed to another node, by outcome");
    describe_counter!(
        "convoke_cache_requests_total",
        "Reads of views, by kind and by whether they were kept in memory"
    );
    for (kind, is_hit) in Kind::ALL.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        cache_requests(kind, is_hit).absolute(0);
    }
    // Registered from the start, so that a first rejection shows as a rise from zero.
    for what in ["run", "owner", "leader"] {
        counter!("convoke_fenced_total", "what" => what).absolute(0);
    }
    let jobs = ["job.enqueue", "job.dispatch", "job.assigned", "job.status", "job.logs", "job.handoff", "job.cancel"];
    for channel in jobs.into_iter().chain(["job.bell", "worker.heartbeat", "coordinator.heartbeat"]) {
        counter!("convoke_bus_poison_total", "channel" => channel).absolute(0);
    }
    for outcome in ["acked", "retried", "orphaned"] {
        counter!("convoke_handoffs_total", "outcome" => outcome).absolute(0);
    }
}

/// Describes the metrics of duties; each is registered from the start, so that a first failure shows as a rise from
/// zero.
pub fn describe_duties(duties: &[Duty]) {
    use metrics::{Unit, describe_counter, describe_histogram};
    describe_counter!("convoke_duty_restarts_total", "Duties that panicked or returned an error, and started again");
    describe_histogram!("convoke_duty_seconds", Unit::Seconds, "How long one pass of a duty took");
    for duty in duties {
        duty_restarts(duty.name).absolute(0);
    }
}

/// Counts a duty that panicked or returned an error.
pub fn duty_failed(duty: &'static str) {
    duty_restarts(duty).increment(1);
}

fn duty_restarts(duty: &'static str) -> Counter {
    counter!("convoke_duty_restarts_total", "duty" => duty)
}

/// Returns where the time of each pass of a duty is recorded.
pub fn duty_seconds(duty: &'static str) -> Histogram {
    histogram!("convoke_duty_seconds", "duty" => duty)
}

/// The effects of a batch of records.
#[derive(Default)]
pub struct Tally {
    pub stale: u64,
    /// Of nodes that no longer own the job.
    pub not_owner: u64,
    ends: BTreeMap<QueueName, BTreeMap<JobType, BTreeMap<Status, u64>>>,
    /// Attempts that failed.
    failures: BTreeMap<QueueName, u64>,
    waits: Vec<f64>,
    runs: Vec<f64>,
}

impl Tally {
    pub fn ended(&mut self, change: &Change, at: Timestamp, is_failure: bool) {
        if is_failure {
            *self.failures.entry(change.queue.clone()).or_default() += 1;
        }
        let known = self.ends.get_mut(&change.queue).and_then(|types| types.get_mut(&change.job_type));
        let counts = match known {
            Some(counts) => counts,
            None => self.ends.entry(change.queue.clone()).or_default().entry(change.job_type.clone()).or_default(),
        };
        *counts.entry(change.status).or_default() += 1;
        // Clocks differ between machines: a negative duration counts as zero.
        let started = change.started_at.unwrap_or(at);
        self.waits.push(seconds(change.due_at, started));
        self.runs.push(seconds(started, at));
    }

    pub fn publish(self, node: &NodeBase) {
        static WAIT: OnceLock<Histogram> = OnceLock::new();
        static RUN: OnceLock<Histogram> = OnceLock::new();
        for (queue, types) in &self.ends {
            for (job_type, counts) in types {
                counts.iter().for_each(|(status, count)| count_jobs(*status, queue, job_type, *count));
            }
            count_traffic(&node.history.traffic, queue, types.values());
        }
        for (queue, failed) in &self.failures {
            node.history.traffic.add(queue, Happened::Failed, *failed);
        }
        node.history.traffic.refused(self.stale + self.not_owner);
        if !self.waits.is_empty() {
            let (wait, run) = (
                WAIT.get_or_init(|| histogram!("convoke_job_wait_seconds")),
                RUN.get_or_init(|| histogram!("convoke_job_run_seconds")),
            );
            self.waits.into_iter().for_each(|value| wait.record(value));
            self.runs.into_iter().for_each(|value| run.record(value));
        }
        if self.not_owner > 0 {
            counter!("convoke_fenced_total", "what" => "owner").increment(self.not_owner);
        }
        if self.stale > 0 {
            counter!("convoke_fenced_total", "what" => "run").increment(self.stale);
        }
    }
}

/// Adds the ends of runs of one queue to the time series.
fn count_traffic<'a>(traffic: &Traffic, queue: &QueueName, types: impl Iterator<Item = &'a BTreeMap<Status, u64>>) {
    let (mut completed, mut dead) = (0, 0);
    for (status, count) in types.flatten() {
        completed += if *status == Status::Completed { *count } else { 0 };
        dead += if status.is_dead_letter() { *count } else { 0 };
    }
    for (what, count) in [(Happened::Completed, completed), (Happened::Dead, dead)] {
        if count > 0 {
            traffic.add(queue, what, count);
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    (to.as_microsecond() - from.as_microsecond()).max(0) as f64 / 1e6
}

pub fn count_jobs(status: Status, queue: &QueueName, job_type: &JobType, count: u64) {
    static TYPES: LazyLock<Types> = LazyLock::new(Types::default);
    let (queue, job_type) = (queue.to_string(), TYPES.label(queue, job_type).to_owned());
    counter!("convoke_jobs_total", "queue" => queue, "type" => job_type, "status" => status.as_str()).increment(count);
}

/// The types that have series of their own.
#[derive(Default)]
struct Types(RwLock<Named>);

#[derive(Default)]
struct Named {
    by_queue: BTreeMap<QueueName, BTreeSet<JobType>>,
    count: usize,
}

impl Named {
    fn has(&self, queue: &QueueName, job_type: &JobType) -> bool {
        self.by_queue.get(queue).is_some_and(|types| types.contains(job_type))
    }
}

impl Types {
    fn label<'a>(&self, queue: &QueueName, job_type: &'a JobType) -> &'a str {
        {
            let named = self.0.read();
            if named.has(queue, job_type) {
                return job_type.as_str();
            }
            if named.count >= TYPES_MAX {
                return OTHER;
            }
        }
        let mut named = self.0.write();
        // Other types may have been added in between.
        if !named.has(queue, job_type) {
            if named.count >= TYPES_MAX {
                return OTHER;
            }
            named.by_queue.entry(queue.clone()).or_default().insert(job_type.clone());
            named.count += 1;
        }
        job_type.as_str()
    }
}

/// Counts a leader's write that was rejected: its term is over.
pub fn leader_fenced() {
    counter!("convoke_fenced_total", "what" => "leader").increment(1);
}

pub fn dispatched(count: usize) {
    histogram!("convoke_dispatch_batch_size").record(count as f64);
}

pub fn owned(count: usize) {
    gauge!("convoke_owned_jobs").set(count as f64);
}

/// Counts a read of a view through the cache.
pub fn cache_asked(kind: Kind, is_hit: bool) {
    cache_requests(kind, is_hit).increment(1);
}

fn cache_requests(kind: Kind, is_hit: bool) -> Counter {
    let outcome = if is_hit { "hit" } else { "miss" };
    counter!("convoke_cache_requests_total", "kind" => kind.as_str(), "outcome" => outcome)
}

/// Measures an operation of the store.
pub async fn timed<T>(verb: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
    let started = Instant::now();
    let result = call.await;
    histogram!("convoke_store_seconds", "verb" => verb).record(started.elapsed().as_secs_f64());
    result
}

/// Sets aside a message that cannot be read, with the reason. It is counted and never retried, and the first of its
/// producer, kind and reason is logged.
pub async fn poison(node: &NodeBase, channel: String, body: Bytes, error: &(dyn std::fmt::Display + Sync)) {
    let kind = node.channels.kind_of(&channel).to_owned();
    log_rejection(node, &kind, &producer_of(&body), &error.to_string());
    counter!("convoke_bus_poison_total", "channel" => kind).increment(1);
    let poison = Poison::of(channel, error, &body);
    if let Err(error) = node.bus().push(vec![(node.channels.poison(), wire::encode(&poison))]).await {
        node.outages.failed("poison", &error);
    }
}

/// Logs that a message of a producer was rejected, unless that was logged before.
pub fn log_rejection(node: &NodeBase, kind: &str, producer: &str, error: &str) {
    if node.rejections.lock().is_first(kind, producer, error) && node.job_lines.admits() {
        warn!(channel = kind, producer, error, "message rejected: further ones like it are only counted");
    }
}

/// Returns whether an error means that the term is over; counts it if so.
pub fn is_fenced(error: &Error) -> bool {
    let fenced = matches!(error, Error::Fenced { .. });
    if fenced {
        leader_fenced();
    }
    fenced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    fn job_type(name: &str) -> JobType {
        JobType::new(name).expect("a name")
    }

    #[test]
    fn types_beyond_the_first_are_counted_together() {
        let types = Types::default();
        for number in 0..TYPES_MAX {
            let name = format!("type-{number}");
            assert_eq!(types.label(&queue("q"), &job_type(&name)), name);
        }
        assert_eq!(types.label(&queue("q"), &job_type("late")), OTHER);
        assert_eq!(types.label(&queue("q"), &job_type("type-0")), "type-0", "the first keep their names");
        assert_eq!(types.label(&queue("p"), &job_type("type-0")), OTHER, "in another queue it is another series");
    }
}
