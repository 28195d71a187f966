//! A job's life over HTTP: what is promised about enqueueing, retrying, cancelling and finding.

use std::collections::BTreeSet;

use convoke_testkit::invariants::{Observations, Seen, jobs_hold};
use convoke_testkit::process::{GatewayWorker, Handling, Plan};
use serde_json::{Value, json};

use super::server;

#[tokio::test]
async fn a_job_is_shown_as_the_interface_says() {
    let node = server().start().await;
    let spec = json!({
        "type": "email.send", "queue": "email", "args": { "to": "a@b.c" }, "priority": "high", "maxRetries": 7,
        "timeout": "30s", "correlationId": "order-1", "uniqueKey": "mail-1", "retryPolicy": { "initialDelay": "1s" },
    });
    let response = node.enqueue(spec).await;
    let job = response.expect(201);
    let mut fields: Vec<&str> = job.as_object().expect("an object").keys().map(String::as_str).collect();
    fields.sort_unstable();
    let mut expected = vec![
        "id",
        "type",
        "queue",
        "status",
        "priority",
        "args",
        "attempt",
        "retryCount",
        "maxRetries",
        "executionId",
        "ownerNode",
        "workerId",
        "correlationId",
        "uniqueKey",
        "timeout",
        "progress",
        "result",
        "error",
        "createdAt",
        "scheduledAt",
        "dispatchedAt",
        "startedAt",
        "completedAt",
        "channelsCleaned",
        "ownership",
        "retryPolicy",
    ];
    expected.retain(|field| !fields.contains(field));
    assert!(expected.is_empty(), "missing {expected:?} in {job}");
    assert_eq!(
        (&job["status"], &job["args"], &job["timeout"]),
        (&json!("pending"), &json!({ "to": "a@b.c" }), &json!("30s"))
    );
    let id = job["id"].as_str().expect("an id");
    assert_eq!(uuid::Uuid::parse_str(id).expect("a UUID").get_version_num(), 7);
    assert_eq!(node.job(id).await, job);
}

#[tokio::test]
async fn the_same_unique_key_finds_the_first_while_it_is_live() {
    let node = server().start().await;
    let spec = json!({ "type": "t", "queue": "q", "uniqueKey": "k" });
    let first = node.enqueue(spec.clone()).await.expect(201);
    let again = node.enqueue(spec.clone()).await.expect(200);
    assert_eq!(again["id"], first["id"]);
    let batch =
        json!({ "jobs": [spec, { "type": "t", "queue": "q", "uniqueKey": "l" }, { "type": "t", "uniqueKey": "l" }] });
    let response = node.http().post("/v1/jobs/batch", batch).await.expect("a response").expect(201);
    let created: Vec<_> = response["jobs"].as_array().expect("jobs").iter().map(|job| job["created"].clone()).collect();
    assert_eq!(created, [false, true, false]);
    assert_eq!(response["jobs"][0]["id"], first["id"]);
    assert_eq!(response["jobs"][1]["id"], response["jobs"][2]["id"]);
    let path = format!("/v1/jobs/{}/cancel", first["id"].as_str().expect("an id"));
    node.http().post(&path, json!({})).await.expect("a response").expect(200);
    let next = node.enqueue(json!({ "type": "t", "queue": "q", "uniqueKey": "k" })).await.expect(201);
    assert_ne!(next["id"], first["id"]);
}

#[tokio::test]
async fn an_enqueue_that_is_sent_again_with_its_id_is_one_job() {
    let node = server().start().await;
    let spec = json!({ "type": "t", "id": uuid::Uuid::now_v7() });
    node.enqueue(spec.clone()).await.expect(201);
    node.enqueue(spec).await.expect(200);
    assert_eq!(node.all("/v1/jobs", "jobs").await.len(), 1);
}

