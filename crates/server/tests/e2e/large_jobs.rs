//! Jobs of a megabyte, by the hundred in a full run: all of them run, and the server's memory stays bounded.
//!
//! The bounds are far above what the server takes, and far below what it would take if any count had no bound in bytes
//! beside it.

use std::collections::HashSet;

use convoke::Worker;
use convoke_core::limits::{ARGS_BYTES_MAX, LOG_LINE_BYTES_MAX};
use convoke_testkit::process::{Node, wait_for_value};
use convoke_testkit::scale::Scaled;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::server;

const MIB: u64 = 1 << 20;

/// Most that the process ever had in memory, in bytes.
fn peak_bytes(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a high-water mark");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib << 10
}

async fn enqueue_large(node: &Node, queue: &str, count: usize) {
    let args = "x".repeat(ARGS_BYTES_MAX - 2);
    for _ in 0..count / 10 {
        let jobs = vec![json!({ "type": "large", "queue": queue, "args": args }); 10];
        node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    }
}

/// Sends a request and reads nothing of what comes back.
async fn ask_without_reading(node: &Node, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.http().address()).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    stream
}

async fn responses(node: &Node) -> f64 {
    node.metric("convoke_http_requests_total", &[]).await
}

#[tokio::test]
async fn jobs_of_a_megabyte_run_once_each() {
    let node = server().start().await;
    let count = Scaled { quick: 60, full: 300 }.get();
    enqueue_large(&node, "q", count).await;
    let worker = Worker::connect(&node.http().url()).await.expect("a worker").queues(["q"]).concurrency(400);
    let worker = worker.handle_raw("large", |_, _| async { Ok::<_, String>(()) });
    let worker = tokio::spawn(worker.run());
    let completed = || async {
        let queue = node.http().read("/v1/queues/q").await;
        (queue["counts"]["completed"].as_u64(), queue["counts"]["failed"].as_u64())
    };
    wait_for_value("all of them to complete", (Some(count as u64), Some(0)), completed).await;
    let jobs = node.all("/v1/jobs?queue=q", "jobs").await;
    let ids: HashSet<&str> = jobs.iter().filter_map(|job| job["id"].as_str()).collect();
    assert_eq!((jobs.len(), ids.len()), (count, count));
    let retried: Vec<&Value> = jobs.iter().filter(|job| job["attempt"] != 1).map(|job| &job["id"]).collect();
    assert!(retried.is_empty(), "a run was lost: {retried:?}");
    let peak = peak_bytes(&node);
    assert!(peak < 384 * MIB, "the server took {} MiB", peak / MIB);
    worker.abort();
}

#[tokio::test]
async fn unread_pages_of_large_jobs_take_bounded_memory() {
    let node = server().start().await;
    let (count, pages) = Scaled { quick: (50, 20), full: (200, 40) }.get();
    enqueue_large(&node, "q", count).await;
    let before = responses(&node).await;
    let mut open = Vec::new();
    for _ in 0..pages {
        open.push(ask_without_reading(&node, "/v1/jobs?limit=1000").await);
    }
    wait_for_value("every page to be returned or refused", true, || async {
        responses(&node).await >= before + f64::from(pages)
    })
    .await;
    let peak = peak_bytes(&node);
    assert!(peak < 640 * MIB, "the server took {} MiB", peak / MIB);
    drop(open);
    assert_eq!(node.all("/v1/jobs", "jobs").await.len(), count);
}

#[tokio::test]
async fn unread_log_streams_take_bounded_memory() {
    let node = server().start().await;
    let http = node.http();
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let body = json!({ "workerId": "w", "name": "w", "queues": ["q"], "concurrency": 1 });
    http.post("/v1/worker/register", body).await.expect("a response").expect(200);
    let body = json!({ "workerId": "w", "max": 1, "wait": "20s" });
    let run = http.post("/v1/worker/poll", body).await.expect("a response").expect(200)["jobs"][0].clone();
    let line = "x".repeat(LOG_LINE_BYTES_MAX);
    for _ in 0..10 {
        let event = json!({
            "jobId": run["jobId"], "executionId": run["executionId"], "kind": "log", "message": line
        });
        let body = json!({ "workerId": "w", "events": vec![event; 100] });
        http.post("/v1/worker/report", body).await.expect("a response").expect(200);
    }
    let before = responses(&node).await;
    let mut open = Vec::new();
    let streams = Scaled { quick: 30, full: 100 }.get();
    for _ in 0..streams {
        open.push(ask_without_reading(&node, &format!("/v1/jobs/{id}/logs/stream")).await);
    }
    wait_for_value("every stream to begin", true, || async { responses(&node).await >= before + f64::from(streams) })
        .await;
    // A client that reads gets all of it, whatever the others do; by then they have what they will get.
    let mut stream = http.sse(&format!("/v1/jobs/{id}/logs/stream")).await.expect("a stream");
    stream.wait_for("the last line", |event| event.json()["seq"] == 1_000).await;
    let peak = peak_bytes(&node);
    assert!(peak < 384 * MIB, "the server took {} MiB", peak / MIB);
}
