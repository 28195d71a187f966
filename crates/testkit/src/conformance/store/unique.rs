//! Unique keys: at most one live job holds one.

use convoke_core::jobs::{NewJob, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::{Cutoffs, Redriven};

use super::stage::*;

fn keyed(n: u64) -> NewJob {
    job(n).with(|job| job.unique_key = Some("k".into()))
}

fn reserved(n: u64, until: i64) -> NewJob {
    NewJob { unique_until: Some(at(until)), ..keyed(n) }
}

fn later(job: NewJob, second: i64) -> NewJob {
    NewJob { created_at: at(second), ..job }
}

/// Whom an insert of `job` names, and whether it was made.
async fn offer(store: &dyn Store, job: NewJob) -> (convoke_core::JobId, bool) {
    let result = store.insert(vec![job]).await.expect("insert").remove(0);
    (result.id, result.created)
}

pub async fn a_key_is_taken_in_every_live_state(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([NewJob { run_at: Some(at(10)), ..keyed(1) }]).await;
    assert_eq!(offer(store, keyed(2)).await, (job_id(1), false), "scheduled");
    store.promote(stage.fence, at(10), 1).await.expect("promote");
    assert_eq!(offer(store, keyed(2)).await, (job_id(1), false), "pending");
    let run = stage.dispatch_one(at(11)).await;
    assert_eq!(offer(store, keyed(2)).await, (job_id(1), false), "dispatched");
    stage.start(&run, "w", at(12)).await;
    assert_eq!(offer(store, keyed(2)).await, (job_id(1), false), "running");
    stage.end(&run, at(13), failed("x")).await;
    assert_eq!(offer(store, keyed(2)).await, (job_id(1), false), "waiting for a retry");
    assert!(stage.find(job_id(2)).await.is_none());
}

pub async fn a_key_is_free_once_its_job_has_ended(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let mut n = 1;
    for outcome in [completed(), failed_for_good("x"), convoke_core::jobs::Outcome::Cancelled { reason: None }] {
        let run = stage.run(keyed(n)).await;
        stage.end(&run, at(1), outcome).await;
        n += 1;
    }
    assert_eq!(offer(store, keyed(n)).await, (job_id(n), true));
    store.cancel(&[job_id(n)], None, at(2)).await.expect("cancel");
    assert_eq!(offer(store, keyed(n + 1)).await, (job_id(n + 1), true));
}

pub async fn a_key_holds_within_a_batch(store: &dyn Store) {
    let other = job(3).with(|job| job.unique_key = Some("other".into()));
    let results = store.insert(vec![keyed(1), keyed(2), other, keyed(4)]).await.expect("insert");
    let results: Vec<_> = results.into_iter().map(|result| (result.id, result.created)).collect();
    assert_eq!(results, [(job_id(1), true), (job_id(1), false), (job_id(3), true), (job_id(1), false)]);
}

pub async fn a_reserved_key_stays_taken_after_the_end(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(reserved(1, 100)).await;
    stage.end(&run, at(1), completed()).await;
    assert_eq!(offer(store, later(keyed(2), 99)).await, (job_id(1), false));
    assert_eq!(offer(store, later(keyed(2), 100)).await, (job_id(2), true), "until, and no longer");
}

pub async fn a_reservation_that_ran_out_does_not_free_a_live_jobs_key(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([reserved(1, 100)]).await;
    assert_eq!(offer(store, later(keyed(2), 200)).await, (job_id(1), false));
}

pub async fn a_reserved_key_outlives_its_job(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(reserved(1, 100)).await;
    stage.end(&run, at(1), completed()).await;
    let cutoffs = Cutoffs { completed: at(50), cancelled: at(50), dead: at(50) };
    assert_eq!(store.expire(stage.fence, cutoffs, 10).await.expect("expire").jobs, 1);
    assert_eq!(offer(store, later(keyed(2), 60)).await, (job_id(1), false));
    assert_eq!(offer(store, later(keyed(2), 100)).await, (job_id(2), true));
}

pub async fn a_key_is_free_once_its_job_is_purged(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(keyed(1)).await;
    stage.end(&run, at(1), failed_for_good("x")).await;
    assert_eq!(store.purge(&[job_id(1)], &DEAD).await.expect("purge"), 1);
    assert_eq!(offer(store, keyed(2)).await, (job_id(2), true));
}

pub async fn a_redriven_job_takes_its_key_again(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(keyed(1)).await;
    stage.end(&run, at(1), failed_for_good("x")).await;
    assert!(matches!(store.redrive(&[job_id(1)], at(2)).await.expect("redrive")[0], Redriven::Pending(_)));
    assert_eq!(offer(store, keyed(2)).await, (job_id(1), false));
}

pub async fn a_job_whose_key_is_anothers_is_not_redriven(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(keyed(1)).await;
    stage.end(&run, at(1), failed_for_good("x")).await;
    stage.enqueue([keyed(2)]).await;
    let result = store.redrive(&[job_id(1)], at(2)).await.expect("redrive").remove(0);
    assert!(matches!(result, Redriven::Refused(ref job) if job.status == Status::Failed), "{result:?}");
    assert_eq!(stage.job(job_id(1)).await.status, Status::Failed);
    store.cancel(&[job_id(2)], None, at(3)).await.expect("cancel");
    assert!(matches!(store.redrive(&[job_id(1)], at(4)).await.expect("redrive")[0], Redriven::Pending(_)));
    assert_eq!(offer(store, keyed(3)).await, (job_id(1), false), "the key is its own again");
}
