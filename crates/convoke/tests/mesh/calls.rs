use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke::{InstanceId, MeshError};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::stage::*;

#[tokio::test]
async fn a_call_is_answered_by_the_one_it_is_made_to() {
    let (a, b) = pair().await;
    let name = |text: &'static str| move |Echo(_)| async move { Ok(json!(text)) };
    let (a, b) = (a.on(name("a")), b.on(name("b")));
    assert_eq!((a.instance_id(), b.instance_id()), (InstanceId(1), InstanceId(2)));
    assert_eq!(a.invoke(b.instance_id(), Echo(json!(null))).await.expect("b replies"), "b");
    assert_eq!(b.invoke(a.instance_id(), Echo(json!(null))).await.expect("a replies"), "a");
    assert_eq!(a.invoke(a.instance_id(), Echo(json!(null))).await.expect("without the link"), "a");
    assert_eq!(a.calls_open(), 0);
}

#[tokio::test]
async fn what_is_sent_arrives_whole() {
    let (a, b) = pair().await;
    for value in [json!(null), json!({"a": [1, 2.5, "ü\u{0}\"\\"]}), json!("x".repeat(1_000_000)), json!([])] {
        assert_eq!(a.invoke(b.instance_id(), Echo(value.clone())).await.expect("echo"), value);
        assert_eq!(a.invoke(a.instance_id(), Echo(value.clone())).await.expect("echo"), value);
    }
}

