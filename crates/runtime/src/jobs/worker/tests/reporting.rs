//! The reports of a worker to the coordinator.

use convoke_core::jobs::LogLevel;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_fast_run_says_all_in_one_event() {
    let rig = start(1, sleeper(Duration::from_millis(50)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it is done", |script| script.of_kind(EventKind::Completed) == 1).await;
    {
        let script = rig.fake.script();
        assert_eq!(script.reports.len(), 1);
        assert_eq!(script.kinds(), [EventKind::Completed], "one event, with the start");
        let (started, ended) = (script.reports[0][0].started_at, script.reports[0][0].at);
        let took = ended.expect("a time").duration_since(started.expect("a time"));
        assert_eq!(took.as_millis(), 50);
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_longer_run_says_that_it_started_before_it_ends() {
    let rig = start(1, sleeper(Duration::from_secs(5)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it started", |script| script.kinds() == [EventKind::Started]).await;
    rig.fake.until("it ended", |script| script.kinds() == [EventKind::Started, EventKind::Completed]).await;
    assert_eq!(rig.fake.script().reports[1][0].started_at, None, "that was reported");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_a_report_is_under_way_the_next_is_collected() {
    let rig = start(100, no_op());
    rig.fake.change_script(|script| script.reports_held = true);
    rig.fake.give([job(0, "noop")]);
    rig.fake.until("the first report is sent", |script| script.reports_begun == 1).await;
    rig.fake.give(jobs(1..80, "noop"));
    rig.fake.until("all were fetched", |script| script.jobs.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.fake.change_script(|script| script.reports_held = false);
    rig.fake.until("all are done", |script| script.of_kind(EventKind::Completed) == 80).await;
    assert_eq!(rig.fake.script().reports.len(), 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn runs_go_on_while_the_coordinator_is_away_and_their_ends_arrive_when_it_is_back() {
    let rig = start(3, sleeper(Duration::from_secs(30)));
    rig.fake.give(jobs(1..3, "sleep"));
    rig.fake.until("they run", |script| script.of_kind(EventKind::Started) == 2).await;
    rig.fake.change_script(|script| script.away = true);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.fake.script().of_kind(EventKind::Completed), 0);
    let heartbeats = rig.fake.script().heartbeats.len();
    rig.fake.change_script(|script| script.away = false);
    let back = tokio::time::Instant::now();
    rig.fake.until("it sends a heartbeat", |script| script.heartbeats.len() > heartbeats).await;
    rig.fake.until("they are done", |script| script.of_kind(EventKind::Completed) == 2).await;
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
    assert_eq!(rig.stop().await, Summary { completed: 2, ..Summary::default() });
}

#[tokio::test(start_paused = true)]
async fn an_end_whose_answer_was_lost_is_sent_again_as_it_was() {
    let rig = start(1, no_op());
    rig.fake.change_script(|script| script.replies_to_lose = 2);
    rig.fake.give([job(1, "noop")]);
    rig.fake.until("it was sent three times", |script| script.of_kind(EventKind::Completed) == 3).await;
    {
        let script = rig.fake.script();
        assert!(script.reports.iter().all(|report| *report == script.reports[0]));
    }
    assert_eq!(rig.stop().await.unaccepted, 0);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_stale_is_dropped_and_counted() {
    let rig = start(1, no_op());
    rig.fake.change_script(|script| script.stale = BTreeSet::from([run_id(1)]));
    rig.fake.give(jobs(1..3, "noop"));
    rig.fake.until("both ended", |script| script.of_kind(EventKind::Completed) == 2).await;
    let fake = rig.fake.clone();
    let summary = rig.stop().await;
    assert_eq!((summary.stale, summary.unaccepted), (1, 0));
    assert_eq!(fake.script().of_kind(EventKind::Completed), 2, "it is not sent again");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_turns_out_to_be_stale_is_stopped_and_says_no_more() {
    let gone = Arc::new(Notify::new());
    let inner = gone.clone();
    let rig = start(
        1,
        handler("slow", move |cx, _| {
            let gone = Gone(inner.clone());
            async move {
                let _gone = gone;
                cx.cancelled().await;
                assert!(cx.log(LogLevel::Info, "too late").await.is_err());
                Ok(None)
            }
        }),
    );
    rig.fake.change_script(|script| script.stale = BTreeSet::from([run_id(1)]));
    rig.fake.give([job(1, "slow")]);
    gone.notified().await;
    let fake = rig.fake.clone();
    assert_eq!(rig.stop().await, Summary { stale: 1, ..Summary::default() });
    assert_eq!(fake.script().kinds(), [EventKind::Started]);
}

#[tokio::test(start_paused = true)]
async fn one_event_that_is_refused_does_not_hold_up_the_others() {
    let rig = start(100, handler("echo", |_, args| async { Ok(Some(args)) }));
    rig.fake.change_script(|script| {
        script.reports_held = true;
        script.minds = Some(|event| event.result.as_ref().is_some_and(|result| result.as_str() == "\"13\""));
    });
    rig.fake.give(jobs(0..50, "echo"));
    rig.fake.until("a report is sent", |script| script.reports_begun == 1).await;
    rig.fake.change_script(|script| script.reports_held = false);
    rig.fake.until("the others are done", |script| script.of_kind(EventKind::Completed) == 49).await;
    rig.fake.until("that one failed", |script| script.of_kind(EventKind::Failed) == 1).await;
    {
        let script = rig.fake.script();
        let failed = script.events().find(|event| event.kind == EventKind::Failed).expect("one");
        assert_eq!((failed.execution_id, failed.retry), (run_id(13), Some(false)));
        assert!(failed.error.as_ref().is_some_and(|error| error.contains("could not be reported")));
    }
    assert_eq!(rig.stop().await.unaccepted, 0);
}

#[tokio::test(start_paused = true)]
async fn a_chatty_run_waits_for_the_coordinator_but_not_for_one_that_is_away() {
    const LINES: usize = 40_000;
    let rig = start(
        1,
        handler("chatty", |cx, _| async move {
            for _ in 0..LINES {
                cx.log(LogLevel::Info, "line").await.map_err(Failure::new)?;
            }
            Ok(None)
        }),
    );
    rig.fake.change_script(|script| script.reports_held = true);
    rig.fake.give([job(1, "chatty")]);
    rig.fake.until("a report is sent", |script| script.reports_begun == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.fake.change_script(|script| script.reports_held = false);
    rig.fake.until("all lines arrived", |script| script.of_kind(EventKind::Log) == LINES).await;
    rig.fake.until("it is done", |script| script.of_kind(EventKind::Completed) == 1).await;

    rig.fake.give([job(2, "chatty")]);
    rig.fake.change_script(|script| script.reports_held = true);
    let begun = rig.fake.script().reports_begun;
    rig.fake.until("a report is sent", |script| script.reports_begun > begun).await;
    rig.fake.change_script(|script| {
        script.away = true;
        script.reports_held = false;
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.fake.change_script(|script| script.away = false);
    rig.fake.until("it is done", |script| script.of_kind(EventKind::Completed) == 2).await;
    let reported = rig.fake.script().of_kind(EventKind::Log) as u64;
    let summary = rig.stop().await;
    assert!(summary.lines_dropped > 0);
    assert_eq!(reported + summary.lines_dropped, 2 * LINES as u64, "each line is sent once or counted as dropped");
}
