//! After a run that did not complete: another run, or a dead letter.

use convoke_core::jobs::run::Outcome;
use convoke_core::jobs::{Claim, ExecutionStatus, NewJob, Ownership, Progress, RunReport, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::{JobQuery, Recorded, Redriven};

use super::stage::*;

fn timed_out() -> Outcome {
    Outcome::TimedOut { error: "late".into() }
}

pub async fn a_failed_run_is_tried_again_after_its_backoff(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.start(&run, "w", at(1)).await;
    let change = stage.end(&run, at(5), failed("boom")).await;
    assert_eq!((change.status, change.retry_at), (Status::Scheduled, Some(at(15))));
    assert_eq!((change.attempt, change.started_at, change.due_at), (1, Some(at(1)), at(0)), "of the run that ended");
    let waiting = stage.job(job_id(1)).await;
    assert_eq!((waiting.status, waiting.scheduled_at), (Status::Scheduled, Some(at(15))));
    assert_eq!((waiting.attempt, waiting.error.as_deref()), (1, Some("boom")));
    assert!(stage.dispatch("q", 1, at(14)).await.is_empty());
    assert_eq!(store.promote(stage.fence, at(14), 9).await.expect("promote").next_due_at, Some(at(15)));
    assert_eq!(store.promote(stage.fence, at(15), 9).await.expect("promote").count, 1);
    let second = stage.dispatch_one(at(15)).await;
    assert_eq!(second.attempt, 2);
    assert_ne!(second.execution_id, run.execution_id);
    let running = stage.job(job_id(1)).await;
    assert_eq!((running.attempt, running.retry_count), (2, 1));
    assert_eq!(stage.end(&second, at(20), failed("boom")).await.retry_at, Some(at(40)), "twice as long");
}

pub async fn a_job_that_runs_again_forgets_the_run_before(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let claimed = RunReport {
        worker: Some(worker("w")),
        owner: Some(Claim::Take(node("n"))),
        started_at: Some(at(1)),
        progress: Some(Progress { percent: 5, message: None }),
        ..report(&run)
    };
    stage.apply(claimed).await;
    stage.end(&run, at(5), failed("boom")).await;
    let job = stage.job(job_id(1)).await;
    assert_eq!((job.execution_id, job.worker_id, job.owner_node), (None, None, None));
    assert_eq!((job.ownership, job.progress), (Ownership::Unowned, None));
    assert_eq!((job.dispatched_at, job.started_at, job.completed_at), (None, None, None));
    let history = stage.history(job_id(1)).await;
    assert_eq!(history.len(), 1);
    let old = &history[0];
    assert_eq!((old.execution_id, old.status, old.attempt), (run.execution_id, ExecutionStatus::Failed, 1));
    assert_eq!((&old.worker_id, old.error.as_deref()), (&Some(worker("w")), Some("boom")));
    assert_eq!((old.started_at, old.ended_at), (Some(at(1)), Some(at(5))));
}

pub async fn a_run_that_completes_clears_the_error_of_those_before(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end(&run, at(5), failed("boom")).await;
    store.promote(stage.fence, at(99), 9).await.expect("promote");
    let second = stage.dispatch_one(at(99)).await;
    assert_eq!(stage.job(job_id(1)).await.error.as_deref(), Some("boom"), "until then it stays");
    stage.end(&second, at(100), completed()).await;
    assert_eq!(stage.job(job_id(1)).await.error, None);
    assert_eq!(stage.outcomes(job_id(1)).await, [(1, ExecutionStatus::Failed), (2, ExecutionStatus::Completed)]);
}

/// Runs a job until it is dead; each attempt ends with `outcome`. Returns the number of attempts.
async fn exhaust(stage: &Stage<'_>, new: NewJob, outcome: impl Fn() -> Outcome) -> u32 {
    let id = new.id;
    stage.enqueue([new]).await;
    for attempt in 1.. {
        let now = at(i64::from(attempt) * 1_000);
        stage.store.promote(stage.fence, now, 9).await.expect("promote");
        let run = stage.dispatch_one(now).await;
        assert_eq!((run.job_id, run.attempt), (id, attempt));
        if stage.end(&run, now, outcome()).await.retry_at.is_none() {
            return attempt;
        }
    }
    unreachable!("a budget is finite")
}

pub async fn an_exhausted_job_is_a_dead_letter_exactly_once(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let ends: [(fn() -> Outcome, Status); 3] =
        [(|| failed("x"), Status::Failed), (timed_out, Status::TimedOut), (lost, Status::Failed)];
    for ((outcome, status), n) in ends.into_iter().zip(1..) {
        let attempts = exhaust(&stage, job(n).with(|job| job.max_retries = 2), outcome).await;
        assert_eq!(attempts, 3, "the first and two retries");
        let dead = stage.job(job_id(n)).await;
        assert_eq!((dead.status, dead.attempt, dead.retry_count), (status, 3, 2));
        assert_eq!(dead.completed_at, Some(at(3_000)));
        assert!(dead.error.is_some());
        store.promote(stage.fence, at(99_999), 9).await.expect("promote");
        assert!(stage.dispatch("q", 9, at(99_999)).await.is_empty(), "it does not run again");
    }
    let dead = JobQuery { statuses: vec![Status::Failed, Status::TimedOut], limit: 9, ..JobQuery::default() };
    assert_eq!(stage.list(dead).await.len(), 3);
    stage.assert_counters().await;
}

pub async fn a_job_without_retries_has_one_attempt(store: &dyn Store) {
    let stage = Stage::new(store).await;
    assert_eq!(exhaust(&stage, job(1).with(|job| job.max_retries = 0), || failed("x")).await, 1);
}

pub async fn a_worker_can_say_not_to_retry(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let change = stage.end(&run, at(1), failed_for_good("no use")).await;
    assert_eq!((change.status, change.retry_at), (Status::Failed, None));
    let dead = stage.job(job_id(1)).await;
    assert_eq!((dead.attempt, dead.error.as_deref()), (1, Some("no use")));
}

pub async fn a_lost_run_counts_and_is_followed_at_once(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let Recorded::Applied(change) = stage.end_as_leader(report(&run).ended(at(5), lost(), 0.9)).await else {
        panic!("the run was in flight");
    };
    assert_eq!((change.status, change.retry_at), (Status::Pending, Some(at(5))));
    assert_eq!(stage.dispatch_one(at(5)).await.attempt, 2);
    assert_eq!(stage.outcomes(job_id(1)).await, [(1, ExecutionStatus::Lost), (2, ExecutionStatus::Dispatched)]);
}

pub async fn the_last_lost_run_is_lost_in_the_history_too(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1).with(|job| job.max_retries = 0)).await;
    stage.end_as_leader(report(&run).ended(at(5), lost(), 0.0)).await;
    assert_eq!(stage.job(job_id(1)).await.status, Status::Failed);
    assert_eq!(stage.outcomes(job_id(1)).await, [(1, ExecutionStatus::Lost)]);
    assert_eq!(stage.end_as_leader(report(&run).ended(at(6), lost(), 0.0)).await, Recorded::Duplicate);
    assert_eq!(stage.record(report(&run).ended(at(6), failed("x"), 0.0)).await, Recorded::Stale);
}

