//! Reports of runs, and which of them the store applies.

use std::time::Duration;

use convoke_core::jobs::run::{NewLog, Outcome};
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{Claim, ExecutionStatus, LogLevel, NewJob, Ownership, Progress, RunReport, Status};
use convoke_core::limits::RUN_LOG_LINES_MAX;
use convoke_core::ports::Store;
use convoke_core::ports::store::{Change, Recorded};

use super::stage::*;

/// One report of each kind.
fn every_kind(run: &Dispatch) -> Vec<(&'static str, RunReport)> {
    let of = || report(run);
    let progress = Progress { percent: 10, message: Some("…".into()) };
    let ended = |outcome| of().ended(at(50), outcome, 0.5);
    vec![
        ("claimed by a worker", RunReport { worker: Some(worker("intruder")), ..of() }),
        ("claimed by an owner", RunReport { owner: Some(Claim::Take(node("intruder"))), ..of() }),
        ("started", RunReport { started_at: Some(at(49)), ..of() }),
        ("progress", RunReport { progress: Some(progress), ..of() }),
        ("log", RunReport { logs: vec![log("late")], ..of() }),
        ("completed", ended(completed())),
        ("failed", ended(failed("late"))),
        ("failed for good", ended(failed_for_good("late"))),
        ("timed out", ended(Outcome::TimedOut { error: "late".into() })),
        ("cancelled", ended(Outcome::Cancelled { reason: None })),
        ("lost", ended(lost())),
        ("released", ended(Outcome::Released)),
    ]
}

pub async fn a_claim_names_worker_and_owner(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let change =
        stage.apply(RunReport { worker: Some(worker("w")), owner: Some(Claim::Take(node("n"))), ..report(&run) }).await;
    assert_eq!((change.status, change.attempt, change.retry_at), (Status::Dispatched, 1, None));
    let job = stage.job(job_id(1)).await;
    assert_eq!((job.status, job.ownership), (Status::Dispatched, Ownership::Owned));
    assert_eq!((job.worker_id, job.owner_node), (Some(worker("w")), Some(node("n"))));
    // Fields that a later report does not name stay as they were.
    stage.apply(RunReport { started_at: Some(at(1)), ..report(&run) }).await;
    let job = stage.job(job_id(1)).await;
    assert_eq!((job.worker_id, job.owner_node), (Some(worker("w")), Some(node("n"))));
}

pub async fn a_run_that_started_is_running_and_the_first_start_stands(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let change = stage.start(&run, "w", at(3)).await;
    assert_eq!((change.status, change.started_at, change.due_at), (Status::Running, Some(at(3)), at(0)));
    stage.start(&run, "w", at(9)).await;
    let job = stage.job(job_id(1)).await;
    assert_eq!((job.status, job.started_at), (Status::Running, Some(at(3))));
    assert_eq!(stage.outcomes(job_id(1)).await, [(1, ExecutionStatus::Running)]);
}

pub async fn progress_and_logs_are_kept(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let half = Progress { percent: 50, message: Some("half".into()) };
    stage.apply(RunReport { progress: Some(half.clone()), logs: vec![log("a"), log("b")], ..report(&run) }).await;
    assert_eq!(stage.job(job_id(1)).await.progress, Some(half.clone()));
    stage.apply(RunReport { logs: vec![log("c")], ..report(&run) }).await;
    assert_eq!(stage.job(job_id(1)).await.progress, Some(half), "a report without progress leaves it");
    let logs = store.logs(job_id(1), 0, 10).await.expect("logs");
    let lines: Vec<_> = logs.iter().map(|line| (line.seq, line.message.as_str())).collect();
    assert_eq!(lines, [(1, "a"), (2, "b"), (3, "c")]);
    assert!(logs.iter().all(|line| line.execution_id == run.execution_id && line.at == at(1)));
    let page = store.logs(job_id(1), 1, 1).await.expect("logs");
    assert_eq!(page.iter().map(|line| line.seq).collect::<Vec<_>>(), [2], "after is exclusive, limit a bound");
    assert!(store.logs(job_id(1), 3, 10).await.expect("logs").is_empty());
    assert!(store.logs(job_id(1), u64::MAX, 10).await.expect("logs").is_empty());
    assert!(store.logs(job_id(9), 0, 10).await.expect("logs").is_empty());
}

