//! The crate as an application uses it, against a coordinator in the same process.

mod handlers;

use std::sync::Arc;
use std::time::Duration;

use convoke_core::NodeId;
use convoke_runtime::jobs::{Coordinator, Settings};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::{Client, Context, Error, Job, Result, Status, Worker, connect};

#[derive(Debug, Serialize, Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

impl Job for Add {
    const TYPE: &'static str = "math.add";
    type Output = i64;
}

async fn add(cx: Context, job: Add) -> Result<i64> {
    cx.log(format!("{} + {}", job.a, job.b)).await?;
    cx.progress(50, "carrying").await?;
    job.a.checked_add(job.b).ok_or_else(|| Error::permanent("it does not fit"))
}

struct World {
    coordinator: Coordinator,
    client: Client,
}

async fn world() -> World {
    let ports = connect::backends(Default::default()).await.expect("memory");
    let id = NodeId::new("node").expect("a name");
    let coordinator = Coordinator::start(id, ports, Settings::default()).await.expect("it starts");
    coordinator.ready().await;
    World { client: Client::over(Arc::new(coordinator.clone())), coordinator }
}

impl World {
    fn worker(&self) -> Worker {
        Worker::over(Arc::new(self.coordinator.clone())).queues(["math"]).id("w")
    }

    /// Runs a worker until it is notified.
    fn start(&self, worker: Worker) -> (Arc<Notify>, JoinHandle<Result<()>>) {
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        (stop, tokio::spawn(worker.run_until(async move { stopped.notified().await })))
    }
}

#[tokio::test]
async fn a_job_is_enqueued_run_and_waited_for() {
    let world = world().await;
    let (stop, worker) = world.start(world.worker().handle(add));
    let handle = world.client.enqueue(Add { a: 2, b: 3 }).queue("math").correlation_id("c").await.expect("enqueued");
    assert!(handle.created());
    assert_eq!(handle.wait().await.expect("it completes"), 5);
    assert_eq!(handle.status().await.expect("known"), Status::Completed);
    let logs = world.coordinator.store().logs(handle.id(), 0, 10).await.expect("logs");
    assert_eq!(logs.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["2 + 3"]);
    stop.notify_one();
    worker.await.expect("no panic").expect("it drained");
    assert!(world.coordinator.store().workers().await.expect("workers").is_empty(), "it left");
}

#[tokio::test]
async fn a_permanent_failure_is_told_to_whoever_waits() {
    let world = world().await;
    let (_stop, _worker) = world.start(world.worker().handle(add));
    let handle = world.client.enqueue(Add { a: i64::MAX, b: 1 }).queue("math").await.expect("enqueued");
    let error = handle.wait().await.expect_err("it fails");
    assert!(matches!(&error, Error::NotCompleted { status: Status::Failed, .. }), "{error:?}");
    assert!(error.to_string().ends_with("ended as failed: it does not fit"), "{error}");
    assert_eq!(handle.job().await.expect("known").attempt, 1, "it was not tried again");
}

