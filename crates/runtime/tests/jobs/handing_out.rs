//! A poll returns no run that was cancelled, none of a paused queue, and no more than the rate allows, whatever is on the bus.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{poll, ports, register, report, spec, start, until, worker};
use convoke_core::jobs::link::{Event, EventKind, Heartbeat, Poll, WorkerLink};
use convoke_core::jobs::{QueuePatch, RateLimit, Status};
use convoke_core::limits::{ARGS_BYTES_MAX, DISPATCH_BYTES_MAX, TAKE_BYTES_MAX, UNTAKEN_QUEUE_BYTES_MAX};
use convoke_core::{Error, JobId, Json, NodeId, QueueName};
use convoke_runtime::jobs::{Coordinator, Settings};

/// Enqueues so many jobs and waits until they lie on the bus.
async fn dispatched(coordinator: &Coordinator, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(coordinator.enqueue(spec()).await.expect("it is enqueued").0.id);
    }
    for id in &ids {
        until(coordinator, *id, |job| job.status == Status::Dispatched).await;
    }
    ids
}

async fn configure(coordinator: &Coordinator, patch: QueuePatch) {
    let queue = QueueName::new("default").expect("a name");
    coordinator.configure_queue(&queue, patch).await.expect("it is configured");
}

/// A poll that does not wait for long.
async fn glance(coordinator: &Coordinator) -> Vec<JobId> {
    let poll = Poll { worker_id: worker("w"), max: 10, wait: Duration::from_millis(50) };
    coordinator.poll(poll).await.expect("a poll returns").jobs.iter().map(|job| job.job_id).collect()
}

#[tokio::test]
async fn what_no_worker_has_taken_of_a_paused_queue_does_not_start() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 10).await;
    let ids = dispatched(&coordinator, 3).await;
    configure(&coordinator, QueuePatch { paused: Some(true), ..QueuePatch::default() }).await;
    for id in &ids {
        let job = until(&coordinator, *id, |job| job.status == Status::Pending).await;
        assert_eq!(job.attempt, 0, "it never ran");
    }
    assert!(glance(&coordinator).await.is_empty());
    configure(&coordinator, QueuePatch { paused: Some(false), ..QueuePatch::default() }).await;
    let mut given = BTreeSet::new();
    while given.len() < 3 {
        given.extend(poll(&coordinator, "w", 10).await.jobs.iter().map(|job| job.job_id));
    }
    assert_eq!(given, ids.into_iter().collect());
    coordinator.stop().await;
}

#[tokio::test]
async fn a_poll_that_comes_late_is_given_no_more_than_the_rate_allows() {
    let coordinator = start(&ports()).await;
    let limit = RateLimit { limit: 1, per: Duration::from_millis(50) };
    configure(&coordinator, QueuePatch { rate_limit: Some(Some(limit)), ..QueuePatch::default() }).await;
    register(&coordinator, "w", 10).await;
    // It lives, and does not poll.
    let heartbeats = async {
        loop {
            let heartbeat = Heartbeat { worker_id: worker("w"), running: Vec::new(), draining: false };
            coordinator.heartbeat(heartbeat).await.expect("it is known");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ids = tokio::select! {
        ids = dispatched(&coordinator, 5) => ids,
        () = heartbeats => unreachable!("it keeps sending heartbeats"),
    };
    let first = poll(&coordinator, "w", 10).await.jobs;
    assert_eq!(first.len(), 1, "though five have gathered");
    let mut given: BTreeSet<JobId> = first.iter().map(|job| job.job_id).collect();
    while given.len() < 5 {
        given.extend(poll(&coordinator, "w", 10).await.jobs.iter().map(|job| job.job_id));
    }
    assert_eq!(given, ids.into_iter().collect(), "the others come again");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_run_that_was_cancelled_before_anybody_had_it_is_handed_out_to_nobody() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 10).await;
    let ids = dispatched(&coordinator, 2).await;
    coordinator.cancel(ids[0], None).await.expect("it is cancelled");
    assert_eq!(glance(&coordinator).await, ids[1..]);
    coordinator.stop().await;
}

#[tokio::test]
async fn events_after_the_end_of_their_run_are_refused_also_within_one_report() {
    let ports = ports();
    let coordinator = start(&ports).await;
    register(&coordinator, "w", 10).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let run = poll(&coordinator, "w", 1).await.jobs[0].execution_id;
    let event = |kind| Event::new(job.id, run, kind);
    let log = Event { message: Some("late".into()), ..event(EventKind::Log) };
    let events = vec![
        event(EventKind::Started),
        event(EventKind::Completed),
        event(EventKind::Completed),
        log,
        Event { error: Some("no".into()), ..event(EventKind::Failed) },
    ];
    assert_eq!(report(&coordinator, "w", events).await, (3, 1));
    assert_eq!(coordinator.job(job.id, None).await.expect("it is there").status, Status::Completed);
    assert!(ports.store.logs(job.id, 0, 10).await.expect("read").is_empty());
    coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_has_left_is_unknown_also_to_its_own_poll() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let parked = Poll { worker_id: worker("w"), max: 1, wait: Duration::from_secs(60) };
    let (polled, left) = tokio::join!(coordinator.poll(parked), coordinator.leave(worker("w")));
    left.expect("it leaves");
    assert!(matches!(polled, Err(Error::NotFound { .. })), "{polled:?}");
    let again = coordinator.poll(Poll { worker_id: worker("w"), max: 1, wait: Duration::ZERO }).await;
    assert!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn large_jobs_are_dispatched_as_workers_take_them_and_handed_out_a_few_at_a_time() {
    const JOBS: usize = 60;
    let ports = ports();
    let node = NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), Settings::default()).await.expect("it starts");
    coordinator.ready().await;
    let large = Json::parse(format!("\"{}\"", "x".repeat(ARGS_BYTES_MAX - 2))).expect("valid JSON");
    let specs = |count| (0..count).map(|_| spec().with(|job| job.args = Some(large.clone()))).collect::<Vec<_>>();
    for _ in 0..JOBS / 20 {
        coordinator.enqueue_batch(specs(20)).await.expect("they are enqueued");
    }
    register(&coordinator, "w", 1_000).await;
    let queue = QueueName::new("default").expect("a name");
    let dispatched = loop {
        let queue = ports.store.queue(&queue).await.expect("read").expect("it is there");
        let count = queue.counts.get(Status::Dispatched) as usize;
        if count * ARGS_BYTES_MAX >= UNTAKEN_QUEUE_BYTES_MAX as usize {
            break count;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let most = (UNTAKEN_QUEUE_BYTES_MAX as usize + DISPATCH_BYTES_MAX) / ARGS_BYTES_MAX;
    assert!(dispatched <= most, "{dispatched} jobs lie on the bus");
    let mut taken = BTreeSet::new();
    while taken.len() < JOBS {
        let jobs = poll(&coordinator, "w", 1_000).await.jobs;
        let bytes: usize = jobs.iter().map(|job| job.input.args.as_str().len()).sum();
        assert!(!jobs.is_empty() && bytes <= TAKE_BYTES_MAX, "{bytes} bytes in one poll");
        taken.extend(jobs.iter().map(|job| job.execution_id));
    }
    assert_eq!(taken.len(), JOBS);
    coordinator.stop().await;
}
