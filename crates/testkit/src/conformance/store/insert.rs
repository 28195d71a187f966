//! How jobs come into the store.

use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::{ExecutionStatus, Jitter, NewJob, Ownership, Priority, RetryPolicy, Status};
use convoke_core::limits::QUEUES_MAX;
use convoke_core::ports::Store;

use super::stage::*;

pub async fn a_stored_job_is_read_back_as_it_was_given(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let new = NewJob {
        unique_until: Some(at(500)),
        run_at: Some(at(60)),
        ..job(1).with(|job| {
            job.priority = Priority::Critical;
            job.max_retries = 7;
            job.retry_policy = RetryPolicy {
                initial_delay: seconds(3),
                multiplier: 1.5,
                max_delay: seconds(77),
                jitter: Jitter::Full,
            };
            job.timeout = Some(seconds(30));
            job.correlation_id = Some("c-1".into());
            job.tags = vec!["t-1".into(), "t \"2\"".into()];
            job.unique_key = Some("k-1".into());
            job.args = json(r#"{"n": 1.0, "text": "ä\n"}"#);
        })
    };
    stage.enqueue([new.clone(), job(2)]).await;
    assert_eq!(stage.job(job_id(1)).await, new.into_stored());
    assert_eq!(stage.job(job_id(2)).await, job(2).into_stored());
    assert_eq!(stage.job(job_id(1)).await.status, Status::Scheduled);
    assert_eq!(stage.job(job_id(2)).await.status, Status::Pending);
}

pub async fn insert_returns_in_order(store: &dyn Store) {
    let results = store.insert((1..=100).rev().map(job).collect()).await.expect("insert");
    let expected: Vec<_> = (1..=100).rev().map(|n| Enqueued { id: job_id(n), created: true }).collect();
    assert_eq!(results, expected);
}

pub async fn nothing_is_a_batch_too(store: &dyn Store) {
    let stage = Stage::new(store).await;
    assert!(store.insert(Vec::new()).await.expect("insert").is_empty());
    assert!(store.get(&[]).await.expect("get").is_empty());
    assert!(store.record(Vec::new()).await.expect("record").is_empty());
    assert!(store.cancel(&[], None, at(0)).await.expect("cancel").is_empty());
    assert!(store.redrive(&[], at(0)).await.expect("redrive").is_empty());
    assert!(store.tick(stage.fence, Vec::new()).await.expect("tick").is_empty());
    assert_eq!(store.purge(&[], &DEAD).await.expect("purge"), 0);
}

pub async fn get_answers_in_order_and_for_unknown_ids(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1), job(2)]).await;
    let found = store.get(&[job_id(2), job_id(9), job_id(1), job_id(2)]).await.expect("get");
    let ids: Vec<_> = found.iter().map(|job| job.as_ref().map(|job| job.id)).collect();
    assert_eq!(ids, [Some(job_id(2)), None, Some(job_id(1)), Some(job_id(2))]);
}

pub async fn an_id_that_is_known_makes_no_second_job(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1)]).await;
    let again = job(1).with(|job| {
        job.queue = queue("other");
        job.args = json("2");
    });
    let results = store.insert(vec![again.clone(), job(2), job(2)]).await.expect("insert");
    let created: Vec<_> = results.iter().map(|result| (result.id, result.created)).collect();
    assert_eq!(created, [(job_id(1), false), (job_id(2), true), (job_id(2), false)]);
    assert_eq!(stage.job(job_id(1)).await, job(1).into_stored());
    assert_eq!(stage.all().await.len(), 2);

    // Nor once it has ended.
    let run = stage.dispatch_one(at(1)).await;
    stage.end(&run, at(2), completed()).await;
    assert!(!store.insert(vec![again]).await.expect("insert")[0].created);
    assert_eq!(stage.job(run.job_id).await.status, Status::Completed);
}

pub async fn a_queue_too_many_refuses_the_whole_batch(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let count = QUEUES_MAX as u64;
    stage.enqueue((1..=count).map(|n| job(n).with(|job| job.queue = queue(&format!("q{n}"))))).await;
    let one_more = job(count + 2).with(|job| job.queue = queue("one-more"));
    let known = job(count + 1).with(|job| job.queue = queue("q1"));
    assert_invalid(store.insert(vec![known.clone(), one_more.clone()]).await);
    assert!(stage.find(known.id).await.is_none(), "all or nothing");
    assert!(stage.find(one_more.id).await.is_none());
    assert!(store.queue(&queue("one-more")).await.expect("queue").is_none());
    assert_invalid(store.configure(&queue("one-more"), Default::default()).await);
    stage.enqueue([known]).await;
    stage.assert_counters().await;
}

pub async fn a_job_that_was_never_dispatched_has_no_history(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1)]).await;
    assert!(stage.history(job_id(1)).await.is_empty());
    assert!(stage.history(job_id(9)).await.is_empty(), "nor has an unknown one");
    let run = stage.dispatch_one(at(1)).await;
    let history = stage.history(job_id(1)).await;
    assert_eq!(history.len(), 1);
    assert_eq!((history[0].execution_id, history[0].attempt), (run.execution_id, 1));
    assert_eq!(history[0].status, ExecutionStatus::Dispatched);
    assert_eq!(stage.job(job_id(1)).await.ownership, Ownership::Unowned);
}
