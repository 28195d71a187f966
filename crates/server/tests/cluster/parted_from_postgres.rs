//! A node that reaches the bus and not the store.

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_the_store_gives_way() {
    part_leader(Stage::open().await).await;
}

pub async fn part_leader(stage: Stage) {
    let parted = stage.fleet.leader().await;
    let others = stage.others(parted);
    stage.fleet.member(parted).postgres.cut();
    let next = stage.fleet.leader_according_to(&others).await;
    assert_ne!(next, parted);
    stage.traffic.flows(60).await;
    stage.fleet.member(parted).postgres.heal();
    assert_ne!(stage.fleet.leader().await, parted);
    stage.close().await;
}

/// Its connections stay open without traffic, which is harder to detect than a reset; its writes of that time arrive late.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_writes_come_late_spoils_nothing() {
    freeze_follower(Stage::open().await).await;
}

pub async fn freeze_follower(stage: Stage) {
    let leader = stage.fleet.leader().await;
    let parted = stage.another_than(&[leader]);
    stage.fleet.member(parted).postgres.freeze();
    stage.traffic.flows(120).await;
    stage.fleet.member(parted).postgres.heal();
    stage.close().await;
}
