//! Each role sends every request of the document: exactly the allowed ones succeed. Payloads stay hidden in all of them.

use serde_json::{Value, json};

use super::{NO_ID, TestResponse, World, request};
use crate::{Access, Role, Token};

/// A text that is in every payload.
const PAYLOAD: &str = "s3cret-payload";

/// A server with a token for each role, and one that hides payloads.
pub async fn guarded() -> World {
    World::with(Access::tokens([
        token("read", Role::Read, false),
        token("enqueue", Role::Enqueue, false),
        token("worker", Role::Worker, false),
        token("admin", Role::Admin, false),
        token("blind", Role::Admin, true),
    ]))
    .await
}

fn token(name: &str, role: Role, payloads_hidden: bool) -> Token {
    Token { token: format!("{name}-token"), role, name: Some(name.into()), payloads_hidden }
}

/// Sends a request with the token of a name.
pub async fn send(world: &World, name: &str, method: &str, path: &str, body: Value) -> TestResponse {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut sent = request(method, path, body);
    if !name.is_empty() {
        let header = format!("Bearer {name}-token").parse().expect("a header");
        sent.headers_mut().insert("authorization", header);
    }
    world.answer(sent).await
}

/// Every operation of the document, with its method in capitals and its parameters filled in.
async fn operations(world: &World) -> Vec<(String, String)> {
    let document = world.get("/openapi.json").await.body;
    let paths = document["paths"].as_object().expect("paths").clone();
    let mut operations = Vec::new();
    for (path, item) in paths {
        let path = path.replace("{id}", NO_ID).replace("{name}", "n").replace("{service}", "s");
        for method in item.as_object().expect("operations").keys() {
            operations.push((method.to_uppercase(), path.clone()));
        }
    }
    operations
}

#[tokio::test]
async fn each_role_may_send_exactly_its_requests() {
    let world = guarded().await;
    let open = ["/livez", "/readyz", "/health", "/openapi.json"];
    let mut counted = 0;
    for (method, path) in operations(&world).await {
        let needed = match (&*method, &*path) {
            (_, path) if open.contains(&path) => "",
            (_, path) if path.starts_with("/v1/worker/") => "worker admin",
            ("GET", _) => "read enqueue admin",
            ("POST", "/v1/jobs/bulk") => "admin",
            ("POST", path) if path == "/v1/jobs" || path.starts_with("/v1/jobs/") => "enqueue admin",
            _ => "admin",
        };
        if path == "/v1/events" || path.ends_with("/stream") {
            continue;
        }
        counted += 1;
        for name in ["", "read", "enqueue", "worker", "admin"] {
            let response = send(&world, name, &method, &path, Value::Null).await;
            let is_allowed = needed.is_empty() || (!name.is_empty() && needed.split(' ').any(|role| role == name));
            let refused = if name.is_empty() { 401 } else { 403 };
            // A request without a body is rejected as such only after its sender was admitted.
            let is_admitted = ![401, 403].contains(&response.status.as_u16());
            assert_eq!(is_admitted, is_allowed, "{name:?} {method} {path}: {} {}", response.status, response.body);
            assert!(is_allowed || response.status == refused, "{name:?} {method} {path}: {}", response.status);
        }
    }
    assert!(counted > 30, "the operations are found: {counted}");
}

/// A job that completed, one that failed, one with progress, and a schedule, with a payload in each of their fields.
async fn payloads(world: &World) -> Vec<String> {
    let args = json!({ "key": PAYLOAD });
    let call = async |name: &str, path: &str, body: Value| {
        let response = send(world, name, "POST", path, body).await;
        assert!(response.status.is_success(), "{path}: {}", response.body);
        response.body
    };
    call("worker", "/v1/worker/register", json!({"workerId": "w", "queues": ["default"], "concurrency": 9})).await;
    let mut ids = Vec::new();
    for end in ["completed", "failed", "running"] {
        let job = call("enqueue", "/v1/jobs", json!({"type": "t", "args": args, "maxRetries": 0})).await;
        ids.push(job["id"].as_str().expect("an id").to_owned());
        let run = loop {
            let poll = json!({"workerId": "w", "max": 1, "wait": "20s"});
            if let Some(run) = call("worker", "/v1/worker/poll", poll).await["jobs"].get(0) {
                break run.clone();
            }
        };
        assert_eq!(run["args"]["key"], PAYLOAD, "a worker gets the arguments");
        let event = |more: Value| {
            let mut event = json!({"jobId": run["jobId"], "executionId": run["executionId"]});
            event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            event
        };
        let mut events = vec![
            event(json!({"kind": "started"})),
            event(json!({"kind": "log", "level": "info", "message": PAYLOAD, "seq": 1})),
            event(json!({"kind": "progress", "percent": 4, "message": PAYLOAD})),
        ];
        match end {
            "completed" => events.push(event(json!({"kind": "completed", "result": [PAYLOAD]}))),
            "failed" => events.push(event(json!({"kind": "failed", "error": PAYLOAD}))),
            _ => {}
        }
        call("worker", "/v1/worker/report", json!({"workerId": "w", "events": events})).await;
    }
    let schedule = json!({"type": "t", "every": "1h", "args": args});
    let put = send(world, "admin", "PUT", "/v1/schedules/n", schedule).await;
    assert_eq!(put.status, 201, "{}", put.body);
    ids
}

