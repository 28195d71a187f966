//! Jobs of bus workers that run again: each run is recorded by its owner, also if that owned the run before.

use convoke_testkit::process::{BusWorker, Fleet, eventually, wait_for_value};
use serde_json::{Value, json};

/// Enough for some to have the same owner twice.
const JOBS: usize = 24;
const QUEUE: &str = "again";

struct Jobs {
    fleet: Fleet,
    ids: Vec<String>,
}

impl Jobs {
    /// Jobs that a worker holds and whose owners are written down.
    async fn start(worker: &str) -> (Jobs, BusWorker) {
        let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2).start().await;
        let worker = fleet.bus_worker(worker, QUEUE, 2 * JOBS).await;
        let mut jobs = Jobs { fleet, ids: Vec::new() };
        for _ in 0..JOBS {
            // One by one, so that the nodes compete for each.
            let job = json!({ "type": "held", "queue": QUEUE });
            let job = jobs.fleet.any().post("/v1/jobs", job).await.expect("a response").expect(201);
            jobs.ids.push(job["id"].as_str().expect("an id").to_owned());
            jobs.running(1).await;
        }
        (jobs, worker)
    }

    /// The jobs, once all that there are run for the `attempt`th time.
    async fn running(&self, attempt: u32) -> Vec<Value> {
        let mut jobs = Vec::new();
        for id in &self.ids {
            jobs.push(self.running_one(id, attempt).await);
        }
        jobs
    }

    async fn running_one(&self, id: &str, attempt: u32) -> Value {
        eventually("that the job runs", || async {
            let job = self.fleet.any().read(&format!("/v1/jobs/{id}")).await;
            (job["status"] == "running" && job["attempt"] == attempt && job["ownerNode"].is_string()).then_some(job)
        })
        .await
    }

    /// Waits until every node has compared its claims with the store: none counts a run that has ended.
    async fn compared(&self) {
        let owned = async || self.fleet.metric("convoke_owned_jobs", &[]).await as usize;
        wait_for_value("claims", JOBS, owned).await;
    }

    async fn complete(&self, before: &[Value], after: &[Value]) {
        let same = before.iter().zip(after).filter(|(before, after)| before["ownerNode"] == after["ownerNode"]).count();
        assert!(same > 0, "no job has the same owner again");
        let count =
            || async { self.fleet.any().read(&format!("/v1/queues/{QUEUE}")).await["counts"]["completed"].clone() };
        wait_for_value("completed jobs", json!(JOBS), count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_cancelled_through_the_other_node_and_retried_ends() {
    let (jobs, worker) = Jobs::start("bus").await;
    let before = jobs.running(1).await;
    for job in &before {
        let id = job["id"].as_str().expect("an id");
        let other = (0..2).find(|node| job["ownerNode"] != jobs.fleet.member(*node).id).expect("two nodes");
        let other = jobs.fleet.member(other).http();
        other.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.expect("a response").expect(200);
        other.post(&format!("/v1/jobs/{id}/retry"), json!({})).await.expect("a response").expect(200);
        jobs.running_one(id, 2).await;
    }
    let after = jobs.running(2).await;
    jobs.compared().await;
    worker.release_all();
    jobs.complete(&before, &after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_worker_was_killed_ends_on_another() {
    let (jobs, victim) = Jobs::start("victim").await;
    let before = jobs.running(1).await;
    drop(victim);
    let worker = jobs.fleet.bus_worker("next", QUEUE, JOBS).await;
    let after = jobs.running(2).await;
    jobs.compared().await;
    worker.release_all();
    jobs.complete(&before, &after).await;
}
