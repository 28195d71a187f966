//! Cancelling, redriving, purging: what people do to jobs.

use convoke_core::jobs::{Claim, ExecutionStatus, NewJob, Ownership, RunReport, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::{Cancelled, Redriven};

use super::stage::*;

pub async fn every_live_job_can_be_cancelled(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=4).map(job)).await;
    stage.enqueue([NewJob { run_at: Some(at(99)), ..job(5) }]).await;
    let runs = stage.dispatch("q", 3, at(1)).await;
    stage.start(&runs[1], "w", at(2)).await;
    stage.end(&runs[2], at(2), failed("x")).await;
    let ids: Vec<_> = (1..=5).map(job_id).collect();
    let states: Vec<_> = store.get(&ids).await.expect("get").into_iter().flatten().map(|job| job.status).collect();
    let expected = [Status::Dispatched, Status::Running, Status::Scheduled, Status::Pending, Status::Scheduled];
    assert_eq!(states, expected);

    let results = store.cancel(&ids, Some("enough"), at(3)).await.expect("cancel");
    for (result, n) in results.iter().zip(1..) {
        let Cancelled::Now { job, run } = result else { panic!("{n} was live: {result:?}") };
        assert_eq!((job.id, job.status, job.completed_at), (job_id(n), Status::Cancelled, Some(at(3))));
        assert_eq!(job.error.as_deref(), Some("enough"));
        assert_eq!(*job, stage.job(job_id(n)).await);
        let in_flight = runs.get(n as usize - 1).filter(|_| n <= 2).map(|run| run.execution_id);
        assert_eq!(*run, in_flight, "what was in flight of {n}");
    }
    assert_eq!(stage.outcomes(job_id(2)).await, [(1, ExecutionStatus::Cancelled)]);
    assert_eq!(stage.history(job_id(2)).await[0].ended_at, Some(at(3)));
    assert_eq!(stage.outcomes(job_id(3)).await, [(1, ExecutionStatus::Failed)]);
    assert!(stage.history(job_id(4)).await.is_empty());
    assert_eq!(store.promote(stage.fence, at(500), 9).await.expect("promote").count, 0);
    assert!(stage.dispatch("q", 9, at(500)).await.is_empty(), "none runs again");
    assert!(store.in_flight(Default::default(), None, 9).await.expect("in flight").is_empty());
    stage.assert_counters().await;
}

pub async fn nobody_owns_a_job_that_has_ended(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=6).map(|n| job(n).with(|job| job.max_retries = 0))).await;
    let runs = stage.dispatch("q", 6, at(1)).await;
    let owned = |run| RunReport { owner: Some(Claim::Take(node("n"))), ..report(run) };
    for run in &runs[..5] {
        stage.apply(owned(run)).await;
        assert_eq!(stage.job(run.job_id).await.ownership, Ownership::Owned);
    }
    stage.end(&runs[0], at(2), completed()).await;
    stage.end(&runs[1], at(2), failed("x")).await;
    stage.end_as_leader(report(&runs[2]).ended(at(2), lost(), 0.0)).await;
    stage.apply(RunReport { logs: vec![log("a")], ..owned(&runs[3]).ended(at(2), completed(), 0.0) }).await;
    store.cancel(&[job_id(5)], None, at(2)).await.expect("cancel");
    stage.apply(owned(&runs[5]).ended(at(2), completed(), 0.0)).await;
    for job in stage.all().await {
        let found = (job.ownership, job.owner_node);
        assert_eq!(found, (Ownership::Unowned, Some(node("n"))), "{}: who wrote it is still known", job.id);
    }
}

pub async fn cancelling_what_has_ended_changes_nothing(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end(&run, at(2), completed()).await;
    stage.enqueue([job(2)]).await;
    let before = stage.job(job_id(1)).await;
    let ids = [job_id(1), job_id(9), job_id(2), job_id(2)];
    let results = store.cancel(&ids, Some("late"), at(3)).await.expect("cancel");
    assert_eq!(results[0], Cancelled::Before(before.clone()));
    assert_eq!(results[1], Cancelled::Unknown);
    assert!(matches!(results[2], Cancelled::Now { .. }) && matches!(results[3], Cancelled::Before(_)), "{results:?}");
    assert_eq!(stage.job(job_id(1)).await, before);
}

pub async fn what_failed_or_was_cancelled_can_be_redriven_and_nothing_else(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=6).map(|n| job(n).with(|job| job.max_retries = 0))).await;
    stage.enqueue([NewJob { run_at: Some(at(99)), ..job(7) }]).await;
    let runs = stage.dispatch("q", 5, at(1)).await;
    stage.end(&runs[0], at(2), failed("x")).await;
    stage.end(&runs[1], at(2), convoke_core::jobs::Outcome::TimedOut { error: "x".into() }).await;
    stage.end(&runs[2], at(2), completed()).await;
    store.cancel(&[job_id(4)], None, at(2)).await.expect("cancel");
    let ids: Vec<_> = (1..=7).map(job_id).collect();
    let before = store.get(&ids).await.expect("get");
    let results = store.redrive(&ids, at(5)).await.expect("redrive");
    for ((result, before), n) in results.iter().zip(before).zip(1..) {
        let before = before.expect("the job is there");
        if [1, 2, 4].contains(&n) {
            let Redriven::Pending(job) = result else { panic!("{n} had ended: {result:?}") };
            assert_eq!((job.id, job.status), (job_id(n), Status::Pending));
            assert_eq!(*job, stage.job(job_id(n)).await);
        } else {
            assert_eq!(*result, Redriven::Refused(before.clone()), "{n}");
            assert_eq!(stage.job(job_id(n)).await, before);
        }
    }
    assert_eq!(stage.outcomes(job_id(4)).await, [(1, ExecutionStatus::Cancelled)], "the history goes on");
    stage.assert_counters().await;
}

