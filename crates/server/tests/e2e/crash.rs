//! SIGKILL of the server at any moment: what was acknowledged ends, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_testkit::invariants::{Entries, Observations, Seen, jobs_hold};
use convoke_testkit::process::{GatewayWorker, Handling, Http, Plan, wait_for_value};
use convoke_testkit::scale::Scaled;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use uuid::Uuid;

use super::server;

const QUEUE: &str = "crash";
/// Every kind of moment comes twice in eight.
const KILLS: Scaled<usize> = Scaled { quick: 8, full: 24 };
const SEED: u64 = 20_261;
/// How far producers may run ahead of the workers, so that the end is drained in seconds.
const AHEAD_MAX: usize = 200;

/// Enqueues jobs one after the other, or `batch` at once, until it is stopped. An enqueue without a response is sent
/// again with the same ids, as a client must: so every job that exists was acknowledged in the end.
pub(super) async fn produce(http: Http, observations: Observations, batch: usize, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        observations.until(|entries| entries.acknowledged.len() < ended(entries) + AHEAD_MAX).await;
        let ids: Vec<String> = (0..batch).map(|_| Uuid::now_v7().to_string()).collect();
        let jobs: Vec<_> =
            ids.iter().map(|id| json!({ "id": id, "type": "work", "queue": QUEUE, "maxRetries": 5 })).collect();
        let (path, body) = match jobs.as_slice() {
            [job] => ("/v1/jobs", job.clone()),
            jobs => ("/v1/jobs/batch", json!({ "jobs": jobs })),
        };
        loop {
            match http.post(path, body.clone()).await {
                Ok(response) if matches!(response.status, 200 | 201) => break,
                Ok(response) if response.status != 503 => panic!("{}: {}", response.status, response.text()),
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        for id in ids {
            observations.acknowledged(&id, "work", QUEUE);
        }
    }
}

pub(super) fn ended(entries: &Entries) -> usize {
    entries.reports.iter().filter(|it| it.accepted && it.kind == "completed").count()
}

/// A worker that mostly completes at once, sometimes takes its time, sometimes fails.
pub(super) fn plan(id: &str) -> Plan {
    Plan::new(id, QUEUE, |job| {
        let dice = job["executionId"].as_str().map_or(0, |id| id.bytes().last().unwrap_or_default());
        match dice {
            b'0' => Handling::Fail("as planned".into()),
            b'1'..=b'4' => Handling::CompleteAfter(Duration::from_millis(40), json!({ "slow": true })),
            _ => Handling::Complete(json!({ "slow": false })),
        }
    })
    .concurrency(16)
}

/// Waits for a moment in the life of the server that is another one each time: counted in what it has done since it was
/// started. Every other time that is the moment itself, so that what was acknowledged last has had no time to be made good
/// afterwards; else a little more.
pub(super) async fn moment(observations: &Observations, round: usize, dice: &mut StdRng) {
    let before = observations.entries();
    let more = dice.random_range(0..60);
    match (round / 2) % 4 {
        0 => observations.until(|now| now.acknowledged.len() > before.acknowledged.len() + more / 4).await,
        1 => observations.until(|now| now.runs.len() > before.runs.len() + more).await,
        2 => observations.until(|now| now.reports.len() > before.reports.len() + 2 * more).await,
        _ => {}
    }
    if round % 2 == 1 {
        tokio::time::sleep(Duration::from_micros(dice.random_range(0..30_000))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_job_ends_once_although_the_server_is_killed_again_and_again() {
    let mut node = server().start().await;
    let observations = Observations::default();
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = [1, 1, 5, 40]
        .map(|batch| tokio::spawn(produce(node.http().clone(), observations.clone(), batch, stop.clone())))
        .into();
    let mut workers = Vec::new();
    for id in ["w-1", "w-2", "w-3"] {
        workers.push(GatewayWorker::start(node.http(), &observations, plan(id)).await);
    }
    let mut dice = StdRng::seed_from_u64(SEED);
    let kills = KILLS.get();
    for round in 0..kills {
        moment(&observations, round, &mut dice).await;
        node.kill().await;
        if round % 5 == 4 {
            // Also while it is starting: recovery itself must survive being killed.
            let mut starting = node.settings().spawn();
            tokio::time::sleep(Duration::from_micros(dice.random_range(0..40_000))).await;
            starting.kill().await;
        }
        node.restart().await;
    }
    let before = observations.entries();
    observations.until(|now| ended(now) > ended(&before) + 50).await;
    stop.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.expect("a producer ends");
    }
    wait_for_value("jobs that are not over", 0, || open_jobs(node.http())).await;
    let seen = Seen::of(&node).await;
    let entries = observations.entries();
    assert_eq!(seen.jobs.len(), entries.acknowledged.len(), "every job that exists was acknowledged");
    assert!(entries.acknowledged.len() > 10 * kills, "only {} jobs were under way", entries.acknowledged.len());
    jobs_hold(&observations, &seen);
}

pub(super) async fn open_jobs(http: &Http) -> u64 {
    let Ok(response) = http.get(&format!("/v1/queues/{QUEUE}")).await else { return u64::MAX };
    let counts = &response.expect(200)["counts"];
    ["pending", "scheduled", "dispatched", "running"].iter().map(|status| counts[status].as_u64().unwrap_or(0)).sum()
}

/// The counters are kept, not counted: after a crash they must still be the truth.
#[tokio::test]
async fn counters_are_right_after_a_crash() {
    let mut node = server().start().await;
    let observations = Observations::default();
    for _ in 0..30 {
        node.enqueued(json!({ "type": "work", "queue": QUEUE })).await;
    }
    let worker = GatewayWorker::start(node.http(), &observations, plan("w-1")).await;
    observations.until(|entries| ended(entries) >= 5).await;
    node.kill().await;
    drop(worker);
    node.restart().await;
    let jobs = node.all("/v1/jobs", "jobs").await;
    let counts =
        node.http().get(&format!("/v1/queues/{QUEUE}")).await.expect("a response").expect(200)["counts"].clone();
    let total: u64 = counts.as_object().expect("counts").values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(total, 30, "{counts}");
    let completed = jobs.iter().filter(|job| job["status"] == "completed").count();
    assert_eq!(counts["completed"], completed, "completed jobs stay what they are, so both were asked of one state");
}

#[tokio::test]
async fn epochs_rise_with_every_restart() {
    use convoke_testkit::invariants::{holds, l1_one_holder};
    let mut node = server().start().await;
    let mut terms = Vec::new();
    for _ in 0..4 {
        let cluster = node.http().get("/v1/cluster").await.expect("a response").expect(200);
        let holder = cluster["leader"].as_str().expect("a single node leads").to_owned();
        terms.push(l1_one_holder::Term { holder, epoch: cluster["epoch"].as_u64().expect("an epoch") });
        node.restart().await;
    }
    holds(&l1_one_holder::check(&terms));
}
