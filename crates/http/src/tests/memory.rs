use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use convoke_core::limits::{ARGS_BYTES_MAX, LOG_LINE_BYTES_MAX, LOG_PAGE_BYTES_MAX, PAGE_BYTES_MAX};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{World, in_time, request};
use crate::memory::{PAGES_BYTES_MAX, REQUEST_BYTES_MAX};

const CHUNK_BYTES: usize = 1 << 20;
const CHUNKS: usize = 31;

/// A batch that sends many bytes, reports it, and never ends.
fn unfinished(arrived: &Arc<Semaphore>) -> Body {
    let chunk = Ok::<_, Infallible>(Bytes::from(vec![b' '; CHUNK_BYTES]));
    let arrived = arrived.clone();
    let end = stream::once(async move {
        arrived.add_permits(1);
        std::future::pending().await
    });
    Body::from_stream(stream::repeat(chunk).take(CHUNKS).chain(end))
}

fn large_args() -> String {
    "x".repeat(ARGS_BYTES_MAX - 2)
}

async fn enqueue_large(world: &World, count: usize) {
    let jobs = vec![json!({"type": "t", "queue": "q", "args": large_args()}); 10];
    for _ in 0..count / 10 {
        assert_eq!(world.post("/v1/jobs/batch", json!({"jobs": jobs})).await.status, StatusCode::CREATED);
    }
}

#[tokio::test]
async fn bodies_in_flight_are_bounded_and_given_back() {
    let world = World::new().await;
    let fitting = REQUEST_BYTES_MAX / (CHUNK_BYTES * CHUNKS);
    let arrived = Arc::new(Semaphore::new(0));
    let batch = || request("POST", "/v1/jobs/batch", unfinished(&arrived));
    let sending: Vec<_> = (0..fitting)
        .map(|_| {
            let (api_service, batch) = (world.api_service.clone(), batch());
            tokio::spawn(async move { api_service.respond(batch).await })
        })
        .collect();
    let all = in_time("all to arrive", arrived.acquire_many(fitting as u32)).await;
    all.expect("the semaphore is never closed").forget();
    let refused = in_time("a refusal", world.answer(batch())).await;
    assert_eq!(
        (refused.status, refused.code(), refused.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "1"),
        "{}",
        refused.body
    );
    assert!(sending.iter().all(|sending| !sending.is_finished()), "those that came before are not touched");
    assert_eq!(world.post("/v1/jobs", json!({"type": "t"})).await.status, StatusCode::CREATED, "a small one fits");
    sending.iter().for_each(|sending| sending.abort());
    for sending in sending {
        assert!(sending.await.is_err_and(|error| error.is_cancelled()));
    }
    enqueue_large(&world, 30).await;
}

#[tokio::test]
async fn a_list_of_large_jobs_ends_its_pages_early() {
    let world = World::new().await;
    enqueue_large(&world, 20).await;
    for path in ["/v1/jobs", "/v1/dead-letters"] {
        let (mut found, mut cursor) = (0, String::new());
        loop {
            let response = world.respond(request("GET", &format!("{path}?limit=1000&cursor={cursor}"), "")).await;
            assert_eq!(response.status(), StatusCode::OK);
            let length: usize = response
                .headers()
                .get("content-length")
                .map_or(0, |length| length.to_str().expect("text").parse().expect("a number"));
            let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
            assert!(bytes.len() < PAGE_BYTES_MAX + (1 << 20), "{} bytes", bytes.len());
            assert!(length == 0 || length == bytes.len());
            let page: Value = serde_json::from_slice(&bytes).expect("JSON");
            let name = if path == "/v1/jobs" { "jobs" } else { "deadLetters" };
            found += page[name].as_array().expect("a list").len();
            match page["nextCursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(found, if path == "/v1/jobs" { 20 } else { 0 }, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn responses_that_nobody_reads_are_bounded_and_given_back() {
    let world = World::new().await;
    enqueue_large(&world, 10).await;
    let mut unread = Vec::new();
    for _ in 0..PAGES_BYTES_MAX / PAGE_BYTES_MAX - 1 {
        let response = world.respond(request("GET", "/v1/jobs?limit=1000", "")).await;
        assert_eq!(response.status(), StatusCode::OK);
        unread.push(response);
    }
    let refused = world.get("/v1/jobs?limit=1000").await;
    assert_eq!(
        (refused.status, refused.code(), refused.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "1"),
        "{}",
        refused.body
    );
    assert_eq!(world.get("/v1/queues/q").await.status, StatusCode::OK, "other requests are served");
    let read = unread.pop().expect("one of them").into_body().collect().await.expect("it was made in time");
    assert!(read.to_bytes().len() > PAGE_BYTES_MAX);
    assert_eq!(world.get("/v1/jobs?limit=1000").await.status, StatusCode::OK);
    // After a long time, the others can no longer be read.
    tokio::time::advance(Duration::from_secs(600)).await;
    let late = unread.pop().expect("another").into_body().collect().await;
    assert!(late.is_err_and(|error| error.to_string().contains("too slowly")));
}

#[tokio::test]
async fn a_page_of_long_log_lines_is_short_and_the_next_goes_on() {
    let world = World::new().await;
    world.register("w-1", &["default"]).await;
    let id = world.enqueue(json!({"type": "t"})).await;
    let run = world.take("w-1").await;
    let line = "x".repeat(LOG_LINE_BYTES_MAX);
    let fitting = LOG_PAGE_BYTES_MAX / LOG_LINE_BYTES_MAX;
    for _ in 0..fitting + 1 {
        let response = world.report("w-1", &run, json!({"kind": "log", "message": line})).await;
        assert_eq!(response.status, StatusCode::OK);
    }
    let mut after = 0;
    for expected in [fitting, 1, 0] {
        let page = world.get(&format!("/v1/jobs/{id}/logs?limit=1000&after={after}")).await.body;
        assert_eq!(page["logs"].as_array().map(Vec::len), Some(expected));
        after = page["nextAfter"].as_u64().expect("a number");
    }
}

#[tokio::test]
async fn a_poll_hands_out_what_fits_and_leaves_the_rest() {
    let world = World::new().await;
    let body = json!({"workerId": "w-1", "queues": ["q"], "concurrency": 400});
    assert_eq!(world.post("/v1/worker/register", body).await.status, StatusCode::OK);
    enqueue_large(&world, 50).await;
    let mut runs = std::collections::HashSet::new();
    in_time("all fifty", async {
        while runs.len() < 50 {
            let poll = json!({"workerId": "w-1", "max": 400, "wait": "20s"});
            let response = world.respond(request("POST", "/v1/worker/poll", poll.to_string())).await;
            let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
            assert!(bytes.len() < 3 * PAGE_BYTES_MAX, "{} bytes in one poll", bytes.len());
            let polled: Value = serde_json::from_slice(&bytes).expect("JSON");
            for job in polled["jobs"].as_array().expect("jobs") {
                assert!(runs.insert(job["executionId"].to_string()), "a run is handed out once");
            }
        }
    })
    .await;
}
