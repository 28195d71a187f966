//! A whole node on the memory adapters: the life of a job, seen by a client and a worker.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{failed, one, poll, ports, register, report, spec, start, until, worker};
use convoke_adapters::memory::MemoryBus;
use convoke_core::jobs::link::{Event, EventKind, Heartbeat, Poll, WorkerLink};
use convoke_core::jobs::wire::WorkerState;
use convoke_core::jobs::{QueuePatch, Status};
use convoke_core::{Error, QueueName};
use convoke_runtime::jobs::{DeadSelection, Ports};

#[tokio::test]
async fn a_job_is_enqueued_run_and_completed() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let (job, created) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    assert!(created);
    let (id, execution, attempt) = one(&coordinator, "w").await;
    assert_eq!((id, attempt), (job.id, 1));
    let done = Event::new(id, execution, EventKind::Completed);
    assert_eq!(report(&coordinator, "w", vec![done.clone()]).await, (1, 0));
    assert_eq!(report(&coordinator, "w", vec![done]).await, (1, 0), "the same end again changes nothing");
    assert_eq!(report(&coordinator, "w", vec![failed(id, execution)]).await, (0, 1), "another end is refused");
    let job = coordinator.job(id, None).await.expect("it is there");
    assert_eq!(job.status, Status::Completed);
    assert_eq!(job.worker_id, Some(worker("w")));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_job_that_keeps_failing_is_retried_and_ends_as_one_dead_letter() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let (job, _) = coordinator.enqueue(spec().with(|job| job.max_retries = Some(2))).await.expect("it is enqueued");
    for expected in 1..=3 {
        let (id, execution, attempt) = one(&coordinator, "w").await;
        assert_eq!((id, attempt), (job.id, expected));
        assert_eq!(report(&coordinator, "w", vec![failed(id, execution)]).await, (1, 0));
    }
    let ended = coordinator.job(job.id, Some(Duration::from_secs(5))).await.expect("it is there");
    assert_eq!((ended.status, ended.attempt, ended.error.as_deref()), (Status::Failed, 3, Some("no")));
    let all = DeadSelection::Filter { queue: None, job_type: None, error: None };
    assert_eq!(coordinator.retry_dead(all.clone()).await.expect("they are retried"), 1);
    let (id, execution, attempt) = one(&coordinator, "w").await;
    assert_eq!((id, attempt), (job.id, 4), "a redriven job goes on counting");
    let done = Event::new(id, execution, EventKind::Completed);
    assert_eq!(report(&coordinator, "w", vec![done]).await, (1, 0));
    assert_eq!(coordinator.purge_dead(all).await.expect("they are purged"), 0);
    assert_eq!(coordinator.store().history(id, 0, 10).await.expect("a history").runs.len(), 4);
    coordinator.stop().await;
}

#[tokio::test]
async fn the_runs_of_a_silent_worker_are_lost_and_its_late_word_is_refused() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "silent", 1).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let (id, stale, _) = one(&coordinator, "silent").await;
    register(&coordinator, "lively", 1).await;
    let (again, execution, attempt) = one(&coordinator, "lively").await;
    assert_eq!((again, attempt), (job.id, 2), "a lost run counts as an attempt");
    let late = Event::new(id, stale, EventKind::Completed);
    assert_eq!(report(&coordinator, "silent", vec![late]).await, (0, 1));
    let done = Event::new(id, execution, EventKind::Completed);
    assert_eq!(report(&coordinator, "lively", vec![done]).await, (1, 0));
    let unknown = coordinator.poll(Poll { worker_id: worker("silent"), max: 1, wait: Duration::ZERO }).await;
    assert!(matches!(unknown, Err(Error::NotFound { what: "worker", .. })));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_leaves_gives_its_runs_back_at_once_and_no_attempt_is_counted() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "leaver", 1).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    one(&coordinator, "leaver").await;
    coordinator.leave(worker("leaver")).await.expect("it leaves");
    register(&coordinator, "next", 1).await;
    let (id, _, attempt) = one(&coordinator, "next").await;
    assert_eq!((id, attempt), (job.id, 1));
    coordinator.stop().await;
}

