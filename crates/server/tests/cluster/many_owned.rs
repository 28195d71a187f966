//! The cost of a node does not grow with its runs: ten thousand take the tasks, threads and connections of a hundred.

use std::time::Duration;

use convoke::connect::{Addresses, backends};
use convoke_core::jobs::{JobSpec, Status};
use convoke_core::{NodeId, QueueName};
use convoke_runtime::jobs::{Coordinator, Settings};
use convoke_testkit::process::{BusWorker, Durability, Fleet, Footprint, Postgres, RedisServer, eventually};
use serde_json::json;

const FEW: usize = 100;
const MANY: usize = 10_000;
const BATCH: usize = 900;
/// The variation of a runtime: threads that it keeps for a while, tasks that are about to end.
/// Far fewer than one for each hundred runs.
const SLACK: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_runs_need_no_more_threads_and_connections_than_a_hundred() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let worker = fleet.bus_worker("bus", "bus", MANY).await;
    enqueue(&fleet, FEW).await;
    let few = owning(&fleet, &worker, FEW).await;
    let mut left = MANY - FEW;
    while left > 0 {
        let count = left.min(BATCH);
        enqueue(&fleet, count).await;
        left -= count;
    }
    let many = owning(&fleet, &worker, MANY).await;
    println!("with {FEW} runs {few:?}, with {MANY} {many:?}");
    assert_eq!(many.redis, few.redis, "connections to the bus");
    assert_eq!(many.postgres, few.postgres, "connections to the store");
    assert!(many.threads <= few.threads + SLACK, "threads: {few:?}, {many:?}");
    // And the end of each is received.
    worker.release_all();
    eventually("the ends of all", || async {
        let queue = fleet.any().read("/v1/queues/bus").await;
        (queue["counts"]["completed"] == MANY).then_some(())
    })
    .await;
}

/// Runs are owned before a worker has them: here both must be so.
async fn owning(fleet: &Fleet, worker: &BusWorker, count: usize) -> Footprint {
    eventually("that so many are owned and run", || async {
        let owned = fleet.metric("convoke_owned_jobs", &[]).await as usize;
        (owned == count && worker.held().len() == count).then_some(())
    })
    .await;
    fleet.member(0).footprint()
}

async fn enqueue(fleet: &Fleet, count: usize) {
    let jobs = vec![json!({ "type": "held", "queue": "bus" }); count];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
}

/// Threads do not show tasks, and no process shows its tasks: this node has a runtime of its own, in this process.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_runs_need_no_more_tasks_than_a_hundred() {
    let (redis, postgres) = tokio::join!(RedisServer::start(), Postgres::start(Durability::Fast));
    let (bus, store) = (redis.url(), postgres.create_database());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let url = bus.clone();
    let started = runtime.spawn(async move {
        let addresses = Addresses { store: &store, bus: &url, bus_prefix: "inside", ..Addresses::default() };
        let ports = backends(addresses).await.expect("the engines are there");
        let mut settings = Settings::default();
        settings.bus.prefix = "inside".into();
        settings.worker.heartbeat_interval = Duration::from_millis(250);
        let coordinator = Coordinator::start(NodeId::new("inside").expect("a name"), ports, settings).await;
        let coordinator = coordinator.expect("it starts");
        coordinator.ready().await;
        coordinator
    });
    let coordinator = started.await.expect("it starts");
    let worker = BusWorker::start(&bus, "inside", "bus", "bus", MANY).await;
    let few = tasks_owning(&runtime, &coordinator, FEW).await;
    let many = tasks_owning(&runtime, &coordinator, MANY).await;
    println!("with {FEW} runs {few} tasks, with {MANY} {many}");
    assert_eq!(worker.held().len(), MANY);
    assert!(many <= few + SLACK, "with {FEW} runs {few} tasks, with {MANY} {many}");
    runtime.shutdown_background();
}

/// Lets it own so many, and counts its tasks then.
async fn tasks_owning(runtime: &tokio::runtime::Runtime, coordinator: &Coordinator, count: usize) -> usize {
    let queue = QueueName::new("bus").expect("a name");
    let running = async || {
        let queue = coordinator.store().queue(&queue).await.expect("the store responds");
        queue.map_or(0, |queue| queue.counts.get(Status::Running)) as usize
    };
    let mut left = count - running().await;
    while left > 0 {
        let spec = || serde_json::from_value::<JobSpec>(json!({ "type": "held", "queue": "bus" })).expect("a job");
        let specs: Vec<JobSpec> = (0..left.min(BATCH)).map(|_| spec()).collect();
        left -= specs.len();
        // By its own runtime, as a request would be.
        let coordinator = coordinator.clone();
        let enqueued = runtime.spawn(async move { coordinator.enqueue_batch(specs).await });
        enqueued.await.expect("it responds").expect("they are accepted");
    }
    eventually("that so many run", || async { (running().await == count).then_some(()) }).await;
    runtime.metrics().num_alive_tasks()
}
