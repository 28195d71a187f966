//! SIGTERM, or `convoke cluster drain`: a node that leaves hands over everything it owns before it is gone.

use convoke_testkit::process::Fleet;
use serde_json::json;

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_leaves_nothing_behind() {
    let mut stage = Stage::open().await;
    let leader = stage.fleet.leader().await;
    let leaving = stage.another_than(&[leader]);
    drain(&mut stage, leaving).await;
    assert_eq!(stage.fleet.leader().await, leader);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_resigns_first_and_leaves_nothing_behind() {
    let mut stage = Stage::open().await;
    drain_leader(&mut stage).await;
    stage.close().await;
}

pub async fn drain_leader(stage: &mut Stage) {
    let leaving = stage.fleet.leader().await;
    let before = stage.epoch(leaving).await;
    drain(stage, leaving).await;
    let next = stage.fleet.leader().await;
    assert!(next != leaving && stage.epoch(next).await > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_can_be_drained_through_any_node() {
    let mut stage = Stage::open().await;
    let leader = stage.fleet.leader().await;
    let follower = stage.another_than(&[leader]);
    // A follower through the leader, and the leader through a follower.
    for (leaving, asked) in [(follower, leader), (leader, follower)] {
        let id = stage.fleet.member(leaving).id.clone();
        let shown = stage.fleet.member(asked).node().cli().run(["cluster", "drain", &id]).await;
        let last = shown.expect(0).lines().last().map(str::to_owned);
        assert_eq!(last, Some(format!("{id} has left")), "{shown:?}");
        assert_eq!(stage.fleet.gone(leaving).await.code(), Some(0), "everything found another owner");
        owns_nothing(&stage, &id).await;
        let again = stage.fleet.member(asked).http().post(&format!("/v1/nodes/{id}/drain"), json!({})).await;
        let again = again.expect("a response");
        assert!(again.status == 409 && again.text().contains("left at"), "{}", again.text());
        stage.traffic.flows(60).await;
        stage.fleet.restart(leaving).await;
        stage.fleet.leader().await;
    }
    let shown = stage.fleet.member(leader).node().cli().run(["cluster", "drain", "node-9"]).await;
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(shown.stderr.contains("node \"node-9\" does not exist"), "{shown:?}");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_leads_long_before_it_would_read_the_lease_by_itself() {
    let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2);
    let builder = builder.set("cluster.lease_duration", "1h").set("cluster.renew_interval", "15m");
    let mut fleet = builder.start().await;
    let leaving = fleet.leader().await;
    assert_eq!(fleet.terminate(leaving).await.code(), Some(0));
    assert_ne!(fleet.leader().await, leaving);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_can_be_drained_through_itself() {
    let mut fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2).start().await;
    let leader = fleet.leader().await;
    let http = fleet.member(leader).http().clone();
    let id = fleet.member(leader).id.clone();
    let response = http.post(&format!("/v1/nodes/{id}/drain"), json!({})).await.expect("a response");
    assert_eq!((response.status, &response.json()["state"]), (202, &json!("draining")), "{}", response.text());
    assert_eq!(fleet.gone(leader).await.code(), Some(0));
    assert_ne!(fleet.leader().await, leader);
}

/// Terminates a node, checks that it owns nothing once it is gone, and starts it again.
async fn drain(stage: &mut Stage, leaving: usize) {
    let id = stage.fleet.member(leaving).id.clone();
    let status = stage.fleet.terminate(leaving).await;
    assert_eq!(status.code(), Some(0), "everything found another owner");
    owns_nothing(stage, &id).await;
    stage.traffic.flows(60).await;
    stage.fleet.restart(leaving).await;
}

async fn owns_nothing(stage: &Stage, id: &str) {
    let rows = stage.chronicler.rows().await;
    let left: Vec<_> = rows.iter().filter(|(_, row)| row.in_flight() && row.owned_by() == Some(id)).collect();
    assert!(left.is_empty(), "{id} is gone and still owns {left:?}");
}
