//! The schemas of requests name the fields that are accepted, with their limits.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke_core::jobs::cron::DayRule;
use convoke_core::jobs::schedule::{Missed, Overlap};
use convoke_core::jobs::template::{JobTemplate, TAGS_MAX};
use convoke_core::jobs::{JobSpec, Priority, RateLimit, RetryPolicy, ScheduleSpec};
use convoke_core::limits::{
    BATCH_JOBS_MAX, NAME_BYTES_MAX, PAGE_MAX, POLL_JOBS_MAX, REPORT_EVENTS_MAX, RETRIES_MAX, WORKER_CONCURRENCY_MAX,
    WORKER_QUEUES_MAX,
};
use convoke_core::{JobType, Json, QueueName};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{NO_ID, World};
use super::{document, keys};

/// No field has this name.
const UNKNOWN: &str = "no such field";

/// Returns the names in the parser's message about an unknown field.
fn accepted(message: &str) -> BTreeSet<String> {
    let (_, names) = message.split_once("expected").unwrap_or_else(|| panic!("no fields are named: {message}"));
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A template with every field.
fn full_template() -> JobTemplate {
    let second = Some(Duration::from_secs(1));
    JobTemplate {
        job_type: JobType::new("t").expect("a name"),
        queue: Some(QueueName::new("q").expect("a name")),
        args: Json::of(&1).ok(),
        priority: Some(Priority::High),
        max_retries: Some(1),
        retry_policy: Some(RetryPolicy::default()),
        timeout: second,
        correlation_id: Some("c".into()),
        tags: Some(vec!["a".into()]),
        unique_key: Some("k".into()),
        unique_for: second,
    }
}

/// For types whose parser names no fields: serialises a value with every field, and parses it again.
fn written(schema: &str) -> Option<Value> {
    let (template, second) = (full_template(), Some(Duration::from_secs(1)));
    match schema {
        "JobSpec" => {
            let id = NO_ID.parse().ok();
            let spec = JobSpec { id, template, delay: second, run_at: Some(Timestamp::UNIX_EPOCH) };
            let value = serde_json::to_value(&spec).expect("serialises");
            assert_eq!(serde_json::from_str::<JobSpec>(&value.to_string()).expect("reads"), spec);
            Some(value)
        }
        "ScheduleSpec" => {
            let spec = ScheduleSpec {
                template,
                cron: Some("@hourly".into()),
                every: second,
                tz: Some("UTC".into()),
                day: Some(DayRule::Or),
                missed: Some(Missed::All),
                overlap: Some(Overlap::Skip),
                paused: Some(true),
            };
            let value = serde_json::to_value(&spec).expect("serialises");
            let read: ScheduleSpec = serde_json::from_str(&value.to_string()).expect("reads");
            assert_eq!(serde_json::to_value(read).expect("serialises"), value);
            Some(value)
        }
        _ => None,
    }
}

/// A request that wraps an object of a schema.
type Wrap = fn(Value) -> Value;

#[tokio::test]
async fn requests_have_exactly_the_fields_that_their_schema_names() {
    let world = World::new().await;
    let document = document(&world).await;
    let cancel = "/v1/jobs/0198c0de-0000-7000-8000-000000000000/cancel";
    let cases: [(&str, &str, &str, Wrap); 17] = [
        ("JobSpec", "POST", "/v1/jobs", |it| it),
        ("RetryPolicy", "POST", "/v1/jobs", |it| json!({"type": "t", "retryPolicy": it})),
        ("Batch", "POST", "/v1/jobs/batch", |it| it),
        ("Cancel", "POST", cancel, |it| it),
        ("BulkRequest", "POST", "/v1/jobs/bulk", |it| it),
        ("JobFilter", "POST", "/v1/jobs/bulk", |it| json!({"action": "cancel", "filter": it})),
        ("ScheduleSpec", "PUT", "/v1/schedules/s", |it| it),
        ("QueuePatch", "PATCH", "/v1/queues/q", |it| it),
        ("RateLimit", "PATCH", "/v1/queues/q", |it| json!({"rateLimit": it})),
        ("DeadSelection", "POST", "/v1/dead-letters/retry", |it| it),
        ("Register", "POST", "/v1/worker/register", |it| it),
        ("MeshCallRequest", "POST", "/v1/mesh/m/call", |it| it),
        ("Poll", "POST", "/v1/worker/poll", |it| it),
        ("Report", "POST", "/v1/worker/report", |it| it),
        ("RunEvent", "POST", "/v1/worker/report", |it| json!({"workerId": "w", "events": [it]})),
        ("Heartbeat", "POST", "/v1/worker/heartbeat", |it| it),
        ("Leave", "POST", "/v1/worker/leave", |it| it),
    ];
    for (name, method, path, wrap) in &cases {
        let refused = world.send(method, path, wrap(json!({UNKNOWN: 1}))).await;
        let message = refused.body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(UNKNOWN), "{name}: {message}");
        let schema = &document["components"]["schemas"][name];
        let accepted = match written(name) {
            Some(value) => keys(&value).into_iter().map(str::to_owned).collect(),
            None => accepted(message),
        };
        let documented: BTreeSet<_> = keys(&schema["properties"]).into_iter().map(str::to_owned).collect();
        assert_eq!(accepted, documented, "{name}: {message}");
        assert_eq!(schema["additionalProperties"], false, "{name}");
    }
    let named: BTreeSet<_> = cases.iter().map(|(name, ..)| *name).collect();
    assert_eq!(named, objects_of_requests(&document), "every object that a request may have");
}