pub async fn logs_are_numbered_on_through_all_runs(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let first = stage.run(job(1)).await;
    stage.apply(RunReport { logs: vec![log("a")], ..report(&first).ended(at(1), lost(), 0.0) }).await;
    let second = stage.dispatch_one(at(2)).await;
    stage.apply(RunReport { logs: vec![log("b")], ..report(&second) }).await;
    let logs = store.logs(job_id(1), 0, 10).await.expect("logs");
    let lines: Vec<_> = logs.iter().map(|line| (line.seq, line.execution_id)).collect();
    assert_eq!(lines, [(1, first.execution_id), (2, second.execution_id)]);
}

fn numbered(seq: u64) -> NewLog {
    NewLog { seq: Some(seq), ..log(&seq.to_string()) }
}

async fn messages(store: &dyn Store, n: u64) -> Vec<String> {
    let logs = store.logs(job_id(n), 0, 99_999).await.expect("logs");
    assert!(logs.iter().map(|line| line.seq).eq(1..=logs.len() as u64), "numbered without gaps");
    logs.into_iter().map(|line| line.message).collect()
}

pub async fn a_log_line_is_recorded_once_however_often_it_is_reported(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let logged = |seqs: std::ops::RangeInclusive<u64>| RunReport { logs: seqs.map(numbered).collect(), ..report(&run) };
    stage.apply(logged(1..=3)).await;
    stage.apply(logged(1..=3)).await;
    assert_eq!(messages(store, 1).await, ["1", "2", "3"]);
    // The repeat has more than the first, and both are in one call; an old report comes late.
    store.record(vec![logged(2..=5), logged(2..=6), logged(1..=2)]).await.expect("record");
    assert_eq!(messages(store, 1).await, ["1", "2", "3", "4", "5", "6"]);
    let ended = RunReport { logs: vec![numbered(6), numbered(7)], ..report(&run).ended(at(5), lost(), 0.0) };
    stage.apply(ended.clone()).await;
    assert_eq!(stage.record(ended).await, Recorded::Duplicate);
    assert_eq!(messages(store, 1).await, ["1", "2", "3", "4", "5", "6", "7"]);
    let next = stage.dispatch_one(at(6)).await;
    stage.apply(RunReport { logs: vec![numbered(1)], ..report(&next).ended(at(7), completed(), 0.0) }).await;
    assert_eq!(messages(store, 1).await.len(), 8, "each run numbers its own lines");
}

/// States of a run before it completes. Each is the report that leads to it.
fn states(run: &Dispatch) -> Vec<(&'static str, RunReport)> {
    let progress = Progress { percent: 10, message: Some("a".into()) };
    vec![
        ("dispatched", report(run)),
        ("claimed", RunReport { worker: Some(worker("w1")), owner: Some(Claim::Take(node("n1"))), ..report(run) }),
        ("handed out", RunReport { handed_out_at: Some(at(2)), ..report(run) }),
        ("started", RunReport { started_at: Some(at(3)), progress: Some(progress), ..report(run) }),
        ("on channels", RunReport { by_channel: true, ..report(run) }),
    ]
}

/// Completions that differ in one field, and one that has them all.
fn completions(run: &Dispatch) -> Vec<(&'static str, RunReport)> {
    let of = || report(run).ended(at(9), completed(), 0.0);
    let with_result = || report(run).ended(at(9), Outcome::Completed { result: Some(json("7")) }, 0.0);
    let progress = || Some(Progress { percent: 99, message: None });
    let all = RunReport {
        worker: Some(worker("w2")),
        owner: Some(Claim::Take(node("n2"))),
        handed_out_at: Some(at(4)),
        started_at: Some(at(5)),
        progress: progress(),
        by_channel: true,
        ..with_result()
    };
    vec![
        ("plain", of()),
        ("with a result", with_result()),
        ("of a worker", RunReport { worker: Some(worker("w2")), ..of() }),
        ("of an owner that takes it", RunReport { owner: Some(Claim::Take(node("n2"))), ..of() }),
        ("of an owner if it is free", RunReport { owner: Some(Claim::IfFree(node("n2"))), ..of() }),
        ("with a start", RunReport { started_at: Some(at(5)), ..of() }),
        ("with progress", RunReport { progress: progress(), ..of() }),
        ("by a channel", RunReport { by_channel: true, ..of() }),
        ("with everything", all),
    ]
}

