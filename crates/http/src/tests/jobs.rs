use http::StatusCode;
use serde_json::json;

use super::{NO_ID, World, in_time};

#[tokio::test]
async fn a_job_is_made_and_shown_in_the_promised_shape() {
    let world = World::new().await;
    let made = world.post("/v1/jobs", json!({"type": "email.send", "args": {"to": "a@b.c"}, "timeout": "30s"})).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let id = made.body["id"].as_str().expect("an id");
    let mut shown = world.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(shown.status, StatusCode::OK);
    let job = shown.body.as_object_mut().expect("an object");
    assert!(job.remove("createdAt").is_some_and(|at| at.as_str().is_some_and(|at| at.ends_with('Z'))));
    let expected = json!({
        "id": id, "type": "email.send", "queue": "default", "status": "pending", "priority": "normal",
        "args": {"to": "a@b.c"}, "attempt": 0, "retryCount": 0, "maxRetries": 3,
        "retryPolicy": {"initialDelay": "10s", "multiplier": 2.0, "maxDelay": "10m", "jitter": "full"},
        "executionId": null, "ownership": "unowned", "ownerNode": null, "workerId": null, "correlationId": null,
        "uniqueKey": null, "tags": [], "timeout": "30s", "progress": null, "result": null, "error": null, "schedule": null,
        "scheduledAt": null, "dispatchedAt": null, "startedAt": null, "completedAt": null, "channelsCleaned": false,
    });
    assert_eq!(shown.body, expected);
}

#[tokio::test]
async fn the_same_unique_key_finds_the_first_job() {
    let world = World::new().await;
    let first = world.enqueue(json!({"type": "t", "uniqueKey": "k"})).await;
    let second = world.post("/v1/jobs", json!({"type": "t", "uniqueKey": "k"})).await;
    assert_eq!((second.status, second.body["id"].as_str()), (StatusCode::OK, Some(first.as_str())));
}

#[tokio::test]
async fn a_batch_answers_in_order() {
    let world = World::new().await;
    let body =
        json!({"jobs": [{"type": "a", "uniqueKey": "k"}, {"type": "b", "id": NO_ID}, {"type": "a", "uniqueKey": "k"}]});
    let response = world.post("/v1/jobs/batch", body).await;
    assert_eq!(response.status, StatusCode::CREATED);
    let jobs = response.body["jobs"].as_array().expect("a list");
    assert_eq!(jobs.len(), 3);
    assert_eq!(jobs[1], json!({"id": NO_ID, "created": true}));
    assert_eq!((&jobs[2]["id"], &jobs[2]["created"]), (&jobs[0]["id"], &json!(false)));
}

#[tokio::test]
async fn lists_are_paged_newest_first_and_filtered() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(world.enqueue(json!({"type": "t", "queue": if n % 2 == 0 { "even" } else { "odd" }})).await);
    }
    ids.reverse();
    let (mut seen, mut path) = (Vec::new(), "/v1/jobs?limit=2".to_owned());
    loop {
        let page = world.get(&path).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        let jobs = page.body["jobs"].as_array().expect("a list");
        seen.extend(jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned()));
        match page.body["nextCursor"].as_str() {
            Some(cursor) => path = format!("/v1/jobs?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    let even = world.get("/v1/jobs?queue=even&type=t&status=pending,running&correlationId=").await;
    assert_eq!(even.body["jobs"].as_array().map(Vec::len), Some(3));
    let cancelled = world.get("/v1/jobs?status=cancelled").await;
    assert_eq!(cancelled.body["jobs"].as_array().map(Vec::len), Some(0));
}

#[tokio::test]
async fn a_job_can_be_cancelled_twice_and_retried_once() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t"})).await;
    for _ in 0..2 {
        let response = world.post(&format!("/v1/jobs/{id}/cancel"), json!({"reason": "not wanted"})).await;
        assert_eq!((response.status, response.body["status"].as_str()), (StatusCode::OK, Some("cancelled")));
    }
    let retried = world.answer(super::request("POST", &format!("/v1/jobs/{id}/retry"), "")).await;
    assert_eq!((retried.status, retried.body["status"].as_str()), (StatusCode::OK, Some("pending")));
    let again = world.post(&format!("/v1/jobs/{id}/retry"), json!({})).await;
    assert_eq!((again.status, again.code()), (StatusCode::CONFLICT, "conflict"));
}

