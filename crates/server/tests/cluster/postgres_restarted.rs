//! PostgreSQL is restarted as by `pg_ctl -m immediate`, in the middle of commits.

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_and_ends() {
    let mut stage = Stage::open_durable().await;
    restart_postgres(&mut stage).await;
    stage.close().await;
}

pub async fn restart_postgres(stage: &mut Stage) {
    stage.fleet.postgres.restart_immediate().await;
    stage.traffic.flows(60).await;
    stage.fleet.postgres.restart_immediate().await;
    stage.traffic.flows(60).await;
}
