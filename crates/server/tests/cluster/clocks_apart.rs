//! Machines whose wall clocks are ten minutes apart.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke_testkit::process::{Fleet, eventually};
use serde_json::Value;

/// A fraction of a heartbeat.
const READ_PAUSE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_beat_stay_and_one_that_died_is_found() {
    // The leader is ahead of one node and further ahead of the other.
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).set_on("node-1", "failpoint", "clock:300");
    let mut fleet = fleet.set_on("node-3", "failpoint", "clock:-300").start().await;
    fleet.join("node-2").await;
    let behind = fleet.join("node-3").await;
    let leader = fleet.leader().await;
    assert_eq!(fleet.member(leader).id, "node-1");
    let http = fleet.member(leader).http().clone();
    let mut events = http.sse("/v1/events?types=node").await.expect("a stream");

    let mut heartbeats = ["node-2", "node-3"].map(|id| (id, BTreeSet::new()));
    // The leader searches for dead nodes more often than once in two heartbeats.
    while heartbeats.iter().any(|(_, heartbeats)| heartbeats.len() < 20) {
        for (id, heartbeats) in &mut heartbeats {
            let node = http.read(&format!("/v1/nodes/{id}")).await;
            heartbeats.insert(node["lastHeartbeatAt"].as_str().expect("an instant").to_owned());
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
    fleet.kill(behind).await;
    let dead = events.wait_for("a dead node", |event| event.json()["event"] == "node:dead").await.json();
    assert_eq!(dead["nodeId"], "node-3", "the first node that was declared dead is the one that was killed");
    eventually("a registry in which two nodes are active", || async {
        let nodes = http.read("/v1/nodes").await;
        let active = |node: &&Value| node["state"] == "active";
        let active: Vec<_> =
            nodes["nodes"].as_array()?.iter().filter(active).map(|node| node["nodeId"].clone()).collect();
        (active == ["node-1", "node-2"]).then_some(())
    })
    .await;
}