/// A store may record a completion without a log by a statement of its own. A log line leads past that statement.
pub async fn a_completion_is_stored_as_the_rules_of_a_run_say(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let cases = (0..5).flat_map(|state| (0..9).map(move |completion| (state, completion)));
    let cases = [false, true].into_iter().flat_map(|has_history| cases.clone().map(move |case| (has_history, case)));
    for (n, (has_history, (state, completion))) in (1..).zip(cases) {
        let now = 10 * i64::try_from(n).expect("few cases");
        let timeout = Some(Duration::from_secs(60));
        stage
            .enqueue(
                [2 * n, 2 * n + 1].map(|n| NewJob { created_at: at(now), ..job(n).with(|job| job.timeout = timeout) }),
            )
            .await;
        let mut runs = stage.dispatch("q", 2, at(now)).await;
        if has_history {
            for run in &runs {
                stage.apply(report(run).ended(at(now + 1), lost(), 0.0)).await;
            }
            runs = stage.dispatch("q", 2, at(now + 1)).await;
        }
        let mut stored = Vec::new();
        for (run, logs) in runs.iter().zip([vec![], vec![log("x")]]) {
            stage.apply(states(run).swap_remove(state).1).await;
            let recorded = stage.record(RunReport { logs, ..completions(run).swap_remove(completion).1 }).await;
            let mut shown = stage.job(run.job_id).await;
            (shown.id, shown.execution_id) = (job_id(1), None);
            stored.push((recorded, shown, stage.outcomes(run.job_id).await));
        }
        let (before, end) = (states(&runs[0]).swap_remove(state).0, completions(&runs[0]).swap_remove(completion).0);
        assert_eq!(stored[0], stored[1], "{before}, completed {end}, history: {has_history}");
    }
}

pub async fn the_log_of_a_run_ends_at_its_limit_with_a_notice(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.apply(RunReport { logs: (1..RUN_LOG_LINES_MAX).map(numbered).collect(), ..report(&run) }).await;
    for seq in [RUN_LOG_LINES_MAX, RUN_LOG_LINES_MAX + 1, RUN_LOG_LINES_MAX + 2] {
        stage.apply(RunReport { logs: vec![numbered(seq), log("unnumbered")], ..report(&run) }).await;
    }
    let kept = messages(store, 1).await;
    assert_eq!(kept.len() as u64, RUN_LOG_LINES_MAX + 1);
    assert_eq!(kept[kept.len() - 2], RUN_LOG_LINES_MAX.to_string());
    let notice = store.logs(job_id(1), RUN_LOG_LINES_MAX, 9).await.expect("logs").remove(0);
    assert!(notice.level == LogLevel::Warn && notice.message.contains("further lines are dropped"), "{notice:?}");
    stage.end(&run, at(5), lost()).await;
    let next = stage.dispatch_one(at(6)).await;
    stage.apply(RunReport { logs: vec![numbered(1)], ..report(&next) }).await;
    assert_eq!(messages(store, 1).await.len() as u64, RUN_LOG_LINES_MAX + 2, "the limit is one run's");
}