#[tokio::test]
async fn a_waiting_reader_is_answered_when_the_job_ends() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t"})).await;
    let path = format!("/v1/jobs/{id}?wait=1m");
    let cancel = format!("/v1/jobs/{id}/cancel");
    let (waited, cancelled) =
        in_time("an end", async { tokio::join!(world.get(&path), world.post(&cancel, json!({}))) }).await;
    assert_eq!(cancelled.status, StatusCode::OK);
    assert_eq!(waited.body["status"], "cancelled");
}

#[tokio::test]
async fn a_waiting_reader_is_answered_when_the_server_closes() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t"})).await;
    world.state.closing.cancel();
    let waited = in_time("a response", world.get(&format!("/v1/jobs/{id}?wait=5m"))).await;
    assert_eq!(waited.body["status"], "pending");
}

#[tokio::test]
async fn a_run_leaves_its_history_its_logs_and_its_result() {
    let world = World::new().await;
    world.register("w-1", &["default"]).await;
    let id = world.enqueue(json!({"type": "t", "args": [1, 2]})).await;
    let run = world.take("w-1").await;
    assert_eq!((run["jobId"].as_str(), &run["args"], &run["attempt"]), (Some(id.as_str()), &json!([1, 2]), &json!(1)));
    for event in [
        json!({"kind": "started"}),
        json!({"kind": "log", "level": "warn", "message": "careful"}),
        json!({"kind": "progress", "percent": 40, "message": "on it"}),
        json!({"kind": "completed", "result": {"n": 3}}),
    ] {
        let response = world.report("w-1", &run, event).await;
        assert_eq!(response.body, json!({"accepted": 1, "rejected": []}));
    }
    let late = world.report("w-1", &run, json!({"kind": "failed", "error": "no"})).await;
    let rejected = json!([{"executionId": run["executionId"], "code": "stale_execution"}]);
    assert_eq!(late.body, json!({"accepted": 0, "rejected": rejected}));

    let job = world.get(&format!("/v1/jobs/{id}")).await.body;
    assert_eq!((&job["status"], &job["result"]), (&json!("completed"), &json!({"n": 3})));
    let history = world.get(&format!("/v1/jobs/{id}/history")).await.body;
    let execution = &history["executions"][0];
    assert_eq!((&execution["status"], &execution["workerId"]), (&json!("completed"), &json!("w-1")));
    let logs = world.get(&format!("/v1/jobs/{id}/logs")).await.body;
    assert_eq!(
        (&logs["logs"][0]["message"], &logs["logs"][0]["level"], &logs["nextAfter"]),
        (&json!("careful"), &json!("warn"), &json!(1))
    );
    let none = world.get(&format!("/v1/jobs/{id}/logs?after=1&limit=10")).await.body;
    assert_eq!(none, json!({"logs": [], "nextAfter": 1}));
}

#[tokio::test]
async fn dead_letters_are_listed_retried_and_purged() {
    let world = World::new().await;
    world.register("w-1", &["default"]).await;
    let id = world.enqueue(json!({"type": "t", "args": {"a": 1}, "tags": ["x"]})).await;
    let run = world.take("w-1").await;
    world.report("w-1", &run, json!({"kind": "failed", "error": "broken", "retry": false})).await;
    let listed = world.get("/v1/dead-letters?queue=default&type=t&tag=x").await.body;
    let mut letter = listed["deadLetters"][0].clone();
    assert!(letter.as_object_mut().and_then(|letter| letter.remove("failedAt")).is_some_and(|at| at.is_string()));
    let expected = json!({"jobId": id, "type": "t", "queue": "default", "status": "failed", "error": "broken", "attempts": 1, "args": {"a": 1}, "tags": ["x"]});
    assert_eq!(letter, expected);

    let none = world.post("/v1/dead-letters/retry", json!({"queue": "other"})).await;
    assert_eq!((none.status, none.body), (StatusCode::OK, json!({"retried": 0})));
    let retried = world.post("/v1/dead-letters/retry", json!({"ids": [id]})).await;
    assert_eq!(retried.body, json!({"retried": 1}));
    let run = world.take("w-1").await;
    world.report("w-1", &run, json!({"kind": "failed", "error": "broken", "retry": false})).await;
    let purged = world.post("/v1/dead-letters/purge", json!({"all": true})).await;
    assert_eq!(purged.body, json!({"purged": 1}));
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await.status, StatusCode::NOT_FOUND);
}
