use std::time::Duration;

use convoke::mesh::MeshSettings;
use convoke::{InstanceId, MeshError};
use serde_json::json;

use crate::stage::*;

#[tokio::test(start_paused = true)]
async fn a_full_instance_says_that_it_is_busy() {
    let key = new_key();
    let a = start(&key).await;
    let b = start_with(&key, MeshSettings { handlers_max: 2, ..MeshSettings::default() }).await;
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let (a, to) = (a.clone(), b.instance_id());
            tokio::spawn(async move { a.invoke(to, Sleep { ms: 1_000 }).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(b.handlers_running(), 2);
    for from in [&a, &b] {
        let error = from.invoke(b.instance_id(), Echo(json!(1))).await.expect_err("full");
        assert!(matches!(&error, MeshError::Busy { instance: InstanceId(2), request_type } if request_type == "echo"));
    }
    for call in calls {
        call.await.expect("no panic").expect("those that run are not disturbed");
    }
    a.invoke(b.instance_id(), Echo(json!(1))).await.expect("there is room again");
}

#[tokio::test]
async fn too_much_data_is_refused_before_it_is_sent() {
    let (a, b) = pair().await;
    let huge = || Echo(json!("x".repeat(1 << 20)));
    for to in [a.instance_id(), b.instance_id()] {
        let error = a.invoke(to, huge()).await.expect_err("too much");
        assert!(matches!(&error, MeshError::Invalid(invalid) if invalid.field == "data"), "{error}");
    }
    let b = b.on(|Echo(_)| async move { Ok(json!("x".repeat(1 << 20))) });
    let error = a.invoke(b.instance_id(), Echo(json!(1))).await.expect_err("too much");
    assert!(matches!(&error, MeshError::Handler { message, .. } if message.contains("bytes")), "{error}");
    let error = a.broadcast(Clear { keys: vec!["x".repeat(1 << 20)] }).await.expect_err("too much");
    assert!(matches!(error, MeshError::Invalid(_)), "{error}");
}

#[tokio::test]
async fn a_type_that_nobody_would_read_is_refused_before_it_is_sent() {
    let (a, b) = pair().await;
    for (to, request_type) in [(b.instance_id(), "x".repeat(256)), (a.instance_id(), String::new())] {
        let error = a.invoke_raw(to, &request_type, &json!({}), Default::default()).await.expect_err("no type");
        assert!(matches!(&error, MeshError::Invalid(invalid) if invalid.field == "type"), "{error}");
    }
}

#[tokio::test]
async fn settings_and_addresses_that_make_no_sense_are_named() {
    let error = idle(&new_key()).await.request_timeout(Duration::ZERO).start().await.err().expect("no time at all");
    assert!(matches!(&error, MeshError::Invalid(invalid) if invalid.field == "mesh.request_timeout"), "{error}");
    for (url, key, field) in [
        ("memory:", "", "mesh.key"),
        ("memory:", "a\nb", "mesh.key"),
        ("http://x", "k", "mesh.url"),
        ("x", "k", "mesh.url"),
    ] {
        let error = convoke::Mesh::connect(url, key).await.err().expect(url);
        assert!(matches!(&error, MeshError::Invalid(invalid) if invalid.field == field), "{error}");
    }
}
