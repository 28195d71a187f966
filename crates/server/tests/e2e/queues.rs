//! Queues: paused, limited, counted.

use std::time::Duration;

use convoke_testkit::invariants::Observations;
use convoke_testkit::process::{GatewayWorker, Handling, Node, Plan, eventually};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::server;

async fn patch(node: &Node, queue: &str, change: Value) -> Value {
    node.http().send("PATCH", &format!("/v1/queues/{queue}"), Some(change)).await.expect("a response").expect(200)
}

fn complete(id: &str, queue: &str) -> Plan {
    Plan::new(id, queue, |_| Handling::Complete(Value::Null))
}

#[tokio::test]
async fn a_paused_queue_keeps_its_jobs_and_hinders_no_other() {
    let node = server().start().await;
    assert_eq!(patch(&node, "paused", json!({ "paused": true })).await["paused"], true, "a patch creates a queue");
    let waiting = node.enqueued(json!({ "type": "t", "queue": "paused" })).await;
    let other = node.enqueued(json!({ "type": "t", "queue": "open" })).await;
    let observations = Observations::default();
    let plan = Plan { queues: vec!["paused".into(), "open".into()], ..complete("w", "paused") };
    let _worker = GatewayWorker::start(node.http(), &observations, plan).await;
    node.job_when(&other, &["completed"]).await;
    assert_eq!(node.job(&waiting).await["status"], "pending");
    patch(&node, "paused", json!({ "paused": false })).await;
    node.job_when(&waiting, &["completed"]).await;
}

#[tokio::test]
async fn a_rate_limit_holds_over_any_window_and_across_a_restart() {
    let mut node = server().start().await;
    patch(&node, "q", json!({ "rateLimit": { "limit": 5, "per": "1s" } })).await;
    let jobs: Vec<_> = (0..20).map(|_| json!({ "type": "t", "queue": "q" })).collect();
    node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let observations = Observations::default();
    let _worker = GatewayWorker::start(node.http(), &observations, complete("w", "q")).await;
    observations.until(|entries| entries.runs.len() >= 4).await;
    node.restart().await;
    observations.until(|entries| entries.reports.iter().filter(|it| it.kind == "completed").count() >= 20).await;
    let mut times: Vec<Timestamp> = Vec::new();
    for job in node.all("/v1/jobs", "jobs").await {
        times.push(job["dispatchedAt"].as_str().expect("a time").parse().expect("an instant"));
    }
    times.sort();
    for window in times.windows(6) {
        let span = window[5].duration_since(window[0]);
        assert!(span.as_millis() >= 1_000, "six dispatches within {span:?}: {times:?}");
    }
}

#[tokio::test]
async fn a_limit_over_all_queues_holds_over_any_window_and_serves_each_of_them() {
    let node = server().set("rate_limit.global", "4/1s").set("rate_limit.default", "1000/1s").start().await;
    let names = ["a", "b", "c"];
    let jobs: Vec<_> = names.into_iter().flat_map(|name| vec![json!({ "type": "t", "queue": name }); 6]).collect();
    node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let observations = Observations::default();
    let plan = Plan { queues: names.map(String::from).to_vec(), ..complete("w", "a") };
    let _worker = GatewayWorker::start(node.http(), &observations, plan).await;
    observations.until(|entries| entries.reports.iter().filter(|it| it.kind == "completed").count() >= 18).await;
    let mut runs: Vec<(Timestamp, String)> = Vec::new();
    for job in node.all("/v1/jobs", "jobs").await {
        let at = job["dispatchedAt"].as_str().expect("a time").parse().expect("an instant");
        runs.push((at, job["queue"].as_str().expect("a name").to_owned()));
    }
    runs.sort();
    for window in runs.windows(5) {
        let span = window[4].0.duration_since(window[0].0);
        assert!(span.as_millis() >= 1_000, "five dispatches within {span:?}: {runs:?}");
    }
    for name in names {
        assert!(runs[..9].iter().any(|(_, queue)| queue == name), "{name} waits for the others: {runs:?}");
    }
    let cluster = node.http().get("/v1/cluster").await.expect("a response").expect(200);
    assert_eq!(cluster["rateLimits"]["global"], json!({ "limit": 4, "per": "1s" }));
    let queue = node.http().get("/v1/queues/a").await.expect("a response").expect(200);
    let default = json!({ "limit": 1000, "per": "1s" });
    assert_eq!((&queue["rateLimit"], &queue["effectiveRateLimit"]), (&Value::Null, &default));
}

#[tokio::test]
async fn a_concurrency_limit_holds_across_workers() {
    let node = server().start().await;
    patch(&node, "q", json!({ "concurrency": 2 })).await;
    let jobs: Vec<_> = (0..12).map(|_| json!({ "type": "t", "queue": "q" })).collect();
    node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let observations = Observations::default();
    let slow = |id: &str| Plan::new(id, "q", |_| Handling::CompleteAfter(Duration::from_millis(50), Value::Null));
    let one = GatewayWorker::start(node.http(), &observations, slow("one")).await;
    let two = GatewayWorker::start(node.http(), &observations, slow("two")).await;
    let mut most = 0;
    eventually("all to end", || {
        most = most.max(one.running().len() + two.running().len());
        let done = observations.entries().reports.iter().filter(|it| it.kind == "completed").count();
        async move { (done == 12).then_some(()) }
    })
    .await;
    assert!((1..=2).contains(&most), "{most} at once");
}

#[tokio::test]
async fn a_queue_without_workers_says_so() {
    let node = server().start().await;
    node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let queue = eventually("the age of what waits", || async {
        let queue = node.http().get("/v1/queues/q").await.ok()?.json();
        queue["oldestPendingAge"].is_string().then_some(queue)
    })
    .await;
    assert_eq!((&queue["workers"], &queue["counts"]["pending"]), (&json!(0), &json!(1)));
    let all = node.http().get("/v1/queues").await.expect("a response").expect(200);
    assert_eq!(all["queues"][0]["name"], "q");
    assert_eq!(node.metric("convoke_queue_depth", &["queue=\"q\"", "status=\"pending\""]).await, 1.0);
}
