//! Meshes by the API and on their page.

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::MemoryMesh;
use convoke_core::Json;
use convoke_core::mesh::Fault;
use convoke_runtime::mesh::{CallOptions, Demand, Instance, Settings};
use serde_json::{Value, json};

use super::{World, in_time};

/// An instance of a mesh of this process that echoes its data, fails on request, and has published figures.
pub async fn instance(mesh: &str, hostname: &str) -> Instance {
    let interval = Duration::from_millis(20);
    let settings = Settings { heartbeat_interval: interval, ..Settings::default() };
    let instance = Instance::new(Arc::new(MemoryMesh::shared(mesh)), hostname, settings);
    instance.handlers().on("echo", Demand::default(), |_, data| {
        Box::pin(async move { Json::parse(data).map_err(|error| Fault::Handler(error.to_string())) })
    });
    instance
        .handlers()
        .on("fail", Demand::default(), |_, _| Box::pin(async { Err(Fault::Handler("<b>no</b>".into())) }));
    instance.start().await.expect("it starts");
    let data = Json::null();
    instance.call(instance.id(), "echo", &data, CallOptions::default(), Ok).await.expect("a reply");
    instance
}

/// Reads the instances of a mesh until one has published the times of its calls.
pub async fn figures(world: &World, mesh: &str) -> Value {
    in_time("the figures of an instance", async {
        loop {
            let read = world.get(&format!("/v1/mesh/{mesh}")).await.body;
            if read["instances"][0]["figures"]["p50Us"].is_u64() {
                return read;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

#[tokio::test]
async fn instances_are_listed_with_their_figures_and_called() {
    let world = World::new().await;
    let _one = instance("calls", "host-1").await;
    let read = figures(&world, "calls").await;
    let shown = &read["instances"][0];
    assert_eq!((&shown["instanceId"], &shown["hostname"]), (&json!(1), &json!("host-1")));
    assert_eq!((&shown["figures"]["inFlight"], &shown["figures"]["handlers"]), (&json!(0), &json!(0)));
    let call = async |body: Value| world.post("/v1/mesh/calls/call", body).await;
    let reply = call(json!({"instanceId": 1, "type": "echo", "data": {"n": 9_007_199_254_740_993_u64}})).await;
    assert_eq!((reply.status.as_u16(), &reply.body["data"]["n"]), (200, &json!(9_007_199_254_740_993_u64)));
    for (body, status, code) in [
        (json!({"instanceId": 1, "type": "fail"}), 502, "mesh_call_failed"),
        (json!({"instanceId": 1, "type": "none"}), 502, "mesh_call_failed"),
        (json!({"instanceId": 77, "type": "echo"}), 404, "not_found"),
        (json!({"instanceId": 1, "type": "", "data": 1}), 400, "invalid_argument"),
        (json!({"instanceId": 1, "type": "echo", "timeout": "2h"}), 400, "invalid_argument"),
    ] {
        let refused = call(body.clone()).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (status, code), "{body}: {}", refused.body);
    }
    let audit = world.get("/v1/audit?action=mesh.call").await.body;
    assert_eq!(audit["entries"][0]["target"], "calls 1 echo", "{audit}");
    // The node was in the mesh for the time of its calls only.
    assert_eq!(world.get("/v1/mesh/calls").await.body["instances"].as_array().map(Vec::len), Some(1));
    assert_eq!(world.get("/v1/mesh/nobody").await.body["instances"], json!([]));
}

#[tokio::test]
async fn a_mesh_has_a_page_and_its_calls_a_form() {
    let world = World::new().await;
    let _one = instance("page", "<i>host</i>").await;
    figures(&world, "page").await;
    let shown = super::dashboard::page(&world, "/mesh?name=page").await;
    assert!(shown.contains("&#60;i&#62;host") && !shown.contains("<i>host"), "{shown}");
    let fields =
        |kind: &'static str| [("name", "page"), ("instance", "1"), ("type", kind), ("data", "{\"a\": \"<u>\"}")];
    let replied = super::dashboard::submit(&world, &shown, "/mesh/call", &fields("echo")).await;
    let text = replied.body.as_str().expect("a page");
    assert!(text.contains("Instance 1 replied in") && text.contains("&#60;u&#62;") && !text.contains("<u>"), "{text}");
    let failed = super::dashboard::submit(&world, &shown, "/mesh/call", &fields("fail")).await;
    let text = failed.body.as_str().expect("a page");
    assert!(text.contains("&#60;b&#62;no") && !text.contains("<b>no"), "{text}");
    let unknown = super::dashboard::page(&world, "/mesh?name=%0A").await;
    assert!(unknown.contains("role=\"alert\""), "{unknown}");
}
