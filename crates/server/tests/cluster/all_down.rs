//! All coordinators are killed at once, with work in flight and more that waits, and start again.

use serde_json::{Value, json};
use uuid::Uuid;

use super::stage::Stage;
use super::traffic;

const BACKLOG: usize = 300;
/// Nobody works on it before all are back.
const WAITING: &str = "waiting";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost() {
    let mut stage = Stage::open().await;
    kill_all(&mut stage).await;
    stage.close().await;
}

pub async fn kill_all(stage: &mut Stage) {
    let ids: Vec<String> = (0..BACKLOG).map(|_| Uuid::now_v7().to_string()).collect();
    let jobs: Vec<Value> =
        ids.iter().map(|id| json!({ "id": id, "type": "plain", "queue": WAITING, "maxRetries": 20 })).collect();
    stage.fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    ids.iter().for_each(|id| stage.fleet.observations.acknowledged(id, "plain", WAITING));

    let all: Vec<usize> = stage.fleet.up().collect();
    for index in &all {
        stage.fleet.kill(*index).await;
    }
    for index in &all {
        stage.fleet.restart(*index).await;
    }
    stage.traffic.flows(60).await;
    let mut plan = traffic::plan("latecomer");
    plan.queues = vec![WAITING.into()];
    stage.fleet.start_worker(0, plan).await;
}
