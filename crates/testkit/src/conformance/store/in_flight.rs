//! Runs in flight: running, overdue, and without a claim.

use convoke_core::JobId;
use convoke_core::jobs::{Claim, RunReport, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::{Holders, InFlightFilter};
use jiff::Timestamp;

use super::stage::*;

async fn found(store: &dyn Store, filter: InFlightFilter) -> Vec<JobId> {
    store.in_flight(filter, None, 99).await.expect("in flight").into_iter().map(|run| run.job).collect()
}

pub async fn runs_in_flight_are_told_by_job_id(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([5, 3, 1, 2, 4].map(job)).await;
    let runs = stage.dispatch("q", 4, at(1)).await;
    stage.start(&runs[0], "w", at(2)).await;
    stage.end(&runs[1], at(2), completed()).await;
    let reported = store.in_flight(InFlightFilter::default(), None, 99).await.expect("in flight");
    assert_eq!(reported.iter().map(|run| run.job).collect::<Vec<_>>(), [1, 2, 5].map(job_id));
    let last = &reported[2];
    assert_eq!((last.execution, last.attempt, last.status), (runs[0].execution_id, 1, Status::Running));
    assert_eq!((&last.worker, &last.owner, last.dispatched_at), (&Some(worker("w")), &None, at(1)));
    assert_eq!((&last.job_type, &last.queue), (&runs[0].input.job_type, &runs[0].input.queue));
}

pub async fn runs_in_flight_are_told_page_by_page(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=20).map(job)).await;
    let runs = stage.dispatch("q", 20, at(1)).await;
    for run in runs.iter().filter(|run| run.job_id.0.as_u128() % 2 == 0) {
        stage.apply(RunReport { worker: Some(worker("even")), ..report(run) }).await;
    }
    let filter = InFlightFilter { worker: Some(worker("even")), ..Default::default() };
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store.in_flight(filter.clone(), after, 3).await.expect("in flight");
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(last.job);
        seen.extend(page.iter().map(|run| run.job));
        // A run that ends between pages moves no other.
        let ended = runs.iter().find(|run| run.job_id == last.job).expect("dispatched above");
        stage.end(ended, at(5), completed()).await;
    }
    assert_eq!(seen, (1..=10).map(|n| job_id(2 * n)).collect::<Vec<_>>());
}

pub async fn runs_in_flight_are_found_by_worker_and_owner(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=5).map(job)).await;
    let runs = stage.dispatch("q", 5, at(1)).await;
    for (run, (w, n)) in runs.iter().zip([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]) {
        stage.apply(RunReport { worker: Some(worker(w)), owner: Some(Claim::Take(node(n))), ..report(run) }).await;
    }
    let by_worker = InFlightFilter { worker: Some(worker("a")), ..Default::default() };
    let by_owner = InFlightFilter { owner: Some(node("x")), ..Default::default() };
    let by_both = InFlightFilter { worker: Some(worker("a")), ..by_owner.clone() };
    assert_eq!(found(store, by_worker.clone()).await, [1, 2].map(job_id));
    assert_eq!(found(store, by_owner).await, [1, 3].map(job_id));
    assert_eq!(found(store, by_both).await, [1].map(job_id));
    assert!(found(store, InFlightFilter { worker: Some(worker("c")), ..Default::default() }).await.is_empty());
    stage.end_as_leader(report(&runs[0]).ended(at(3), lost(), 0.0)).await;
    assert_eq!(found(store, by_worker).await, [2].map(job_id), "a lost run is its worker's no more");
}

