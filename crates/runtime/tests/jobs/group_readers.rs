//! Workers that send no heartbeats, with nodes on the memory adapters. They are consumers of the memory bus that the nodes are
//! shown as somebody else's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{ports, quick, spec, until};
use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::jobs::Status;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::wire::{self, Dispatch, StatusKind, StatusMessage, V1, WorkerState};
use convoke_core::ports::store::WorkerRecord;
use convoke_core::ports::{Bus, Consumer, Delivery, Multiplex, QueueEnd, QueueReaders, Subscription};
use convoke_core::{NodeId, QueueName, Result, WorkerId};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};

const FOREIGN: &str = "foreign";

/// Shows consumers whose names begin with [`FOREIGN`] as readers that did not join by the port.
struct Shared {
    bus: Arc<dyn Bus>,
    /// Lists no consumer that has received nothing, and reports that one waits, as Redis before 7.2 does.
    hides: AtomicBool,
}

#[async_trait]
impl Bus for Shared {
    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        let mut found = self.bus.readers(queues, group, idle).await?;
        for queue in found.iter_mut().flatten() {
            queue.readers.iter_mut().for_each(|reader| reader.is_consumer = !reader.name.starts_with(FOREIGN));
            if self.hides.load(Ordering::SeqCst) {
                queue.is_awaited = true;
                queue.readers.retain(|reader| reader.pending > 0);
            }
        }
        Ok(found)
    }

    async fn publish(&self, topic: &str, message: Bytes) -> Result<()> {
        self.bus.publish(topic, message).await
    }

    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()> {
        self.bus.announce(topic, message, kept).await
    }

    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>> {
        self.bus.subscribe(topics).await
    }

    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()> {
        self.bus.push(entries).await
    }

    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>> {
        self.bus.consumer(queue, group, name).await
    }

    async fn backlog(&self, queue: &str, group: &str) -> Result<u64> {
        self.bus.backlog(queue, group).await
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        self.bus.multiplex().await
    }

    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>> {
        self.bus.ends(queues).await
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        self.bus.close(ends).await
    }

    async fn trim(&self, queues: &[String]) -> Result<()> {
        self.bus.trim(queues).await
    }

    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()> {
        self.bus.forget_unread(queues, idle).await
    }

    async fn queues(&self, prefix: &str) -> Result<Vec<String>> {
        self.bus.queues(prefix).await
    }

    async fn ping(&self) -> Result<()> {
        self.bus.ping().await
    }
}

/// A cluster whose bus others can read.
fn shared(hides: bool) -> Ports {
    let ports = ports();
    Ports { bus: Arc::new(Shared { bus: ports.bus.clone(), hides: AtomicBool::new(hides) }), ..ports }
}

async fn start(ports: &Ports, settings: Settings) -> Coordinator {
    let node = NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), settings).await.expect("it starts");
    coordinator.ready().await;
    coordinator
}

/// Silence counts after half a second, and a busy reader's after five.
fn settings() -> Settings {
    let mut settings = quick();
    settings.worker.stale_after = Duration::from_millis(500);
    settings
}

/// A worker that reads, reports and acknowledges, and no more.
struct Reader {
    bus: Arc<dyn Bus>,
    channels: Channels,
    name: &'static str,
    runs: Box<dyn Consumer>,
}

impl Reader {
    async fn join(ports: &Ports, name: &'static str) -> Reader {
        let channels = Channels::new("convoke");
        let queue = QueueName::new("default").expect("a name");
        let runs = ports.bus.consumer(&channels.dispatch(&queue), "workers", name).await.expect("a consumer");
        Reader { bus: ports.bus.clone(), channels, name, runs }
    }

