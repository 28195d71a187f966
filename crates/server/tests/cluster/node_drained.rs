//! SIGTERM: a node that leaves hands over everything it owns before it is gone.

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
    let leaving = stage.fleet.leader().await;
    let before = stage.epoch(leaving).await;
    drain(&mut stage, leaving).await;
    let next = stage.fleet.leader().await;
    assert!(next != leaving && stage.epoch(next).await > before);
    stage.close().await;
}

/// Terminates a node, looks at what is in its name once it is gone, and starts it again.
async fn drain(stage: &mut Stage, leaving: usize) {
    let id = stage.fleet.member(leaving).id.clone();
    let status = stage.fleet.terminate(leaving).await;
    assert_eq!(status.code(), Some(0), "everything found another owner");
    let rows = stage.chronicler.rows().await;
    let left: Vec<_> = rows.iter().filter(|(_, row)| row.in_flight() && row.owned_by() == Some(id.as_str())).collect();
    assert!(left.is_empty(), "{id} is gone and still owns {left:?}");
    stage.traffic.flows(60).await;
    stage.fleet.restart(leaving).await;
}
