//! Invalid requests. Each row: a request, the status it must get and the field that must be named.

use convoke_testkit::process::{Http, Node};
use serde_json::{Value, json};

use super::server;

struct Row {
    method: &'static str,
    path: String,
    body: Option<Vec<u8>>,
    status: u16,
    /// `None`: whichever.
    field: Option<&'static str>,
}

fn row(method: &'static str, path: &str, body: Value, status: u16, field: &'static str) -> Row {
    Row { method, path: path.into(), body: Some(body.to_string().into_bytes()), status, field: Some(field) }
}

fn get(path: &str, status: u16, field: &'static str) -> Row {
    let field = (!field.is_empty()).then_some(field);
    Row { method: "GET", path: path.into(), body: None, status, field }
}

fn job(extra: Value, status: u16, field: &'static str) -> Row {
    let mut body = json!({ "type": "t" });
    for (key, value) in extra.as_object().expect("an object") {
        body[key] = value.clone();
    }
    row("POST", "/v1/jobs", body, status, field)
}

const UNKNOWN: &str = "0198c5f2-0000-7000-8000-000000000000";

async fn check(node: &mut Node, rows: Vec<Row>) {
    let mut wrong = Vec::new();
    for row in rows {
        let shown = row.body.as_deref().map(|body| String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned());
        let what = format!("{} {} {}", row.method, row.path, shown.unwrap_or_default());
        let response = match node.http().send_bytes(row.method, &row.path, row.body.as_deref()).await {
            Ok(response) => response,
            Err(error) => {
                wrong.push(format!("{what}: no response: {error}"));
                continue;
            }
        };
        let error = &response.json()["error"];
        let named = row.field.is_none_or(|field| error["field"] == field);
        let printed = error["code"].is_string() && error["message"].as_str().is_some_and(|it| !it.is_empty());
        if response.status != row.status || !named || !printed {
            let (status, field) = (row.status, row.field.unwrap_or("any"));
            wrong.push(format!("{what}:\n   expected {status} {field}, got {} {}", response.status, response.text()));
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    unharmed(node).await;
}

/// It runs, nothing was enqueued by mistake, and nothing panicked on the way.
async fn unharmed(node: &mut Node) {
    assert_eq!(node.http().get("/readyz").await.expect("a response").status, 200);
    assert_eq!(node.all("/v1/jobs", "jobs").await, Vec::<Value>::new());
    assert!(!node.program().has_ended());
    let printed = node.program().printed().join("\n");
    assert!(!printed.contains("panicked"), "{printed}");
}

#[tokio::test]
async fn a_bad_enqueue_names_its_field() {
    let mut node = server().start().await;
    let long = "x".repeat(256);
    let rows = vec![
        row("POST", "/v1/jobs", json!({}), 400, "type"),
        row("POST", "/v1/jobs", json!({ "type": 1 }), 400, "type"),
        row("POST", "/v1/jobs", json!({ "type": "" }), 400, "type"),
        row("POST", "/v1/jobs", json!({ "type": null }), 400, "type"),
        row("POST", "/v1/jobs", json!({ "type": long }), 400, "type"),
        row("POST", "/v1/jobs", json!({ "type": "a\u{0}b" }), 400, "type"),
        row("POST", "/v1/jobs", json!({ "type": "a\nb" }), 400, "type"),
        job(json!({ "nope": 1 }), 400, "nope"),
        job(json!({ "maxretries": 1 }), 400, "maxretries"),
        job(json!({ "status": "completed" }), 400, "status"),
        job(json!({ "id": "abc" }), 400, "id"),
        job(json!({ "id": 7 }), 400, "id"),
        job(json!({ "id": "00000000-0000-0000-0000-000000000000", "delay": "1000d" }), 400, "id"),
        job(json!({ "id": "ffffffff-ffff-ffff-ffff-ffffffffffff" }), 400, "id"),
        job(json!({ "queue": 5 }), 400, "queue"),
        job(json!({ "queue": "" }), 400, "queue"),
        job(json!({ "queue": long }), 400, "queue"),
        job(json!({ "priority": "urgent" }), 400, "priority"),
        job(json!({ "priority": 7 }), 400, "priority"),
        job(json!({ "priority": { "high": null } }), 400, "priority"),
        job(json!({ "delay": "-5s" }), 400, "delay"),
        job(json!({ "delay": "5" }), 400, "delay"),
        job(json!({ "delay": 5 }), 400, "delay"),
        job(json!({ "delay": "99999999999999999999s" }), 400, "delay"),
        job(json!({ "delay": "18446744073709551615d" }), 400, "delay"),
        job(json!({ "delay": "36501d" }), 400, "delay"),
        job(json!({ "runAt": "tomorrow" }), 400, "runAt"),
        job(json!({ "runAt": "2026-02-30T00:00:00Z" }), 400, "runAt"),
        job(json!({ "runAt": "+99999-01-01T00:00:00Z" }), 400, "runAt"),
        job(json!({ "runAt": 0 }), 400, "runAt"),
        job(json!({ "delay": "1s", "runAt": "2030-01-01T00:00:00Z" }), 422, "runAt"),
        job(json!({ "maxRetries": -1 }), 400, "maxRetries"),
        job(json!({ "maxRetries": 1.5 }), 400, "maxRetries"),
        job(json!({ "maxRetries": 1001 }), 400, "maxRetries"),
        job(json!({ "maxRetries": 4_294_967_296_u64 }), 400, "maxRetries"),
        job(json!({ "maxRetries": "3" }), 400, "maxRetries"),
        job(json!({ "timeout": "0s" }), 400, "timeout"),
        job(json!({ "timeout": "soon" }), 400, "timeout"),
        job(json!({ "retryPolicy": { "multiplier": 0 } }), 400, "retryPolicy.multiplier"),
        job(json!({ "retryPolicy": { "multiplier": "2" } }), 400, "retryPolicy.multiplier"),
        job(json!({ "retryPolicy": { "initialDelay": "1h", "maxDelay": "1s" } }), 422, "retryPolicy.maxDelay"),
        job(json!({ "retryPolicy": { "initialDelay": "x" } }), 400, "retryPolicy.initialDelay"),
        job(json!({ "retryPolicy": { "nope": 1 } }), 400, "retryPolicy.nope"),
        job(json!({ "retryPolicy": [] }), 400, "retryPolicy"),
        job(json!({ "retryPolicy": ["1s", 2.0, "1m"] }), 400, "retryPolicy"),
        job(json!({ "retryPolicy": { "jitter": 1 } }), 400, "retryPolicy.jitter"),
        job(json!({ "correlationId": "" }), 400, "correlationId"),
        job(json!({ "correlationId": long }), 400, "correlationId"),
        job(json!({ "correlationId": "a\u{0}b" }), 400, "correlationId"),
        job(json!({ "uniqueKey": "" }), 400, "uniqueKey"),
        job(json!({ "uniqueKey": "a\u{0}b" }), 400, "uniqueKey"),
        job(json!({ "uniqueKey": long }), 400, "uniqueKey"),
        job(json!({ "uniqueFor": "1h" }), 422, "uniqueFor"),
        job(json!({ "uniqueKey": "k", "uniqueFor": "-1h" }), 400, "uniqueFor"),
        job(json!({ "args": "x".repeat(1 << 20) }), 413, "args"),
    ];
    check(&mut node, rows).await;
}

#[tokio::test]
async fn a_bad_batch_is_refused_whole_and_names_the_job() {
    let mut node = server().start().await;
    let batch = |jobs: Value, status, field| row("POST", "/v1/jobs/batch", json!({ "jobs": jobs }), status, field);
    let many: Vec<_> = (0..10_001).map(|_| json!({ "type": "t" })).collect();
    let rows = vec![
        row("POST", "/v1/jobs/batch", json!({}), 400, "jobs"),
        row("POST", "/v1/jobs/batch", json!({ "jobs": 1 }), 400, "jobs"),
        row("POST", "/v1/jobs/batch", json!({ "jobs": [], "nope": 1 }), 400, "nope"),
        batch(json!([{ "type": "t" }, { "type": "t", "delay": "x" }]), 400, "jobs[1].delay"),
        batch(json!([{ "type": "t" }, { "queue": "q" }]), 400, "jobs[1].type"),
        batch(json!([{ "type": "t", "nope": 1 }]), 400, "jobs[0].nope"),
        batch(json!([{ "type": "t" }, 5]), 400, "jobs[1]"),
        batch(json!([[null, "t"]]), 400, "jobs[0]"),
        batch(json!([{ "type": "t" }, { "type": "t", "uniqueFor": "1h" }]), 422, "jobs[1].uniqueFor"),
        batch(Value::Array(many), 413, "jobs"),
    ];
    check(&mut node, rows).await;
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused() {
    let mut node = server().start().await;
    let deep = format!("{{\"type\":\"t\",\"args\":{}{}}}", "[".repeat(100), "]".repeat(100));
    let deeper = format!("{{\"type\":\"t\",\"args\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let bytes = |body: &[u8], status, field| Row {
        method: "POST",
        path: "/v1/jobs".into(),
        body: Some(body.to_vec()),
        status,
        field,
    };
    let rows = vec![
        bytes(b"", 400, None),
        bytes(b"{", 400, None),
        bytes(b"[]", 400, None),
        bytes(b"null", 400, None),
        bytes(b"[null,\"t\"]", 400, None),
        bytes(b"{\"type\":\"t\"} trailing", 400, None),
        bytes(b"{\"type\":\"t\xff\xfe\"}", 400, None),
        bytes(b"{\"type\":\"t\",\"args\":\"\xff\"}", 400, None),
        bytes(b"{\"type\":\"t\",\"args\":NaN}", 400, None),
        bytes(b"{\"type\":\"t\",\"type\":\"u\"}", 400, None),
        bytes(deep.as_bytes(), 400, Some("args")),
        bytes(deeper.as_bytes(), 400, None),
        bytes(&vec![b'['; 500_000], 400, None),
        bytes(&vec![b' '; 3 << 20], 413, None),
    ];
    check(&mut node, rows).await;
}

#[tokio::test]
async fn unknown_ids_bad_paths_and_bad_queries_are_named() {
    let mut node = server().start().await;
    let unknown = |path: &str| path.replace("{id}", UNKNOWN);
    let mut rows = vec![
        get("/v1/jobs?limit=0", 400, "limit"),
        get("/v1/jobs?limit=1001", 400, "limit"),
        get("/v1/jobs?limit=many", 400, "limit"),
        get("/v1/jobs?limit=-1", 400, "limit"),
        get("/v1/jobs?status=done", 400, "status"),
        get("/v1/jobs?cursor=garbage", 400, "cursor"),
        get("/v1/jobs?nope=1", 400, "nope"),
        get(&format!("/v1/jobs?queue={}", "x".repeat(256)), 400, "queue"),
        get("/v1/jobs/abc", 400, "id"),
        get("/v1/jobs/%ff", 400, ""),
        get(&unknown("/v1/jobs/{id}/logs?after=-1"), 400, "after"),
        get(&unknown("/v1/jobs/{id}?wait=soon"), 400, "wait"),
        get("/v1/nothing", 404, ""),
        get("/v1/queues/none", 404, ""),
        get("/v1/schedules/none", 404, ""),
    ];
    for path in ["/v1/jobs/{id}", "/v1/jobs/{id}/history", "/v1/jobs/{id}/logs", "/v1/jobs/{id}/logs/stream"] {
        rows.push(get(&unknown(path), 404, ""));
    }
    for path in ["/v1/jobs/{id}/cancel", "/v1/jobs/{id}/retry"] {
        rows.push(Row { method: "POST", path: unknown(path), body: Some(b"{}".to_vec()), status: 404, field: None });
    }
    rows.push(row("POST", &unknown("/v1/jobs/{id}/cancel"), json!({ "why": 1 }), 400, "why"));
    rows.push(Row { method: "DELETE", path: "/v1/jobs".into(), body: None, status: 405, field: None });
    rows.push(row("POST", "/v1/dead-letters/purge", json!({}), 400, "ids"));
    rows.push(row("POST", "/v1/dead-letters/retry", json!({ "ids": ["x"] }), 400, "ids[0]"));
    rows.push(row("POST", "/v1/dead-letters/retry", json!({ "ids": { "0": UNKNOWN } }), 400, "ids"));
    // A list is not taken for the object whose fields it would have in order.
    rows.push(row("POST", "/v1/dead-letters/purge", json!([[], null, null, true]), 400, "body"));
    rows.push(row("POST", &unknown("/v1/jobs/{id}/cancel"), json!(["because"]), 400, "body"));
    rows.push(row("POST", &unknown("/v1/jobs/{id}/retry"), json!([]), 400, "body"));
    check(&mut node, rows).await;
}

#[tokio::test]
async fn a_bad_schedule_or_queue_names_its_field() {
    let mut node = server().start().await;
    let put = |body: Value, status, field| row("PUT", "/v1/schedules/s", body, status, field);
    let patch = |body: Value, status, field| row("PATCH", "/v1/queues/q", body, status, field);
    let rows = vec![
        put(json!({ "type": "t", "cron": "every day" }), 400, "cron"),
        put(json!({ "type": "t", "cron": "61 * * * *" }), 400, "cron"),
        put(json!({ "type": "t", "cron": "* * * *" }), 400, "cron"),
        put(json!({ "type": "t", "cron": "0 0 31 2 *" }), 422, "cron"),
        put(json!({ "type": "t", "cron": "0 0 * * *", "tz": "Mars/Olympus" }), 400, "tz"),
        put(json!({ "type": "t", "cron": "0 0 * * *", "every": "1h" }), 422, "every"),
        put(json!({ "type": "t" }), 422, "cron"),
        put(json!({ "type": "t", "every": "10ms" }), 400, "every"),
        put(json!({ "type": "t", "every": "-1h" }), 400, "every"),
        put(json!({ "type": "t", "every": "1h", "missed": "some" }), 400, "missed"),
        put(json!({ "type": "t", "every": "1h", "overlap": "maybe" }), 400, "overlap"),
        put(json!({ "type": "t", "every": "1h", "nope": 1 }), 400, "nope"),
        put(json!({ "every": "1h" }), 400, "type"),
        put(json!(["t"]), 400, "body"),
        put(json!({ "type": "t", "every": "1h", "missed": ["all"] }), 400, "missed"),
        patch(json!({ "paused": "yes" }), 400, "paused"),
        patch(json!({ "concurrency": -1 }), 400, "concurrency"),
        patch(json!({ "rateLimit": { "limit": 0, "per": "1s" } }), 400, "rateLimit.limit"),
        patch(json!({ "rateLimit": { "limit": 1, "per": "0s" } }), 400, "rateLimit.per"),
        patch(json!({ "rateLimit": { "limit": 1 } }), 400, "rateLimit.per"),
        patch(json!({ "rateLimit": { "limit": 1, "per": "1s", "nope": 1 } }), 400, "rateLimit.nope"),
        patch(json!({ "rateLimit": [1, "1s"] }), 400, "rateLimit"),
        patch(json!([true]), 400, "body"),
        patch(json!({ "nope": 1 }), 400, "nope"),
    ];
    check(&mut node, rows).await;
}

#[tokio::test]
async fn a_bad_word_of_a_worker_names_its_field() {
    let mut node = server().start().await;
    let post = |verb: &str, body: Value, status, field| row("POST", &format!("/v1/worker/{verb}"), body, status, field);
    let register = |extra: Value, field| {
        let mut body = json!({ "workerId": "w", "name": "w", "queues": ["q"], "concurrency": 1 });
        for (key, value) in extra.as_object().expect("an object") {
            body[key] = value.clone();
        }
        post("register", body, 400, field)
    };
    let event = |extra: Value, field| {
        let mut event = json!({ "jobId": UNKNOWN, "executionId": UNKNOWN, "kind": "started" });
        for (key, value) in extra.as_object().expect("an object") {
            event[key] = value.clone();
        }
        post("report", json!({ "workerId": "w", "events": [event] }), 400, field)
    };
    let known = json!({ "workerId": "w", "name": "w", "queues": ["q"], "concurrency": 1 });
    node.http().post("/v1/worker/register", known).await.expect("a response").expect(200);
    let rows = vec![
        register(json!({ "queues": [] }), "queues"),
        register(json!({ "queues": "q" }), "queues"),
        register(json!({ "queues": [""] }), "queues[0]"),
        register(json!({ "concurrency": 0 }), "concurrency"),
        register(json!({ "concurrency": 100_001 }), "concurrency"),
        register(json!({ "workerId": "" }), "workerId"),
        register(json!({ "nope": 1 }), "nope"),
        post("poll", json!({ "workerId": "w", "max": -1 }), 400, "max"),
        post("poll", json!({ "workerId": "w", "max": 1, "wait": "-1s" }), 400, "wait"),
        post("poll", json!({ "max": 1 }), 400, "workerId"),
        event(json!({ "kind": "exploded" }), "events[0].kind"),
        event(json!({ "executionId": "x" }), "events[0].executionId"),
        event(json!({ "nope": 1 }), "events[0].nope"),
        event(json!({ "kind": "progress", "percent": 256 }), "events[0].percent"),
        event(json!({ "kind": { "started": null } }), "events[0].kind"),
        post("report", json!({ "workerId": "w", "events": [[UNKNOWN, UNKNOWN, "started"]] }), 400, "events[0]"),
        post("report", json!(["w", []]), 400, "body"),
        post("register", json!(["w", "w", ["q"], 1]), 400, "body"),
        post("poll", json!(["w", 1, "0s"]), 400, "body"),
        post("leave", json!(["w"]), 400, "body"),
        post("heartbeat", json!(["w", []]), 400, "body"),
        post("heartbeat", json!({ "workerId": "w", "running": ["x"] }), 400, "running[0]"),
        post("nothing", json!({}), 404, ""),
    ];
    let rows = rows.into_iter().map(|row| Row { field: row.field.filter(|field| !field.is_empty()), ..row });
    check(&mut node, rows.collect()).await;
}

/// Not even HTTP. The response does not matter, as long as it is no 5xx and the server stays.
#[tokio::test]
async fn nonsense_on_the_socket_harms_nobody() {
    let mut node = server().start().await;
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n";
    let requests: Vec<Vec<u8>> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET http://[::1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(),
        format!("GET /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "x".repeat(100_000)).into_bytes(),
        format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\nconnection: close\r\n\r\n", "y".repeat(1 << 20)).into_bytes(),
        format!("{head}content-length: -1\r\n\r\n").into_bytes(),
        format!("{head}content-length: 99999999999999999999\r\n\r\n").into_bytes(),
        format!("{head}content-length: 5\r\ncontent-length: 6\r\n\r\n{{}}   ").into_bytes(),
        format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n").into_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
    ];
    for request in requests {
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        if let Ok(Ok(response)) =
            tokio::time::timeout(std::time::Duration::from_secs(5), node.http().send_raw(&request)).await
        {
            assert!(response.status < 500, "{shown:?}: {} {}", response.status, response.text());
        }
    }
    // A client that goes away in the middle of its body.
    drop_halfway(node.http()).await;
    unharmed(&mut node).await;
}

async fn drop_halfway(http: &Http) {
    use tokio::io::AsyncWriteExt;
    for _ in 0..50 {
        let mut stream = tokio::net::TcpStream::connect(http.address()).await.expect("a connection");
        let part = "POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{\"type\":\"t\"";
        stream.write_all(part.as_bytes()).await.expect("half a request");
    }
}
