//! Channels of jobs that have ended do not stay: after thousands of them the bus holds no key of any.
//!
//! An owner that has read a channel to its end removes it. No reader is left for what a worker publishes after the end: the
//! leader closes channels for that, and here every job has such an entry.

use std::time::Instant;

use convoke_testkit::invariants::b1_channels;
use convoke_testkit::process::{Fleet, Handling, PATIENCE, Plan, eventually, wait_for_value};
use convoke_testkit::scale::Scaled;
use serde_json::json;

const JOBS: Scaled<usize> = Scaled { quick: 2_000, full: 10_000 };
const BATCH: usize = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_left_of_thousands_of_jobs() {
    let count = JOBS.get();
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2).start().await;
    let worker = fleet.bus_worker("bus", "bus", 500).await;
    worker.publish_late();
    worker.release_all();
    let began = Instant::now();
    let jobs = vec![json!({ "type": "plain", "queue": "bus" }); BATCH];
    for _ in 0..count / BATCH {
        fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    }
    let keys = || keys(&fleet);
    let mut seen = 0;
    while worker.completed() < count {
        seen = seen.max(keys().await);
        assert!(began.elapsed() < PATIENCE, "{} of {count} completed", worker.completed());
    }
    assert!(seen > 0, "there was nothing to close");
    wait_for_value("completed jobs", json!(count), || async {
        fleet.any().read("/v1/queues/bus").await["counts"]["completed"].clone()
    })
    .await;
    let ended = began.elapsed();
    wait_for_value("keys of jobs on the bus", 0, keys).await;
    println!("{count} jobs ended after {ended:?}, {seen} keys at most, none after {:?}", began.elapsed());
}

/// A worker that was partitioned for long publishes after its channels were closed, and so creates the channel again.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_a_late_word_opened_again_is_closed_too() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let worker = fleet.bus_worker("bus", "bus", 1).await;
    worker.release_all();
    let job = fleet.any().post("/v1/jobs", json!({ "type": "plain", "queue": "bus" })).await.expect("a response");
    let id = job.expect(201)["id"].as_str().expect("an id").to_owned();
    let job = eventually("that its channels are closed", || async {
        let job = fleet.any().read(&format!("/v1/jobs/{id}")).await;
        (job["channelsCleaned"] == true).then_some(job)
    })
    .await;
    worker.publish_status_of(job["executionId"].as_str().expect("a run"), &id).await;
    wait_for_value("keys of jobs on the bus", 0, || keys(&fleet)).await;
    let job = fleet.any().read(&format!("/v1/jobs/{id}")).await;
    assert_eq!((&job["status"], &job["attempt"]), (&json!("completed"), &json!(1)), "what is over stays as it is");
}

/// Names of queues are free to make up: a channel must not outlive its workers for ever.
#[tokio::test(flavor = "multi_thread")]
async fn no_channel_is_left_of_queues_that_nobody_serves_and_they_work_again_when_somebody_does() {
    let mut fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2).start().await;
    let queues: Vec<String> = (0..100).map(|n| format!("made-up-{n}")).collect();
    let channels = || async {
        let channel = format!("{}.job.dispatch.", fleet.prefix());
        fleet.bus_keys().await.iter().filter(|key| key.starts_with(&channel)).count()
    };
    for node in 0..2 {
        let (http, id) = (fleet.member(node).http().clone(), format!("visitor-{node}"));
        let visitor = json!({ "workerId": id, "name": id, "queues": queues, "concurrency": 1 });
        http.post("/v1/worker/register", visitor).await.expect("a response").expect(200);
    }
    assert_eq!(channels().await, 0, "a worker over HTTP opens no channel");
    for node in 0..2 {
        let gone = json!({ "workerId": format!("visitor-{node}") });
        fleet.member(node).http().post("/v1/worker/leave", gone).await.expect("a response").expect(200);
    }
    let mut visitors = Vec::new();
    for queue in &queues[..10] {
        visitors.push(fleet.bus_worker(&format!("visitor-of-{queue}"), queue, 1).await);
    }
    wait_for_value("channels of queues", visitors.len(), channels).await;
    drop(visitors);
    wait_for_value("channels of queues", 0, channels).await;
    for node in 0..2 {
        fleet
            .start_worker(
                node,
                Plan::new(&format!("w{node}"), "made-up-7", |_| Handling::Complete(json!(null))).concurrency(1),
            )
            .await;
    }
    let jobs = vec![json!({ "type": "plain", "queue": "made-up-7" }); 50];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    wait_for_value("completed jobs", json!(50), || async {
        fleet.any().read("/v1/queues/made-up-7").await["counts"]["completed"].clone()
    })
    .await;
}

async fn keys(fleet: &Fleet) -> usize {
    let keys = fleet.bus_keys().await;
    b1_channels::check(fleet.prefix(), keys.iter().map(String::as_str)).len()
}
