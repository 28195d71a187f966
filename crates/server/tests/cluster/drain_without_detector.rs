//! SIGTERM while no leader searches for orphans: runs of a node have another owner before it is gone, by the handoff alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_testkit::process::{Fleet, Handling, Plan, eventually, wait_for_value};
use serde_json::{Value, json};

const BY_BUS: usize = 60;
const BY_GATEWAY: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn every_run_has_a_live_owner_before_the_node_is_gone_and_none_runs_twice() {
    let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke"));
    let mut fleet = builder.set("cluster.orphan_check_interval", "1h").start().await;
    let chronicler = fleet.chronicler().await;
    let leaving = fleet.follower().await;
    let id = fleet.member(leaving).id.clone();
    let go_on = Arc::new(AtomicBool::new(false));
    let waits = go_on.clone();
    let plan = Plan::new("gate", "gate", move |_| Handling::CompleteOnce(waits.clone(), Value::Null));
    fleet.start_worker(leaving, plan.concurrency(100)).await;
    let worker = fleet.bus_worker("bus", "bus", 100).await;
    enqueue(&fleet, "bus", BY_BUS).await;
    enqueue(&fleet, "gate", BY_GATEWAY).await;
    let before = eventually("runs of all kinds that the node owns", || async {
        let rows = chronicler.rows().await;
        let all_begun = rows.values().all(|row| row.in_flight() && row.owned_by().is_some());
        let own = rows.values().filter(|row| row.owned_by() == Some(id.as_str())).count();
        (all_begun && rows.len() == BY_BUS + BY_GATEWAY && own > BY_GATEWAY).then_some(rows)
    })
    .await;

    assert_eq!(fleet.terminate(leaving).await.code(), Some(0), "everything found another owner");
    let live: BTreeSet<String> = fleet.up().map(|index| fleet.member(index).id.clone()).collect();
    let after = chronicler.rows().await;
    for (job, was) in &before {
        let is = &after[job];
        assert!(is.owned_by().is_some_and(|owner| live.contains(owner)), "job {job} is {is:?}");
        assert_eq!((&is.execution, is.attempt), (&was.execution, was.attempt), "job {job} goes on");
    }

    go_on.store(true, Ordering::Relaxed);
    worker.release_all();
    wait_for_value("jobs by how they stand", vec![(json!("completed"), json!(1)); BY_BUS + BY_GATEWAY], || async {
        let jobs = fleet.any().all("/v1/jobs", "jobs").await;
        jobs.into_iter().map(|job| (job["status"].clone(), job["attempt"].clone())).collect()
    })
    .await;
}

async fn enqueue(fleet: &Fleet, queue: &str, count: usize) {
    let jobs = vec![json!({ "type": "held", "queue": queue }); count];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
}
