//! Two nodes on one store and one bus, each with its own API.

use std::sync::Arc;

use convoke_core::NodeId;
use convoke_core::ports::store::{Handover, Reassign};
use convoke_runtime::jobs::Ports;
use convoke_testkit::shared_bus::SharedBus;
use http::StatusCode;
use serde_json::{Value, json};

use super::super::Access;
use super::streams::Reader;
use super::{World, in_time, ports};

async fn two() -> (World, World, Ports) {
    let ports = ports();
    let ports = Ports { bus: Arc::new(SharedBus(ports.bus.clone())), ..ports };
    let first = World::node("node-1", ports.clone(), Access::Insecure).await;
    (first, World::node("node-2", ports.clone(), Access::Insecure).await, ports)
}

/// Repeats the request until the response is as expected.
pub async fn until(world: &World, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    in_time(path, async {
        loop {
            let response = world.get(path).await;
            if is(&response.body) {
                return response.body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_watcher_of_one_node_sees_what_happens_on_the_other_and_where() {
    let (first, second, _) = two().await;
    let mut reader = Reader::open(&first, "/v1/events?types=schedule,job:pending").await;
    // The other node may not know of the stream yet: the events are repeated until one is received.
    let goes_on = async {
        for name in 0.. {
            second.send("PUT", &format!("/v1/schedules/s{name}"), json!({"type": "t", "every": "1h"})).await;
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    let (event, _, data) = tokio::select! {
        seen = reader.next() => seen.expect("an event"),
        () = goes_on => unreachable!("it goes on for ever"),
    };
    assert_eq!((event.as_str(), &data["node"]), ("schedule:created", &json!("node-2")));
    let id = first.enqueue(json!({"type": "t"})).await;
    let own = loop {
        let (event, _, data) = reader.next().await.expect("an event");
        if event == "job:pending" {
            break data;
        }
    };
    assert_eq!((&own["jobId"], &own["node"]), (&json!(id), &json!("node-1")));
}

#[tokio::test]
async fn a_job_is_waited_for_on_a_node_that_does_not_record_it() {
    let (first, second, _) = two().await;
    second.register("w-1", &["default"]).await;
    let id = first.enqueue(json!({"type": "t"})).await;
    let run = second.take("w-1").await;
    let path = format!("/v1/jobs/{id}?wait=60s");
    let (waited, reported) = tokio::join!(first.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        second.report("w-1", &run, json!({"kind": "completed", "result": 7})).await
    });
    assert_eq!(reported.status, StatusCode::OK);
    assert_eq!((&waited.body["status"], &waited.body["result"]), (&json!("completed"), &json!(7)));
}

#[tokio::test]
async fn a_retried_job_is_pending_at_once_here_and_soon_elsewhere() {
    let (first, second, _) = two().await;
    first.register("w-1", &["default"]).await;
    let id = first.enqueue(json!({"type": "t", "queue": "default"})).await;
    let run = first.take("w-1").await;
    first.report("w-1", &run, json!({"kind": "failed", "error": "e", "retry": false})).await;
    first.post("/v1/worker/leave", json!({"workerId": "w-1"})).await;
    let path = format!("/v1/jobs/{id}");
    for world in [&first, &second] {
        for _ in 0..3 {
            assert_eq!(world.get(&path).await.body["status"], "failed");
        }
    }
    assert_eq!(first.post(&format!("{path}/retry"), json!({})).await.status, StatusCode::OK);
    assert_eq!(first.get(&path).await.body["status"], "pending");
    until(&second, &path, |job| job["status"] == "pending").await;
}

#[tokio::test]
async fn the_cluster_shows_its_nodes_their_terms_and_what_is_on_its_way() {
    let (first, second, ports) = two().await;
    second.register("w-1", &["default"]).await;
    let id = first.enqueue(json!({"type": "t"})).await;
    let run = second.take("w-1").await;
    second.report("w-1", &run, json!({"kind": "started"})).await;
    let owned = until(&first, "/v1/nodes/node-2/jobs", |response| response["jobs"][0].is_object()).await;
    assert_eq!((&owned["nodeId"], &owned["jobs"][0]["jobId"]), (&json!("node-2"), &json!(id)));
    assert_eq!(owned["jobs"][0]["ownership"], "owned");
    let job = id.parse().expect("an id");
    let execution = run["executionId"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    let from = NodeId::new("node-2").expect("a name");
    let offer = Reassign { job, execution, from, to: Handover::Offer };
    ports.store.reassign(vec![offer]).await.expect("it is offered");
    second.coordinator.drain();
    let cluster = until(&first, "/v1/cluster", |cluster| cluster["handoffsTotal"] == 1).await;
    let handoff = json!({"jobId": id, "executionId": run["executionId"], "type": "t", "queue": "default",
        "fromNode": "node-2", "ownership": "handingOff"});
    assert_eq!(cluster["handoffs"], json!([handoff]));
    assert_eq!((&cluster["leader"], &cluster["nodes"][0]["role"]), (&json!("node-1"), &json!("leader")));
    assert_eq!(cluster["nodes"][0]["epoch"], cluster["epoch"]);
    assert!(convoke_core::duration::parse(cluster["nodes"][1]["heartbeatAge"].as_str().expect("text")).is_ok());
    let node = until(&first, "/v1/nodes/node-2", |node| node["state"] == "draining").await;
    assert_eq!(node["role"], "follower");
    second.coordinator.stop().await;
    let cluster = until(&first, "/v1/cluster", |cluster| cluster["nodes"][1]["state"] == "left").await;
    assert_eq!(cluster["answeredBy"], "node-1");
    assert!(cluster["nodes"][1]["since"].as_str() > node["startedAt"].as_str(), "{cluster}");
    let backends: Vec<_> = cluster["backends"].as_array().expect("backends").iter().collect();
    assert!(backends.iter().all(|backend| backend["isReachable"] == true), "{cluster}");
    let left = first.post("/v1/nodes/node-2/drain", json!({})).await;
    assert_eq!((left.status, left.code()), (StatusCode::CONFLICT, "conflict"), "{}", left.body);
    assert_eq!(first.post("/v1/nodes/nobody/drain", json!({})).await.code(), "not_found");
    assert_eq!(first.get("/v1/nodes/nobody/jobs").await.code(), "not_found");
    assert_eq!(first.get("/v1/workers/nobody").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_node_that_is_asked_to_drain_does_whichever_node_is_asked() {
    let (first, second, _) = two().await;
    for (asked, id, leaving) in [(&first, "node-2", &second), (&first, "node-1", &first)] {
        let response = asked.post(&format!("/v1/nodes/{id}/drain"), json!({})).await;
        assert_eq!((response.status, &response.body["state"]), (StatusCode::ACCEPTED, &json!("draining")));
        leaving.coordinator.drain_requested().await;
        let again = asked.post(&format!("/v1/nodes/{id}/drain"), json!({})).await;
        assert_eq!(again.status, StatusCode::ACCEPTED, "it drains already");
    }
    let refused = first.post("/v1/nodes/node-2/drain", json!({"force": true})).await;
    assert_eq!((refused.status, refused.field()), (StatusCode::BAD_REQUEST, "force"));
}
