//! Redis is killed and comes back with nothing: all that was on the bus is gone.

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn every_job_still_ends() {
    let mut stage = Stage::open().await;
    stage.fleet.redis().restart_empty().await;
    stage.traffic.flows(60).await;
    stage.close().await;
}

/// Away for longer than a lease, so that every node has noticed.
#[tokio::test(flavor = "multi_thread")]
async fn every_job_still_ends_when_it_was_away_for_a_while() {
    let mut stage = Stage::open().await;
    empty_after_a_while(&mut stage).await;
    stage.close().await;
}

pub async fn empty_after_a_while(stage: &mut Stage) {
    stage.fleet.redis().kill().await;
    // How long it is away is the fault itself.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    stage.fleet.redis().restart_empty().await;
    stage.traffic.flows(60).await;
}
