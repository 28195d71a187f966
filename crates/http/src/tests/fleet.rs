use http::StatusCode;
use serde_json::json;

use super::super::{Access, Role};
use super::{World, request};

#[tokio::test]
async fn a_schedule_is_put_paused_triggered_and_removed() {
    let world = World::new().await;
    let spec = json!({"type": "report", "cron": "0 9 * * *", "tz": "Europe/Berlin"});
    let made = world.send("PUT", "/v1/schedules/daily", spec.clone()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert_eq!(
        (&made.body["name"], &made.body["cron"], &made.body["every"]),
        (&json!("daily"), &json!("0 9 * * *"), &json!(null))
    );
    assert!(made.body["nextRunAt"].is_string());
    assert_eq!(world.send("PUT", "/v1/schedules/daily", spec).await.status, StatusCode::OK);
    let paused = world.post("/v1/schedules/daily/pause", json!({})).await;
    assert_eq!((paused.status, &paused.body["paused"]), (StatusCode::OK, &json!(true)));
    let resumed = world.answer(request("POST", "/v1/schedules/daily/resume", "")).await;
    assert_eq!((resumed.status, &resumed.body["paused"]), (StatusCode::OK, &json!(false)));
    let triggered = world.post("/v1/schedules/daily/trigger", json!({})).await;
    assert_eq!((triggered.status, &triggered.body["schedule"]), (StatusCode::CREATED, &json!("daily")));
    let listed = world.get("/v1/schedules").await.body;
    assert_eq!(listed["schedules"].as_array().map(Vec::len), Some(1));
    let removed = world.answer(request("DELETE", "/v1/schedules/daily", "")).await;
    assert_eq!((removed.status, removed.body), (StatusCode::NO_CONTENT, json!("")));
    for (method, path) in
        [("GET", "/v1/schedules/daily"), ("DELETE", "/v1/schedules/daily"), ("POST", "/v1/schedules/daily/pause")]
    {
        let gone = world.answer(request(method, path, "")).await;
        assert_eq!((gone.status, gone.code()), (StatusCode::NOT_FOUND, "not_found"), "{method} {path}");
    }
}

#[tokio::test]
async fn a_schedule_that_restricts_both_day_fields_is_made_with_a_warning() {
    let world = World::new().await;
    let mut spec = json!({"type": "report", "cron": "0 0 13 * FRI"});
    let made = world.send("PUT", "/v1/schedules/s", spec.clone()).await;
    assert_eq!((made.status, &made.body["day"]), (StatusCode::CREATED, &json!("or")));
    let warning = made.body["warnings"][0].as_str().expect("a warning");
    assert!(warning.contains("day") && warning.contains("0 0 13 * FRI"), "{warning}");
    assert_eq!(world.get("/v1/schedules/s").await.body["warnings"], json!(null));
    spec["day"] = json!("and");
    let replaced = world.send("PUT", "/v1/schedules/s", spec).await;
    assert_eq!((&replaced.body["day"], &replaced.body["warnings"]), (&json!("and"), &json!(null)));
}

#[tokio::test]
async fn a_queue_is_deleted_if_it_has_neither_jobs_nor_workers() {
    let world = World::new().await;
    let delete = async |name: &str| world.answer(request("DELETE", &format!("/v1/queues/{name}"), "")).await;
    assert_eq!(delete("none").await.code(), "not_found");
    world.enqueue(json!({"type": "t", "queue": "busy"})).await;
    world.send("PATCH", "/v1/queues/served", json!({"paused": true})).await;
    world.register("w-1", &["served"]).await;
    for (name, reason) in [("busy", "jobs"), ("served", "workers")] {
        let kept = delete(name).await;
        assert_eq!((kept.status, kept.code()), (StatusCode::CONFLICT, "conflict"), "{name}");
        let message = kept.body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(name) && message.contains(reason), "{message}");
    }
    world.send("PATCH", "/v1/queues/old", json!({"paused": true})).await;
    assert_eq!(delete("old").await.status, StatusCode::NO_CONTENT);
    assert_eq!(world.get("/v1/queues/old").await.code(), "not_found");
}

