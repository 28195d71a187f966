//! Runs with a timeout on machines whose wall clocks are minutes apart.

use convoke_testkit::process::{Fleet, wait_for_value};
use serde_json::{Value, json};

/// The leader is ahead of the node that owns, or behind it. Which of them owns a run of a bus worker is open, so there are many.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_its_whole_timeout_and_no_more() {
    const JOBS: usize = 20;
    for (ahead, behind) in [("clock:300", "clock:-300"), ("clock:-3", "clock:3")] {
        let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).set_on("node-1", "failpoint", ahead);
        let mut fleet = fleet.set_on("node-2", "failpoint", behind).start().await;
        fleet.join("node-2").await;
        assert_eq!(fleet.member(fleet.leader().await).id, "node-1");
        let counts = |queue: &'static str, status: &'static str| {
            let http = fleet.any().clone();
            async move { http.read(&format!("/v1/queues/{queue}")).await["counts"][status].clone() }
        };
        let enqueue = async |queue: &str, timeout: &str| {
            let job = json!({ "type": "held", "queue": queue, "timeout": timeout, "maxRetries": 0 });
            let jobs: Vec<Value> = vec![job; JOBS];
            fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
        };
        let worker = fleet.bus_worker("in-time", "in-time", JOBS).await;
        enqueue("in-time", "60s").await;
        wait_for_value("runs in time", json!(JOBS), || counts("in-time", "running")).await;
        let late = fleet.bus_worker("late", "late", JOBS).await;
        enqueue("late", "1s").await;
        // By then the leader has checked the others many times.
        wait_for_value("runs that took too long", json!(JOBS), || counts("late", "timedOut")).await;
        assert_eq!(counts("in-time", "running").await, json!(JOBS));
        worker.release_all();
        wait_for_value("runs in time", json!(JOBS), || counts("in-time", "completed")).await;
        drop(late);
    }
}
