use std::time::Duration;

use convoke::mesh::MeshSettings;
use convoke::{InstanceId, MeshError};
use serde_json::json;
use tokio::time::Instant;

use crate::stage::*;

#[tokio::test(start_paused = true)]
async fn calls_that_wait_end_as_stopped() {
    let (a, b) = pair().await;
    let call = |to| {
        let a = a.clone();
        tokio::spawn(async move { a.invoke(to, Sleep { ms: 60_000 }).await })
    };
    let (remote, local) = (call(b.instance_id()), call(a.instance_id()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    a.stop().await;
    for (call, to) in [(remote, 2), (local, 1)] {
        let error = call.await.expect("no panic").expect_err("stopped");
        assert!(matches!(&error, MeshError::Stopped { instance, request_type }
            if *instance == InstanceId(to) && request_type == "sleep"));
    }
    let error = a.invoke(b.instance_id(), Echo(json!(1))).await.expect_err("it does not run");
    assert!(matches!(error, MeshError::Stopped { .. }), "{error}");
    assert!(matches!(a.broadcast(Clear { keys: vec![] }).await, Err(MeshError::Stopped { .. })));
    assert!(matches!(a.invoke_any(Echo(json!(1))).await, Err(MeshError::Stopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn it_may_be_stopped_at_any_time_and_started_once() {
    let mesh = idle(&new_key()).await;
    mesh.stop().await;
    assert_eq!(mesh.instance_id(), InstanceId::NOBODY);
    let error = mesh.invoke(InstanceId(1), Echo(json!(1))).await.expect_err("it was not started");
    assert_eq!(error.to_string(), "echo on instance 1: this mesh or that instance is not running");
    let error = mesh.invoke_any(Echo(json!(1))).await.expect_err("it was not started");
    assert_eq!(error.to_string(), "echo: there is no live instance");
    mesh.start().await.expect("starts");
    let error = mesh.start().await.err().expect("it runs");
    assert!(matches!(error, MeshError::AlreadyRunning { instance: InstanceId(1) }), "{error}");
    mesh.stop().await;
    mesh.stop().await;
    assert_eq!(mesh.instance_id(), InstanceId::NOBODY);
    mesh.start().await.expect("again");
    assert_eq!(mesh.instance_id(), InstanceId(2), "under a new number");
}

#[tokio::test(start_paused = true)]
async fn handlers_finish_within_the_grace_period_and_go_on_beating() {
    let (a, b) = pair().await;
    let call = tokio::spawn({
        let (a, to) = (a.clone(), b.instance_id());
        async move { a.invoke_with_timeout(to, Sleep { ms: 3_000 }, Duration::from_millis(500)).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    b.stop().await;
    call.await.expect("no panic").expect("it got its reply all the same");
}

#[tokio::test(start_paused = true)]
async fn handlers_that_do_not_finish_are_dropped_and_say_so() {
    let key = new_key();
    let a = start(&key).await;
    let b = start_with(&key, MeshSettings { stop_grace: Duration::from_secs(2), ..MeshSettings::default() }).await;
    let call = tokio::spawn({
        let (a, to) = (a.clone(), b.instance_id());
        async move { a.invoke(to, Sleep { ms: 3_600_000 }).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let started = Instant::now();
    b.stop().await;
    assert!(started.elapsed() >= Duration::from_secs(2) && started.elapsed() < Duration::from_secs(3));
    let error = call.await.expect("no panic").expect_err("it was dropped");
    assert!(matches!(error, MeshError::Stopped { instance: InstanceId(2), .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_watches_for_it_ends_at_once() {
    let (a, b) = pair().await;
    let b = b.on_with(|context, _: Sleep| async move {
        context.cancelled().await;
        assert!(context.is_cancelled());
        Ok(())
    });
    let call = tokio::spawn({
        let (a, to) = (a.clone(), b.instance_id());
        async move { a.invoke(to, Sleep { ms: 0 }).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let started = Instant::now();
    b.stop().await;
    assert!(started.elapsed() < Duration::from_secs(1));
    call.await.expect("no panic").expect("it replied");
    let error = a.invoke(InstanceId(2), Sleep { ms: 0 }).await.expect_err("it is gone");
    assert!(matches!(error, MeshError::NoNode { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_ends_its_calls_and_is_heard_of_no_more() {
    let (a, b) = pair().await;
    let call = tokio::spawn({
        let (a, to) = (a.clone(), b.instance_id());
        async move { a.invoke_with_timeout(to, Sleep { ms: 60_000 }, Duration::from_secs(1)).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    drop(b);
    let error = call.await.expect("no panic").expect_err("there is no reply");
    assert!(matches!(error, MeshError::Stopped { .. } | MeshError::RequestTimeout { .. }), "{error}");
    let error = a.invoke(InstanceId(2), Echo(json!(1))).await.expect_err("nobody");
    assert!(matches!(error, MeshError::NoNode { .. }), "{error}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(a.nodes().await.expect("nodes").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_to_ourselves_that_nobody_drives_does_not_keep_us_from_stopping() {
    let mesh = start(&new_key()).await;
    let mut call = std::pin::pin!(mesh.invoke(mesh.instance_id(), Sleep { ms: 60_000 }));
    tokio::select! {
        biased;
        _ = &mut call => panic!("it takes longer"),
        () = tokio::time::sleep(Duration::from_millis(1)) => {}
    }
    mesh.stop().await;
    assert!(matches!(call.await, Err(MeshError::Stopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_stop_goes_on_without_who_asked_for_it_and_the_next_waits_for_it() {
    let (a, b) = pair().await;
    let slow = tokio::spawn({
        let (b, to) = (b.clone(), a.instance_id());
        async move { b.invoke(to, Sleep { ms: 2_000 }).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let started = Instant::now();
    let asked = tokio::time::timeout(Duration::from_millis(1), a.stop()).await;
    assert!(asked.is_err(), "its handler is still at work");
    a.stop().await;
    assert!(started.elapsed() > Duration::from_secs(1), "the handler was waited for");
    slow.await.expect("no panic").expect("its caller has its reply");
}