#[tokio::test]
async fn handlers_may_return_errors_of_their_own() {
    let world = world().await;
    let worker = world
        .worker()
        .handle_raw("boxed", |_, _| async {
            Err::<(), Box<dyn std::error::Error + Send + Sync>>(Error::permanent("boxed").into())
        })
        .handle_raw("text", |_, args| async move { Err::<(), _>(format!("got {args}")) });
    let (_stop, _worker) = world.start(worker);
    for (job_type, expected) in [("boxed", "boxed"), ("text", "got [1]")] {
        let handle = world.client.enqueue_raw(job_type, [1]).queue("math").max_retries(0).await.expect("enqueued");
        match handle.wait().await {
            Err(Error::NotCompleted { error, .. }) => assert_eq!(error.as_deref(), Some(expected)),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_the_type_fail_for_good_with_the_name_of_the_field() {
    let world = world().await;
    let (_stop, _worker) = world.start(world.worker().handle(add));
    let args = serde_json::json!({"a": "two", "b": 3});
    // At the first attempt: another would have the same arguments.
    let handle = world.client.enqueue_raw(Add::TYPE, args).queue("math").max_retries(5).await.expect("enqueued");
    let error = handle.wait().await.expect_err("it fails").to_string();
    assert!(error.contains("the arguments do not fit math.add: a: invalid type: string \"two\""), "{error}");
    assert_eq!(handle.job().await.expect("it is there").attempt, 1);
}

#[tokio::test]
async fn many_jobs_are_enqueued_in_order_and_run() {
    let world = world().await;
    let jobs = (0..500).map(|n| Add { a: n, b: 1 });
    let handles = world.client.enqueue_all(jobs).queue("math").await.expect("enqueued");
    let (_stop, _worker) = world.start(world.worker().concurrency(4).handle(add));
    for (n, handle) in handles.iter().enumerate() {
        assert_eq!(handle.wait().await.expect("it completes"), n as i64 + 1);
    }
}

#[tokio::test]
async fn a_job_can_be_cancelled_while_it_waits_and_while_it_runs() {
    let world = world().await;
    let later = world.client.enqueue(Add { a: 1, b: 1 }).queue("math").delay(Duration::from_secs(3600)).await;
    let later = later.expect("enqueued");
    assert_eq!(later.status().await.expect("known"), Status::Scheduled);
    assert_eq!(later.cancel().await.expect("cancelled").status, Status::Cancelled);

    let (started, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (saw_start, saw_stop) = (started.clone(), stopped.clone());
    let worker = world.worker().handle_raw("endless", move |cx, _| {
        let (started, stopped) = (saw_start.clone(), saw_stop.clone());
        async move {
            started.notify_one();
            cx.cancelled().await;
            stopped.notify_one();
            Ok::<_, Error>(())
        }
    });
    let (_stop, _worker) = world.start(worker);
    let handle = world.client.enqueue_raw("endless", ()).queue("math").await.expect("enqueued");
    started.notified().await;
    handle.cancel_because("enough").await.expect("cancelled");
    stopped.notified().await;
    assert!(matches!(handle.wait().await, Err(Error::NotCompleted { status: Status::Cancelled, .. })));
}

#[tokio::test]
async fn a_job_is_enqueued_and_run_by_the_bus_alone() {
    let ports = connect::backends(Default::default()).await.expect("memory");
    let bus = ports.bus.clone();
    let mut settings = Settings::default();
    settings.bus.prefix = "orchestrix".into();
    let id = NodeId::new("node").expect("a name");
    let coordinator = Coordinator::start(id, ports, settings).await.expect("it starts");
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    let worker = Worker::over(connect::bus_worker_link(bus.clone(), "orchestrix")).queues(["math"]).handle(add);
    let worker = tokio::spawn(worker.run_until(async move { stopped.notified().await }));
    let client = Client::over(connect::bus_client_link(bus, "orchestrix"));
    let handle = client.enqueue(Add { a: 2, b: 3 }).queue("math").await.expect("the bus has it");
    let error = handle.wait().await.expect_err("not by the bus").to_string();
    assert!(error.contains("expected an http:// or https:// address"), "{error}");
    let by_http = Client::over(Arc::new(coordinator.clone()));
    while by_http.job(handle.id()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let job = loop {
        let job = coordinator.job(handle.id(), Some(Duration::from_secs(1))).await.expect("known");
        if !job.status.is_live() {
            break job;
        }
    };
    assert_eq!((job.status, job.result.map(|sum| sum.to::<i64>().expect("a sum"))), (Status::Completed, Some(5)));
    stop.notify_one();
    worker.await.expect("no panic").expect("it drained");
    coordinator.stop().await;
}

#[tokio::test]
async fn one_live_job_for_a_unique_key() {
    let world = world().await;
    let first = world.client.enqueue(Add { a: 1, b: 1 }).unique_key("k").await.expect("enqueued");
    let second = world.client.enqueue(Add { a: 2, b: 2 }).unique_key("k").await.expect("found");
    assert_eq!((first.id(), first.created(), second.created()), (second.id(), true, false));
}

#[tokio::test]
async fn mistakes_in_options_are_told_when_it_matters() {
    let world = world().await;
    let enqueued = world.client.enqueue(Add { a: 1, b: 1 }).queue("").priority(crate::Priority::High).await;
    assert!(enqueued.expect_err("refused").to_string().starts_with("queue: "));
    let worker = world.worker().id("").concurrency(3).run_until(std::future::pending()).await;
    assert!(worker.expect_err("refused").to_string().starts_with("workerId: "));
    let worker = world.worker().concurrency(0).run_until(std::future::pending()).await;
    assert!(worker.expect_err("refused").to_string().starts_with("concurrency: "));
}

#[tokio::test]
async fn addresses_that_this_version_cannot_reach_are_refused_by_name() {
    for url in ["amqp://user:secret@host", "localhost:3000", "ftp://host"] {
        let error = Client::connect(url).await.expect_err(url).to_string();
        assert!(error.starts_with("url: expected ") && !error.contains("secret"), "{error}");
        assert!(Worker::connect(url).await.is_err());
    }
    let buses = "redis://…, rediss://…, redis+sentinel://…, rediss+sentinel://…, postgres://…, postgres: (the store's) or memory:";
    let stores = "postgres://…, sqlite:PATH or memory:";
    for (store, bus, field, expected) in [
        ("mysql://u:secret@h/db", "memory:", "store.url", stores),
        ("redis://u:secret@h", "memory:", "store.url", stores),
        ("sqlite:", "memory:", "store.url", "a path after sqlite:"),
        ("nonsense", "memory:", "store.url", stores),
        ("memory:", "amqp://h", "bus.url", buses),
        ("memory:", "postgres:", "bus.url", "the URL of a PostgreSQL, since the store is not in one"),
        ("memory:", "postgres://u:se@cret@h/db", "bus.url", "one @"),
        ("memory:", "s3://bucket", "bus.url", buses),
        ("memory:", "sqlite:", "bus.url", buses),
        ("memory:", "nonsense", "bus.url", buses),
    ] {
        let error = connect::backends(connect::Addresses { store, bus, ..Default::default() })
            .await
            .err()
            .expect("refused")
            .to_string();
        assert!(error.starts_with(&format!("{field}: expected {expected}")) && !error.contains("secret"), "{error}");
    }
    let leases = connect::Addresses { leases: Some("amqp://u:secret@h"), ..Default::default() };
    let error = connect::backends(leases).await.err().expect("refused").to_string();
    assert!(error.starts_with("leases.url: expected postgres://…, redis://…") && error.ends_with("got a amqp: URL"));
}
