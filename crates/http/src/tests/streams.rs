use axum::body::Body;
use convoke_core::jobs::event::NAMES;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{World, in_time, request};
use crate::events::STREAMS_MAX;

/// Reads server-sent events off a body.
pub struct Reader {
    body: Body,
    text: String,
}

impl Reader {
    pub async fn open(world: &World, path: &str) -> Self {
        Reader::of(world.respond(request("GET", path, "")).await)
    }

    fn of(response: axum::response::Response) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Reader { body: response.into_body(), text: String::new() }
    }

    /// Returns the next event: its name, its id and its data. `None` at the end.
    pub async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().trim().to_owned()
                };
                let (event, id, data) = (field("event:"), field("id:"), field("data:"));
                self.text = rest.to_owned();
                if !event.is_empty() {
                    return Some((event, id, serde_json::from_str(&data).expect("JSON")));
                }
            }
            let frame = in_time("an event", self.body.frame()).await?;
            let data = frame.expect("an unbroken stream").into_data().expect("data");
            self.text.push_str(std::str::from_utf8(&data).expect("text"));
        }
    }
}

#[tokio::test]
async fn a_watcher_hears_what_it_asked_for() {
    let world = World::new().await;
    let mut all = Reader::open(&world, "/v1/events").await;
    let mut cancelled = Reader::open(&world, "/v1/events?types=job:cancelled,leader").await;
    let id = world.enqueue(json!({"type": "t"})).await;
    world.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    let (name, _, data) = all.next().await.expect("an event");
    assert_eq!((name.as_str(), &data["event"], &data["jobId"]), ("job:pending", &json!("job:pending"), &json!(id)));
    assert_eq!(all.next().await.map(|(name, ..)| name).as_deref(), Some("job:cancelled"));
    assert_eq!(cancelled.next().await.map(|(name, ..)| name).as_deref(), Some("job:cancelled"));
}

#[tokio::test]
async fn a_digest_has_the_numbers_of_events_instead_of_each() {
    let world = World::new().await;
    let mut digests = Reader::open(&world, "/v1/events?types=job&every=100ms").await;
    for _ in 0..20 {
        world.enqueue(json!({"type": "t"})).await;
    }
    let (mut counted, mut received) = (0, 0);
    while counted < 20 {
        let (name, _, digest) = digests.next().await.expect("a digest");
        assert_eq!((name.as_str(), &digest["missed"]), ("digest", &json!(0)));
        counted += digest["events"]["job:pending"].as_u64().expect("a number");
        received += 1;
    }
    assert_eq!(counted, 20);
    assert!(received < 20, "each event was sent by itself");
    for every in ["1ms", "2m", "0", "soon"] {
        let refused = world.get(&format!("/v1/events?every={every}")).await;
        assert_eq!((refused.status, refused.field()), (StatusCode::BAD_REQUEST, "every"), "{every}");
    }
}

#[tokio::test]
async fn every_event_can_be_asked_for_and_nothing_else() {
    let world = World::new().await;
    let promised = "leader:changed,workers:updated,contention:detected,circuitBreaker:open,circuitBreaker:halfOpen,\
        circuitBreaker:closed,job:timedOut,node:draining,handoff:orphaned,shards:rebalanced";
    let kinds = "leader,workers,contention,circuitBreaker,job,node,handoff,shards,schedule,worker,lagged";
    for types in [promised, kinds, &NAMES.join(",")] {
        Reader::open(&world, &format!("/v1/events?types={types}")).await;
    }
    for (types, expected) in [
        ("job:bogus", "job or one of job:created, job:pending"),
        ("job:completed,circuitBreaker:ajar", "circuitBreaker or one of circuitBreaker:open"),
        ("weather", "kinds (leader, workers, contention, circuitBreaker, job"),
        ("job:", "job or one of job:created"),
        ("job:completed:twice", "job or one of"),
        ("job,", "kinds (leader"),
    ] {
        let response = world.get(&format!("/v1/events?types={types}")).await;
        let error = &response.body["error"];
        assert_eq!((response.status, &error["field"]), (StatusCode::BAD_REQUEST, &json!("types")), "{types}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(&format!("expected {expected}")), "{types}: {message}");
    }
}

#[tokio::test]
async fn a_watcher_that_lags_is_told_and_goes_on() {
    let world = World::new().await;
    let mut reader = Reader::open(&world, "/v1/events?types=job").await;
    for _ in 0..10 {
        let body = json!({"jobs": vec![json!({"type": "t"}); 1_000]});
        assert_eq!(world.post("/v1/jobs/batch", body).await.status, StatusCode::CREATED);
    }
    let (name, _, data) = reader.next().await.expect("an event");
    assert_eq!(name, "lagged");
    assert!(data["missed"].as_u64().is_some_and(|missed| missed > 0));
    assert_eq!(reader.next().await.map(|(name, ..)| name).as_deref(), Some("job:pending"));
}

#[tokio::test]
async fn streams_are_limited_and_given_back() {
    let world = World::new().await;
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        open.push(Reader::open(&world, "/v1/events").await);
    }
    let refused = world.get("/v1/events").await;
    assert_eq!(
        (refused.status, refused.code(), refused.header("retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, "too_many_requests", "1")
    );
    open.pop();
    Reader::open(&world, "/v1/events").await;
}

#[tokio::test]
async fn streams_end_when_the_server_closes() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t"})).await;
    let mut events = Reader::open(&world, "/v1/events").await;
    let mut logs = Reader::open(&world, &format!("/v1/jobs/{id}/logs/stream")).await;
    world.state.closing.cancel();
    assert!(events.next().await.is_none());
    assert!(logs.next().await.is_none());
}

#[tokio::test]
async fn a_log_is_replayed_followed_and_ended() {
    let world = World::new().await;
    world.register("w-1", &["default"]).await;
    let id = world.enqueue(json!({"type": "t"})).await;
    let run = world.take("w-1").await;
    let log = |message: &str| json!({"kind": "log", "message": message});
    world.report("w-1", &run, log("one")).await;
    world.report("w-1", &run, log("two")).await;
    let path = format!("/v1/jobs/{id}/logs/stream");
    let mut reader = Reader::open(&world, &path).await;
    for (seq, message) in [("1", "one"), ("2", "two")] {
        let (name, id, data) = reader.next().await.expect("a line");
        assert_eq!((name.as_str(), id.as_str(), &data["message"]), ("log", seq, &json!(message)));
    }
    world.report("w-1", &run, log("three")).await;
    assert_eq!(reader.next().await.map(|(_, id, _)| id).as_deref(), Some("3"));
    world.report("w-1", &run, json!({"kind": "completed"})).await;
    let (name, _, data) = reader.next().await.expect("the end");
    assert_eq!((name.as_str(), data), ("end", json!({"jobId": id, "status": "completed"})));
    assert!(reader.next().await.is_none());

    let mut again = request("GET", &path, "");
    again.headers_mut().insert("last-event-id", http::HeaderValue::from_static("2"));
    let mut reader = Reader::of(world.respond(again).await);
    assert_eq!(reader.next().await.map(|(_, id, _)| id).as_deref(), Some("3"));
    assert_eq!(reader.next().await.map(|(name, ..)| name).as_deref(), Some("end"));
}
