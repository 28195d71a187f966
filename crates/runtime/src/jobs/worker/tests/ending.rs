//! How a worker ends.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_asked_to_stop_finishes_what_it_has_and_leaves() {
    let rig = start(2, sleeper(Duration::from_secs(20)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    let polls = rig.fake.script().polls.len();
    let fake = rig.fake.clone();
    rig.shutdown.drain.cancel();
    fake.give([job(2, "sleep")]);
    assert_eq!(rig.stop().await, Summary { completed: 1, ..Summary::default() });
    let script = fake.script();
    assert_eq!((script.left, script.polls.len(), script.jobs.len()), (1, polls, 1));
    assert_eq!(script.kinds(), [EventKind::Started, EventKind::Completed]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_finish_within_the_grace_period_is_given_back_before_the_worker_leaves() {
    let rig = start(2, sleeper(Duration::from_secs(3000)));
    rig.fake.give(jobs(1..3, "sleep"));
    rig.fake.until("they run", |script| script.of_kind(EventKind::Started) == 2).await;
    let (fake, asked) = (rig.fake.clone(), tokio::time::Instant::now());
    assert_eq!(rig.stop().await, Summary { released: 2, ..Summary::default() });
    assert!((25..30).contains(&asked.elapsed().as_secs()), "{:?}", asked.elapsed());
    let script = fake.script();
    assert_eq!(script.left, 1);
    assert!(script.heartbeats.len() >= 2, "it sends heartbeats while it drains");
    assert_eq!(script.kinds()[2..], [EventKind::Released; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_leaves_off_because_its_worker_ends_is_not_taken_for_done() {
    let rig = start(
        1,
        handler("polite", |cx, _| async move {
            cx.cancelled().await;
            Ok(None)
        }),
    );
    rig.fake.give([job(1, "polite")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    assert_eq!(rig.stop().await, Summary { released: 1, ..Summary::default() });
}

#[tokio::test(start_paused = true)]
async fn in_a_hurry_the_grace_period_is_cut_short() {
    let rig = start(1, sleeper(Duration::from_secs(3000)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    let asked = tokio::time::Instant::now();
    rig.shutdown.hurry.cancel();
    assert_eq!(rig.stop().await.released, 1);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_coordinator_can_ask_it_to_drain() {
    let rig = start(2, sleeper(Duration::from_secs(5)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    rig.fake.change_script(|script| script.drain = true);
    let summary = rig.worker.await.expect("no panic").expect("it began");
    assert_eq!(summary, Summary { completed: 1, ..Summary::default() });
    assert_eq!(rig.fake.script().left, 1);
    assert!(!rig.shutdown.drain.is_cancelled(), "the caller's token is the caller's");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_can_ask_it_to_drain_when_all_slots_are_taken() {
    let rig = start(1, sleeper(Duration::from_secs(50)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    rig.fake.change_script(|script| script.drain = true);
    let summary = rig.worker.await.expect("no panic").expect("it began");
    assert_eq!(summary.released, 1, "the grace period began with the heartbeat");
}

#[tokio::test(start_paused = true)]
async fn what_was_fetched_ahead_goes_back_at_once() {
    let mut handlers = sleeper(Duration::from_millis(500));
    handlers.add(JobType::new("noop").expect("a name"), |_, _| Box::pin(async { Ok(None) }));
    let rig = start(1, handlers);
    rig.fake.give([job(0, "noop")]);
    rig.fake.until("it fetches ahead", |script| script.polls.last().is_some_and(|poll| poll.max > 1)).await;
    rig.fake.give(jobs(1..4, "sleep"));
    rig.fake.until("one runs", |script| script.of_kind(EventKind::Started) == 1).await;
    let summary = rig.stop().await;
    assert_eq!((summary.completed, summary.released), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_is_away_does_not_keep_it_from_ending() {
    let rig = start(1, sleeper(Duration::from_secs(10)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    rig.fake.change_script(|script| script.away = true);
    let asked = tokio::time::Instant::now();
    let summary = rig.stop().await;
    assert_eq!((summary.completed, summary.unaccepted), (1, 1));
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_worker_drops_its_handlers() {
    let gone = Arc::new(Notify::new());
    let inner = gone.clone();
    let rig = start(
        1,
        handler("slow", move |_, _| {
            let gone = Gone(inner.clone());
            async move {
                let _gone = gone;
                std::future::pending().await
            }
        }),
    );
    rig.fake.give([job(1, "slow")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    rig.worker.abort();
    gone.notified().await;
}
