//! The document is complete, and correct.

mod requests;
mod responses;
mod schema;

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::Value;

use super::{World, request};

/// Every path of the API, with its methods.
const ROUTES: &[(&str, &[&str])] = &[
    ("/health", &["get"]),
    ("/livez", &["get"]),
    ("/readyz", &["get"]),
    ("/metrics", &["get"]),
    ("/openapi.json", &["get"]),
    ("/v1/jobs", &["get", "post"]),
    ("/v1/jobs/batch", &["post"]),
    ("/v1/jobs/{id}", &["get"]),
    ("/v1/jobs/{id}/history", &["get"]),
    ("/v1/jobs/{id}/logs", &["get"]),
    ("/v1/jobs/{id}/logs/stream", &["get"]),
    ("/v1/jobs/bulk", &["post"]),
    ("/v1/jobs/{id}/cancel", &["post"]),
    ("/v1/jobs/{id}/retry", &["post"]),
    ("/v1/schedules", &["get"]),
    ("/v1/schedules/{name}", &["delete", "get", "put"]),
    ("/v1/schedules/{name}/pause", &["post"]),
    ("/v1/schedules/{name}/resume", &["post"]),
    ("/v1/schedules/{name}/trigger", &["post"]),
    ("/v1/schedules/{name}/ticks", &["get"]),
    ("/v1/queues", &["get"]),
    ("/v1/queues/{name}", &["delete", "get", "patch"]),
    ("/v1/dead-letters", &["get"]),
    ("/v1/dead-letters/groups", &["get"]),
    ("/v1/dead-letters/retry", &["post"]),
    ("/v1/dead-letters/purge", &["post"]),
    ("/v1/workers", &["get"]),
    ("/v1/workers/{id}", &["get"]),
    ("/v1/nodes", &["get"]),
    ("/v1/nodes/{id}", &["get"]),
    ("/v1/nodes/{id}/drain", &["post"]),
    ("/v1/nodes/{id}/jobs", &["get"]),
    ("/v1/cluster", &["get"]),
    ("/v1/timeseries", &["get"]),
    ("/v1/elections", &["get"]),
    ("/v1/elections/{namespace}", &["get"]),
    ("/v1/mesh", &["get"]),
    ("/v1/mesh/{mesh}", &["get"]),
    ("/v1/mesh/{mesh}/call", &["post"]),
    ("/v1/cluster/terms", &["get"]),
    ("/v1/cluster/refusals", &["get"]),
    ("/v1/cluster/handoffs", &["get"]),
    ("/v1/shards/{service}/history", &["get"]),
    ("/v1/events", &["get"]),
    ("/v1/audit", &["get"]),
    ("/v1/sessions", &["delete"]),
    ("/v1/worker/register", &["post"]),
    ("/v1/worker/poll", &["post"]),
    ("/v1/worker/report", &["post"]),
    ("/v1/shards", &["get"]),
    ("/v1/shards/{service}", &["get"]),
    ("/v1/worker/heartbeat", &["post"]),
    ("/v1/worker/leave", &["post"]),
];

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
}

async fn document(world: &World) -> Value {
    let response = world.get("/openapi.json").await;
    assert_eq!((response.status, response.header("content-type")), (StatusCode::OK, "application/json"));
    response.body
}

#[tokio::test]
async fn every_route_is_documented_and_every_document_routed() {
    let world = World::new().await;
    let document = document(&world).await;
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    assert_eq!(keys(&document["paths"]), ROUTES.iter().map(|(path, _)| *path).collect());
    for (path, methods) in ROUTES {
        let item = &document["paths"][path];
        assert_eq!(keys(item), methods.iter().copied().collect(), "{path}");
        for method in *methods {
            let operation = &item[method];
            assert!(operation["summary"].is_string(), "{method} {path} has a summary");
            let named: BTreeSet<_> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .iter()
                .filter(|parameter| parameter["in"] == "path")
                .filter_map(|parameter| parameter["name"].as_str())
                .collect();
            let wanted: BTreeSet<_> =
                path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).collect();
            assert_eq!(named, wanted, "{method} {path}");
            assert!(keys(&operation["responses"]).iter().any(|status| status.starts_with('2')), "{method} {path}");
        }
        let concrete = path.replace("{id}", super::NO_ID).replace("{name}", "n");
        let other = world.answer(request("TRACE", &concrete, "")).await;
        assert_eq!(other.status, StatusCode::METHOD_NOT_ALLOWED, "{path} is routed");
    }
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let world = World::new().await;
    let document = document(&world).await;
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// Descriptions are the comments of the types, written for a user of the API.
#[tokio::test]
async fn every_schema_is_described_without_links_into_the_code() {
    let world = World::new().await;
    let document = document(&world).await;
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        assert!(schema["description"].is_string(), "{name} has no description");
        assert!(!schema.to_string().contains("[`"), "{name} has a link that only rustdoc resolves: {schema}");
    }
}

#[tokio::test]
async fn pages_come_from_the_binary_alone() {
    let world = World::new().await;
    let page = world.get("/").await;
    let text = page.body.as_str().expect("a page");
    for part in ["node-1", "memory:", "0.0.0-test", "/docs/", "/openapi.json", "/metrics", "/health"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("http://") && !text.contains("https://"), "nothing from elsewhere");
    let docs = world.get("/docs/").await;
    assert_eq!(docs.status, StatusCode::OK);
    assert!(docs.body.as_str().is_some_and(|text| text.contains("swagger")));
    let script = world.get("/docs/swagger-initializer.js").await;
    assert!(script.body.as_str().is_some_and(|text| text.contains("/openapi.json")));
}
