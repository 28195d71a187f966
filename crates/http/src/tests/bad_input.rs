//! Rejected requests: their status, code and field.

use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::{NO_ID, World, request};

const BATCH: &str = "/v1/jobs/batch";
const REGISTER: &str = "/v1/worker/register";
const REPORT: &str = "/v1/worker/report";

/// Method, path, body → status, code, field.
const TABLE: &[(&str, &str, &str, u16, &str, &str)] = &[
    // Bodies that are not JSON, or not an object.
    ("POST", "/v1/jobs", "", 400, "invalid_argument", "body"),
    ("POST", "/v1/jobs", "{", 400, "invalid_argument", "body"),
    ("POST", "/v1/jobs", "nonsense", 400, "invalid_argument", "body"),
    ("POST", "/v1/jobs", "[]", 400, "invalid_argument", "body"),
    ("POST", "/v1/jobs", "null", 400, "invalid_argument", "body"),
    ("POST", "/v1/jobs", r#"{"type":"t"} {}"#, 400, "invalid_argument", "body"),
    ("POST", "/v1/jobs", r#"{"type":"t","args":{"a":}}"#, 400, "invalid_argument", "body"),
    ("POST", "/v1/jobs", r#"{"type":"t","args":NaN}"#, 400, "invalid_argument", "body"),
    // Fields by name.
    ("POST", "/v1/jobs", "{}", 400, "invalid_argument", "type"),
    ("POST", "/v1/jobs", r#"{"type":"t","colour":"red"}"#, 400, "invalid_argument", "colour"),
    ("POST", "/v1/jobs", r#"{"type":"t","max_retries":1}"#, 400, "invalid_argument", "max_retries"),
    ("POST", "/v1/jobs", r#"{"type":"t","type":"u"}"#, 400, "invalid_argument", "type"),
    ("POST", "/v1/jobs", r#"{"type":7}"#, 400, "invalid_argument", "type"),
    ("POST", "/v1/jobs", r#"{"type":""}"#, 400, "invalid_argument", "type"),
    ("POST", "/v1/jobs", r#"{"type":"a\u0000b"}"#, 400, "invalid_argument", "type"),
    ("POST", "/v1/jobs", r#"{"type":"t","id":"x"}"#, 400, "invalid_argument", "id"),
    ("POST", "/v1/jobs", r#"{"type":"t","id":"00000000-0000-0000-0000-000000000000"}"#, 400, "invalid_argument", "id"),
    (
        "POST",
        BATCH,
        r#"{"jobs":[{"type":"t","id":"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"}]}"#,
        400,
        "invalid_argument",
        "jobs[0].id",
    ),
    ("POST", "/v1/jobs", r#"{"type":"t","queue":["q"]}"#, 400, "invalid_argument", "queue"),
    ("POST", "/v1/jobs", r#"{"type":"t","priority":"urgent"}"#, 400, "invalid_argument", "priority"),
    ("POST", "/v1/jobs", r#"{"type":"t","delay":"-5s"}"#, 400, "invalid_argument", "delay"),
    ("POST", "/v1/jobs", r#"{"type":"t","delay":5}"#, 400, "invalid_argument", "delay"),
    ("POST", "/v1/jobs", r#"{"type":"t","delay":"99999999999999999999s"}"#, 400, "invalid_argument", "delay"),
    ("POST", "/v1/jobs", r#"{"type":"t","runAt":"tomorrow"}"#, 400, "invalid_argument", "runAt"),
    ("POST", "/v1/jobs", r#"{"type":"t","runAt":"2026-02-31T00:00:00Z"}"#, 400, "invalid_argument", "runAt"),
    ("POST", "/v1/jobs", r#"{"type":"t","delay":"1s","runAt":"2030-01-01T00:00:00Z"}"#, 422, "unprocessable", "runAt"),
    ("POST", "/v1/jobs", r#"{"type":"t","maxRetries":-1}"#, 400, "invalid_argument", "maxRetries"),
    ("POST", "/v1/jobs", r#"{"type":"t","maxRetries":1e99}"#, 400, "invalid_argument", "maxRetries"),
    ("POST", "/v1/jobs", r#"{"type":"t","maxRetries":1000000}"#, 400, "invalid_argument", "maxRetries"),
    ("POST", "/v1/jobs", r#"{"type":"t","timeout":"0s"}"#, 400, "invalid_argument", "timeout"),
    (
        "POST",
        "/v1/jobs",
        r#"{"type":"t","retryPolicy":{"initialDelay":"soon"}}"#,
        400,
        "invalid_argument",
        "retryPolicy.initialDelay",
    ),
    ("POST", "/v1/jobs", r#"{"type":"t","retryPolicy":{"speed":1}}"#, 400, "invalid_argument", "retryPolicy.speed"),
    (
        "POST",
        "/v1/jobs",
        r#"{"type":"t","retryPolicy":{"multiplier":0}}"#,
        400,
        "invalid_argument",
        "retryPolicy.multiplier",
    ),
    ("POST", "/v1/jobs", r#"{"type":"t","uniqueFor":"1h"}"#, 422, "unprocessable", "uniqueFor"),
    ("POST", "/v1/jobs", r#"{"type":"t","uniqueKey":""}"#, 400, "invalid_argument", "uniqueKey"),
    ("POST", "/v1/jobs?queue=q", r#"{"type":"t"}"#, 400, "invalid_argument", "queue"),
    // Batches by index.
    ("POST", BATCH, "{}", 400, "invalid_argument", "jobs"),
    ("POST", BATCH, r#"{"jobs":{}}"#, 400, "invalid_argument", "jobs"),
    ("POST", BATCH, r#"{"jobs":[]}"#, 400, "invalid_argument", "jobs"),
    ("POST", BATCH, r#"{"jobs":[{"type":"t"},{"type":"t","delay":"x"}]}"#, 400, "invalid_argument", "jobs[1].delay"),
    ("POST", BATCH, r#"{"jobs":[{"type":"t"},{"type":"t","colour":1}]}"#, 400, "invalid_argument", "jobs[1].colour"),
    ("POST", BATCH, r#"{"jobs":[{"queue":"q"}]}"#, 400, "invalid_argument", "jobs[0].type"),
    (
        "POST",
        BATCH,
        r#"{"jobs":[{"type":"t"},{"type":"t","timeout":"0s"}]}"#,
        400,
        "invalid_argument",
        "jobs[1].timeout",
    ),
    ("POST", BATCH, r#"{"jobs":[{"type":"t"}],"queue":"q"}"#, 400, "invalid_argument", "queue"),
    // Paths and queries.
    ("GET", "/v1/jobs/nonsense", "", 400, "invalid_argument", "id"),
    ("GET", "/v1/jobs/%FF", "", 400, "invalid_argument", "path"),
    ("GET", "/v1/jobs/0198c0de-0000-7000-8000-000000000000", "", 404, "not_found", ""),
    ("GET", "/v1/jobs/0198c0de-0000-7000-8000-000000000000/history", "", 404, "not_found", ""),
    ("GET", "/v1/jobs/0198c0de-0000-7000-8000-000000000000/logs", "", 404, "not_found", ""),
    ("GET", "/v1/jobs/0198c0de-0000-7000-8000-000000000000/logs/stream", "", 404, "not_found", ""),
    ("POST", "/v1/jobs/0198c0de-0000-7000-8000-000000000000/cancel", "", 404, "not_found", ""),
    ("POST", "/v1/jobs/0198c0de-0000-7000-8000-000000000000/retry", "", 404, "not_found", ""),
    ("POST", "/v1/jobs/0198c0de-0000-7000-8000-000000000000/cancel", r#"{"why":1}"#, 400, "invalid_argument", "why"),
    ("POST", "/v1/jobs/0198c0de-0000-7000-8000-000000000000/retry", r#"{"now":1}"#, 400, "invalid_argument", "now"),
    ("GET", "/v1/jobs/0198c0de-0000-7000-8000-000000000000?wait=x", "", 400, "invalid_argument", "wait"),
    ("GET", "/v1/jobs/0198c0de-0000-7000-8000-000000000000?wait=1d", "", 400, "invalid_argument", "wait"),
    ("GET", "/v1/jobs?limit=0", "", 400, "invalid_argument", "limit"),
    ("GET", "/v1/jobs?limit=1001", "", 400, "invalid_argument", "limit"),
    ("GET", "/v1/jobs?limit=ten", "", 400, "invalid_argument", "limit"),
    ("GET", "/v1/jobs?limit=1&limit=2", "", 400, "invalid_argument", "limit"),
    ("GET", "/v1/jobs?status=asleep", "", 400, "invalid_argument", "status"),
    ("GET", "/v1/jobs?status=pending,", "", 400, "invalid_argument", "status"),
    ("GET", "/v1/jobs?cursor=nonsense", "", 400, "invalid_argument", "cursor"),
    ("GET", "/v1/jobs?colour=red", "", 400, "invalid_argument", "colour"),
    ("GET", "/v1/jobs?queue=a%00b", "", 400, "invalid_argument", "queue"),
    ("GET", "/v1/queues?limit=1", "", 400, "invalid_argument", "limit"),
    ("GET", "/v1/events?types=weather", "", 400, "invalid_argument", "types"),
    ("GET", "/v1/events?since=1", "", 400, "invalid_argument", "since"),
    // Schedules.
    ("PUT", "/v1/schedules/s", r#"{"type":"t"}"#, 422, "unprocessable", "cron"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","cron":"0 9 * * *","every":"1s"}"#, 422, "unprocessable", "every"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","cron":"a b c"}"#, 400, "invalid_argument", "cron"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","cron":"0 0 31 2 *"}"#, 422, "unprocessable", "cron"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","cron":"0 9 * * *","tz":"Mars/Base"}"#, 400, "invalid_argument", "tz"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","every":"1ms"}"#, 400, "invalid_argument", "every"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","every":"1s","missed":"never"}"#, 400, "invalid_argument", "missed"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","every":"1s","day":"and"}"#, 422, "unprocessable", "day"),
    ("PUT", "/v1/schedules/s", r#"{"type":"t","cron":"0 9 * * *","day":"xor"}"#, 400, "invalid_argument", "day"),
    ("PUT", "/v1/schedules/s", r#"{"every":"1s"}"#, 400, "invalid_argument", "type"),
    ("PUT", "/v1/schedules/%01", r#"{"type":"t","every":"1s"}"#, 400, "invalid_argument", "name"),
    ("GET", "/v1/schedules/none", "", 404, "not_found", ""),
    ("POST", "/v1/schedules/none/trigger", "", 404, "not_found", ""),
    // Queues.
    ("PATCH", "/v1/queues/q", r#"{"concurrency":0}"#, 400, "invalid_argument", "concurrency"),
    ("PATCH", "/v1/queues/q", r#"{"concurrency":-1}"#, 400, "invalid_argument", "concurrency"),
    ("PATCH", "/v1/queues/q", r#"{"rateLimit":{"limit":0,"per":"1s"}}"#, 400, "invalid_argument", "rateLimit.limit"),
    ("PATCH", "/v1/queues/q", r#"{"rateLimit":{"limit":1,"per":"x"}}"#, 400, "invalid_argument", "rateLimit.per"),
    ("PATCH", "/v1/queues/q", r#"{"rateLimit":{"limit":1}}"#, 400, "invalid_argument", "rateLimit.per"),
    ("PATCH", "/v1/queues/q", r#"{"paused":"yes"}"#, 400, "invalid_argument", "paused"),
    ("GET", "/v1/queues/none", "", 404, "not_found", ""),
    // Dead letters.
    ("POST", "/v1/dead-letters/retry", "{}", 400, "invalid_argument", "ids"),
    ("POST", "/v1/dead-letters/purge", r#"{"ids":[]}"#, 400, "invalid_argument", "ids"),
    ("POST", "/v1/dead-letters/purge", r#"{"all":false}"#, 400, "invalid_argument", "ids"),
    ("POST", "/v1/dead-letters/purge", r#"{"ids":["x"]}"#, 400, "invalid_argument", "ids[0]"),
    ("POST", "/v1/dead-letters/purge", r#"{"all":true,"queue":"q"}"#, 422, "unprocessable", "ids"),
    ("GET", "/v1/dead-letters?status=failed", "", 400, "invalid_argument", "status"),
    // The gateway.
    ("POST", REGISTER, r#"{"queues":[],"concurrency":1}"#, 400, "invalid_argument", "queues"),
    ("POST", REGISTER, r#"{"queues":["q"],"concurrency":0}"#, 400, "invalid_argument", "concurrency"),
    ("POST", REGISTER, r#"{"queues":["q"]}"#, 400, "invalid_argument", "concurrency"),
    ("POST", REGISTER, r#"{"queues":["q",""],"concurrency":1}"#, 400, "invalid_argument", "queues[1]"),
    ("POST", "/v1/worker/poll", r#"{"workerId":"w","max":1000001}"#, 400, "invalid_argument", "max"),
    ("POST", "/v1/worker/poll", r#"{"workerId":"nobody","max":1}"#, 404, "unknown_worker", ""),
    ("POST", "/v1/worker/poll", r#"{"workerId":"w","max":1,"wait":7}"#, 400, "invalid_argument", "wait"),
    (
        "POST",
        REPORT,
        r#"{"workerId":"w","events":[{"kind":"started"}]}"#,
        400,
        "invalid_argument",
        "events[0].executionId",
    ),
    (
        "POST",
        REPORT,
        r#"{"workerId":"w","events":[{"jobId":"0198c0de-0000-7000-8000-000000000000","executionId":"0198c0de-0000-7000-8000-000000000000","kind":"exploded"}]}"#,
        400,
        "invalid_argument",
        "events[0].kind",
    ),
    (
        "POST",
        REPORT,
        r#"{"workerId":"w","events":[{"jobId":"0198c0de-0000-7000-8000-000000000000","executionId":"0198c0de-0000-7000-8000-000000000000","kind":"progress","percent":101}]}"#,
        400,
        "invalid_argument",
        "events[0].percent",
    ),
    ("POST", "/v1/worker/heartbeat", r#"{"workerId":"w","running":["x"]}"#, 400, "invalid_argument", "running[0]"),
    ("POST", "/v1/worker/leave", r#"{}"#, 400, "invalid_argument", "workerId"),
    // Unknown routes.
    ("GET", "/nowhere", "", 404, "not_found", ""),
    ("GET", "/v1/jobs/", "", 404, "not_found", ""),
    ("POST", "/v1/worker/dance", "{}", 404, "not_found", ""),
];

#[tokio::test]
async fn bad_input_is_refused_by_its_name() {
    let world = World::new().await;
    let mut wrong = Vec::new();
    for (method, path, body, status, code, field) in TABLE {
        let response = world.answer(request(method, path, *body)).await;
        let (got, expected) = ((response.status.as_u16(), response.code(), response.field()), (*status, *code, *field));
        let has_message = response.body["error"]["message"].as_str().is_some_and(|message| !message.is_empty());
        if got != expected || !has_message {
            wrong.push(format!("{method} {path} {body}\n  expected {expected:?}\n  got {}", response.body));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(world.get("/v1/jobs").await.body["jobs"], json!([]), "nothing of it was done");
}

#[tokio::test]
async fn other_methods_are_refused_with_those_allowed() {
    let world = World::new().await;
    for (method, path, allowed) in [
        ("DELETE", "/v1/jobs", vec!["GET", "HEAD", "POST"]),
        ("GET", "/v1/worker/poll", vec!["POST"]),
        ("OPTIONS", "/v1/jobs", vec!["GET", "HEAD", "POST"]),
    ] {
        let response = world.answer(request(method, path, "")).await;
        assert_eq!((response.status.as_u16(), response.code()), (405, "method_not_allowed"), "{method} {path}");
        let mut methods: Vec<_> = response.header("allow").split(',').collect();
        methods.sort_unstable();
        assert_eq!(methods, allowed);
        assert!(response.headers.keys().all(|name| !name.as_str().starts_with("access-control")));
    }
}

#[tokio::test]
async fn sizes_are_limited() {
    let world = World::new().await;
    let args = |bytes: usize| format!(r#"{{"type":"t","args":"{}"}}"#, "x".repeat(bytes - 2));
    assert_eq!(world.answer(request("POST", "/v1/jobs", args(1 << 20))).await.status, StatusCode::CREATED);
    let over = world.answer(request("POST", "/v1/jobs", args((1 << 20) + 1))).await;
    assert_eq!((over.status.as_u16(), over.code(), over.field()), (413, "too_large", "args"));
    let far_over = world.answer(request("POST", "/v1/jobs", args(2 << 20))).await;
    assert_eq!((far_over.status.as_u16(), far_over.code(), far_over.field()), (413, "too_large", "body"));
    let batch = |count| json!({"jobs": vec![json!({"type": "t"}); count]}).to_string();
    assert_eq!(world.answer(request("POST", BATCH, batch(10_000))).await.status, StatusCode::CREATED);
    let many = world.answer(request("POST", BATCH, batch(10_001))).await;
    assert_eq!((many.status.as_u16(), many.code(), many.field()), (413, "too_large", "jobs"));
    let large = world.answer(request("POST", BATCH, vec![b' '; (32 << 20) + 1])).await;
    assert_eq!((large.status.as_u16(), large.code(), large.field()), (413, "too_large", "body"));
    let long = format!(r#"{{"type":"t","queue":"{}"}}"#, "q".repeat(256));
    let long = world.answer(request("POST", "/v1/jobs", long)).await;
    assert_eq!((long.status.as_u16(), long.field()), (400, "queue"));
}

#[tokio::test]
async fn what_is_not_json_text_is_refused() {
    let world = World::new().await;
    let deep = format!(r#"{{"type":"t","args":{}{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let deep = world.answer(request("POST", "/v1/jobs", deep)).await;
    assert_eq!(deep.status, StatusCode::BAD_REQUEST, "{}", deep.body);
    let bodies: [&[u8]; 3] = [b"{\"type\":\"\xff\"}", b"{\"type\":\"t\",\"args\":\"\xc3\x28\"}", b"\xff\xfe{\x00"];
    for body in bodies {
        let response = world.answer(request("POST", "/v1/jobs", body)).await;
        assert_eq!((response.status.as_u16(), response.code()), (400, "invalid_argument"), "{body:?}");
    }
}

#[tokio::test]
async fn a_query_that_is_not_utf_8_is_refused_by_its_parameter() {
    let world = World::new().await;
    let response = world.answer(request("GET", "/v1/jobs?queue=%ff", "")).await;
    assert_eq!((response.status.as_u16(), response.field()), (400, "queue"));
}

#[tokio::test]
async fn whatever_type_a_body_claims_it_is_read_as_json() {
    let world = World::new().await;
    for content_type in ["application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded", ""] {
        let mut request = request("POST", "/v1/jobs", r#"{"type":"t"}"#);
        request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
        assert_eq!(world.answer(request).await.status.as_u16(), 201, "{content_type:?}");
    }
}

#[tokio::test]
async fn a_bad_last_event_id_is_refused() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t", "id": NO_ID})).await;
    let mut request = request("GET", &format!("/v1/jobs/{id}/logs/stream"), "");
    request.headers_mut().insert("last-event-id", HeaderValue::from_static("seven"));
    assert_eq!(world.answer(request).await.field(), "last-event-id");
}

#[tokio::test]
async fn an_instant_that_cannot_be_kept_is_refused_with_the_limit() {
    let world = World::new().await;
    let job = json!({"type": "t", "runAt": "9999-12-31T23:59:59Z"});
    let event = json!({"executionId": NO_ID, "jobId": NO_ID, "kind": "started", "at": "9999-12-31T23:59:59Z"});
    for (path, body, field) in [
        ("/v1/jobs", job.clone(), "runAt"),
        (BATCH, json!({"jobs": [job]}), "jobs[0].runAt"),
        (REPORT, json!({"workerId": "w", "events": [event]}), "events[0].at"),
    ] {
        let response = world.post(path, body).await;
        assert_eq!(response.status, StatusCode::BAD_REQUEST, "{path}");
        let error = &response.body["error"];
        assert_eq!(error["field"], field);
        let message = error["message"].as_str().expect("a message");
        let expected = "expected an instant such as \"2030-01-31T09:00:00Z\", 9999-12-30T22:00:00Z at the latest, \
            got \"9999-12-31T23:59:59Z\"";
        assert!(message.contains(expected), "{path}: {message}");
    }
}