#[tokio::test]
async fn a_handlers_error_comes_with_its_words_instance_and_type() {
    let (a, b) = pair().await;
    for to in [b.instance_id(), a.instance_id()] {
        match a.invoke(to, Fail("no such user".into())).await {
            Err(MeshError::Handler { instance, request_type, message }) => {
                assert_eq!((instance, request_type.as_str(), message.as_str()), (to, "fail", "no such user"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn who_has_no_handler_says_so() {
    let key = new_key();
    let (a, b) = (start(&key).await, idle(&key).await.start().await.expect("starts"));
    for (from, to) in [(&a, &b), (&b, &b)] {
        let error = from.invoke(to.instance_id(), Sleep { ms: 0 }).await.expect_err("no handler");
        assert!(
            matches!(&error, MeshError::NoHandler { instance: InstanceId(2), request_type } if request_type == "sleep")
        );
        assert_eq!(error.to_string(), "sleep on instance 2: it has no handler for this type");
    }
    let b = with_handlers(b);
    a.invoke(b.instance_id(), Sleep { ms: 0 }).await.expect("registered after the start");
}

#[tokio::test]
async fn a_handler_is_replaced_by_registering_again() {
    let (a, b) = pair().await;
    let b = b.on(|Echo(_)| async move { Ok(json!("second")) });
    assert_eq!(a.invoke(b.instance_id(), Echo(json!("first"))).await.expect("echo"), "second");
}

#[tokio::test]
async fn handlers_share_a_state_and_know_who_calls() {
    let (a, b) = pair().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let b = b.on_shared(seen.clone(), |seen, context, Echo(value)| async move {
        seen.lock().push((context.caller(), context.timeout()));
        Ok(value)
    });
    a.invoke_with_timeout(b.instance_id(), Echo(json!(1)), Duration::from_secs(3)).await.expect("echo");
    b.invoke(b.instance_id(), Echo(json!(1))).await.expect("echo");
    let expected = [(a.instance_id(), Duration::from_secs(3)), (b.instance_id(), Duration::from_secs(10))];
    assert_eq!(*seen.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_handler_knows_until_when_a_silent_one_would_be_waited_for() {
    let (a, b) = pair().await;
    let left = Arc::new(Mutex::new(Vec::new()));
    let b = b.on_shared(left.clone(), |left, context, Sleep { ms }| async move {
        let record = || left.lock().push(context.deadline().saturating_duration_since(Instant::now()).as_millis());
        record();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        record();
        Ok(())
    });
    for from in [&a, &b] {
        let timeout = Duration::from_millis(3_000);
        from.invoke_with_timeout(b.instance_id(), Sleep { ms: 1_200 }, timeout).await.expect("in time");
        // Heartbeats keep the caller waiting; what it would have waited by itself stays as it was.
        from.invoke_with_timeout(b.instance_id(), Sleep { ms: 9_000 }, timeout).await.expect("it beats");
        assert_eq!(std::mem::take(&mut *left.lock()), [3_000, 1_800, 3_000, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_nobody_fails_at_once() {
    let (a, _b) = pair().await;
    let started = Instant::now();
    let error = a.invoke(InstanceId(99), Echo(json!(1))).await.expect_err("nobody");
    assert!(matches!(error, MeshError::NoNode { instance: InstanceId(99), .. }), "{error}");
    assert_eq!(started.elapsed(), Duration::ZERO, "no time had to pass");
    assert_eq!(a.calls_open(), 0);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_a_long_handler_under_a_short_timeout() {
    let (a, b) = pair().await;
    let timeout = Duration::from_secs(1);
    a.invoke_with_timeout(b.instance_id(), Sleep { ms: 30_000 }, timeout).await.expect("it took its time");
    a.invoke_with_timeout(a.instance_id(), Sleep { ms: 30_000 }, timeout).await.expect("a local call has none");
}

#[tokio::test(start_paused = true)]
async fn mixed_timeouts_each_have_their_own_heartbeats() {
    let (a, b) = pair().await;
    let call = |ms| a.invoke_with_timeout(b.instance_id(), Sleep { ms: 7_000 }, Duration::from_millis(ms));
    let (quick, middle, slow) = tokio::join!(call(50), call(900), call(20_000));
    assert!(quick.is_ok() && middle.is_ok() && slow.is_ok(), "{quick:?} {middle:?} {slow:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_delays_nobody() {
    let (a, b) = pair().await;
    let started = Instant::now();
    let slow = tokio::spawn({
        let (a, to) = (a.clone(), b.instance_id());
        async move { a.invoke(to, Sleep { ms: 5_000 }).await }
    });
    tokio::task::yield_now().await;
    a.invoke(b.instance_id(), Echo(json!(1))).await.expect("echo");
    assert_eq!(started.elapsed(), Duration::ZERO);
    slow.await.expect("no panic").expect("in the end");
}

#[tokio::test]
async fn a_handler_that_panics_answers_an_error() {
    let (a, b) = pair().await;
    let b = b.on(|Echo(value)| async move {
        assert_ne!(value, json!("bang"), "as planned");
        Ok(value)
    });
    for from in [&a, &b] {
        let error = from.invoke(b.instance_id(), Echo(json!("bang"))).await.expect_err("a panic");
        assert!(matches!(&error, MeshError::Handler { message, .. } if message.contains("panicked")), "{error}");
    }
    assert_eq!(b.handlers_running(), 0);
    a.invoke(b.instance_id(), Echo(json!("calm"))).await.expect("it goes on");
}

#[tokio::test]
async fn data_of_another_type_is_refused_by_name() {
    let (a, b) = pair().await;
    let options = convoke::mesh::CallOptions::default();
    let error = a.invoke_raw(b.instance_id(), "sleep", &json!({"ms": "soon"}), options).await.expect_err("no number");
    assert!(matches!(&error, MeshError::Handler { message, .. } if message.contains("not that of sleep")), "{error}");
    let b = b.on_raw("sleep", |_, _| async move { Ok(json!("not nothing")) });
    let error = a.invoke(b.instance_id(), Sleep { ms: 0 }).await.expect_err("not what was promised");
    assert!(matches!(error, MeshError::BadReply { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_let_go_of_is_forgotten() {
    let (a, b) = pair().await;
    let call = a.invoke(b.instance_id(), Sleep { ms: 60_000 });
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    assert_eq!(a.calls_open(), 0);
    assert_eq!(b.handlers_running(), 1, "the handler does not know");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(b.handlers_running(), 0);
}

#[tokio::test]
async fn a_broadcast_is_heard_by_all_by_ourselves_first_and_once() {
    let key = new_key();
    let (received, mut hearing) = mpsc::unbounded_channel();
    let mut all = Vec::new();
    for _ in 0..3 {
        let received = received.clone();
        let mesh = idle(&key).await.start().await.expect("starts");
        let me = mesh.instance_id();
        all.push(mesh.on_broadcast(move |from, clear: Clear| {
            let _ = received.send((me, from, clear));
            async {}
        }));
    }
    let clear = Clear { keys: vec!["k".into()] };
    assert_eq!(all[1].broadcast(clear.clone()).await.expect("broadcast"), 2);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (who, from, what) = hearing.recv().await.expect("received");
        assert_eq!((from, &what), (InstanceId(2), &clear));
        seen.push(who.0);
    }
    assert_eq!(seen[0], 2, "it received its own first");
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
    all[0].broadcast_to_others(clear).await.expect("broadcast");
    let mut others = [hearing.recv().await, hearing.recv().await].map(|received| received.expect("received").0.0);
    others.sort_unstable();
    assert_eq!(others, [2, 3]);
    assert!(hearing.is_empty());
}

#[tokio::test]
async fn all_are_called_at_once_and_fail_alone() {
    let key = new_key();
    let (a, b, c) = (start(&key).await, idle(&key).await.start().await.expect("starts"), start(&key).await);
    let all = tokio::spawn({
        let a = a.clone();
        async move { a.invoke_all(Echo(json!(7))).await }
    });
    let responses = all.await.expect("no panic").expect("the registry is there");
    let ids: Vec<_> = responses.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [a.instance_id(), b.instance_id(), c.instance_id()]);
    assert_eq!(responses[0].1.as_ref().expect("a replies"), 7);
    assert!(matches!(responses[1].1, Err(MeshError::NoHandler { .. })));
    assert_eq!(responses[2].1.as_ref().expect("c replies"), 7);
}

#[tokio::test]
async fn any_goes_on_to_the_next_and_takes_turns() {
    let key = new_key();
    let (a, b, _mute) = (start(&key).await, start(&key).await, idle(&key).await.start().await.expect("starts"));
    let mut replied = std::collections::BTreeMap::<InstanceId, usize>::new();
    for _ in 0..6 {
        let (who, value) = a.invoke_any(Echo(json!(7))).await.expect("one replies");
        assert_eq!(value, 7);
        *replied.entry(who).or_default() += 1;
    }
    // The third begins a third of the turns and has no handler: the one after it replies instead.
    assert_eq!(replied.into_iter().collect::<Vec<_>>(), [(a.instance_id(), 4), (b.instance_id(), 2)]);
    let error = a.invoke_any(Fail("all of them".into())).await.expect_err("nobody can");
    assert!(matches!(error, MeshError::Handler { .. } | MeshError::NoHandler { .. }), "{error}");
}

#[tokio::test]
async fn many_calls_at_once_find_their_own_answers() {
    let (a, b) = pair().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        let (a, to, calls) = (a.clone(), b.instance_id(), calls.clone());
        tasks.spawn(async move {
            assert_eq!(a.invoke(to, Echo(json!(n))).await.expect("echo"), n);
            calls.fetch_add(1, Ordering::Relaxed);
        });
    }
    tasks.join_all().await;
    assert_eq!(calls.load(Ordering::Relaxed), 1_000);
    assert_eq!((a.calls_open(), b.handlers_running()), (0, 0));
}
