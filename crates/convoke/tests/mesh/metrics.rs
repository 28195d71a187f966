//! The metrics of a mesh, as a recorder shows them.

use std::time::Duration;

use convoke::mesh::{MeshAddress, MeshSettings};
use convoke::{InstanceId, Mesh, connect};
use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use serde_json::json;

use crate::stage::*;

/// Of this thread alone, on which the whole test runs.
fn recorder() -> (PrometheusHandle, LocalRecorderGuard<'static>) {
    let recorder: &'static PrometheusRecorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
    (recorder.handle(), metrics::set_default_local_recorder(recorder))
}

/// The value of a line; 0 where there is none.
fn value(shown: &PrometheusHandle, name: &str) -> f64 {
    let text = shown.render();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}

fn calls(shown: &PrometheusHandle, outcome: &str) -> f64 {
    let of = |name| value(shown, &format!(r#"convoke_mesh_calls_total{{type="{name}",outcome="{outcome}"}}"#));
    of("echo") + of("sleep") + of("fail")
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_how_they_end() {
    let (shown, _guard) = recorder();
    let key = new_key();
    let a = start(&key).await;
    let b = start_with(&key, MeshSettings { handlers_max: 1, ..MeshSettings::default() }).await;
    a.invoke(b.instance_id(), Echo(json!(1))).await.expect("echo");
    a.invoke(a.instance_id(), Echo(json!(1))).await.expect("echo");
    a.invoke(b.instance_id(), Fail("no".into())).await.expect_err("it fails");
    a.invoke(InstanceId(99), Echo(json!(1))).await.expect_err("nobody");
    let slow = tokio::spawn({
        let (a, to) = (a.clone(), b.instance_id());
        async move { a.invoke(to, Sleep { ms: 1_000 }).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(value(&shown, "convoke_mesh_in_flight"), 1.0);
    assert_eq!(value(&shown, "convoke_mesh_handlers"), 1.0);
    a.invoke(b.instance_id(), Echo(json!(1))).await.expect_err("it is full");
    slow.await.expect("no panic").expect("in the end");
    let b = b.on_raw("sleep", |_, _| async move { Ok(json!("not nothing")) });
    a.invoke(b.instance_id(), Sleep { ms: 0 }).await.expect_err("not what was promised");
    let counts = ["ok", "failed", "no_node", "busy", "bad_reply"].map(|outcome| calls(&shown, outcome));
    assert_eq!(counts, [3.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(value(&shown, "convoke_mesh_call_seconds_count"), 7.0);
    assert_eq!((value(&shown, "convoke_mesh_in_flight"), value(&shown, "convoke_mesh_handlers")), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn silence_and_what_comes_after_it_are_counted() {
    let (shown, _guard) = recorder();
    let link = connect::mesh_link(&MeshAddress::new("memory:"), &new_key()).await.expect("memory is always there");
    let (a, b) = (with_handlers(Mesh::over(link.clone())), with_handlers(Mesh::over(link.clone())));
    let (a, b) = (a.start().await.expect("starts"), b.start().await.expect("starts"));
    let text = shown.render();
    assert!(text.contains("# HELP convoke_mesh_in_flight"), "a start describes what is counted: {text}");
    assert!(text.contains("\nconvoke_mesh_malformed_total 0\n"), "it is there before the first: {text}");
    let late = r#"{"requestId":"0198c0de-0000-7000-8000-0000000000ff","reply":true,"data":1}"#;
    link.send(&[(a.instance_id(), late.into()), (a.instance_id(), "nonsense".into())]).await;
    assert_eq!(value(&shown, "convoke_mesh_stray_total"), 1.0);
    assert_eq!(value(&shown, "convoke_mesh_malformed_total"), 1.0);
    // A subscriber under a number that never replies.
    let mute = link.join("mute", std::sync::Arc::new(Mute)).await.expect("joins");
    a.invoke(mute.id(), Echo(json!(1))).await.expect_err("silence");
    assert_eq!(calls(&shown, "timeout"), 1.0);
    assert_eq!(value(&shown, "convoke_mesh_in_flight"), 0.0);
    b.stop().await;
}

struct Mute;

impl convoke_core::ports::MeshInbox for Mute {
    fn on_message(&self, _: bytes::Bytes) {}

    fn missed(&self) {}
}

#[tokio::test(start_paused = true)]
async fn what_an_instance_says_of_itself_goes_with_it() {
    let (shown, _guard) = recorder();
    let standing = || (value(&shown, "convoke_mesh_nodes"), value(&shown, "convoke_mesh_leader"));
    let (a, b) = pair().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(standing(), (2.0, 1.0));
    b.stop().await;
    assert_eq!(standing().1, 1.0, "another one leads");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(standing(), (1.0, 1.0));
    a.stop().await;
    assert_eq!(standing(), (0.0, 0.0));
    a.start().await.expect("again");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(standing(), (1.0, 1.0));
    drop(a);
    assert_eq!(standing(), (0.0, 0.0));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(standing(), (0.0, 0.0), "nothing of it is left");
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_comes_late_sees_the_next_start() {
    let mesh = start(&new_key()).await;
    mesh.invoke(mesh.instance_id(), Echo(json!(1))).await.expect("echo");
    mesh.stop().await;
    let (shown, _guard) = recorder();
    mesh.start().await.expect("again");
    mesh.invoke(mesh.instance_id(), Echo(json!(1))).await.expect("echo");
    assert_eq!(calls(&shown, "ok"), 1.0);
    assert_eq!(value(&shown, "convoke_mesh_call_seconds_count"), 1.0);
}
