//! SIGTERM: what is under way ends well, and the exit says so.

use std::time::Duration;

use convoke_testkit::invariants::Ledger;
use convoke_testkit::process::{GatewayWorker, Handling, Plan, Signal, eventually};
use serde_json::{Value, json};

use super::server;

#[tokio::test]
async fn a_server_alone_exits_at_once_with_0_and_keeps_what_it_has() {
    let mut node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    // A poll that waits must not hold it up.
    let http = node.http().clone();
    let body = json!({ "workerId": "w", "name": "w", "queues": ["other"], "concurrency": 1 });
    http.post("/v1/worker/register", body).await.expect("an answer").expect(200);
    let poll =
        tokio::spawn(
            async move { http.post("/v1/worker/poll", json!({ "workerId": "w", "max": 1, "wait": "60s" })).await },
        );
    eventually("the poll to wait", || async {
        let workers = node.http().get("/v1/workers").await.ok()?.json();
        (workers["workers"][0]["workerId"] == "w").then_some(())
    })
    .await;
    node.signal(Signal::TERM);
    assert_eq!(node.program().wait().await.code(), Some(0));
    if let Ok(Ok(answer)) = poll.await {
        assert!(matches!(answer.status, 200 | 503), "{} {}", answer.status, answer.text());
    }
    node.restart().await;
    assert_eq!(node.job(&id).await["status"], "pending");
}

#[tokio::test]
async fn a_run_survives_the_restart_of_its_server() {
    let mut node = server().set("worker.stale_after", "30s").start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let ledger = Ledger::default();
    let plan = Plan::new("w", "q", |_| Handling::CompleteAfter(Duration::from_millis(800), json!("done")));
    let _worker = GatewayWorker::start(node.http(), &ledger, plan).await;
    let execution = node.job_when(&id, &["running"]).await["executionId"].clone();
    node.signal(Signal::TERM);
    assert_eq!(node.program().wait().await.code(), Some(0));
    node.restart().await;
    let job = node.job_when(&id, &["completed"]).await;
    assert_eq!((&job["executionId"], &job["attempt"]), (&execution, &json!(1)), "the same run, not a second one");
    assert_eq!(job["result"], "done");
}

#[tokio::test]
async fn a_worker_finishes_what_it_has_before_it_leaves() {
    let node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let mut worker = node.exec_worker("q", "until [ -e go ]; do sleep 0.02; done");
    node.job_when(&id, &["running"]).await;
    worker.signal(Signal::TERM);
    let later = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    std::fs::write(node.settings().directory().join("go"), "").expect("a file");
    assert_eq!(worker.wait().await.code(), Some(0));
    assert_eq!(node.job(&id).await["status"], "completed");
    let later = node.job(&later).await;
    assert_eq!((&later["status"], &later["attempt"]), (&json!("pending"), &json!(0)), "it takes nothing new");
    let workers = node.http().get("/v1/workers").await.expect("an answer").expect(200);
    let live = |worker: &&Value| worker["state"] == "active";
    assert_eq!(workers["workers"].as_array().expect("workers").iter().filter(live).count(), 0, "{workers}");
}
