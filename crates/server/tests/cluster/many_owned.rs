//! What a node costs does not grow with what it owns: ten thousand runs take the threads and connections of a hundred.

use convoke_testkit::process::{Fleet, Footprint, eventually};
use serde_json::json;

const FEW: usize = 100;
const MANY: usize = 10_000;
const BATCH: usize = 900;
/// Threads that a runtime keeps for a while after it needed them, and a store's pool that was busier: far fewer than one for
/// each hundred runs.
const SLACK: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_runs_need_no_more_than_a_hundred() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let worker = fleet.bus_worker("bus", "bus", MANY).await;
    enqueue(&fleet, FEW).await;
    let few = owning(&fleet, FEW).await;
    let mut left = MANY - FEW;
    while left > 0 {
        let count = left.min(BATCH);
        enqueue(&fleet, count).await;
        left -= count;
    }
    let many = owning(&fleet, MANY).await;
    println!("with {FEW} runs {few:?}, with {MANY} {many:?}");
    assert_eq!(worker.held().len(), MANY);
    assert_eq!(many.redis, few.redis, "connections to the bus");
    assert!(many.postgres <= few.postgres + SLACK, "connections to the store: {few:?}, {many:?}");
    assert!(many.threads <= few.threads + SLACK, "threads: {few:?}, {many:?}");
    // And each of them is heard.
    worker.let_go();
    eventually("the ends of all", || async {
        let queue = fleet.any().read("/v1/queues/bus").await;
        (queue["counts"]["completed"] == MANY).then_some(())
    })
    .await;
}

async fn owning(fleet: &Fleet, count: usize) -> Footprint {
    eventually("that so many are owned", || async {
        (fleet.metric("convoke_owned_jobs", &[]).await as usize == count).then_some(())
    })
    .await;
    fleet.member(0).footprint()
}

async fn enqueue(fleet: &Fleet, count: usize) {
    let jobs = vec![json!({ "type": "held", "queue": "bus" }); count];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("an answer").expect(201);
}