pub async fn one_report_can_tell_a_whole_run(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let result = Some(json(r#"{"ok": true}"#));
    let whole = RunReport {
        worker: Some(worker("w")),
        owner: Some(Claim::Take(node("n"))),
        started_at: Some(at(2)),
        logs: vec![log("a")],
        ..report(&run).ended(at(4), Outcome::Completed { result: result.clone() }, 0.5)
    };
    let change = stage.apply(whole).await;
    let expected = Change {
        status: Status::Completed,
        job_type: run.input.job_type.clone(),
        queue: run.input.queue.clone(),
        attempt: 1,
        due_at: at(0),
        started_at: Some(at(2)),
        retry_at: None,
    };
    assert_eq!(change, expected);
    let job = stage.job(job_id(1)).await;
    assert_eq!((job.status, job.result, job.error), (Status::Completed, result, None));
    assert_eq!((job.started_at, job.completed_at), (Some(at(2)), Some(at(4))));
    assert_eq!((job.execution_id, job.worker_id), (Some(run.execution_id), Some(worker("w"))));
    let history = stage.history(job_id(1)).await;
    assert_eq!(history.len(), 1);
    assert_eq!((history[0].status, &history[0].worker_id), (ExecutionStatus::Completed, &Some(worker("w"))));
    assert_eq!((history[0].started_at, history[0].ended_at), (Some(at(2)), Some(at(4))));
    assert_eq!(store.logs(job_id(1), 0, 10).await.expect("logs").len(), 1);
}

pub async fn an_end_needs_no_start(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    assert_eq!(stage.end(&run, at(4), completed()).await.status, Status::Completed);
    let job = stage.job(job_id(1)).await;
    assert_eq!((job.started_at, job.completed_at), (None, Some(at(4))));
}

pub async fn reports_stand_alone_and_are_answered_in_order(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=3).map(job)).await;
    let runs = stage.dispatch("q", 3, at(1)).await;
    let unknown = RunReport::of(job_id(99), execution_id(99)).ended(at(2), completed(), 0.0);
    let foreign = RunReport::of(job_id(2), runs[0].execution_id).ended(at(2), completed(), 0.0);
    let end = |run| report(run).ended(at(2), completed(), 0.0);
    let reports = vec![end(&runs[2]), unknown, foreign, end(&runs[0]), end(&runs[0])];
    let results = store.record(reports).await.expect("record");
    let kinds: Vec<_> = results
        .iter()
        .map(|result| match result {
            Recorded::Applied(_) => 'a',
            Recorded::Duplicate => 'r',
            Recorded::NotOwner => 'n',
            Recorded::Stale => 's',
        })
        .collect();
    assert_eq!(kinds, ['a', 's', 's', 'a', 'r']);
    assert_eq!(stage.job(job_id(2)).await.status, Status::Dispatched);
    stage.assert_counters().await;
}

pub async fn one_run_can_be_reported_several_times_in_a_batch(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let reports = vec![
        RunReport { started_at: Some(at(1)), ..report(&run) },
        RunReport { logs: vec![log("a")], ..report(&run) },
        report(&run).ended(at(2), completed(), 0.0),
        RunReport { logs: vec![log("too late")], ..report(&run) },
    ];
    let results = store.record(reports).await.expect("record");
    assert!(results[..3].iter().all(|result| matches!(result, Recorded::Applied(_))), "{results:?}");
    assert_eq!(results[3], Recorded::Stale);
    assert_eq!(store.logs(job_id(1), 0, 9).await.expect("logs").len(), 1);
}

pub async fn an_older_run_is_not_heard_whatever_it_says(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let old = stage.run(job(1)).await;
    assert!(matches!(stage.end_as_leader(report(&old).ended(at(1), lost(), 0.0)).await, Recorded::Applied(_)));
    let reports = every_kind(&old).into_iter().filter(|(kind, _)| *kind != "lost");
    // While none is current, while one is dispatched, running, and after it has ended.
    for step in 0..4 {
        let current = stage.job(job_id(1)).await;
        for (kind, late) in reports.clone() {
            assert_eq!(stage.record(late).await, Recorded::Stale, "{kind} at step {step}");
        }
        assert_eq!(stage.job(job_id(1)).await, current, "nothing changed at step {step}");
        match step {
            0 => drop(stage.dispatch_one(at(2)).await),
            _ => {
                let run = RunReport::of(job_id(1), current.execution_id.unwrap_or(old.execution_id));
                let report = match step {
                    1 => RunReport { started_at: Some(at(3)), ..run },
                    _ => run.ended(at(4), completed(), 0.0),
                };
                stage.record(report).await;
            }
        }
    }
    assert!(store.logs(job_id(1), 0, 9).await.expect("logs").is_empty());
    assert_eq!(stage.outcomes(job_id(1)).await, [(1, ExecutionStatus::Lost), (2, ExecutionStatus::Completed)]);
}

pub async fn a_run_that_ended_says_no_more(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let ends = [
        ("completed", completed()),
        ("failed for good", failed_for_good("late")),
        ("cancelled", Outcome::Cancelled { reason: None }),
    ];
    for ((kind, outcome), n) in ends.into_iter().zip(1..) {
        let run = stage.run(job(n)).await;
        stage.end(&run, at(5), outcome).await;
        let ended = stage.job(job_id(n)).await;
        // Two ways to fail are one kind of end.
        let same = |late: &str| late.starts_with(kind.split(' ').next().expect("a kind"));
        for (name, late) in every_kind(&run) {
            let expected = if same(name) { Recorded::Duplicate } else { Recorded::Stale };
            assert_eq!(stage.record(late.clone()).await, expected, "{name} after {kind}");
            assert_eq!(stage.end_as_leader(late).await, expected, "{name}, by the leader, after {kind}");
        }
        assert_eq!(stage.job(job_id(n)).await, ended, "nothing changed after {kind}");
        assert_eq!(stage.history(job_id(n)).await.len(), 1);
    }
    stage.assert_counters().await;
}

