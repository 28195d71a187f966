//! SIGKILL of a follower: its runs are found and owned again, its workers go to another node.

use convoke_testkit::process::eventually;

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn its_runs_find_another_owner_and_a_new_node_takes_its_place() {
    let mut stage = Stage::open().await;
    kill_follower(&mut stage).await;
    stage.close().await;
}

pub async fn kill_follower(stage: &mut Stage) {
    let leader = stage.fleet.leader().await;
    let follower = stage.another_than(&[leader]);
    let id = stage.fleet.member(follower).id.clone();
    // Killed while it has something to lose.
    eventually("runs that the follower owns", || async {
        let rows = stage.chronicler.rows().await;
        rows.values().any(|row| row.in_flight() && row.owned_by() == Some(id.as_str())).then_some(())
    })
    .await;
    stage.fleet.kill(follower).await;
    stage.traffic.flows(60).await;
    stage.fleet.join("node-4").await;
    eventually("that it is struck off, with nothing left in its name", || async {
        let rows = stage.chronicler.rows().await;
        let left = rows.values().any(|row| row.in_flight() && row.owned_by() == Some(id.as_str()));
        let nodes = stage.fleet.any().get("/v1/nodes").await.ok()?.json();
        let known =
            nodes["nodes"].as_array()?.iter().any(|node| node["nodeId"] == id.as_str() && node["state"] == "active");
        (!left && !known).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_starts_again_at_once_under_its_id_goes_on_with_what_it_owned() {
    let mut stage = Stage::open().await;
    let leader = stage.fleet.leader().await;
    let follower = stage.another_than(&[leader]);
    stage.fleet.kill(follower).await;
    stage.fleet.restart(follower).await;
    assert_eq!(stage.fleet.leader().await, leader, "nobody else was concerned");
    stage.close().await;
}
