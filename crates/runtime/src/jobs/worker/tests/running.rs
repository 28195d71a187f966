//! The results of handlers.

use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_core::jobs::LogLevel;
use convoke_core::limits::{LOG_LINE_BYTES_MAX, RESULT_BYTES_MAX};

use super::*;

/// Runs one job to its end and returns its events.
async fn events_of(handlers: Handlers, job: Assignment) -> Vec<Event> {
    let rig = start(1, handlers);
    rig.fake.give([job]);
    rig.fake.until("the run has ended", |script| script.events().any(|event| event.kind.is_end())).await;
    let events = rig.fake.script().events().cloned().collect();
    rig.stop().await;
    events
}

async fn end_of(handlers: Handlers, job: Assignment) -> Event {
    events_of(handlers, job).await.pop().expect("an end")
}

#[tokio::test(start_paused = true)]
async fn a_result_is_reported_as_it_is() {
    let end = end_of(handler("echo", |_, args| async { Ok(Some(args)) }), job(7, "echo")).await;
    assert_eq!((end.kind, end.result), (EventKind::Completed, Some(Json::of(&"7").expect("json"))));
}

#[tokio::test(start_paused = true)]
async fn a_failure_says_why_and_whether_to_try_again() {
    let end = end_of(handler("a", |_, _| async { Err(Failure::new("no luck")) }), job(1, "a")).await;
    assert_eq!((end.kind, end.error.as_deref(), end.retry), (EventKind::Failed, Some("no luck"), Some(true)));
    let end = end_of(handler("a", |_, _| async { Err(Failure::permanent("no way")) }), job(1, "a")).await;
    assert_eq!((end.kind, end.error.as_deref(), end.retry), (EventKind::Failed, Some("no way"), Some(false)));
}

