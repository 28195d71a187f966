//! A node that reaches the bus and not the store.

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_the_store_gives_way() {
    let mut stage = Stage::open().await;
    part_leader(&mut stage).await;
    stage.close().await;
}

pub async fn part_leader(stage: &mut Stage) {
    let parted = stage.fleet.leader().await;
    let others = stage.others(parted);
    stage.fleet.member(parted).postgres.cut();
    let next = stage.fleet.leader_according_to(&others).await;
    assert_ne!(next, parted);
    stage.traffic.flows(60).await;
    stage.fleet.member(parted).postgres.heal();
    assert_ne!(stage.fleet.leader().await, parted);
}

/// Its connections stay open without traffic, which is harder to detect than a reset; its writes of that time arrive late.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_writes_come_late_spoils_nothing() {
    let mut stage = Stage::open().await;
    freeze_follower(&mut stage).await;
    stage.close().await;
}

pub async fn freeze_follower(stage: &mut Stage) {
    let leader = stage.fleet.leader().await;
    let parted = stage.another_than(&[leader]);
    stage.fleet.member(parted).postgres.freeze();
    stage.traffic.flows(120).await;
    stage.fleet.member(parted).postgres.heal();
}
