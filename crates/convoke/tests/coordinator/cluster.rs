//! Two nodes in one process, on PostgreSQL and Redis.

use std::sync::Arc;

use convoke::{Context, Coordinator, Job, Worker};
use convoke_testkit::process::{RedisServer, SharedPostgres, eventually};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{Running, in_time, quick};

const RUNS: u64 = 3;

/// Ends when it is released.
#[derive(Serialize, Deserialize)]
struct Hold(u64);

impl Job for Hold {
    const TYPE: &'static str = "hold";
    type Output = u64;
}

async fn start(id: &str, store: &str, bus: &str) -> Coordinator {
    let builder = Coordinator::builder().node_id(id).store(store).bus(bus).bus_prefix("embedded").http("127.0.0.1:0");
    let coordinator = builder.settings(quick()).start().await.expect("it starts");
    in_time("readiness", coordinator.ready()).await.expect("it is ready");
    coordinator
}

fn url(coordinator: &Coordinator) -> String {
    format!("http://{}", coordinator.address().expect("a port"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_drains_hands_its_runs_and_its_lead_to_the_other() {
    let redis = RedisServer::start().await;
    let store = SharedPostgres::get().create_database();
    let leaving = start("n1", &store, &redis.url()).await;
    let staying = start("n2", &store, &redis.url()).await;
    assert!(leaving.node().cluster().is_me, "it came first");
    let epoch = leaving.node().cluster().epoch;

    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let hold = move |_: Context, Hold(number): Hold| {
        let held = held.clone();
        async move {
            held.acquire().await.map_err(convoke::Error::failed)?.forget();
            Ok::<_, convoke::Error>(number)
        }
    };
    // It asks the one that leaves first, and goes to the other when that is gone.
    let urls = format!("{},{}", url(&leaving), url(&staying));
    let worker = Running::start(Worker::connect(&urls).await.expect("addresses").queues(["held"]).handle(hold));
    let jobs = leaving.client().enqueue_all((0..RUNS).map(Hold)).queue("held").await.expect("enqueued");
    let client = staying.client();
    eventually("runs that the first node owns", || async {
        for job in &jobs {
            let job = client.job(job.id()).await.ok()?;
            job.owner_node.filter(|owner| owner.as_str() == "n1" && job.started_at.is_some())?;
        }
        Some(())
    })
    .await;

    in_time("the drain", leaving.drain()).await.expect("every run found another owner");
    for job in &jobs {
        let job = client.job(job.id()).await.expect("it is there");
        let owner = job.owner_node.expect("an owner");
        assert_eq!((owner.as_str(), job.attempt), ("n2", 1), "it is the same run, with another owner");
    }
    drop(leaving);
    eventually("the other leads", || async { staying.node().cluster().is_me.then_some(()) }).await;
    assert!(staying.node().cluster().epoch > epoch);

    gate.add_permits(RUNS as usize);
    for (number, job) in (0..).zip(&jobs) {
        // By the node that stays: the first one's client is of a node that has left.
        let ended = eventually("the end", || async {
            let job = client.job(job.id()).await.ok()?;
            (!job.status.is_live()).then_some(job)
        });
        let ended = ended.await;
        let result = ended.result.unwrap_or_else(|| panic!("{:?}: {:?}", ended.status, ended.error));
        assert_eq!((result.to::<u64>().expect("a number"), ended.attempt), (number, 1));
    }
    worker.stop().await;
    in_time("the drain", staying.drain()).await.expect("it is alone");
}