pub async fn an_end_is_repeated_by_the_same_result_or_error_only(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let done = |result: Option<&str>| Outcome::Completed { result: result.map(json) };
    let late = |error: &str| Outcome::TimedOut { error: error.into() };
    let gone = |error: &str| Outcome::Lost { error: error.into() };
    let ends = [
        (done(Some("1")), vec![done(Some("2")), done(None)]),
        (done(None), vec![done(Some("null"))]),
        (failed("x"), vec![failed("y"), failed("")]),
        (late("x"), vec![late("y")]),
        (gone("x"), vec![gone("y")]),
    ];
    // Without retries the run stays the job's last, with them it goes to the history.
    for (max_retries, base) in [(0, 10), (1, 20)] {
        for ((outcome, others), n) in ends.iter().zip(base..) {
            let run = stage
                .run(job(n).with(|job| {
                    job.max_retries = max_retries;
                    job.queue = queue(&format!("q{n}"));
                }))
                .await;
            stage.end(&run, at(5), outcome.clone()).await;
            let ended = stage.job(job_id(n)).await;
            let again = |outcome: &Outcome| RunReport {
                logs: vec![log("again")],
                ..report(&run).ended(at(9), outcome.clone(), 0.5)
            };
            assert_eq!(stage.record(again(outcome)).await, Recorded::Duplicate, "{outcome:?}, {max_retries} retries");
            for other in others {
                assert_eq!(stage.record(again(other)).await, Recorded::Stale, "{other:?} after {outcome:?}");
                assert_eq!(
                    stage.end_as_leader(again(other)).await,
                    Recorded::Stale,
                    "{other:?}, judged, after {outcome:?}"
                );
            }
            assert_eq!(stage.job(job_id(n)).await, ended, "nothing changed after {outcome:?}");
            assert!(store.logs(job_id(n), 0, 9).await.expect("logs").is_empty());
        }
    }
    stage.assert_counters().await;
}

pub async fn an_end_in_the_history_is_repeated_by_the_same_end_only(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let ends = [("failed", failed("late")), ("lost", lost()), ("released", Outcome::Released)];
    for ((kind, outcome), n) in ends.into_iter().zip(1..) {
        let run = stage.run(job(n).with(|job| job.queue = queue(kind))).await;
        stage.end(&run, at(1), outcome).await;
        let waiting = stage.job(job_id(n)).await;
        for (name, late) in every_kind(&run) {
            let expected = if name.starts_with(kind) { Recorded::Duplicate } else { Recorded::Stale };
            assert_eq!(stage.record(late).await, expected, "{name} after {kind}");
        }
        assert_eq!(stage.job(job_id(n)).await, waiting, "nothing changed after {kind}");
        assert_eq!(stage.history(job_id(n)).await.len(), 1, "after {kind}");
    }
    stage.assert_counters().await;
}

pub async fn the_word_of_a_cancelled_runs_worker_comes_too_late(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    store.cancel(&[job_id(1)], Some("enough"), at(2)).await.expect("cancel");
    assert_eq!(stage.record(report(&run).ended(at(3), completed(), 0.0)).await, Recorded::Stale);
    // It was cancelled, whatever its worker takes for the reason.
    for reason in [None, Some("as planned"), Some("enough")] {
        let cancelled = Outcome::Cancelled { reason: reason.map(str::to_owned) };
        assert_eq!(stage.record(report(&run).ended(at(3), cancelled, 0.0)).await, Recorded::Duplicate, "{reason:?}");
    }
    assert_eq!(stage.job(job_id(1)).await.error.as_deref(), Some("enough"));
    store.redrive(&[job_id(1)], at(4)).await.expect("redrive");
    let cancelled = Outcome::Cancelled { reason: None };
    assert_eq!(
        stage.record(report(&run).ended(at(5), cancelled, 0.0)).await,
        Recorded::Duplicate,
        "in the history too"
    );
}
