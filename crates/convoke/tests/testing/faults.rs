//! Faults that a test asks for.

use convoke::Status;

use super::*;

#[tokio::test]
async fn reports_that_fail_are_sent_again_and_the_job_runs_once() {
    let (server, runs) = (server().await, Runs::default());
    let _worker = recording(&server, &runs).await;
    server.fail_reports(2);
    server.lose_replies(1);
    let sent = server.client().enqueue(note("once")).await.expect("made");
    server.run_until_idle().await.expect("idle");
    let ended = job(&server, sent.id()).await;
    assert_eq!((ended.status, ended.attempt, runs.count()), (Status::Completed, 1, 1));
    assert_eq!(server.faults(), Default::default(), "all of them have happened");
}

#[tokio::test]
async fn a_worker_whose_heartbeats_are_lost_dies_when_time_moves() {
    let server = server().await;
    let working = server.work(|worker| {
        worker.queues(["default"]).handle(|_: Context, _: Note| std::future::pending::<Result<(), String>>())
    });
    let _worker = working.await.expect("it registers");
    let lost = server.client().enqueue(note("lost")).max_retries(0).await.expect("made");
    assert!(server.run_until_idle_within(Duration::ZERO).await.is_err(), "it runs");
    server.drop_heartbeats("worker-1", 1_000).expect("a name");
    server.advance(Duration::from_secs(120)).await.expect("moved");
    let ended = job(&server, lost.id()).await;
    assert_eq!(ended.status, Status::Failed);
    assert!(
        ended.error.as_deref().is_some_and(|why| why.contains("worker-1 stopped sending heartbeats")),
        "{:?}",
        ended.error
    );
}

#[tokio::test]
async fn a_killed_leader_is_followed_by_another_and_no_run_is_lost() {
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
    let running = server.client().enqueue(note("runs")).await.expect("made");
    assert!(server.run_until_idle_within(Duration::ZERO).await.is_err(), "it runs");
    // Longer than a claim is only remembered.
    server.advance(Duration::from_secs(1)).await.expect("moved");
    let delayed = server.client().enqueue(note("later")).delay(HOUR).await.expect("made");
    for _ in 0..3 {
        server.kill_leader().await.expect("another leads");
    }
    assert_eq!(server.now(), start() + Duration::from_secs(1), "no time has passed");
    go_on.notify_one();
    server.run_until_idle().await.expect("it ends");
    let ended = job(&server, running.id()).await;
    assert_eq!((ended.status, ended.attempt), (Status::Completed, 1));
    go_on.notify_one();
    server.advance(HOUR).await.expect("moved");
    assert_eq!(delayed.status().await.expect("it exists"), Status::Completed);
}