#[tokio::test]
async fn a_queue_is_made_by_its_limits_and_loses_them_by_null() {
    let world = World::new().await;
    assert_eq!(world.get("/v1/queues/mail%2Fout").await.code(), "not_found");
    let limits = json!({"paused": true, "rateLimit": {"limit": 100, "per": "1s"}, "concurrency": 5});
    let made = world.send("PATCH", "/v1/queues/mail%2Fout", limits).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.body);
    world.enqueue(json!({"type": "t", "queue": "mail/out"})).await;
    let mut shown = world.get("/v1/queues/mail%2Fout").await.body;
    let age = shown.as_object_mut().and_then(|queue| queue.remove("oldestPendingAge")).expect("an age");
    assert!(convoke_core::duration::parse(age.as_str().expect("a duration")).is_ok());
    let counts = json!({"created": 0, "pending": 1, "scheduled": 0, "dispatched": 0, "running": 0, "completed": 0,
        "failed": 0, "timedOut": 0, "cancelled": 0});
    let expected = json!({"name": "mail/out", "paused": true, "rateLimit": {"limit": 100, "per": "1s"}, "concurrency": 5,
        "effectiveRateLimit": {"limit": 100, "per": "1s"}, "counts": counts, "workers": 0});
    assert_eq!(shown, expected);
    let changed = world.send("PATCH", "/v1/queues/mail%2Fout", json!({"rateLimit": null})).await.body;
    assert_eq!(
        (&changed["rateLimit"], &changed["concurrency"], &changed["paused"]),
        (&json!(null), &json!(5), &json!(true))
    );
    assert_eq!(world.get("/v1/queues").await.body["queues"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_fleet_is_shown() {
    let world = World::new().await;
    world.register("w-1", &["default"]).await;
    let worker = world.get("/v1/workers").await.body["workers"][0].clone();
    assert_eq!(
        (&worker["workerId"], &worker["queues"], &worker["via"]),
        (&json!("w-1"), &json!(["default"]), &json!("node-1"))
    );
    assert_eq!(world.get("/v1/nodes").await.body["nodes"][0]["nodeId"], "node-1");
    let cluster = world.get("/v1/cluster").await.body;
    assert_eq!((&cluster["leader"], &cluster["handoffs"]), (&json!("node-1"), &json!([])));
    assert!(cluster["epoch"].as_u64().is_some_and(|epoch| epoch > 0));
    let election = &cluster["election"];
    assert_eq!((&election["namespace"], &election["isLeader"]), (&json!("coordinator"), &json!(true)));
    assert!(election["metrics"]["heartbeatCount"].as_u64().is_some_and(|count| count > 0), "{election}");
    assert_eq!((&election["metrics"]["electionCount"], &election["breaker"]["state"]), (&json!(1), &json!("closed")));
}

#[tokio::test]
async fn a_worker_registers_beats_and_leaves() {
    let world = World::new().await;
    let named = world.post("/v1/worker/register", json!({"queues": ["q"], "concurrency": 1})).await.body;
    assert_eq!((&named["heartbeatInterval"], &named["staleAfter"]), (&json!("10s"), &json!("30s")));
    let worker = named["workerId"].as_str().expect("an id").to_owned();
    let reply = world.post("/v1/worker/heartbeat", json!({"workerId": worker, "running": []})).await;
    assert_eq!((reply.status, reply.body), (StatusCode::OK, json!({"cancel": [], "drain": false})));
    let polled = world.post("/v1/worker/poll", json!({"workerId": worker, "max": 1, "wait": "0s"})).await;
    assert_eq!(polled.body, json!({"jobs": [], "cancel": [], "drain": false}));
    let left = world.post("/v1/worker/leave", json!({"workerId": worker})).await;
    assert_eq!((left.status, left.body), (StatusCode::OK, json!({})));
    for (path, body) in [
        ("poll", json!({"workerId": worker, "max": 1})),
        ("heartbeat", json!({"workerId": worker, "running": []})),
        ("leave", json!({"workerId": worker})),
    ] {
        let unknown = world.post(&format!("/v1/worker/{path}"), body).await;
        assert_eq!((unknown.status, unknown.code()), (StatusCode::NOT_FOUND, "unknown_worker"), "{path}");
    }
}

#[tokio::test]
async fn probes_say_how_it_is() {
    let world = World::new().await;
    let healthy: Vec<_> = ["Coordinator", "Store", "Bus", "Leases"]
        .map(|component| json!({"component": component, "isHealthy": true}))
        .into();
    let health = world.get("/health").await;
    assert_eq!((health.status, health.body), (StatusCode::OK, json!({"status": "healthy", "checks": healthy})));
    assert_eq!(world.get("/livez").await.status, StatusCode::OK);
    assert_eq!(world.get("/readyz").await.status, StatusCode::OK);
    let metrics = world.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain"));
    world.coordinator.drain();
    let draining = world.get("/readyz").await;
    assert_eq!((draining.status, draining.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    world.coordinator.stop().await;
    let stopped = world.get("/health").await;
    assert_eq!((stopped.status, &stopped.body["status"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("unhealthy")));
    assert_eq!(world.get("/livez").await.status, StatusCode::OK);
}

#[tokio::test]
async fn without_the_right_token_nothing_is_done_or_shown() {
    let world = World::with(Access::tokens([("secret", Role::Read)])).await;
    let none = world.get("/v1/jobs").await;
    assert_eq!(
        (none.status, none.code(), none.header("www-authenticate")),
        (StatusCode::UNAUTHORIZED, "unauthorized", "Bearer")
    );
    let with = |method: &str, path: &str| {
        let mut request = request(method, path, "{}");
        request.headers_mut().insert("authorization", http::HeaderValue::from_static("Bearer secret"));
        request
    };
    assert_eq!(world.answer(with("GET", "/v1/jobs")).await.status, StatusCode::OK);
    let wrong = world.answer(with("POST", "/v1/jobs")).await;
    assert_eq!((wrong.status, wrong.code()), (StatusCode::FORBIDDEN, "forbidden"));
    assert!(wrong.body["error"]["message"].as_str().is_some_and(|message| message.contains("enqueue")));
    let page = |response: super::TestResponse| response.body.as_str().expect("a page").to_owned();
    assert!(page(world.answer(with("GET", "/")).await).contains("node-1"));
    assert_eq!(world.get("/").await.header("location"), "/login");
    let stranger = page(world.get("/login").await);
    assert!(!stranger.contains("node-1") && stranger.contains("/docs/"));
    // A client without a token sees the failing part, not the error.
    world.coordinator.stop().await;
    let stranger = world.get("/health").await;
    assert_eq!(stranger.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(stranger.body["checks"][0], json!({"component": "Coordinator", "isHealthy": false}));
    assert_eq!(world.answer(with("GET", "/health")).await.body["checks"][0]["detail"], "stopped");
}