pub async fn the_runs_of_a_redriven_job_are_not_heard_again(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1).with(|job| job.max_retries = 0)).await;
    stage.end(&run, at(2), failed("x")).await;
    store.redrive(&[job_id(1)], at(3)).await.expect("redrive");
    let late = report(&run).ended(at(4), completed(), 0.0);
    assert_eq!(stage.record(late.clone()).await, convoke_core::ports::store::Recorded::Stale);
    stage.dispatch_one(at(5)).await;
    assert_eq!(stage.record(late).await, convoke_core::ports::store::Recorded::Stale);
    assert_eq!(stage.job(job_id(1)).await.status, Status::Dispatched);
}

pub async fn ended_jobs_are_purged_by_status_and_live_ones_stay(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=6).map(|n| job(n).with(|job| job.max_retries = 0))).await;
    let runs = stage.dispatch("q", 4, at(1)).await;
    stage.end(&runs[0], at(2), failed("x")).await;
    stage.end(&runs[1], at(2), completed()).await;
    stage.end(&runs[2], at(2), completed()).await;
    store.cancel(&[job_id(5)], None, at(2)).await.expect("cancel");
    let ids: Vec<_> = (1..=6).map(job_id).collect();
    assert_eq!(store.purge(&ids, &[]).await.expect("purge"), 0);
    assert_eq!(store.purge(&ids, &[Status::Cancelled]).await.expect("purge"), 1);
    assert_eq!(store.purge(&ids[..2], &[Status::Completed]).await.expect("purge"), 1);
    let left = async || stage.all().await.iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(left().await, [6, 4, 3, 1].map(job_id));
    assert_eq!(store.purge(&ids, &Status::ALL).await.expect("purge"), 2, "what is pending or runs stays");
    assert_eq!(left().await, [6, 4].map(job_id));
    stage.assert_counters().await;
}

pub async fn a_completed_job_that_was_purged_leaves_nothing_behind(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=4).map(job)).await;
    for run in stage.dispatch("q", 4, at(1)).await {
        stage.end(&run, at(2), completed()).await;
    }
    assert_eq!(store.purge(&[job_id(1), job_id(3)], &[Status::Completed]).await.expect("purge"), 2);
    let listed = async || {
        let query =
            convoke_core::ports::store::JobQuery { statuses: vec![Status::Completed], limit: 1, ..Default::default() };
        stage.list(query).await.iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, [4, 2].map(job_id));
    let fence = store.seal(convoke_core::Epoch(9)).await.expect("seal");
    let cutoffs = convoke_core::ports::store::Cutoffs { completed: at(99), cancelled: at(99), dead: at(99) };
    let mut deleted = 0;
    loop {
        let expired = store.expire(fence, cutoffs, 100).await.expect("expire");
        deleted += expired.jobs;
        if !expired.more {
            break;
        }
    }
    assert_eq!(deleted, 2);
    assert!(listed().await.is_empty());
    stage.assert_counters().await;
}

pub async fn dead_letters_are_purged_with_all_that_is_theirs(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=5).map(|n| job(n).with(|job| job.max_retries = 0))).await;
    let runs = stage.dispatch("q", 4, at(1)).await;
    stage.apply(RunReport { logs: vec![log("a")], ..report(&runs[0]).ended(at(2), failed("x"), 0.0) }).await;
    stage.end(&runs[1], at(2), convoke_core::jobs::Outcome::TimedOut { error: "x".into() }).await;
    stage.end(&runs[2], at(2), completed()).await;
    store.cancel(&[job_id(4)], None, at(2)).await.expect("cancel");
    let ids = [1, 2, 3, 4, 5, 9, 1].map(job_id);
    assert_eq!(store.purge(&ids, &DEAD).await.expect("purge"), 2);
    let left: Vec<_> = stage.all().await.iter().map(|job| job.id).collect();
    assert_eq!(left, [5, 4, 3].map(job_id));
    assert!(stage.history(job_id(1)).await.is_empty());
    assert!(store.logs(job_id(1), 0, 9).await.expect("logs").is_empty());
    assert_eq!(store.purge(&ids, &DEAD).await.expect("purge"), 0);
    stage.assert_counters().await;
    stage.enqueue([job(1)]).await;
    assert!(stage.history(job_id(1)).await.is_empty(), "a new job of that id inherits nothing");
    assert!(store.logs(job_id(1), 0, 9).await.expect("logs").is_empty());
}