pub async fn runs_that_no_worker_claimed_are_found(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=5).map(job)).await;
    let early = stage.dispatch("q", 4, at(1)).await;
    stage.dispatch("q", 1, at(5)).await;
    stage.apply(RunReport { worker: Some(worker("w")), ..report(&early[0]) }).await;
    stage.apply(RunReport { started_at: Some(at(2)), ..report(&early[1]) }).await;
    stage.apply(RunReport { owner: Some(Claim::Take(node("n"))), ..report(&early[2]) }).await;
    let unclaimed = |second| InFlightFilter { unclaimed_before: Some(at(second)), ..Default::default() };
    assert!(found(store, unclaimed(1)).await.is_empty(), "before, not at");
    assert_eq!(found(store, unclaimed(5)).await, [3, 4].map(job_id), "an owner is not a worker");
    assert_eq!(found(store, unclaimed(6)).await, [3, 4, 5].map(job_id));
    let without = InFlightFilter { without_worker: true, ..Default::default() };
    assert_eq!(found(store, without.clone()).await, [2, 3, 4, 5].map(job_id), "started or not");
    let page = store.in_flight(without.clone(), Some(job_id(2)), 2).await.expect("in flight");
    assert_eq!(page.iter().map(|run| run.job).collect::<Vec<_>>(), [3, 4].map(job_id));
    let executions = vec![early[0].execution_id, early[2].execution_id];
    assert_eq!(found(store, InFlightFilter { executions, ..without }).await, [3].map(job_id));
    stage.end_as_leader(report(&early[3]).ended(at(7), convoke_core::jobs::Outcome::Released, 0.0)).await;
    let again = stage.dispatch_one(at(8)).await;
    assert_eq!(again.job_id, job_id(4));
    assert_eq!(found(store, unclaimed(8)).await, [3, 5].map(job_id), "its time begins anew");
}

pub async fn runs_without_an_owner_and_runs_by_execution_are_found(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=4).map(job)).await;
    let runs = stage.dispatch("q", 3, at(1)).await;
    stage.dispatch("q", 1, at(5)).await;
    stage.apply(RunReport { owner: Some(Claim::Take(node("n"))), ..report(&runs[0]) }).await;
    stage.apply(RunReport { worker: Some(worker("w")), ..report(&runs[1]) }).await;
    let unowned = |second| InFlightFilter { unowned_before: Some(at(second)), ..Default::default() };
    assert!(found(store, unowned(1)).await.is_empty(), "before, not at");
    assert_eq!(found(store, unowned(5)).await, [2, 3].map(job_id), "a worker is not an owner");
    assert_eq!(found(store, unowned(6)).await, [2, 3, 4].map(job_id));
    let executions = vec![runs[2].execution_id, runs[0].execution_id, convoke_core::ExecutionId(uuid::Uuid::nil())];
    let by_execution = InFlightFilter { executions, ..Default::default() };
    assert_eq!(found(store, by_execution.clone()).await, [1, 3].map(job_id));
    assert_eq!(found(store, InFlightFilter { owner: Some(node("n")), ..by_execution }).await, [1].map(job_id));
}

pub async fn holders_are_the_workers_and_owners_of_runs_in_flight(store: &dyn Store) {
    let stage = Stage::new(store).await;
    assert_eq!(store.holders().await.expect("holders"), Holders::default());
    stage.enqueue((1..=5).map(job)).await;
    let runs = stage.dispatch("q", 5, at(1)).await;
    for (run, (w, n)) in runs.iter().zip([("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")]) {
        stage.apply(RunReport { worker: Some(worker(w)), owner: Some(Claim::Take(node(n))), ..report(run) }).await;
    }
    let expect = |workers: &[&str], owners: &[&str]| Holders {
        workers: workers.iter().map(|name| worker(name)).collect(),
        owners: owners.iter().map(|name| node(name)).collect(),
    };
    assert_eq!(store.holders().await.expect("holders"), expect(&["a", "b", "c"], &["x", "y", "z"]));
    stage.end(&runs[3], at(2), completed()).await;
    assert_eq!(store.holders().await.expect("holders"), expect(&["a", "b"], &["x", "y"]), "its run has ended");
}