    /// Reads every few milliseconds until it is given something.
    async fn take(&self) -> Vec<(Delivery, Dispatch)> {
        loop {
            let taken = self.runs.take_now(1).await.expect("it reads");
            if !taken.is_empty() {
                let run = |delivery: Delivery| {
                    let run = serde_json::from_slice(&delivery.body).expect("a dispatch");
                    (delivery, run)
                };
                return taken.into_iter().map(run).collect();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn report(&self, run: &Dispatch, kind: StatusKind) {
        let message = StatusMessage {
            v: V1,
            job_id: run.job_id,
            execution_id: run.execution_id,
            worker_id: WorkerId::new(self.name).expect("a name"),
            kind,
            at: jiff::Timestamp::now(),
            started_at: None,
            percent: None,
            message: None,
            result: None,
            error: None,
            retry: None,
        };
        self.bus.push(vec![(self.channels.status(run.job_id), wire::encode(&message))]).await.expect("pushed");
    }

    async fn ack(&self, delivery: &Delivery) {
        self.runs.ack(std::slice::from_ref(&delivery.id)).await.expect("ack");
    }

    /// Completes whatever it is given.
    async fn work(self) {
        loop {
            for (delivery, run) in self.take().await {
                self.report(&run, StatusKind::Completed).await;
                self.ack(&delivery).await;
            }
        }
    }
}

async fn listed(coordinator: &Coordinator, is: impl Fn(&[WorkerRecord]) -> bool) -> Vec<WorkerRecord> {
    loop {
        let workers = coordinator.workers().await.expect("workers");
        if is(&workers) {
            return workers;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_reader_without_heartbeats_gets_every_job_and_is_listed_by_its_name() {
    let ports = shared(false);
    let coordinator = start(&ports, settings()).await;
    let working = tokio::spawn(Reader::join(&ports, FOREIGN).await.work());
    let jobs = coordinator.enqueue_batch(vec![spec(); 50]).await.expect("enqueued");
    let worker = listed(&coordinator, |workers| !workers.is_empty()).await.remove(0);
    assert_eq!((worker.worker_id.as_str(), worker.name.as_str()), (FOREIGN, "foreign (reader)"));
    assert_eq!((worker.concurrency, worker.via, worker.state), (10, None, WorkerState::Active));
    for job in jobs {
        let job = until(&coordinator, job.id, |job| job.status == Status::Completed).await;
        assert_eq!((job.attempt, job.worker_id), (1, Some(WorkerId::new(FOREIGN).expect("a name"))));
    }
    working.abort();
    listed(&coordinator, |workers| workers.is_empty()).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn a_reader_that_the_bus_does_not_list_is_found_by_a_probe() {
    let ports = shared(true);
    let coordinator = start(&ports, settings()).await;
    let reader = Reader::join(&ports, FOREIGN).await;
    let jobs = coordinator.enqueue_batch(vec![spec(); 3]).await.expect("enqueued");
    let (delivery, run) = reader.take().await.remove(0);
    let others = jobs.iter().filter(|job| job.id != run.job_id);
    for job in others {
        // One is sent to find out whether anybody reads. The rest follows once somebody does.
        until(&coordinator, job.id, |job| job.status == Status::Dispatched).await;
    }
    reader.report(&run, StatusKind::Completed).await;
    reader.ack(&delivery).await;
    until(&coordinator, run.job_id, |job| job.status == Status::Completed).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn a_probe_that_nobody_takes_is_recalled_and_counts_as_no_attempt() {
    let ports = shared(true);
    let coordinator = start(&ports, settings()).await;
    // The group is there, and whoever waits, waits elsewhere.
    let reader = Reader::join(&ports, FOREIGN).await;
    let job = coordinator.enqueue(spec()).await.expect("enqueued").0;
    until(&coordinator, job.id, |job| job.status == Status::Dispatched).await;
    until(&coordinator, job.id, |job| job.status == Status::Pending).await;
    let (_, run) = reader.take().await.remove(0);
    assert_eq!((run.job_id, run.attempt), (job.id, 1), "the next probe finds it");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_reader_that_is_busy_is_waited_for_longer_than_one_that_beats() {
    let ports = shared(false);
    let settings = settings();
    let coordinator = start(&ports, settings.clone()).await;
    let reader = Reader::join(&ports, FOREIGN).await;
    for reports_start in [true, false] {
        let job = coordinator.enqueue(spec().with(|job| job.max_retries = Some(0))).await.expect("enqueued").0;
        let (delivery, run) = reader.take().await.remove(0);
        if reports_start {
            reader.report(&run, StatusKind::Started).await;
            reader.ack(&delivery).await;
        }
        // It reads nothing meanwhile.
        tokio::time::sleep(settings.worker.stale_after * 4).await;
        let workers = coordinator.workers().await.expect("workers");
        assert_eq!((workers.len(), workers[0].state), (1, WorkerState::Draining), "it is given nothing more");
        reader.report(&run, StatusKind::Completed).await;
        reader.ack(&delivery).await;
        let job = until(&coordinator, job.id, |job| !job.status.is_live()).await;
        assert_eq!((job.status, job.attempt), (Status::Completed, 1), "started: {reports_start}");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn the_runs_of_a_reader_that_never_reads_again_are_lost_in_time() {
    let ports = shared(false);
    let mut settings = settings();
    settings.worker.stale_after = Duration::from_millis(200);
    let coordinator = start(&ports, settings).await;
    let reader = Reader::join(&ports, "foreign-dying").await;
    let job = coordinator.enqueue(spec().with(|job| job.max_retries = Some(1))).await.expect("enqueued").0;
    let (delivery, run) = reader.take().await.remove(0);
    reader.report(&run, StatusKind::Started).await;
    reader.ack(&delivery).await;
    until(&coordinator, job.id, |job| job.status == Status::Running).await;
    until(&coordinator, job.id, |job| job.status != Status::Running).await;
    let history = coordinator.store().history(job.id, 0, 10).await.expect("history").runs;
    assert!(history[0].error.as_deref().is_some_and(|error| error.contains("stopped reading")), "{history:?}");
    listed(&coordinator, |workers| workers.is_empty()).await;
    let next = Reader::join(&ports, "foreign-next").await;
    let (_, again) = next.take().await.remove(0);
    assert_eq!((again.job_id, again.attempt), (job.id, 2), "a lost run counts as an attempt");
    coordinator.stop().await;
}

#[tokio::test]
async fn who_sends_heartbeats_is_not_counted_by_its_reads_as_well() {
    let ports = shared(false);
    let coordinator = start(&ports, settings()).await;
    let reader = Reader::join(&ports, FOREIGN).await;
    let heartbeat = r#"{"WorkerId":"foreign","Queues":["default"],"Concurrency":1}"#;
    let heartbeats = async {
        loop {
            ports.bus.publish(&reader.channels.worker_heartbeat(), heartbeat.into()).await.expect("published");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let reads = async {
        listed(&coordinator, |workers| workers.len() == 1).await;
        coordinator.enqueue_batch(vec![spec(); 5]).await.expect("enqueued");
        let (_, run) = reader.take().await.remove(0);
        reader.report(&run, StatusKind::Started).await;
        until(&coordinator, run.job_id, |job| job.status == Status::Running).await;
        // It reads on, as one that has ten slots would, and lists nothing.
        for _ in 0..100 {
            reader.runs.take_now(0).await.expect("it reads");
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        let job = coordinator.job(run.job_id, None).await.expect("there");
        assert_eq!((job.status, job.attempt), (Status::Running, 1), "a heartbeat that names no runs loses none");
        let workers = coordinator.workers().await.expect("workers");
        assert_eq!((workers.len(), workers[0].concurrency, workers[0].name.as_str()), (1, 1, FOREIGN));
    };
    tokio::select! {
        () = heartbeats => {}
        () = reads => {}
    }
    coordinator.stop().await;
}
