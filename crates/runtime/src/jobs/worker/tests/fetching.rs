//! How runs are fetched, and how the worker registers with the coordinator.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_worker_registers_with_what_it_can_do_and_asks_for_it() {
    let rig = start(7, no_op());
    rig.fake.until("it polls", |script| !script.polls.is_empty()).await;
    {
        let script = rig.fake.script();
        assert_eq!(script.registered.len(), 1);
        assert_eq!((script.registered[0].concurrency, script.registered[0].queues[0].as_str()), (7, "q"));
        assert_eq!((script.polls[0].max, script.polls[0].wait), (7, Duration::from_secs(20)));
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_free_slots_are_asked_for_while_runs_are_long() {
    let rig = start(5, sleeper(Duration::from_secs(600)));
    rig.fake.give(jobs(0..3, "sleep"));
    rig.fake.until("it asks for the rest", |script| script.polls.last().is_some_and(|poll| poll.max == 2)).await;
    rig.fake.give(jobs(3..5, "sleep"));
    rig.fake.until("all run", |script| script.of_kind(EventKind::Started) == 5).await;
    let polls = rig.fake.script().polls.len();
    rig.fake.until("it waits for the runs that it must stop", |script| script.polls.len() >= polls + 2).await;
    assert!(rig.fake.script().polls[polls..].iter().all(|poll| poll.max == 0), "nobody asks without a free slot");
    rig.shutdown.hurry.cancel();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn short_runs_are_fetched_ahead() {
    let rig = start(2, no_op());
    rig.fake.give(jobs(0..2, "noop"));
    rig.fake
        .until("it asks for more than it has slots", |script| script.polls.last().is_some_and(|p| p.max > 100))
        .await;
    rig.fake.give(jobs(2..5_000, "noop"));
    rig.fake.until("all are done", |script| script.of_kind(EventKind::Completed) == 5_000).await;
    let polls = rig.fake.script().polls.len();
    let reports = rig.fake.script().reports.len();
    assert!(polls < 50 && reports < 50, "{polls} polls, {reports} reports");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_fetched_ahead_and_finds_no_slot_is_given_back() {
    let mut handlers = sleeper(Duration::from_secs(600));
    handlers.add(JobType::new("noop").expect("a name"), |_, _| Box::pin(async { Ok(None) }));
    let rig = start(1, handlers);
    rig.fake.give([job(0, "noop")]);
    rig.fake.until("it fetches ahead", |script| script.polls.last().is_some_and(|poll| poll.max > 1)).await;
    rig.fake.give(jobs(1..4, "sleep"));
    rig.fake.until("two came back", |script| script.of_kind(EventKind::Released) == 2).await;
    let released: BTreeSet<_> = {
        let script = rig.fake.script();
        script.events().filter(|e| e.kind == EventKind::Released).map(|e| e.execution_id).collect()
    };
    assert_eq!(released, BTreeSet::from([run_id(2), run_id(3)]));
    assert_eq!(
        rig.fake.script().heartbeats.last().map_or(0, Vec::len),
        0,
        "released before the first heartbeat named them"
    );
    rig.fake.until("the first one is done", |script| script.of_kind(EventKind::Completed) == 2).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_run_twice_runs_once() {
    let rig = start(4, sleeper(Duration::from_secs(1)));
    rig.fake.give([job(1, "sleep"), job(1, "sleep")]);
    rig.fake.until("it is done", |script| script.of_kind(EventKind::Completed) == 1).await;
    assert_eq!(rig.stop().await.completed, 1);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_name_what_runs_and_what_is_not_yet_accepted() {
    let rig = start(2, sleeper(Duration::from_secs(15)));
    rig.fake.give(jobs(1..3, "sleep"));
    rig.fake.until("it sends a heartbeat", |script| script.heartbeats.len() == 1).await;
    let mut first = rig.fake.script().heartbeats[0].clone();
    first.sort();
    assert_eq!(first, [run_id(1), run_id(2)]);
    rig.fake.change_script(|script| script.reports_held = true);
    rig.fake.until("it sends a heartbeat after their end", |script| script.heartbeats.len() == 2).await;
    assert_eq!(rig.fake.script().heartbeats[1].len(), 2, "their end is not durable yet");
    rig.fake.change_script(|script| script.reports_held = false);
    rig.fake.until("it sends another heartbeat", |script| script.heartbeats.len() == 3).await;
    assert_eq!(rig.fake.script().heartbeats[2].len(), 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_forgotten_registers_again_and_says_what_it_runs() {
    let rig = start(2, sleeper(Duration::from_secs(120)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    let forgotten = tokio::time::Instant::now();
    rig.fake.change_script(|script| script.forgotten = true);
    rig.fake.until("it registers again", |script| script.registered.len() == 2).await;
    rig.fake
        .until("it sends a heartbeat", |script| {
            script.heartbeats.last().is_some_and(|heartbeat| *heartbeat == [run_id(1)])
        })
        .await;
    assert!(
        forgotten.elapsed() < Duration::from_secs(5),
        "at once, not at the next heartbeat: {:?}",
        forgotten.elapsed()
    );
    rig.fake.until("it goes on", |script| script.of_kind(EventKind::Completed) == 1).await;
    let registered = rig.fake.script().registered.clone();
    assert_eq!(registered[0], registered[1]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn registering_is_tried_until_somebody_answers() {
    let fake = Arc::new(Fake::default());
    fake.change_script(|script| script.away = true);
    let rig = start_with(fake, settings(1), no_op());
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.fake.change_script(|script| script.away = false);
    rig.fake.until("it registers", |script| script.registered.len() == 1).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_registered_can_be_stopped() {
    let fake = Arc::new(Fake::default());
    fake.change_script(|script| script.away = true);
    let rig = start_with(fake, settings(1), no_op());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.stop().await, Summary::default());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_refused_or_makes_no_sense_does_not_begin() {
    let fake = Arc::new(Fake::default());
    fake.change_script(|script| script.denied = true);
    let refused = start_with(fake, settings(1), no_op()).worker.await.expect("no panic");
    assert!(refused.is_err_and(|error| error.is_denied()));
    for (settings, field) in [
        (settings(0), "concurrency"),
        (settings(u32::MAX), "concurrency"),
        (Settings { queues: Vec::new(), ..settings(1) }, "queues"),
    ] {
        let refused = start_with(Arc::default(), settings, no_op()).worker.await.expect("no panic");
        assert!(refused.is_err_and(|error| error.to_string().starts_with(field)));
    }
}