#[tokio::test(start_paused = true)]
async fn a_type_without_handler_fails_and_may_find_one_elsewhere() {
    let end = end_of(no_op(), job(1, "other")).await;
    assert_eq!((end.kind, end.retry), (EventKind::Failed, Some(true)));
    assert_eq!(end.error.as_deref(), Some("this worker has no handler for \"other\"; it has \"noop\""));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_with_its_message() {
    let end = end_of(handler("a", |_, _| async { panic!("at {}", 7) }), job(1, "a")).await;
    assert_eq!((end.kind, end.error.as_deref()), (EventKind::Failed, Some("the handler panicked: at 7")));
    assert_eq!(end.retry, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_or_in_a_drop_costs_no_slot() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("in a drop");
            }
        }
    }
    let mut handlers = handler("drop", |_, _| async {
        let _grenade = Grenade;
        std::future::pending().await
    });
    handlers.add(JobType::new("early").expect("a name"), |_, _| panic!("early"));
    handlers.add(JobType::new("noop").expect("a name"), |_, _| Box::pin(async { Ok(None) }));
    let rig = start(1, handlers);
    let dropped = timed_job(2, "drop", Duration::from_millis(500));
    rig.fake.give([job(1, "early"), dropped, job(3, "noop")]);
    rig.fake.until("the last one ran", |script| script.of_kind(EventKind::Completed) == 1).await;
    let summary = rig.stop().await;
    assert_eq!((summary.failed, summary.timed_out, summary.completed), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_dropped_and_timed_out() {
    let gone = Arc::new(Notify::new());
    let inner = gone.clone();
    let handlers = handler("slow", move |_, _| {
        let gone = Gone(inner.clone());
        async move {
            let _gone = gone;
            std::future::pending().await
        }
    });
    let end = end_of(handlers, timed_job(1, "slow", Duration::from_secs(3))).await;
    assert_eq!((end.kind, end.error.as_deref()), (EventKind::TimedOut, Some("the run took longer than 3s")));
    gone.notified().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_can_tidy_up() {
    let tidied = Arc::new(AtomicUsize::new(0));
    let inner = tidied.clone();
    let handlers = handler("kind", move |cx, _| {
        let tidied = inner.clone();
        async move {
            cx.cancelled().await;
            assert!(cx.is_cancelled());
            tokio::time::sleep(Duration::from_secs(1)).await;
            tidied.fetch_add(1, Ordering::SeqCst);
            Ok(None)
        }
    });
    let rig = start(2, handlers);
    rig.fake.give([job(1, "kind")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    rig.fake.change_script(|script| script.cancel.push(run_id(1)));
    rig.fake.until("it is cancelled", |script| script.of_kind(EventKind::Cancelled) == 1).await;
    assert_eq!(tidied.load(Ordering::SeqCst), 1);
    assert_eq!(rig.stop().await.cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_that_goes_on_is_dropped() {
    let rig = start(1, sleeper(Duration::from_secs(1800)));
    rig.fake.give([job(1, "sleep")]);
    rig.fake.until("it runs", |script| script.of_kind(EventKind::Started) == 1).await;
    // Its slot was the only one, so that there is no poll: the heartbeat brings it.
    rig.fake.change_script(|script| script.cancel.push(run_id(1)));
    let asked = tokio::time::Instant::now();
    rig.fake.until("it is cancelled", |script| script.of_kind(EventKind::Cancelled) == 1).await;
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn logs_and_progress_follow_the_start_in_order() {
    let handlers = handler("chatty", |cx, _| async move {
        cx.log(LogLevel::Warn, "one").await.expect("sent");
        cx.progress(40, "half way").await.expect("sent");
        cx.log(LogLevel::Info, "x".repeat(LOG_LINE_BYTES_MAX + 1)).await.expect("sent");
        cx.progress(200, "").await.expect("sent");
        Ok(None)
    });
    let events = events_of(handlers, job(1, "chatty")).await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    use EventKind::*;
    assert_eq!(kinds, [Started, Log, Progress, Log, Progress, Completed]);
    assert_eq!((events[1].level, events[1].message.as_deref()), (Some(LogLevel::Warn), Some("one")));
    assert_eq!((events[2].percent, events[2].message.as_deref()), (Some(40), Some("half way")));
    assert!(events[3].message.as_ref().is_some_and(|line| line.len() <= LOG_LINE_BYTES_MAX && line.ends_with("(cut)")));
    assert_eq!((events[4].percent, events[4].message.as_deref()), (Some(100), None));
    assert_eq!((events[1].seq, events[3].seq, events[2].seq), (Some(1), Some(2), None), "lines are numbered");
    assert!(events.iter().all(|event| event.at.is_some()));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_a_run_after_its_end() {
    let kept = Arc::new(Mutex::new(None));
    let inner = kept.clone();
    let handlers = handler("keeps", move |cx, _| {
        *inner.lock() = Some(cx);
        async { Ok(None) }
    });
    end_of(handlers, job(1, "keeps")).await;
    let cx = kept.lock().take().expect("it ran");
    assert_eq!(cx.log(LogLevel::Info, "late").await, Err(super::super::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_result_over_the_limit_fails_for_good() {
    let handlers = handler("big", |_, _| async { Ok(Json::of(&"x".repeat(RESULT_BYTES_MAX)).ok()) });
    let end = end_of(handlers, job(1, "big")).await;
    assert_eq!((end.kind, end.retry), (EventKind::Failed, Some(false)));
    assert!(end.error.is_some_and(|error| error.starts_with("result: expected at most 1048576 bytes")));
}

#[tokio::test(start_paused = true)]
async fn no_more_run_at_once_than_there_are_slots() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inner_now, inner_most) = (now.clone(), most.clone());
    let handlers = handler("count", move |_, _| {
        let (now, most) = (inner_now.clone(), inner_most.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(None)
        }
    });
    let rig = start(4, handlers);
    rig.fake.give(jobs(0..200, "count"));
    rig.fake.until("all are done", |script| script.of_kind(EventKind::Completed) == 200).await;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert_eq!(rig.stop().await.completed, 200);
}
