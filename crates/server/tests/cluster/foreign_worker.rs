//! A worker that nobody here wrote, and that does no more than Redis asks of a consumer, is served as any other.

use convoke_testkit::process::{Fleet, settle};
use serde_json::json;

const JOBS: usize = 50;

/// It acknowledges and does not delete: what it is done with still lies on the channel, and is no work that waits.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_acknowledges_is_given_every_job_and_leaves_nothing_behind() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let worker = fleet.bus_worker("foreign", "plain", 2).await;
    worker.only_ack();
    worker.let_go();
    let jobs = vec![json!({ "type": "plain", "queue": "plain" }); JOBS];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("an answer").expect(201);
    settle("completed jobs", json!(JOBS), || async {
        fleet.any().read("/v1/queues/plain").await["counts"]["completed"].clone()
    })
    .await;
    let channel = format!("{}.job.dispatch.plain", fleet.prefix());
    settle("entries on the channel", 0, || fleet.bus_length(&channel)).await;
}
