//! The same seed and the same calls: the same history.

use serde_json::{Value, json};

use super::remote::Remote;

/// Two days of a schedule, of jobs that fail, and of a leader that is killed; returns all that can be read of it.
async fn history(seed: u64) -> Vec<Value> {
    let remote = Remote::start(seed).await;
    let register = json!({ "queues": ["a", "b"], "concurrency": 2 });
    let worker = remote.post("/v1/worker/register", register).await["workerId"].as_str().expect("an id").to_owned();
    for name in ["x", "y", "z"] {
        let schedule = json!({ "type": "tick", "queue": "a", "every": "3h", "overlap": "allow" });
        remote.ask(http::Method::PUT, &format!("/v1/schedules/{name}"), schedule).await;
    }
    let batch: Vec<Value> =
        (0..20).map(|n| json!({ "type": "job", "queue": "b", "args": n, "maxRetries": 3 })).collect();
    remote.post("/v1/jobs/batch", json!({ "jobs": batch })).await;
    let mut seen = vec![json!(worker)];
    for round in 0..40 {
        let poll = json!({ "workerId": worker, "max": 2, "wait": "0s" });
        let polled = remote.post("/v1/worker/poll", poll).await;
        for run in polled["jobs"].as_array().expect("runs") {
            let mut event = json!({ "executionId": run["executionId"], "jobId": run["jobId"], "kind": "completed" });
            if round % 3 == 0 {
                (event["kind"], event["error"]) = (json!("failed"), json!("not yet"));
            }
            remote.post("/v1/worker/report", json!({ "workerId": worker, "events": [event] })).await;
        }
        seen.push(polled);
        if round == 20 {
            remote.post("/v1/test/faults", json!({ "killLeader": true })).await;
        }
        // Waits for no run: this test reports what it polled for itself.
        seen.push(remote.post("/v1/test/clock", json!({ "advance": "71m", "waitForRuns": "0s" })).await);
    }
    let jobs = remote.get("/v1/jobs?limit=100").await;
    for job in jobs["jobs"].as_array().expect("a list") {
        let id = job["id"].as_str().expect("an id");
        seen.push(remote.get(&format!("/v1/jobs/{id}/history")).await);
    }
    seen.extend([jobs, remote.get("/v1/workers").await, remote.get("/v1/cluster").await]);
    seen
}

#[tokio::test]
async fn the_same_seed_and_the_same_calls_have_the_same_history() {
    let first = history(7).await;
    let ran = first.iter().filter(|seen| seen["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty())).count();
    assert!(ran > 10, "something has run");
    for again in 0..3 {
        let second = history(7).await;
        for (step, (one, other)) in first.iter().zip(&second).enumerate() {
            assert_eq!(one, other, "step {step} of repetition {again}");
        }
        assert_eq!(first.len(), second.len());
    }
    assert_ne!(first, history(8).await, "ids and jitter come from the seed");
}
