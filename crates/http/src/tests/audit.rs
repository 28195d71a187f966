//! Every act of an operator leaves an entry.

use serde_json::{Value, json};

use super::access::{guarded, send};
use super::{NO_ID, World, request};

async fn entries(world: &World) -> Vec<Value> {
    let response = send(world, "read", "GET", "/v1/audit?limit=1000", Value::Null).await;
    assert_eq!(response.status, 200, "{}", response.body);
    response.body["entries"].as_array().expect("a list").clone()
}

/// Does an act and returns its entry.
async fn recorded(world: &World, method: &str, path: &str, body: Value) -> Value {
    let count = entries(world).await.len();
    let response = send(world, "admin", method, path, body).await;
    assert!(response.status.is_success(), "{method} {path}: {} {}", response.status, response.body);
    let entries = entries(world).await;
    assert_eq!(entries.len(), count + 1, "{method} {path} leaves one entry");
    let entry = entries[0].clone();
    assert_eq!((&entry["who"], &entry["via"], &entry["node"]), (&json!("admin"), &json!("api"), &json!("node-1")));
    entry
}

async fn dead_letter(world: &World, worker: &str) -> String {
    let call = async |name: &str, path: &str, body: Value| send(world, name, "POST", path, body).await.body;
    call("worker", "/v1/worker/register", json!({"workerId": worker, "queues": ["dead"], "concurrency": 9})).await;
    let job = call("enqueue", "/v1/jobs", json!({"type": "t", "queue": "dead", "maxRetries": 0})).await;
    let run = loop {
        let polled = call("worker", "/v1/worker/poll", json!({"workerId": worker, "max": 1, "wait": "20s"})).await;
        if let Some(run) = polled["jobs"].get(0) {
            break run.clone();
        }
    };
    let event = json!({"jobId": run["jobId"], "executionId": run["executionId"], "kind": "failed", "error": "e"});
    call("worker", "/v1/worker/report", json!({"workerId": worker, "events": [event]})).await;
    job["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn every_request_of_the_document_that_changes_something_leaves_an_entry() {
    let world = guarded().await;
    let mut done = Vec::new();
    let mut act = async |method: &str, template: &str, path: &str, body: Value, action: &str| {
        let entry = recorded(&world, method, path, body).await;
        assert_eq!(entry["action"], action, "{method} {path}: {entry}");
        done.push((method.to_lowercase(), template.to_owned()));
        entry
    };

    let job = send(&world, "enqueue", "POST", "/v1/jobs", json!({"type": "t", "delay": "1h"})).await.body;
    let id = job["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/jobs/{id}/cancel");
    let entry = act("POST", "/v1/jobs/{id}/cancel", &path, json!({"reason": "too late"}), "job.cancel").await;
    assert_eq!((&entry["target"], &entry["before"]["status"]), (&json!(id), &json!("scheduled")));
    assert_eq!((&entry["after"]["status"], &entry["after"]["reason"]), (&json!("cancelled"), &json!("too late")));
    let entry = act("POST", "/v1/jobs/{id}/retry", &format!("/v1/jobs/{id}/retry"), Value::Null, "job.retry").await;
    assert_eq!((&entry["before"]["status"], &entry["after"]["status"]), (&json!("cancelled"), &json!("pending")));

    let bulk = json!({"action": "cancel", "filter": {"queue": "none"}});
    let entry = act("POST", "/v1/jobs/bulk", "/v1/jobs/bulk", bulk, "jobs.cancel").await;
    assert_eq!((&entry["target"], &entry["after"]), (&json!("queue:none"), &json!({"done": 0, "skipped": 0})));

    let entry = act("PATCH", "/v1/queues/{name}", "/v1/queues/mail", json!({"paused": true}), "queue.pause").await;
    assert_eq!((&entry["target"], &entry["before"]), (&json!("mail"), &Value::Null));
    assert_eq!(entry["after"]["paused"], true);
    let entry = act("PATCH", "/v1/queues/{name}", "/v1/queues/mail", json!({"concurrency": 3}), "queue.limit").await;
    assert_eq!((&entry["before"]["concurrency"], &entry["after"]["concurrency"]), (&Value::Null, &json!(3)));
    act("PATCH", "/v1/queues/{name}", "/v1/queues/mail", json!({"paused": false}), "queue.resume").await;
    let entry = act("DELETE", "/v1/queues/{name}", "/v1/queues/mail", Value::Null, "queue.delete").await;
    assert_eq!((&entry["before"]["concurrency"], &entry["after"]), (&json!(3), &Value::Null));

    let spec = |args: &str| json!({"type": "t", "every": "1h", "args": args});
    let put = "/v1/schedules/{name}";
    let entry = act("PUT", put, "/v1/schedules/n%2Fa", spec("secret"), "schedule.create").await;
    assert_eq!((&entry["target"], &entry["before"]), (&json!("n/a"), &Value::Null));
    assert!(!entry.to_string().contains("secret"), "no arguments: {entry}");
    let entry = act("PUT", put, "/v1/schedules/n%2Fa", spec("hidden"), "schedule.update").await;
    assert_eq!(entry["after"]["args"], "(8 bytes, changed)");
    for verb in ["pause", "resume"] {
        let (template, path) = (format!("{put}/{verb}"), format!("/v1/schedules/n%2Fa/{verb}"));
        let entry = act("POST", &template, &path, Value::Null, &format!("schedule.{verb}")).await;
        assert_eq!(entry["after"]["paused"], verb == "pause");
    }
    let (template, path) = (format!("{put}/trigger"), "/v1/schedules/n%2Fa/trigger");
    let entry = act("POST", &template, path, Value::Null, "schedule.trigger").await;
    assert!(entry["after"]["jobId"].is_string(), "{entry}");
    act("DELETE", put, "/v1/schedules/n%2Fa", Value::Null, "schedule.remove").await;

    let id = dead_letter(&world, "w").await;
    let entry =
        act("POST", "/v1/dead-letters/retry", "/v1/dead-letters/retry", json!({"ids": [id]}), "dead.retry").await;
    assert_eq!((&entry["target"], &entry["after"]), (&json!(id), &json!({"retried": 1})));
    let purge = json!({"queue": "dead"});
    let entry = act("POST", "/v1/dead-letters/purge", "/v1/dead-letters/purge", purge, "dead.purge").await;
    assert_eq!(entry["target"], "queue:dead");

    let _instance = super::mesh::instance("audited", "host-1").await;
    let call = json!({"instanceId": 1, "type": "echo", "data": {"key": "secret"}});
    let entry = act("POST", "/v1/mesh/{mesh}/call", "/v1/mesh/audited/call", call, "mesh.call").await;
    assert_eq!(entry["target"], "audited 1 echo");
    assert!(!entry.to_string().contains("secret"), "no data: {entry}");

    act("DELETE", "/v1/sessions", "/v1/sessions", Value::Null, "sessions.end").await;
    let entry = act("POST", "/v1/nodes/{id}/drain", "/v1/nodes/node-1/drain", Value::Null, "node.drain").await;
    assert_eq!((&entry["target"], &entry["after"]["state"]), (&json!("node-1"), &json!("draining")));

    // No other request of the document changes something.
    let document = world.get("/openapi.json").await.body;
    for (template, item) in document["paths"].as_object().expect("paths") {
        let clients = ["/v1/jobs", "/v1/jobs/batch"].contains(&&**template) || template.starts_with("/v1/worker/");
        for method in item.as_object().expect("operations").keys().filter(|method| *method != "get" && !clients) {
            assert!(done.contains(&(method.clone(), template.clone())), "{method} {template} has no case here");
        }
    }
}

#[tokio::test]
async fn what_changes_nothing_leaves_no_entry() {
    let world = guarded().await;
    send(&world, "enqueue", "POST", "/v1/jobs", json!({"type": "t"})).await;
    send(&world, "enqueue", "POST", "/v1/jobs/batch", json!({"jobs": [{"type": "t"}]})).await;
    for (name, method, path, body) in [
        ("admin", "GET", "/v1/queues", Value::Null),
        ("admin", "POST", "/v1/jobs/bulk", json!({"action": "cancel", "filter": {"all": true}, "dryRun": true})),
        ("admin", "POST", "/v1/jobs/x/cancel", Value::Null),
        ("admin", "PATCH", "/v1/queues/q", json!({"concurrency": 0})),
        ("admin", "DELETE", "/v1/queues/none", Value::Null),
        ("read", "PATCH", "/v1/queues/q", json!({"paused": true})),
        ("", "PATCH", "/v1/queues/q", json!({"paused": true})),
    ] {
        send(&world, name, method, path, body).await;
    }
    send(&world, "admin", "POST", &format!("/v1/jobs/{NO_ID}/cancel"), Value::Null).await;
    assert_eq!(entries(&world).await, Vec::<Value>::new());
}

#[tokio::test]
async fn the_audit_is_filtered_and_paged_and_tells_the_command_line() {
    let world = guarded().await;
    for name in ["a", "b", "c"] {
        let mut patch = request("PATCH", &format!("/v1/queues/{name}"), r#"{"paused":true}"#);
        patch.headers_mut().insert("authorization", "Bearer admin-token".parse().expect("a header"));
        patch.headers_mut().insert("x-convoke-via", "cli".parse().expect("a header"));
        assert_eq!(world.answer(patch).await.status, 200);
    }
    let get = async |query: &str| send(&world, "read", "GET", &format!("/v1/audit{query}"), Value::Null).await;
    let targets = |body: &Value| {
        let entries = body["entries"].as_array().into_iter().flatten();
        entries.filter_map(|entry| entry["target"].as_str()).collect::<String>()
    };
    let first = get("?limit=2").await.body;
    assert_eq!((targets(&first), &first["entries"][0]["via"]), ("cb".into(), &json!("cli")));
    let cursor = first["nextCursor"].as_str().expect("a cursor");
    let last = get(&format!("?limit=2&cursor={cursor}")).await.body;
    assert_eq!((targets(&last), &last["nextCursor"]), ("a".into(), &Value::Null));
    assert_eq!(targets(&get("?target=b&who=admin&action=queue.pause").await.body), "b");
    assert_eq!(targets(&get("?after=2000-01-01T00:00:00Z&before=2001-01-01T00:00:00Z").await.body), "");
    for bad in ["?after=yesterday", "?cursor=x", "?limit=0", "?nothing=1", "?who=a&who=b"] {
        assert_eq!(get(bad).await.status, 400, "{bad}");
    }
    assert_eq!(send(&world, "worker", "GET", "/v1/audit", Value::Null).await.status, 403);
}
