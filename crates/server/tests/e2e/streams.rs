//! Server-sent events: what happens, as it happens.

use convoke_testkit::invariants::Observations;
use convoke_testkit::process::{GatewayWorker, Handling, Plan};
use serde_json::{Value, json};

use super::server;

#[tokio::test]
async fn the_life_of_a_job_is_told_in_order() {
    let node = server().start().await;
    let mut events = node.http().sse("/v1/events").await.expect("a stream");
    let id = node.enqueued(json!({ "type": "mail", "queue": "q" })).await;
    let plan = Plan::new("w", "q", |_| Handling::Complete(Value::Null));
    let _worker = GatewayWorker::start(node.http(), &Observations::default(), plan).await;
    let mut reported = Vec::new();
    let last = events
        .wait_for("job:completed", |event| {
            let body = event.json();
            if body["jobId"] == id.as_str() {
                reported.push(event.event.clone().unwrap_or_default());
            }
            body["jobId"] == id.as_str() && event.event.as_deref() == Some("job:completed")
        })
        .await
        .json();
    assert_eq!((&last["type"], &last["queue"], &last["attempt"]), (&json!("mail"), &json!("q"), &json!(1)));
    assert!(last["at"].is_string(), "{last}");
    assert_eq!(reported.iter().filter(|name| *name == "job:completed").count(), 1, "{reported:?}");
    assert_eq!(reported.first().map(String::as_str), Some("job:pending"), "{reported:?}");
}

#[tokio::test]
async fn logs_are_replayed_followed_and_ended() {
    let node = server().start().await;
    let http = node.http();
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let body = json!({ "workerId": "w", "name": "w", "queues": ["q"], "concurrency": 1 });
    http.post("/v1/worker/register", body).await.expect("a response").expect(200);
    let body = json!({ "workerId": "w", "max": 1, "wait": "20s" });
    let run = http.post("/v1/worker/poll", body).await.expect("a response").expect(200)["jobs"][0].clone();
    let event = |kind: &str, message: &str| {
        let mut event = json!({ "jobId": run["jobId"], "executionId": run["executionId"], "kind": kind });
        if kind == "log" {
            event["message"] = message.into();
            event["level"] = "warn".into();
        }
        json!({ "workerId": "w", "events": [event] })
    };
    http.post("/v1/worker/report", event("log", "first")).await.expect("a response").expect(200);
    let mut stream = http.sse(&format!("/v1/jobs/{id}/logs/stream")).await.expect("a stream");
    let is = |text: &'static str| move |event: &convoke_testkit::process::SseEvent| event.json()["message"] == text;
    let first = stream.wait_for("what was there", is("first")).await.json();
    assert_eq!((&first["level"], &first["seq"]), (&json!("warn"), &json!(1)));
    http.post("/v1/worker/report", event("log", "second")).await.expect("a response").expect(200);
    stream.wait_for("what is new", is("second")).await;
    http.post("/v1/worker/report", event("completed", "")).await.expect("a response").expect(200);
    stream.wait_for("the end", |event| event.event.as_deref() == Some("end")).await;
    let page = http.get(&format!("/v1/jobs/{id}/logs?after=1&limit=10")).await.expect("a response").expect(200);
    assert_eq!(page["logs"].as_array().map(Vec::len), Some(1), "{page}");
    assert_eq!((&page["logs"][0]["message"], &page["nextAfter"]), (&json!("second"), &json!(2)));
}
