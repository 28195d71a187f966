//! A node that reaches the store and not the bus.

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_the_bus_gives_way() {
    let stage = Stage::open().await;
    let parted = stage.fleet.leader().await;
    let others = stage.others(parted);
    stage.fleet.member(parted).redis.cut();
    let next = stage.fleet.leader_according_to(&others).await;
    stage.traffic.flows(60).await;
    stage.fleet.member(parted).redis.heal();
    assert_eq!(stage.fleet.leader().await, next);
    stage.close().await;
}

/// Its connections stay open without traffic, which is harder to detect than a reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_hears_nothing_holds_up_nobody() {
    let mut stage = Stage::open().await;
    freeze_follower(&mut stage).await;
    stage.close().await;
}

pub async fn freeze_follower(stage: &mut Stage) {
    let leader = stage.fleet.leader().await;
    let parted = stage.another_than(&[leader]);
    stage.fleet.member(parted).redis.freeze();
    stage.traffic.flows(120).await;
    stage.fleet.member(parted).redis.heal();
}
