//! A bus that is away for longer than a worker may be silent, and how often it is asked how many runs it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{ports, quick, spec, until};
use async_trait::async_trait;
use bytes::Bytes;
use convoke_adapters::memory::MemoryBus;
use convoke_core::jobs::Status;
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::{Bus, Consumer, Multiplex, QueueEnd, QueueReaders, Subscription};
use convoke_core::{Error, JobType, NodeId, QueueName, Result, WorkerId};
use convoke_runtime::jobs::worker::{BusLink, BusLinkSettings, Handlers, Settings as WorkerSettings, Shutdown, Worker};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};
use tokio::sync::Notify;

/// Takes nothing while it is away. Those who wait for something wait on, as behind a connection that is silent.
#[derive(Clone, Default)]
struct Unsteady {
    bus: MemoryBus,
    away: Arc<AtomicBool>,
    /// How often a backlog was read.
    backlogs: Arc<AtomicUsize>,
}

impl Unsteady {
    fn check(&self) -> Result<()> {
        if self.away.load(Ordering::SeqCst) { Err(Error::unavailable("bus", "away")) } else { Ok(()) }
    }
}

#[async_trait]
impl Bus for Unsteady {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<()> {
        self.check()?;
        self.bus.publish(topic, message).await
    }

    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()> {
        self.check()?;
        self.bus.announce(topic, message, kept).await
    }

    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>> {
        self.check()?;
        self.bus.subscribe(topics).await
    }

    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()> {
        self.check()?;
        self.bus.push(entries).await
    }

    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>> {
        self.check()?;
        self.bus.consumer(queue, group, name).await
    }

    async fn backlog(&self, queue: &str, group: &str) -> Result<u64> {
        self.check()?;
        self.backlogs.fetch_add(1, Ordering::SeqCst);
        self.bus.backlog(queue, group).await
    }

    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        self.check()?;
        self.bus.readers(queues, group, idle).await
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        self.bus.multiplex().await
    }

    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>> {
        self.check()?;
        self.bus.ends(queues).await
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        self.check()?;
        self.bus.close(ends).await
    }

    async fn trim(&self, queues: &[String]) -> Result<()> {
        self.check()?;
        self.bus.trim(queues).await
    }

    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()> {
        self.check()?;
        self.bus.forget_unread(queues, idle).await
    }

    async fn queues(&self, prefix: &str) -> Result<Vec<String>> {
        self.check()?;
        self.bus.queues(prefix).await
    }

    async fn ping(&self) -> Result<()> {
        self.check()
    }
}

fn worker(ports: &Ports, settings: &Settings, handlers: Handlers) -> Worker {
    let (heartbeat_interval, stale_after) = (settings.worker.heartbeat_interval, settings.worker.stale_after);
    let link_settings = BusLinkSettings { heartbeat_interval, stale_after };
    let link = BusLink::new(ports.bus.clone(), Channels::new("convoke"), ports.clock.clone(), link_settings);
    let worker = WorkerSettings {
        id: Some(WorkerId::new("w").expect("a name")),
        queues: vec![QueueName::new("default").expect("a name")],
        concurrency: 50,
        ..WorkerSettings::default()
    };
    Worker::new(Arc::new(link), ports.clock.clone(), worker, handlers)
}

#[tokio::test]
async fn a_bus_that_was_away_kills_no_worker_and_loses_no_end_of_a_run() {
    let bus = Unsteady::default();
    let ports = Ports { bus: Arc::new(bus.clone()), ..ports() };
    let settings = quick();
    let node = NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), settings.clone()).await.expect("it starts");
    coordinator.ready().await;
    let finish = Arc::new(Notify::new());
    let finished = finish.clone();
    let mut handlers = Handlers::default();
    handlers.add(JobType::new("test").expect("a name"), move |_, _| {
        let finish = finished.clone();
        Box::pin(async move {
            finish.notified().await;
            Ok(None)
        })
    });
    let stale_after = settings.worker.stale_after;
    let shutdown = Shutdown::default();
    let working = tokio::spawn(worker(&ports, &settings, handlers).run(shutdown.clone()));
    let (job, _) = coordinator.enqueue(spec()).await.expect("enqueued");
    until(&coordinator, job.id, |job| job.status == Status::Running).await;

    bus.away.store(true, Ordering::SeqCst);
    tokio::time::sleep(stale_after * 2).await;
    finish.notify_one();
    tokio::time::sleep(stale_after).await;
    assert_eq!(coordinator.store().workers().await.expect("workers").len(), 1, "no heartbeat could arrive");
    bus.away.store(false, Ordering::SeqCst);

    let job = until(&coordinator, job.id, |job| !job.status.is_live()).await;
    assert_eq!((job.status, job.attempt), (Status::Completed, 1));
    shutdown.drain.cancel();
    let summary = working.await.expect("no panic").expect("it worked");
    assert_eq!((summary.completed, summary.stale, summary.unaccepted), (1, 0, 0));
    coordinator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_workers_have_room_the_bus_is_not_asked_before_each_dispatch() {
    let bus = Unsteady::default();
    let ports = Ports { bus: Arc::new(bus.clone()), ..ports() };
    let settings = quick();
    let node = NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), settings.clone()).await.expect("it starts");
    coordinator.ready().await;
    let mut handlers = Handlers::default();
    handlers.add(JobType::new("test").expect("a name"), |_, _| Box::pin(async { Ok(None) }));
    let shutdown = Shutdown::default();
    let working = tokio::spawn(worker(&ports, &settings, handlers).run(shutdown.clone()));

    let (begun, before) = (tokio::time::Instant::now(), bus.backlogs.load(Ordering::SeqCst));
    for _ in 0..200 {
        let (job, _) = coordinator.enqueue(spec()).await.expect("enqueued");
        until(&coordinator, job.id, |job| job.status == Status::Completed).await;
    }
    let read = bus.backlogs.load(Ordering::SeqCst) - before;
    // Each time its state is read, once a second, and each time that what was sent would fill the worker.
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("a short test");
    assert!(read <= 200 / 10 + 3 * (seconds + 1), "{read} times for 200 jobs in {seconds} s");

    shutdown.drain.cancel();
    working.await.expect("no panic").expect("it worked");
    coordinator.stop().await;
}
