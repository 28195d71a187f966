//! Work is linear in what clients name: four times as much costs about four times the time, not sixteen.
//!
//! Time is that of the test's own thread, on which all of a node's tasks run, so that a busy machine does not count.

use std::time::Duration;

use crate::common::{ports, register, report, spec, start, worker};
use convoke_core::jobs::link::{Event, EventKind, Heartbeat, Poll, WorkerLink};
use convoke_core::{ExecutionId, JobId, JobType};
use convoke_runtime::jobs::{Coordinator, Ports};
use rustix::time::{ClockId, clock_gettime};

const FEW: usize = 2_500;
const MANY: usize = 4 * FEW;
/// Linear work has a ratio of 4, quadratic work of 16.
const RATIO_MAX: f64 = 9.0;
const TRIES: usize = 3;

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The least of several measurements: whatever else the thread did makes one longer, never shorter.
async fn least(measure: impl AsyncFn() -> Duration) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..TRIES {
        least = least.min(measure().await);
    }
    least
}

async fn assert_linear(what: &str, measure: impl AsyncFn(usize) -> Duration) {
    let (few, many) = (least(async || measure(FEW).await).await, least(async || measure(MANY).await).await);
    let ratio = many.as_secs_f64() / few.as_secs_f64();
    println!("{what}: {few:?} for {FEW}, {many:?} for {MANY}, ratio {ratio:.1}");
    assert!(ratio < RATIO_MAX, "{what}: {few:?} for {FEW}, but {many:?} for {MANY}");
}

/// A node, and a worker of it that was given `count` runs, each of a type of its own.
async fn busy(ports: &Ports, count: usize) -> (Coordinator, Vec<(JobId, ExecutionId)>) {
    let coordinator = start(ports).await;
    register(&coordinator, "w", MANY as u32).await;
    let jobs = (0..count).map(|n| spec().with(|job| job.job_type = JobType::new(format!("type-{n}")).expect("a name")));
    coordinator.enqueue_batch(jobs.collect()).await.expect("they are enqueued");
    let mut runs = Vec::with_capacity(count);
    while runs.len() < count {
        let poll = Poll { worker_id: worker("w"), max: count, wait: Duration::from_secs(5) };
        let given = coordinator.poll(poll).await.expect("a poll returns").jobs;
        runs.extend(given.iter().map(|job| (job.job_id, job.execution_id)));
    }
    (coordinator, runs)
}

#[tokio::test]
async fn the_ends_of_jobs_of_many_types_cost_time_in_proportion_to_their_number() {
    assert_linear("a report", async |count| {
        let (coordinator, runs) = busy(&ports(), count).await;
        let ends: Vec<Event> = runs.iter().map(|(job, run)| Event::new(*job, *run, EventKind::Completed)).collect();
        let before = cpu_time();
        assert_eq!(report(&coordinator, "w", ends).await, (count, 0));
        let spent = cpu_time() - before;
        coordinator.stop().await;
        spent
    })
    .await;
}

/// The first heartbeat at another node: half of the runs are recorded as the worker's, the others as nobody's.
#[tokio::test]
async fn a_heartbeat_costs_time_in_proportion_to_the_runs_that_it_lists() {
    assert_linear("a heartbeat", async |count| {
        let ports = ports();
        let (first, runs) = busy(&ports, count).await;
        let started = runs.iter().step_by(2).map(|(job, run)| Event::new(*job, *run, EventKind::Started));
        report(&first, "w", started.collect()).await;
        first.stop().await;
        let second = start(&ports).await;
        let running: Vec<ExecutionId> = runs.iter().map(|(_, run)| *run).collect();
        let heartbeat = Heartbeat { worker_id: worker("w"), running, draining: false };
        let before = cpu_time();
        let reply = second.heartbeat(heartbeat).await.expect("a heartbeat returns");
        let spent = cpu_time() - before;
        assert_eq!(reply.cancel, [], "they are all taken over");
        second.stop().await;
        spent
    })
    .await;
}