/// The components that requests refer to, at any depth, and that have properties.
fn objects_of_requests(document: &Value) -> BTreeSet<&str> {
    let operations = document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
    let operations = operations.filter_map(Value::as_object).flat_map(|item| item.values());
    let mut left: Vec<&Value> = operations.filter_map(|operation| operation.get("requestBody")).collect();
    let mut found = BTreeSet::new();
    while let Some(value) = left.pop() {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let name = reference.rsplit('/').next().unwrap_or_default();
            if found.insert(name) {
                left.push(&document["components"]["schemas"][name]);
            }
        }
        match value {
            Value::Object(object) => left.extend(object.values()),
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    found.into_iter().filter(|name| document["components"]["schemas"][name]["properties"].is_object()).collect()
}

/// A request may omit fields that its schema does not require, and no others.
#[tokio::test]
async fn requests_may_leave_out_what_their_schema_does_not_require() {
    let world = World::new().await;
    let document = document(&world).await;
    world.register("w-1", &["default"]).await;
    let ids = json!({"executionId": NO_ID, "jobId": NO_ID, "kind": "started"});
    let cases: [(&str, &str, &str, Value, Wrap); 9] = [
        ("JobSpec", "POST", "/v1/jobs", json!({"type": "t"}), |it| it),
        ("Batch", "POST", "/v1/jobs/batch", json!({"jobs": [{"type": "t"}]}), |it| it),
        ("RateLimit", "PATCH", "/v1/queues/q", json!({"limit": 1, "per": "1s"}), |it| json!({"rateLimit": it})),
        ("Register", "POST", "/v1/worker/register", json!({"queues": ["q"], "concurrency": 1}), |it| it),
        ("Poll", "POST", "/v1/worker/poll", json!({"workerId": "w-1", "max": 1}), |it| it),
        ("Report", "POST", "/v1/worker/report", json!({"workerId": "w-1", "events": []}), |it| it),
        ("RunEvent", "POST", "/v1/worker/report", ids, |it| json!({"workerId": "w-1", "events": [it]})),
        ("Heartbeat", "POST", "/v1/worker/heartbeat", json!({"workerId": "w-1", "running": []}), |it| it),
        ("Leave", "POST", "/v1/worker/leave", json!({"workerId": "w-1"}), |it| it),
    ];
    for (name, method, path, least, wrap) in cases {
        let required = document["components"]["schemas"][name]["required"].as_array().into_iter().flatten();
        let required: BTreeSet<_> = required.filter_map(Value::as_str).collect();
        assert_eq!(required, keys(&least), "{name}");
        for field in keys(&least) {
            let mut body = least.clone();
            body.as_object_mut().expect("an object").remove(field);
            let refused = world.send(method, path, wrap(body)).await;
            let message = refused.body["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(&format!("missing field `{field}`")), "{name}.{field}: {message}");
        }
        let taken = world.send(method, path, wrap(least)).await;
        assert!(taken.status.is_success(), "{name}: {}", taken.body);
    }
}

/// Attributes of schemas take only literals: each is compared with the constant that the code enforces.
#[tokio::test]
async fn limits_in_the_document_are_those_of_the_code() {
    let world = World::new().await;
    let document = document(&world).await;
    let schemas = &document["components"]["schemas"];
    for (pointer, limit) in [
        ("/QueueName/maxLength", NAME_BYTES_MAX),
        ("/JobType/maxLength", NAME_BYTES_MAX),
        ("/JobSpec/properties/correlationId/maxLength", NAME_BYTES_MAX),
        ("/JobSpec/properties/tags/maxItems", TAGS_MAX),
        ("/JobSpec/properties/uniqueKey/maxLength", NAME_BYTES_MAX),
        ("/JobSpec/properties/maxRetries/maximum", RETRIES_MAX as usize),
        ("/Batch/properties/jobs/maxItems", BATCH_JOBS_MAX),
        ("/DeadSelection/properties/ids/maxItems", BATCH_JOBS_MAX),
        ("/RateLimit/properties/limit/maximum", RateLimit::LIMIT_MAX as usize),
        ("/QueuePatch/properties/concurrency/maximum", WORKER_CONCURRENCY_MAX as usize),
        ("/Register/properties/queues/maxItems", WORKER_QUEUES_MAX),
        ("/Register/properties/concurrency/maximum", WORKER_CONCURRENCY_MAX as usize),
        ("/Poll/properties/max/maximum", POLL_JOBS_MAX),
        ("/Report/properties/events/maxItems", REPORT_EVENTS_MAX),
        ("/Heartbeat/properties/running/maxItems", WORKER_CONCURRENCY_MAX as usize),
    ] {
        let written = schemas.pointer(pointer).and_then(Value::as_f64);
        assert_eq!(written, Some(limit as f64), "{pointer}");
    }
    let parameters = document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
    let parameters = parameters.filter_map(|item| item["get"]["parameters"].as_array()).flatten();
    let pages: Vec<_> = parameters.filter(|parameter| parameter["name"] == "limit").collect();
    assert!(pages.len() >= 4, "the lists are found: {}", pages.len());
    for parameter in pages {
        assert_eq!(parameter["schema"]["maximum"].as_f64(), Some(PAGE_MAX as f64), "{parameter}");
    }
}
