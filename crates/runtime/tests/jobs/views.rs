//! Two nodes on one store and one bus: what is shown is read once, and soon forgotten when it changes anywhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::counting::CountingStore;
use crate::common::{failed, one, register, report, shared_ports, spec, start_as, worker};
use convoke_core::jobs::link::{Event, EventKind, WorkerLink};
use convoke_core::jobs::wire::{NodeState, WorkerState};
use convoke_core::jobs::{QueuePatch, Status};
use convoke_core::ports::store::{Handover, NodeRecord, Reassign, WorkerRecord};
use convoke_core::{Error, JobId, NodeId, QueueName};
use convoke_runtime::jobs::{Coordinator, DeadSelection, Ports};

/// Two nodes, the first of which counts what it reads.
async fn two() -> (Coordinator, Arc<CountingStore>, Coordinator, Ports) {
    let shared = shared_ports();
    let counting = CountingStore::new(shared.store.clone());
    let first = start_as("n1", &Ports { store: counting.clone(), ..shared.clone() }).await;
    let second = start_as("n2", &shared).await;
    (first, counting, second, shared)
}

async fn ended(coordinator: &Coordinator, kind: EventKind) -> JobId {
    register(coordinator, "w", 1).await;
    coordinator.enqueue(spec().with(|job| job.max_retries = Some(0))).await.expect("it is enqueued");
    let (id, execution, _) = one(coordinator, "w").await;
    let end = match kind {
        EventKind::Failed => failed(id, execution),
        kind => Event::new(id, execution, kind),
    };
    assert_eq!(report(coordinator, "w", vec![end]).await, (1, 0));
    coordinator.leave(worker("w")).await.expect("it leaves");
    id
}

async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Reads until the store was not asked: then it is cached.
async fn read_until_kept(coordinator: &Coordinator, store: &CountingStore, id: JobId) {
    loop {
        let before = store.gets.load(Ordering::SeqCst);
        coordinator.job_view(id).await.expect("it is there");
        if store.gets.load(Ordering::SeqCst) == before {
            return;
        }
        a_moment().await;
    }
}

async fn view_until(coordinator: &Coordinator, id: JobId, status: Status) {
    while coordinator.job_view(id).await.expect("it is there").status != status {
        a_moment().await;
    }
}