pub async fn a_released_run_does_not_count(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1).with(|job| job.max_retries = 0)]).await;
    for second in 1..=5 {
        let run = stage.dispatch_one(at(second)).await;
        assert_eq!(run.attempt, 1);
        let change = stage.end(&run, at(second), Outcome::Released).await;
        assert_eq!((change.status, change.retry_at), (Status::Pending, Some(at(second))));
        let job = stage.job(job_id(1)).await;
        assert_eq!((job.attempt, job.retry_count, job.error), (0, 0, None));
    }
    let run = stage.dispatch_one(at(9)).await;
    stage.end(&run, at(9), failed("x")).await;
    let mut expected = vec![(1, ExecutionStatus::Released); 5];
    expected.push((1, ExecutionStatus::Failed));
    assert_eq!(stage.outcomes(job_id(1)).await, expected);
    assert_eq!(stage.job(job_id(1)).await.status, Status::Failed);
}

pub async fn a_redriven_job_goes_on_with_a_fresh_budget(store: &dyn Store) {
    let stage = Stage::new(store).await;
    exhaust(&stage, job(1).with(|job| job.max_retries = 1), || failed("x")).await;
    let results = store.redrive(&[job_id(1), job_id(9)], at(5_000)).await.expect("redrive");
    assert_eq!(results[1], Redriven::Unknown);
    let Redriven::Pending(job) = &results[0] else { panic!("a dead letter can be redriven: {results:?}") };
    assert_eq!(*job, stage.job(job_id(1)).await);
    assert_eq!((job.status, job.attempt, job.retry_count), (Status::Pending, 2, 0));
    assert_eq!((job.execution_id, job.completed_at, job.channels_cleaned), (None, None, false));
    assert_eq!(stage.history(job_id(1)).await.len(), 2);
    assert_eq!(stage.queue("q").await.oldest_pending_at, Some(at(5_000)));

    let third = stage.dispatch_one(at(5_001)).await;
    assert_eq!((third.attempt, stage.job(job_id(1)).await.retry_count), (3, 0));
    let change = stage.end(&third, at(5_001), failed("x")).await;
    assert_eq!(change.retry_at, Some(at(5_011)), "the backoff begins anew");
    store.promote(stage.fence, at(6_000), 9).await.expect("promote");
    let fourth = stage.dispatch_one(at(6_000)).await;
    assert_eq!((fourth.attempt, stage.job(job_id(1)).await.retry_count), (4, 1));
    assert_eq!(stage.end(&fourth, at(6_000), failed("x")).await.retry_at, None);
    assert_eq!(stage.outcomes(job_id(1)).await, (1..=4).map(|n| (n, ExecutionStatus::Failed)).collect::<Vec<_>>());
    stage.assert_counters().await;
}
