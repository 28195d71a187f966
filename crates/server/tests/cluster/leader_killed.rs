//! SIGKILL of the leader.

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn another_leads_and_the_killed_one_comes_back_as_a_follower() {
    let mut stage = Stage::open().await;
    kill_leader(&mut stage).await;
    stage.close().await;
}

pub async fn kill_leader(stage: &mut Stage) {
    let leader = stage.fleet.leader().await;
    let before = stage.epoch(leader).await;
    let killed = std::time::Instant::now();
    stage.fleet.kill(leader).await;
    let next = stage.fleet.leader().await;
    println!("another led {:?} after the leader was killed", killed.elapsed());
    assert_ne!(next, leader);
    assert!(stage.epoch(next).await > before, "epochs rise");
    stage.traffic.flows(60).await;
    stage.fleet.restart(leader).await;
    assert_eq!(stage.fleet.leader().await, next, "a term is not given up to one who comes back");
}