#[tokio::test]
async fn higher_priorities_overtake() {
    let node = server().start().await;
    for priority in ["low", "normal", "high", "critical"] {
        node.enqueued(json!({ "type": priority, "queue": "q", "priority": priority })).await;
    }
    let observations = Observations::default();
    let plan = Plan::new("w", "q", |_| Handling::Complete(Value::Null)).concurrency(1);
    let _worker = GatewayWorker::start(node.http(), &observations, plan).await;
    observations.until(|entries| entries.runs.len() == 4).await;
    let mut order = Vec::new();
    for run in observations.entries().runs {
        order.push(node.job(&run.job).await["priority"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(order, ["critical", "high", "normal", "low"]);
}

#[tokio::test]
async fn a_delayed_job_waits_for_its_time() {
    let node = server().start().await;
    let far = node.enqueue(json!({ "type": "t", "queue": "q", "delay": "1h" })).await.expect(201);
    assert_eq!(far["status"], "scheduled");
    let at: jiff::Timestamp = far["scheduledAt"].as_str().expect("a time").parse().expect("an instant");
    let created: jiff::Timestamp = far["createdAt"].as_str().expect("a time").parse().expect("an instant");
    assert_eq!(at.duration_since(created).as_secs(), 3600);
    let near = node.enqueued(json!({ "type": "t", "queue": "q", "delay": "300ms" })).await;
    let observations = Observations::default();
    let plan = Plan::new("w", "q", |_| Handling::Complete(Value::Null));
    let _worker = GatewayWorker::start(node.http(), &observations, plan).await;
    let done = node.job_when(&near, &["completed"]).await;
    assert!(done["dispatchedAt"].as_str() >= done["scheduledAt"].as_str(), "{done}");
    assert_eq!(node.job(far["id"].as_str().expect("an id")).await["status"], "scheduled");
}

#[tokio::test]
async fn failures_are_retried_then_dead_and_can_be_redriven() {
    let node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q", "maxRetries": 2 })).await;
    let hopeless = node.enqueued(json!({ "type": "t", "queue": "hopeless", "maxRetries": 5 })).await;
    let observations = Observations::default();
    let failing = Plan::new("w", "q", |_| Handling::Fail("no luck".into()));
    let worker = GatewayWorker::start(node.http(), &observations, failing).await;
    let never = Plan::new("v", "hopeless", |_| Handling::FailForGood("never".into()));
    let _never = GatewayWorker::start(node.http(), &observations, never).await;
    let job = node.job_when(&id, &["failed"]).await;
    assert_eq!((&job["attempt"], &job["retryCount"], &job["error"]), (&json!(3), &json!(2), &json!("no luck")));
    assert_eq!(node.job_when(&hopeless, &["failed"]).await["attempt"], 1, "retry:false means it");
    jobs_hold(&observations, &Seen::of(&node).await);
    drop(worker);

    let better = Plan::new("better", "q", |_| Handling::Complete(json!("at last")));
    let _better = GatewayWorker::start(node.http(), &observations, better).await;
    let body = json!({ "queue": "q" });
    let response = node.http().post("/v1/dead-letters/retry", body).await.expect("a response").expect(200);
    assert_eq!(response["retried"], 1);
    let job = node.job_when(&id, &["completed"]).await;
    assert_eq!(job["result"], "at last");
    assert_eq!(
        node.history(&id).await.len(),
        job["attempt"].as_u64().expect("attempts") as usize,
        "its lineage is kept"
    );
    let response =
        node.http().post("/v1/dead-letters/purge", json!({ "all": true })).await.expect("a response").expect(200);
    assert_eq!(response["purged"], 1);
    assert_eq!(node.http().get(&format!("/v1/jobs/{hopeless}")).await.expect("a response").status, 404);
}

#[tokio::test]
async fn what_has_ended_is_not_ended_again() {
    let node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let plan = Plan::new("w", "q", |_| Handling::Complete(Value::Null));
    let _worker = GatewayWorker::start(node.http(), &Observations::default(), plan).await;
    let job = node.job_when(&id, &["completed"]).await;
    for verb in ["cancel", "retry"] {
        let response = node.http().post(&format!("/v1/jobs/{id}/{verb}"), json!({})).await.expect("a response");
        assert_eq!(response.expect(409)["error"]["code"], "conflict", "{verb}");
    }
    let after = node.job(&id).await;
    assert_eq!((&after["status"], &after["completedAt"]), (&job["status"], &job["completedAt"]));
}

#[tokio::test]
async fn a_client_can_wait_for_the_end() {
    let node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let http = node.http().clone();
    let path = format!("/v1/jobs/{id}?wait=30s");
    let waiting = tokio::spawn(async move { http.get(&path).await.expect("a response").expect(200) });
    let plan = Plan::new("w", "q", |_| Handling::Complete(json!(42)));
    let _worker = GatewayWorker::start(node.http(), &Observations::default(), plan).await;
    let job = waiting.await.expect("a response");
    assert_eq!((&job["status"], &job["result"]), (&json!("completed"), &json!(42)));
}

#[tokio::test]
async fn lists_have_no_gaps_and_no_doubles_while_jobs_arrive() {
    let node = server().start().await;
    let jobs: Vec<_> =
        (0..25).map(|n| json!({ "type": format!("t{}", n % 2), "correlationId": format!("c{}", n % 5) })).collect();
    node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = node.http().get(&format!("/v1/jobs?limit=4{cursor}")).await.expect("a response").expect(200);
        let ids =
            page["jobs"].as_array().expect("jobs").iter().map(|job| job["id"].as_str().unwrap_or_default().to_owned());
        seen.extend(ids);
        node.enqueued(json!({ "type": "later" })).await;
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let distinct: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), distinct.len()), (25, 25));
    assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "newest first");
    for (filter, count) in
        [("type=t0", 13), ("correlationId=c3", 5), ("type=t1&correlationId=c3", 3), ("status=completed", 0)]
    {
        assert_eq!(node.all(&format!("/v1/jobs?{filter}"), "jobs").await.len(), count, "{filter}");
    }
}

/// A series lives as long as its process, and anybody who may enqueue can make up types.
#[tokio::test]
async fn types_that_clients_make_up_do_not_fill_the_metrics() {
    let node = server().start().await;
    let jobs: Vec<_> = (0..3_000).map(|number| json!({ "type": format!("t-{number}") })).collect();
    node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let page = node.http().get("/metrics").await.expect("a response").text();
    let series: Vec<&str> = page.lines().filter(|line| line.starts_with("convoke_jobs_total{")).collect();
    assert_eq!(series.len(), 1_001);
    assert!(series.iter().any(|line| line.contains("type=\"other\"") && line.ends_with(" 2000")), "all are counted");
}
