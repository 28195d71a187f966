//! Channels that must be closed, and jobs that have been kept long enough.

use convoke_core::JobId;
use convoke_core::jobs::run::Outcome;
use convoke_core::jobs::{RunReport, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::{Cutoffs, Expired};

use super::stage::*;

fn all_before(second: i64) -> Cutoffs {
    Cutoffs { completed: at(second), cancelled: at(second), dead: at(second) }
}

async fn uncleaned(store: &dyn Store) -> Vec<JobId> {
    store.uncleaned(at(99_999), 99).await.expect("uncleaned")
}

pub async fn a_job_that_spoke_by_its_channels_is_uncleaned_until_it_is_marked(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=4).map(job)).await;
    let runs = stage.dispatch("q", 3, at(0)).await;
    stage.end_by_channel(&runs[1], at(3), completed()).await;
    stage.end_by_channel(&runs[0], at(5), failed_for_good("x")).await;
    stage.apply(RunReport { by_channel: true, ..report(&runs[2]) }).await;
    assert_eq!(uncleaned(store).await, [2, 1].map(job_id), "the longest ended first, and none that is live");
    assert_eq!(store.uncleaned(at(5), 9).await.expect("uncleaned"), [job_id(2)], "before, not at");
    assert_eq!(store.uncleaned(at(9), 1).await.expect("uncleaned"), [job_id(2)]);
    let marked = store.mark_cleaned(stage.fence, at(99), &[2, 3, 9].map(job_id)).await.expect("mark");
    assert_eq!(marked, [job_id(2)], "neither a live job nor one that is not there");
    assert!(stage.job(job_id(2)).await.channels_cleaned);
    assert!(!stage.job(job_id(3)).await.channels_cleaned, "a live job is passed over");
    assert_eq!(uncleaned(store).await, [job_id(1)]);
    stage.end(&runs[2], at(6), completed()).await;
    assert_eq!(uncleaned(store).await, [1, 3].map(job_id), "it used a channel once");
}

pub async fn a_job_whose_only_run_came_by_a_gateway_needs_no_cleaning(store: &dyn Store) {
    let stage = Stage::new(store).await;
    for (outcome, n) in [completed(), failed_for_good("x"), Outcome::Cancelled { reason: None }].into_iter().zip(1..) {
        let run = stage.run(job(n)).await;
        stage.start(&run, "w", at(1)).await;
        stage.end(&run, at(2), outcome).await;
        assert!(stage.job(job_id(n)).await.channels_cleaned);
    }
    assert!(uncleaned(store).await.is_empty());
}

pub async fn a_job_that_ran_more_than_once_is_cleaned_by_hand(store: &dyn Store) {
    let stage = Stage::new(store).await;
    for (outcome, n) in [lost(), Outcome::Released].into_iter().zip(1..) {
        let run = stage.run(job(n)).await;
        stage.end(&run, at(1), outcome).await;
        let run = stage.dispatch_one(at(2)).await;
        stage.end(&run, at(3), completed()).await;
    }
    assert_eq!(uncleaned(store).await, [1, 2].map(job_id));
}

pub async fn a_judged_end_says_nothing_of_channels(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1).with(|job| job.max_retries = 0)).await;
    stage.end_as_leader(report(&run).ended(at(5), lost(), 0.0)).await;
    assert_eq!(stage.job(job_id(1)).await.status, Status::Failed);
    assert_eq!(uncleaned(store).await, [job_id(1)]);
}

pub async fn a_cancelled_job_needs_cleaning_only_if_it_was_ever_dispatched(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=2).map(job)).await;
    stage.dispatch_one(at(1)).await;
    store.cancel(&[1, 2].map(job_id), None, at(2)).await.expect("cancel");
    assert_eq!(uncleaned(store).await, [job_id(1)]);
    assert!(stage.job(job_id(2)).await.channels_cleaned);
}

