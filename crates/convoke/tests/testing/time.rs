//! Time stands still until it is moved, and then everything happens in order.

use convoke::{Context, Jitter, RetryPolicy, Status};

use super::*;

#[tokio::test]
async fn a_delayed_job_never_runs_by_itself() {
    let (server, runs) = (server().await, Runs::default());
    let _worker = recording(&server, &runs).await;
    let job = server.client().enqueue(note("late")).delay(Duration::from_millis(1)).await.expect("made");
    server.run_until_idle().await.expect("idle");
    // Longer than the delay, in real time.
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.run_until_idle().await.expect("idle");
    assert_eq!((server.now(), job.status().await.expect("it exists")), (start(), Status::Scheduled));
    assert_eq!(runs.count(), 0);
    server.advance(Duration::from_millis(1)).await.expect("moved");
    assert_eq!(runs.all(), [("late".into(), start() + Duration::from_millis(1))]);
    assert_eq!(job.status().await.expect("it exists"), Status::Completed);
}

#[tokio::test]
async fn delayed_jobs_run_in_the_order_of_their_times() {
    let (server, runs) = (server().await, Runs::default());
    let _worker = recording(&server, &runs).await;
    for (what, hours) in [("third", 30), ("first", 1), ("second", 7)] {
        server.client().enqueue(note(what)).delay(HOUR * hours).await.expect("made");
    }
    server.advance(DAY * 2).await.expect("moved");
    let at = |hours| start() + HOUR * hours;
    assert_eq!(runs.all(), [("first".into(), at(1)), ("second".into(), at(7)), ("third".into(), at(30))]);
    assert_eq!(server.now(), start() + DAY * 2);
}

#[tokio::test]
async fn a_failed_job_is_retried_at_the_times_of_its_backoff() {
    let (server, runs) = (server().await, Runs::default());
    let (clock, seen) = (Arc::downgrade(&server), runs.clone());
    let working = server.work(|worker| {
        worker.queues(["default"]).handle(move |cx: Context, _: Note| {
            let (clock, seen) = (clock.clone(), seen.clone());
            async move {
                seen.add(cx.attempt().to_string(), clock.upgrade().ok_or("the server is gone")?.now());
                if cx.attempt() < 4 { Err("not yet") } else { Ok(()) }
            }
        })
    });
    let _worker = working.await.expect("it registers");
    let policy = RetryPolicy { initial_delay: HOUR, multiplier: 2.0, max_delay: DAY, jitter: Jitter::None };
    let job = server.client().enqueue(note("again")).retry_policy(policy).max_retries(3).await.expect("made");
    server.run_until_idle().await.expect("idle");
    assert_eq!(runs.count(), 1);
    server.advance(HOUR * 7).await.expect("moved");
    let at = |hours| start() + HOUR * hours;
    let expected = [("1", at(0)), ("2", at(1)), ("3", at(3)), ("4", at(7))];
    assert_eq!(runs.all(), expected.map(|(attempt, at)| (attempt.to_owned(), at)));
    assert_eq!(job.status().await.expect("it exists"), Status::Completed);
}

#[tokio::test]
async fn a_run_in_progress_times_out_when_its_time_has_passed() {
    let server = server().await;
    let working = server.work(|worker| {
        worker.queues(["default"]).handle(|_: Context, _: Note| std::future::pending::<Result<(), String>>())
    });
    let _worker = working.await.expect("it registers");
    let enqueued = server.client().enqueue(note("hangs")).timeout(HOUR).max_retries(0).await.expect("made");
    let busy = server.run_until_idle_within(Duration::from_millis(50)).await.expect_err("it hangs").to_string();
    assert!(busy.contains(&enqueued.id().to_string()) && busy.contains("worker-1"), "{busy}");
    let before = server.advance(HOUR - Duration::from_secs(1)).await.expect("moved");
    assert!(before.running == 1 && job(&server, enqueued.id()).await.status.is_in_flight());
    let after = server.advance(Duration::from_secs(2)).await.expect("moved");
    let ended = job(&server, enqueued.id()).await;
    assert_eq!((after.running, ended.status), (0, Status::TimedOut), "{:?}", ended.error);
    assert_eq!(ended.completed_at, Some(start() + HOUR));
}

#[tokio::test]
async fn a_connected_worker_keeps_its_run_while_time_jumps() {
    let server = server().await;
    let go_on = Arc::new(tokio::sync::Notify::new());
    let waited = go_on.clone();
    let working = server.work(|worker| {
        worker.queues(["default"]).handle(move |_: Context, _: Note| {
            let waited = waited.clone();
            async move {
                waited.notified().await;
                Ok::<_, String>(())
            }
        })
    });
    let _worker = working.await.expect("it registers");
    let long = server.client().enqueue(note("long")).await.expect("made");
    assert!(server.run_until_idle_within(Duration::ZERO).await.is_err(), "it runs");
    for _ in 0..3 {
        server.advance(DAY * 100).await.expect("moved");
    }
    go_on.notify_one();
    server.run_until_idle().await.expect("it ends");
    let ended = job(&server, long.id()).await;
    assert_eq!((ended.status, ended.attempt), (Status::Completed, 1));
}

#[tokio::test]
async fn a_worker_that_is_gone_is_declared_dead_and_its_run_goes_to_another() {
    let (server, runs) = (server().await, Runs::default());
    let working = server.work(|worker| {
        worker.queues(["default"]).handle(|_: Context, _: Note| std::future::pending::<Result<(), String>>())
    });
    let worker = working.await.expect("it registers");
    let lost = server.client().enqueue(note("lost")).await.expect("made");
    assert!(server.run_until_idle_within(Duration::ZERO).await.is_err(), "it runs");
    server.cut_off("worker-1").expect("a name");
    drop(worker);
    let _second = recording(&server, &runs).await;
    server.advance(Duration::from_secs(20)).await.expect("moved");
    assert_eq!(runs.count(), 0, "it may still be alive");
    server.advance(Duration::from_secs(60)).await.expect("moved");
    let ended = job(&server, lost.id()).await;
    assert_eq!((ended.status, ended.attempt, runs.count()), (Status::Completed, 2, 1));
}

#[tokio::test]
async fn a_completed_job_is_deleted_after_its_retention() {
    let (server, runs) = (server().await, Runs::default());
    let _worker = recording(&server, &runs).await;
    let kept = server.client().enqueue(note("kept")).await.expect("made");
    server.run_until_idle().await.expect("idle");
    server.advance(DAY - Duration::from_secs(1)).await.expect("moved");
    assert_eq!(job(&server, kept.id()).await.status, Status::Completed);
    server.advance(Duration::from_secs(2)).await.expect("moved");
    let gone = server.client().job(kept.id()).await.expect_err("deleted");
    assert!(gone.to_string().contains("does not exist"), "{gone}");
}

#[tokio::test]
async fn time_does_not_go_back_and_ends_one_day() {
    let server = server().await;
    server.advance(HOUR).await.expect("moved");
    let back = server.advance_to(start()).await.expect_err("the past").to_string();
    assert!(back.contains("expected a time that is not before 2030-01-01T01:00:00Z"), "{back}");
    let far = server.advance(DAY * 365 * 2_000).await.expect_err("too far").to_string();
    assert!(far.contains("3000-01-01"), "{far}");
    assert_eq!(server.now(), start() + HOUR);
}