#[tokio::test]
async fn cancelling_a_running_job_tells_its_worker() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let (id, execution, _) = one(&coordinator, "w").await;
    let (cancelled, polled) =
        tokio::join!(coordinator.cancel(job.id, Some("enough".into())), poll(&coordinator, "w", 1));
    assert_eq!(cancelled.expect("it is cancelled").status, Status::Cancelled);
    assert_eq!(polled.cancel, [execution]);
    let stopped = Event::new(id, execution, EventKind::Cancelled);
    assert_eq!(report(&coordinator, "w", vec![stopped]).await, (1, 0), "it ended so already");
    let done = Event::new(id, execution, EventKind::Completed);
    assert_eq!(report(&coordinator, "w", vec![done]).await, (0, 1));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_run_that_two_heartbeats_do_not_list_is_lost() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 2).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let heartbeat = || coordinator.heartbeat(Heartbeat { worker_id: worker("w"), running: vec![], draining: false });
    one(&coordinator, "w").await;
    for _ in 0..3 {
        heartbeat().await.expect("the heartbeat is received");
    }
    let (id, _, attempt) = one(&coordinator, "w").await;
    assert_eq!((id, attempt), (job.id, 2));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_restarted_node_gives_back_what_nobody_picked_up_and_keeps_what_a_worker_has() {
    let ports = ports();
    let first = start(&ports).await;
    register(&first, "w", 1).await;
    let (kept, _) = first.enqueue(spec()).await.expect("it is enqueued");
    let (id, execution, _) = one(&first, "w").await;
    assert_eq!(id, kept.id);
    // A second slot that is never polled for: its run is on the bus when the bus is lost.
    register(&first, "w", 2).await;
    let (lost, _) = first.enqueue(spec()).await.expect("it is enqueued");
    until(&first, lost.id, |job| job.status == Status::Dispatched).await;
    first.stop().await;

    let ports = Ports { bus: Arc::new(MemoryBus::default()), ..ports };
    let second = start(&ports).await;
    let reply = second.heartbeat(Heartbeat { worker_id: worker("w"), running: vec![execution], draining: false }).await;
    assert!(reply.expect("its worker is known again").cancel.is_empty());
    let (again, _, attempt) = one(&second, "w").await;
    assert_eq!((again, attempt), (lost.id, 1), "never picked up: no attempt");
    let done = Event::new(id, execution, EventKind::Completed);
    assert_eq!(report(&second, "w", vec![done]).await, (1, 0), "the run outlived the node");
    second.stop().await;
}

#[tokio::test]
async fn a_paused_queue_keeps_its_jobs_until_it_is_resumed() {
    let coordinator = start(&ports()).await;
    let queue = QueueName::new("default").expect("a name");
    let pause = |paused| QueuePatch { paused: Some(paused), ..QueuePatch::default() };
    coordinator.configure_queue(&queue, pause(true)).await.expect("it is paused");
    register(&coordinator, "w", 1).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let empty = coordinator.poll(Poll { worker_id: worker("w"), max: 1, wait: Duration::from_millis(50) }).await;
    assert!(empty.expect("a poll returns").jobs.is_empty());
    coordinator.configure_queue(&queue, pause(false)).await.expect("it is resumed");
    assert_eq!(one(&coordinator, "w").await.0, job.id);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_queue_whose_worker_left_gets_back_what_was_on_its_way() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "leaver", 2).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    until(&coordinator, job.id, |job| job.status == Status::Dispatched).await;
    coordinator.leave(worker("leaver")).await.expect("it leaves");
    let job = until(&coordinator, job.id, |job| job.status == Status::Pending).await;
    assert_eq!(job.attempt, 0, "it was never picked up");
    register(&coordinator, "next", 1).await;
    let (id, _, attempt) = one(&coordinator, "next").await;
    assert_eq!((id, attempt), (job.id, 1));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_drains_offers_no_slots() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "drainer", 2).await;
    let heartbeat = Heartbeat { worker_id: worker("drainer"), running: vec![], draining: true };
    coordinator.heartbeat(heartbeat).await.expect("the heartbeat is received");
    let workers = coordinator.workers().await.expect("workers");
    assert_eq!(workers[0].state, WorkerState::Draining);
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    register(&coordinator, "other", 1).await;
    assert_eq!(one(&coordinator, "other").await.0, job.id);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_frozen_worker_is_not_kept_alive_by_the_poll_that_it_left_waiting() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "frozen", 2).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let (_, execution, _) = one(&coordinator, "frozen").await;
    let heartbeat = Heartbeat { worker_id: worker("frozen"), running: vec![execution], draining: false };
    coordinator.heartbeat(heartbeat).await.expect("the heartbeat is received");
    let forsaken = Poll { worker_id: worker("frozen"), max: 1, wait: Duration::from_secs(30) };
    let (forsaken, _) = tokio::join!(coordinator.poll(forsaken), async {
        register(&coordinator, "lively", 1).await;
        let (id, _, attempt) = one(&coordinator, "lively").await;
        assert_eq!((id, attempt), (job.id, 2));
    });
    assert!(matches!(forsaken, Err(Error::NotFound { what: "worker", .. })), "{forsaken:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_only_polls_is_alive_while_it_waits() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "poller", 1).await;
    let wait = crate::common::quick().worker.stale_after * 3;
    let waited = coordinator.poll(Poll { worker_id: worker("poller"), max: 1, wait }).await;
    assert!(waited.expect("it is still known").jobs.is_empty());
    assert_eq!(coordinator.workers().await.expect("workers").len(), 1);
    coordinator.stop().await;
}