pub async fn a_redriven_job_must_be_cleaned_again(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end(&run, at(1), failed_for_good("x")).await;
    store.redrive(&[job_id(1)], at(2)).await.expect("redrive");
    assert!(uncleaned(store).await.is_empty(), "it is live");
    let run = stage.dispatch_one(at(3)).await;
    stage.end(&run, at(4), completed()).await;
    assert_eq!(uncleaned(store).await, [job_id(1)]);
}

pub async fn a_job_that_ended_again_since_it_was_due_is_not_marked(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end_by_channel(&run, at(1), failed_for_good("x")).await;
    assert_eq!(store.uncleaned(at(5), 9).await.expect("uncleaned"), [job_id(1)]);
    store.redrive(&[job_id(1)], at(6)).await.expect("redrive");
    let mark = async |before| store.mark_cleaned(stage.fence, before, &[job_id(1)]).await.expect("mark");
    assert!(mark(at(5)).await.is_empty(), "it is live");
    let run = stage.dispatch_one(at(7)).await;
    stage.end_by_channel(&run, at(8), completed()).await;
    assert!(mark(at(5)).await.is_empty(), "its last entries may be unread");
    assert!(!stage.job(job_id(1)).await.channels_cleaned);
    assert_eq!(mark(at(9)).await, [job_id(1)]);
    assert!(stage.job(job_id(1)).await.channels_cleaned);
    assert!(mark(at(9)).await.is_empty(), "once");
}

pub async fn each_kind_expires_by_its_own_cutoff(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let once = |n| job(n).with(|job| job.max_retries = 0);
    stage.enqueue((1..=5).map(once)).await;
    let runs = stage.dispatch("q", 4, at(0)).await;
    stage.end(&runs[0], at(10), completed()).await;
    stage.end(&runs[1], at(10), failed("x")).await;
    stage.end(&runs[2], at(10), Outcome::TimedOut { error: "x".into() }).await;
    stage.end(&runs[3], at(10), Outcome::Cancelled { reason: None }).await;
    let never = all_before(0);
    let left = async || stage.all().await.iter().map(|job| job.id).collect::<Vec<_>>();
    let expire = async |cutoffs| store.expire(stage.fence, cutoffs, 99).await.expect("expire").jobs;
    assert_eq!(expire(all_before(10)).await, 0, "before, not at");
    assert_eq!(expire(Cutoffs { completed: at(11), ..never }).await, 1);
    assert_eq!(left().await, [5, 4, 3, 2].map(job_id));
    assert_eq!(expire(Cutoffs { cancelled: at(11), ..never }).await, 1);
    assert_eq!(left().await, [5, 3, 2].map(job_id));
    assert_eq!(expire(Cutoffs { dead: at(11), ..never }).await, 2);
    assert_eq!(left().await, [job_id(5)], "a live job never expires");
    assert_eq!(expire(all_before(99)).await, 0);
    stage.assert_counters().await;
}

pub async fn what_is_not_cleaned_does_not_expire(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end_by_channel(&run, at(10), completed()).await;
    assert_eq!(store.expire(stage.fence, all_before(99), 99).await.expect("expire").jobs, 0);
    store.mark_cleaned(stage.fence, at(99), &[job_id(1)]).await.expect("mark");
    assert_eq!(store.expire(stage.fence, all_before(99), 99).await.expect("expire").jobs, 1);
}

pub async fn history_and_logs_expire_with_their_job(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.apply(RunReport { logs: vec![log("a")], ..report(&run).ended(at(1), lost(), 0.0) }).await;
    let run = stage.dispatch_one(at(2)).await;
    stage.end(&run, at(3), completed()).await;
    store.mark_cleaned(stage.fence, at(99), &[job_id(1)]).await.expect("mark");
    assert_eq!(store.expire(stage.fence, all_before(99), 99).await.expect("expire").jobs, 1);
    assert!(stage.history(job_id(1)).await.is_empty());
    assert!(store.logs(job_id(1), 0, 9).await.expect("logs").is_empty());
    stage.enqueue([job(1)]).await;
    assert!(stage.history(job_id(1)).await.is_empty(), "a new job of that id inherits nothing");
    assert!(store.logs(job_id(1), 0, 9).await.expect("logs").is_empty());
}