#[tokio::test]
async fn a_token_with_hidden_payloads_sees_none_in_any_response() {
    let world = guarded().await;
    let ids = payloads(&world).await;
    let (mut read, mut shown) = (0, 0);
    for (method, path) in operations(&world).await {
        if method != "GET" || path == "/v1/events" {
            continue;
        }
        let paths: Vec<String> = match path.contains(NO_ID) && path.starts_with("/v1/jobs/") {
            true => ids.iter().map(|id| path.replace(NO_ID, id)).collect(),
            false => vec![path],
        };
        for path in paths {
            // The stream of a live job does not end.
            if path.ends_with("/stream") && path.contains(&ids[2]) {
                continue;
            }
            read += 1;
            let hidden = send(&world, "blind", "GET", &path, Value::Null).await;
            assert!(!hidden.body.to_string().contains(PAYLOAD), "{path}: {}", hidden.body);
            let open = send(&world, "admin", "GET", &path, Value::Null).await;
            assert_eq!(hidden.status, open.status, "{path}");
            shown += usize::from(open.body.to_string().contains(PAYLOAD));
        }
    }
    let [completed, failed, running] = &ids[..] else { panic!("three jobs") };
    for path in [
        "/".into(),
        "/jobs".into(),
        "/jobs/export".into(),
        format!("/jobs/{completed}"),
        format!("/jobs/{failed}"),
        format!("/jobs/{running}"),
        format!("/jobs/new?copy={failed}"),
        "/dead-letters".into(),
        "/schedules".into(),
        "/schedules/n".into(),
        "/schedules/n/edit".into(),
        "/queues".into(),
        "/queues/default".into(),
        "/workers".into(),
        "/activity".into(),
    ] {
        let hidden = send(&world, "blind", "GET", &path, Value::Null).await;
        assert!(!hidden.body.to_string().contains(PAYLOAD), "{path}: {}", hidden.body);
    }
    assert!(read > 25 && shown >= 10, "the check sees payloads where they are shown: {shown} of {read}");
    // The responses of requests that change something have none either.
    for (method, path, body) in [
        ("POST", format!("/v1/jobs/{}/cancel", ids[2]), Value::Null),
        ("POST", format!("/v1/jobs/{}/retry", ids[1]), Value::Null),
        ("POST", "/v1/schedules/n/pause".into(), Value::Null),
        ("POST", "/v1/schedules/n/resume".into(), Value::Null),
        ("POST", "/v1/schedules/n/trigger".into(), Value::Null),
        ("PUT", "/v1/schedules/n".into(), json!({"type": "t", "every": "2h", "args": PAYLOAD})),
        ("POST", "/v1/jobs".into(), json!({"type": "t", "args": PAYLOAD})),
    ] {
        let response = send(&world, "blind", method, &path, body).await;
        assert!(response.status.is_success(), "{path}: {}", response.body);
        assert!(!response.body.to_string().contains(PAYLOAD), "{path}: {}", response.body);
    }
}

#[tokio::test]
async fn hidden_payloads_are_marked_the_same_everywhere() {
    let world = guarded().await;
    let ids = payloads(&world).await;
    let get = async |path: String| send(&world, "blind", "GET", &path, Value::Null).await.body;
    let failed = get(format!("/v1/jobs/{}", ids[1])).await;
    assert_eq!((&failed["args"], &failed["error"]), (&Value::Null, &json!("(hidden)")));
    let completed = get(format!("/v1/jobs/{}", ids[0])).await;
    assert_eq!((&completed["result"], &completed["error"]), (&Value::Null, &Value::Null));
    assert_eq!(get(format!("/v1/jobs/{}/logs", ids[0])).await["logs"][0]["message"], "(hidden)");
    assert_eq!(get(format!("/v1/jobs/{}/history", ids[1])).await["executions"][0]["error"], "(hidden)");
    assert_eq!(get("/v1/dead-letters".into()).await["deadLetters"][0]["error"], "(hidden)");
    assert_eq!(get("/v1/schedules/n".into()).await["args"], Value::Null);
}