pub async fn runs_whose_time_is_up_are_told_the_longest_overdue_first(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let timed = |n: u64, timeout| job(n).with(|job| job.timeout = Some(seconds(timeout)));
    stage.enqueue([timed(1, 30), timed(2, 10), timed(3, 20), timed(4, 10), job(5), timed(6, 40)]).await;
    let runs = stage.dispatch("q", 6, at(0)).await;
    let nobody = store.overdue(at(9_999), 9).await.expect("overdue");
    assert!(nobody.runs.is_empty() && nobody.next_at.is_none(), "a run that has not started has no deadline");
    for run in &runs {
        if run.job_id != job_id(4) {
            stage.start(run, "w", at(100)).await;
        }
    }
    let overdue = async |second, limit| {
        let result = store.overdue(at(second), limit).await.expect("overdue");
        (result.runs.iter().map(|run| run.job).collect::<Vec<_>>(), result.next_at)
    };
    assert_eq!(overdue(109, 9).await, (vec![], Some(at(110))));
    assert_eq!(overdue(110, 9).await, (vec![job_id(2)], Some(at(120))));
    assert_eq!(overdue(135, 9).await, ([2, 3, 1].map(job_id).to_vec(), Some(at(140))));
    assert_eq!(overdue(135, 2).await.0, [2, 3].map(job_id));
    let full = store.overdue(at(140), 9).await.expect("overdue");
    assert_eq!((full.runs.len(), full.next_at), (4, None));
    assert_eq!((full.runs[0].execution, full.runs[0].status), (runs[1].execution_id, Status::Running));
    let deadlines: Vec<_> = full.runs.iter().filter_map(|run| run.deadline).collect();
    assert_eq!(deadlines, [110, 120, 130, 140].map(at));
    // A run that has ended, with any outcome, is not overdue.
    stage.end(&runs[1], at(141), completed()).await;
    stage
        .end_as_leader(report(&runs[2]).ended(
            at(141),
            convoke_core::jobs::Outcome::TimedOut { error: "x".into() },
            0.0,
        ))
        .await;
    store.cancel(&[job_id(1)], None, at(141)).await.expect("cancel");
    assert_eq!(overdue(9_999, 9).await, (vec![job_id(6)], None));
}

pub async fn a_deadline_counts_from_the_first_start(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1).with(|job| job.timeout = Some(seconds(10)))).await;
    stage.start(&run, "w", at(5)).await;
    stage.start(&run, "w", at(12)).await;
    assert_eq!(store.overdue(at(14), 9).await.expect("overdue").next_at, Some(at(15)));
    assert_eq!(store.overdue(at(15), 9).await.expect("overdue").runs.len(), 1);
}

pub async fn a_run_that_never_says_started_is_timed_from_when_it_was_handed_out(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1).with(|job| job.timeout = Some(seconds(10))), job(2)]).await;
    let runs = stage.dispatch("q", 2, at(0)).await;
    for run in &runs {
        let handed_out = RunReport { worker: Some(worker("w")), handed_out_at: Some(at(5)), ..report(run) };
        assert_eq!(stage.apply(handed_out).await.status, Status::Dispatched);
    }
    assert_eq!(stage.job(job_id(1)).await.started_at, None);
    // No other report changes its time.
    stage.apply(RunReport { logs: vec![log("a")], ..report(&runs[0]) }).await;
    assert_eq!(store.overdue(at(14), 9).await.expect("overdue").next_at, Some(at(15)));
    let overdue = store.overdue(at(15), 9).await.expect("overdue");
    let found: Vec<_> = overdue.runs.iter().map(|run| (run.job, run.execution, run.status)).collect();
    assert_eq!(found, [(job_id(1), runs[0].execution_id, Status::Dispatched)], "the other has no timeout");
    assert_eq!(overdue.next_at, None);

    // Another run of the job has a time of its own.
    stage.end_as_leader(report(&runs[0]).ended(at(15), convoke_core::jobs::Outcome::Released, 0.0)).await;
    stage.dispatch_one(at(16)).await;
    let nobody = store.overdue(at(9_999), 9).await.expect("overdue");
    assert!(nobody.runs.is_empty() && nobody.next_at.is_none());
}

pub async fn a_start_moves_the_deadline_of_a_run_that_was_handed_out(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1).with(|job| job.timeout = Some(seconds(10)))).await;
    let handed_out = |second| RunReport { handed_out_at: Some(at(second)), ..report(&run) };
    stage.apply(handed_out(5)).await;
    stage.start(&run, "w", at(8)).await;
    assert_eq!(store.overdue(at(17), 9).await.expect("overdue").next_at, Some(at(18)));
    stage.apply(handed_out(12)).await;
    assert_eq!(store.overdue(at(17), 9).await.expect("overdue").next_at, Some(at(18)), "a start stands");
    assert_eq!(store.overdue(at(18), 9).await.expect("overdue").runs.len(), 1);
}

pub async fn a_deadline_beyond_all_time_is_its_end(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let timed = |n| job(n).with(|job| job.timeout = Some(seconds(10)));
    stage.enqueue([timed(1), timed(2)]).await;
    let runs = stage.dispatch("q", 2, at(0)).await;
    stage.apply(RunReport { handed_out_at: Some(Timestamp::MAX), ..report(&runs[0]) }).await;
    stage.start(&runs[1], "w", Timestamp::MAX).await;
    assert!(store.overdue(at(9_999), 9).await.expect("overdue").runs.is_empty());
}