pub async fn expiry_is_bounded_by_its_limit(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=10).map(job)).await;
    for run in stage.dispatch("q", 10, at(0)).await {
        stage.end(&run, at(1), completed()).await;
    }
    for expected in [4, 4, 2, 0] {
        assert_eq!(store.expire(stage.fence, all_before(99), 4).await.expect("expire").jobs, expected);
        stage.assert_counters().await;
    }
}

/// Stores a job, logs so many lines and ends it.
async fn logged(stage: &Stage<'_>, n: u64, lines: usize, outcome: Outcome) {
    let run = stage.run(job(n)).await;
    let logs = (1..=lines).map(|line| log(&line.to_string())).collect();
    stage.apply(RunReport { logs, ..report(&run).ended(at(1), outcome, 0.0) }).await;
}

async fn lines(store: &dyn Store, n: u64) -> usize {
    store.logs(job_id(n), 0, 99_999).await.expect("logs").len()
}

pub async fn many_log_lines_expire_in_slices(store: &dyn Store) {
    let stage = Stage::new(store).await;
    for (n, lines) in [(1, 0), (2, 47), (3, 3), (4, 10)] {
        logged(&stage, n, lines, completed()).await;
    }
    let rows = async || {
        let mut rows = stage.all().await.len();
        for n in 1..=4 {
            rows += lines(store, n).await;
        }
        rows
    };
    let mut left = rows().await;
    assert_eq!(left, 64);
    loop {
        let expired = store.expire(stage.fence, all_before(99), 10).await.expect("expire");
        let now = rows().await;
        assert!((1..=10).contains(&(left - now)), "a slice deletes something, and no more than its limit");
        assert_eq!(expired.more, now > 0);
        stage.assert_counters().await;
        left = now;
        if left == 0 {
            break;
        }
    }
    assert_eq!(store.expire(stage.fence, all_before(99), 10).await.expect("expire"), Expired::default());
}

pub async fn a_job_that_is_redriven_between_slices_keeps_the_rest_of_its_log(store: &dyn Store) {
    let stage = Stage::new(store).await;
    logged(&stage, 1, 25, failed_for_good("x")).await;
    let expired = store.expire(stage.fence, all_before(99), 10).await.expect("expire");
    assert_eq!(expired, Expired { jobs: 0, more: true });
    store.redrive(&[job_id(1)], at(2)).await.expect("redrive");
    let expired = store.expire(stage.fence, all_before(99), 10).await.expect("expire");
    assert_eq!(expired, Expired::default(), "a live job does not expire");
    let run = stage.dispatch_one(at(3)).await;
    stage.apply(RunReport { logs: vec![log("new")], ..report(&run) }).await;
    let logs = store.logs(job_id(1), 0, 99).await.expect("logs");
    assert_eq!(logs.iter().map(|line| line.seq).collect::<Vec<_>>(), (1..=16).collect::<Vec<_>>());
    assert_eq!(logs.last().map(|line| line.message.as_str()), Some("new"));
}

pub async fn a_dead_letter_with_many_log_lines_is_purged(store: &dyn Store) {
    let stage = Stage::new(store).await;
    logged(&stage, 1, 2_500, failed_for_good("x")).await;
    logged(&stage, 2, 5, failed_for_good("x")).await;
    logged(&stage, 3, 5, completed()).await;
    assert_eq!(store.purge(&[1, 2, 3, 1, 9].map(job_id), &DEAD).await.expect("purge"), 2);
    assert_eq!((lines(store, 1).await, lines(store, 2).await, lines(store, 3).await), (0, 0, 5));
    assert!(stage.find(job_id(1)).await.is_none() && stage.find(job_id(2)).await.is_none());
    stage.assert_counters().await;
}