#[tokio::test]
async fn a_finished_job_is_read_once() {
    let (first, store, second, _) = two().await;
    let id = ended(&first, EventKind::Completed).await;
    read_until_kept(&first, &store, id).await;
    let before = store.gets.load(Ordering::SeqCst);
    for _ in 0..100 {
        assert_eq!(first.job_view(id).await.expect("it is there").status, Status::Completed);
    }
    assert_eq!(store.gets.load(Ordering::SeqCst), before);
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_live_job_is_never_kept() {
    let (first, store, second, _) = two().await;
    let (job, _) = first.enqueue(spec()).await.expect("it is enqueued");
    for _ in 0..10 {
        let before = store.gets.load(Ordering::SeqCst);
        assert_eq!(first.job_view(job.id).await.expect("it is there").status, Status::Pending);
        assert_eq!(store.gets.load(Ordering::SeqCst), before + 1);
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_retried_job_is_pending_at_once_here_and_soon_elsewhere() {
    let (first, store, second, _) = two().await;
    let id = ended(&first, EventKind::Failed).await;
    read_until_kept(&first, &store, id).await;
    first.retry(id).await.expect("it is retried");
    assert_eq!(first.job_view(id).await.expect("it is there").status, Status::Pending);
    first.cancel(id, None).await.expect("it is cancelled");
    let id = ended(&first, EventKind::Failed).await;
    read_until_kept(&first, &store, id).await;
    second.retry(id).await.expect("it is retried");
    // No decision reads the cache.
    assert_eq!(first.job(id, None).await.expect("it is there").status, Status::Pending);
    view_until(&first, id, Status::Pending).await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_purged_job_is_gone_at_once_here_and_soon_elsewhere() {
    let (first, store, second, _) = two().await;
    for purger in [&first, &second] {
        let id = ended(&first, EventKind::Failed).await;
        read_until_kept(&first, &store, id).await;
        assert_eq!(purger.purge_dead(DeadSelection::Ids(vec![id])).await.expect("it is purged"), 1);
        if purger.node_id() == first.node_id() {
            assert!(matches!(first.job_view(id).await, Err(Error::NotFound { .. })));
        }
        while first.job_view(id).await.is_ok() {
            a_moment().await;
        }
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn workers_are_read_once_and_a_new_one_is_seen_at_once_here_and_soon_elsewhere() {
    let (first, store, second, _) = two().await;
    let count = || store.workers.load(Ordering::SeqCst);
    loop {
        let before = count();
        assert_eq!(first.workers().await.expect("workers"), []);
        if count() == before {
            break;
        }
        a_moment().await;
    }
    register(&first, "near", 1).await;
    assert_eq!(first.workers().await.expect("workers").len(), 1);
    register(&second, "far", 1).await;
    while first.workers().await.expect("workers").len() != 2 {
        a_moment().await;
    }
    assert_eq!(first.worker(&worker("far")).await.expect("it is there").via.as_ref(), Some(second.node_id()));
    second.leave(worker("far")).await.expect("it leaves");
    while first.workers().await.expect("workers").len() != 1 || first.worker(&worker("far")).await.is_ok() {
        a_moment().await;
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn nodes_are_read_once_and_those_who_come_and_go_are_seen() {
    let (first, store, second, shared) = two().await;
    // A new leader makes them send a heartbeat; then they are quiet.
    loop {
        let before = store.nodes.load(Ordering::SeqCst);
        let nodes = first.nodes().await.expect("nodes");
        if store.nodes.load(Ordering::SeqCst) == before && nodes.len() == 2 {
            break;
        }
        a_moment().await;
    }
    let third = start_as("n3", &shared).await;
    while first.nodes().await.expect("nodes").len() != 3 {
        a_moment().await;
    }
    assert_eq!(first.node_view(third.node_id()).await.expect("it is there").node_id, *third.node_id());
    while first.belief_of(third.node_id()).is_none() {
        a_moment().await;
    }
    third.stop().await;
    let left = |nodes: &[NodeRecord]| nodes.iter().filter(|node| node.state == NodeState::Left).count();
    while left(&first.nodes().await.expect("nodes")) != 1 {
        a_moment().await;
    }
    assert_eq!(first.node_view(third.node_id()).await.expect("it stays listed").state, NodeState::Left);
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_job_that_another_node_records_wakes_who_waits_for_it() {
    let (first, store, second, _) = two().await;
    register(&second, "w", 1).await;
    for _ in 0..20 {
        let (job, _) = first.enqueue(spec()).await.expect("it is enqueued");
        let (id, execution, _) = one(&second, "w").await;
        let waiting = tokio::spawn({
            let first = first.clone();
            async move { first.job(id, Some(Duration::from_secs(60))).await }
        });
        // It has read twice, so that only the other node's message or the next second can wake it.
        let reads = store.gets.load(Ordering::SeqCst);
        while store.gets.load(Ordering::SeqCst) < reads + 2 {
            a_moment().await;
        }
        let reads = store.gets.load(Ordering::SeqCst);
        assert_eq!(report(&second, "w", vec![Event::new(id, execution, EventKind::Completed)]).await, (1, 0));
        let seen = waiting.await.expect("no panic").expect("it is there");
        assert_eq!((seen.id, seen.status), (job.id, Status::Completed));
        assert_eq!(store.gets.load(Ordering::SeqCst), reads + 1, "it read when it was woken, and no earlier");
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn what_a_node_owns_and_what_is_on_its_way_is_shown() {
    let (first, _, second, shared) = two().await;
    register(&second, "w", 1).await;
    let (job, _) = first.enqueue(spec()).await.expect("it is enqueued");
    let (id, execution, _) = one(&second, "w").await;
    report(&second, "w", vec![Event::new(id, execution, EventKind::Started)]).await;
    let mut owned = first.jobs_of(second.node_id()).await.expect("runs");
    while owned.is_empty() {
        a_moment().await;
        owned = first.jobs_of(second.node_id()).await.expect("runs");
    }
    assert_eq!((owned[0].job, owned[0].execution), (job.id, execution));
    assert_eq!(first.handoffs().await.expect("handoffs").total, 0);
    let from = second.node_id().clone();
    let offer = Reassign { job: id, execution, from: from.clone(), to: Handover::Offer };
    shared.store.reassign(vec![offer]).await.expect("it is offered");
    let handoffs = first.handoffs().await.expect("handoffs");
    assert_eq!((handoffs.total, handoffs.shown[0].job, &handoffs.shown[0].owner), (1, id, &Some(from)));
    assert_eq!(*first.jobs_of(&NodeId::new("nobody").expect("a name")).await.expect("runs"), []);
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_queue_is_not_deleted_on_the_word_of_a_list_of_workers_that_was_kept() {
    let (first, store, second, shared) = two().await;
    let queue = QueueName::new("served").expect("a name");
    first.configure_queue(&queue, QueuePatch::default()).await.expect("it is created");
    loop {
        let before = store.workers.load(Ordering::SeqCst);
        assert_eq!(first.workers().await.expect("a list"), []);
        if store.workers.load(Ordering::SeqCst) == before {
            break;
        }
        a_moment().await;
    }
    // A worker that this node does not know.
    let now = shared.clock.now();
    let record = WorkerRecord {
        worker_id: worker("w"),
        name: "w".into(),
        queues: vec![queue.clone()],
        concurrency: 1,
        running: 0,
        state: WorkerState::Active,
        registered_at: now,
        last_heartbeat_at: now,
        via: None,
    };
    shared.store.record_worker_heartbeats(&[record]).await.expect("it is there");
    let refused = first.delete_queue(&queue).await.expect_err("a worker serves it");
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    first.stop().await;
    second.stop().await;
}
