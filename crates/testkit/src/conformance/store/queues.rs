//! Queues: settings and counters.

use convoke_core::Error;
use convoke_core::jobs::{NewJob, QueueCounts, QueuePatch, RateLimit, Status};
use convoke_core::ports::Store;

use super::stage::*;

pub async fn a_queue_comes_with_its_first_job(store: &dyn Store) {
    let stage = Stage::new(store).await;
    assert!(store.queues().await.expect("queues").is_empty());
    assert!(store.queue(&queue("q")).await.expect("queue").is_none());
    stage.enqueue([job(1), job(2).with(|job| job.queue = queue("a")), job(3).with(|job| job.queue = queue("z"))]).await;
    let names: Vec<_> = store.queues().await.expect("queues").into_iter().map(|queue| queue.name).collect();
    assert_eq!(names, [queue("a"), queue("q"), queue("z")], "by name");
    let shown = stage.queue("q").await;
    assert_eq!((shown.paused, shown.rate_limit, shown.concurrency), (false, None, None));
    assert_eq!((shown.counts.get(Status::Pending), shown.oldest_pending_at), (1, Some(at(0))));
}

pub async fn configure_creates_and_changes_only_what_it_names(store: &dyn Store) {
    let rate = RateLimit { limit: 7, per: seconds(2) };
    let patch = QueuePatch { rate_limit: Some(Some(rate)), concurrency: Some(Some(3)), ..Default::default() };
    let made = store.configure(&queue("new"), patch).await.expect("configure");
    assert_eq!((made.paused, made.rate_limit, made.concurrency), (false, Some(rate), Some(3)));
    assert_eq!((made.counts, made.oldest_pending_at), (QueueCounts::default(), None));
    let paused = QueuePatch { paused: Some(true), ..Default::default() };
    let shown = store.configure(&queue("new"), paused).await.expect("configure");
    assert_eq!((shown.paused, shown.rate_limit, shown.concurrency), (true, Some(rate), Some(3)));
    let off = QueuePatch { rate_limit: Some(None), concurrency: Some(None), ..Default::default() };
    let shown = store.configure(&queue("new"), off).await.expect("configure");
    assert_eq!((shown.paused, shown.rate_limit, shown.concurrency), (true, None, None));
    assert_eq!(store.queue(&queue("new")).await.expect("queue"), Some(shown.clone()));
    assert_eq!(store.queues().await.expect("queues"), [shown]);
}

pub async fn a_queue_without_jobs_can_be_deleted(store: &dyn Store) {
    let stage = Stage::new(store).await;
    assert!(!store.delete_queue(&queue("q")).await.expect("delete"), "unknown");
    stage.enqueue([job(1)]).await;
    for _ in 0..2 {
        let refused = store.delete_queue(&queue("q")).await;
        assert!(matches!(&refused, Err(Error::Conflict(message)) if message.contains("\"q\"")), "{refused:?}");
        // Its job ends, and still counts.
        store.cancel(&[job_id(1)], None, at(1)).await.expect("cancel");
    }
    let limited = QueuePatch { paused: Some(true), concurrency: Some(Some(3)), ..Default::default() };
    for name in ["a", "b", "c"] {
        store.configure(&queue(name), limited).await.expect("configure");
    }
    assert!(store.delete_queue(&queue("b")).await.expect("delete"));
    assert!(!store.delete_queue(&queue("b")).await.expect("delete"), "only once");
    assert!(store.queue(&queue("b")).await.expect("queue").is_none());
    let names = async || store.queues().await.expect("queues").into_iter().map(|queue| queue.name).collect::<Vec<_>>();
    assert_eq!(names().await, [queue("a"), queue("c"), queue("q")]);
    // Another may take its place, and it comes back without its settings.
    stage.enqueue([job(2).with(|job| job.queue = queue("d")), job(3).with(|job| job.queue = queue("b"))]).await;
    assert_eq!(names().await, ["a", "b", "c", "d", "q"].map(queue));
    let back = stage.queue("b").await;
    assert_eq!((back.paused, back.concurrency, back.counts.get(Status::Pending)), (false, None, 1));
    assert_eq!(stage.queue("c").await.concurrency, Some(3));
    let run = stage.dispatch("b", 1, at(10)).await.pop().expect("its job is pending");
    assert_eq!((run.job_id, run.input.queue), (job_id(3), queue("b")));
}

pub async fn a_queue_tells_since_when_its_oldest_job_waits(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let late = |n, second| NewJob { created_at: at(second), ..job(n) };
    let high = late(3, 9).with(|job| job.priority = convoke_core::jobs::Priority::High);
    stage.enqueue([late(1, 7), late(2, 5), high]).await;
    assert_eq!(stage.queue("q").await.oldest_pending_at, Some(at(5)), "of any priority");
    stage.dispatch_one(at(10)).await;
    assert_eq!(stage.queue("q").await.oldest_pending_at, Some(at(5)));
    stage.dispatch_one(at(10)).await;
    assert_eq!(stage.queue("q").await.oldest_pending_at, Some(at(7)));
    stage.dispatch_one(at(10)).await;
    assert_eq!(stage.queue("q").await.oldest_pending_at, None);
}
