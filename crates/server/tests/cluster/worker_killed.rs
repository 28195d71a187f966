//! A worker dies with its hands full.

use convoke_testkit::process::eventually;

use super::stage::Stage;
use super::traffic;

#[tokio::test(flavor = "multi_thread")]
async fn its_runs_are_lost_and_run_again_elsewhere() {
    let mut stage = Stage::open().await;
    kill_worker(&mut stage).await;
    stage.close().await;
}

pub async fn kill_worker(stage: &mut Stage) {
    let held = eventually("a worker with runs", || async {
        let running = stage.fleet.worker(0).running();
        (!running.is_empty()).then_some(running)
    })
    .await;
    stage.fleet.drop_worker(0);
    stage.traffic.flows(60).await;
    let lead = stage.fleet.leader().await;
    stage.fleet.start_worker(lead, traffic::plan("successor")).await;
    for job in held.values() {
        eventually("the end of what the dead worker had", || async {
            let job = stage.fleet.any().read(&format!("/v1/jobs/{job}")).await;
            job["completedAt"].is_string().then_some(())
        })
        .await;
    }
}
