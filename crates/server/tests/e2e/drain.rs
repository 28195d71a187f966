//! SIGTERM: requests and runs in flight end well, and the exit code shows it.

use std::time::Duration;

use convoke_testkit::invariants::Observations;
use convoke_testkit::process::{GatewayWorker, Handling, Node, Plan, Signal, eventually, wait_for_value};
use serde_json::{Value, json};

use super::server;

#[tokio::test]
async fn a_server_alone_exits_at_once_with_0_and_keeps_what_it_has() {
    let mut node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    // A poll that waits must not hold it up.
    let http = node.http().clone();
    let body = json!({ "workerId": "w", "name": "w", "queues": ["other"], "concurrency": 1 });
    http.post("/v1/worker/register", body).await.expect("a response").expect(200);
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
    if let Ok(Ok(response)) = poll.await {
        assert!(matches!(response.status, 200 | 503), "{} {}", response.status, response.text());
    }
    node.restart().await;
    assert_eq!(node.job(&id).await["status"], "pending");
}

#[tokio::test]
async fn a_run_survives_the_restart_of_its_server() {
    let mut node = server().set("worker.stale_after", "30s").start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let observations = Observations::default();
    let plan = Plan::new("w", "q", |_| Handling::CompleteAfter(Duration::from_millis(800), json!("done")));
    let _worker = GatewayWorker::start(node.http(), &observations, plan).await;
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
    let stopping = worker.line("that it stops", |line| line.contains("stopping").then_some(())).await;
    assert_eq!(stopping, Some(()));
    let later = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    std::fs::write(node.settings().directory().join("go"), "").expect("a file");
    assert_eq!(worker.wait().await.code(), Some(0));
    assert_eq!(node.job(&id).await["status"], "completed");
    wait_for_value("active workers", 0, || active_workers(&node)).await;
    let waiting = node.job_when(&later, &["pending"]).await;
    assert_eq!(waiting["attempt"], 0, "it takes nothing new, and a queue without workers keeps its jobs pending");
    let _next = node.exec_worker("q", "true");
    let done = node.job_when(&later, &["completed"]).await;
    assert_eq!(done["attempt"], 1);
    assert_ne!(done["workerId"], node.job(&id).await["workerId"]);
    // The runs on their way to the leaving worker were released.
    let mut before = node.history(&later).await;
    before.pop();
    assert!(before.iter().all(|run| run["status"] == "released"), "{before:?}");
}

#[tokio::test]
async fn what_a_worker_cannot_finish_within_its_grace_goes_back_at_once_and_does_not_count() {
    // Were the run only found when its worker is stale, this would take ten minutes.
    let node = server().set("worker.stale_after", "10m").start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q", "maxRetries": 0 })).await;
    let command = "echo $$ > pid; until [ -e go ]; do sleep 0.02; done";
    let args = ["worker", "run", "--queue", "q", "--shutdown-grace", "100ms", "--exec", command];
    let mut worker = node.start_process("convoke worker run", args);
    let first = node.job_when(&id, &["running"]).await;
    let pid_file = node.settings().directory().join("pid");
    let pid = eventually("the command to print its id", || async {
        std::fs::read_to_string(&pid_file).ok().filter(|text| text.ends_with('\n'))
    })
    .await;
    worker.signal(Signal::TERM);
    let job = node.job_when(&id, &["pending"]).await;
    assert_eq!((&job["attempt"], &job["error"]), (&json!(0), &Value::Null), "released, not failed");
    assert_eq!(worker.wait().await.code(), Some(0));
    eventually("the end of the command, which must not outlive its worker", || async {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // A process that has ended may still wait for its parent.
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    })
    .await;
    wait_for_value("active workers", 0, || active_workers(&node)).await;
    let _next = node.exec_worker("q", "true");
    let job = node.job_when(&id, &["completed"]).await;
    assert_eq!(job["attempt"], 1, "with no retries at all there was one run left");
    assert_ne!(job["executionId"], first["executionId"]);
}

async fn active_workers(node: &Node) -> usize {
    let workers = node.http().get("/v1/workers").await.expect("a response").expect(200);
    workers["workers"].as_array().expect("workers").iter().filter(|worker| worker["state"] == "active").count()
}
