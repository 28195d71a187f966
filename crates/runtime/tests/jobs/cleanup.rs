//! The channels of a finished job are closed by a leader that still leads, and nothing that a later run published is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{failed, one, ports, quick, register, report, spec, until};
use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::jobs::Job;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{Event, EventKind};
use convoke_core::ports::{Bus, Consumer, Multiplex, QueueEnd, QueueReaders, Store, Subscription};
use convoke_core::{Epoch, NodeId, Result};
use convoke_runtime::jobs::{Coordinator, Ports};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// An event while the leader cleans.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Incident {
    /// Another leads from when the ends of the channels were read.
    Deposed,
    /// The job is retried, and its run publishes, just before its channels are closed.
    Retried,
}

/// A bus on which the first cleanup of a job meets an incident.
struct Eventful {
    bus: Arc<dyn Bus>,
    store: Arc<dyn Store>,
    incident: Mutex<Option<Incident>>,
    /// Channels that were closed of jobs that the store did not have as cleaned.
    unmarked: AtomicUsize,
    closed: Notify,
}

fn body(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

impl Eventful {
    async fn job_of(&self, channel: &str) -> Job {
        let (id, _) = Channels::new("convoke").job_of(channel).expect("a job's channel");
        self.store.get(&[id]).await.expect("read").remove(0).expect("the job")
    }

    fn meets(&self, incident: Incident) -> bool {
        self.incident.lock().take_if(|next| *next == incident).is_some()
    }
}

#[async_trait]
impl Bus for Eventful {
    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>> {
        // A run published this after its end.
        self.bus.push(vec![(queues[0].clone(), body("old"))]).await?;
        let ends = self.bus.ends(queues).await;
        if self.meets(Incident::Deposed) {
            let sealed = self.store.sealed().await?;
            self.store.seal(Epoch(sealed.0 + 1)).await?;
        }
        ends
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        for end in ends {
            let job = self.job_of(&end.queue).await;
            self.unmarked.fetch_add(usize::from(!job.channels_cleaned), Ordering::SeqCst);
            if self.meets(Incident::Retried) {
                self.store.redrive(&[job.id], jiff::Timestamp::now()).await?;
                self.bus.push(vec![(end.queue.clone(), body("new"))]).await?;
            }
        }
        self.bus.close(ends).await?;
        if !ends.is_empty() {
            self.closed.notify_one();
        }
        Ok(())
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

    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        self.bus.readers(queues, group, idle).await
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        self.bus.multiplex().await
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

    fn is_in_process(&self) -> bool {
        true
    }
}

/// Lets a job fail for good whose channels must be cleaned, and waits until some were closed.
async fn clean_beside(incident: Incident) -> (Arc<Eventful>, Coordinator, Job) {
    let ports = ports();
    let bus = Arc::new(Eventful {
        bus: ports.bus.clone(),
        store: ports.store.clone(),
        incident: Mutex::new(Some(incident)),
        unmarked: AtomicUsize::new(0),
        closed: Notify::new(),
    });
    let mut settings = quick();
    settings.worker.stale_after = Duration::from_secs(60);
    settings.channels.cleanup_delay = Duration::from_millis(1);
    settings.channels.scan_interval = Duration::from_millis(10);
    let ports = Ports { bus: bus.clone(), ..ports };
    let node = NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports, settings).await.expect("it starts");
    coordinator.ready().await;
    register(&coordinator, "w", 1).await;
    // For a job that runs twice it is not known whether it ever used its channels.
    let spec = spec().with(|job| job.max_retries = Some(1));
    let (job, _) = coordinator.enqueue(spec).await.expect("it is enqueued");
    for _ in 0..2 {
        let (id, execution, _) = one(&coordinator, "w").await;
        report(&coordinator, "w", vec![Event::new(id, execution, EventKind::Started), failed(id, execution)]).await;
    }
    tokio::time::timeout(Duration::from_secs(20), bus.closed.notified()).await.expect("channels are closed");
    (bus, coordinator, job)
}

#[tokio::test]
async fn a_former_leader_closes_no_channel() {
    let (bus, coordinator, job) = clean_beside(Incident::Deposed).await;
    assert_eq!(bus.unmarked.load(Ordering::SeqCst), 0, "a channel was closed by a leader whose term was over");
    until(&coordinator, job.id, |job| job.channels_cleaned).await;
    assert!(bus.queues(&Channels::new("convoke").jobs()).await.expect("names").is_empty(), "the next leader closed it");
    coordinator.stop().await;
}

#[tokio::test]
async fn what_a_later_run_says_survives_the_cleanup_of_the_one_before() {
    let (bus, coordinator, job) = clean_beside(Incident::Retried).await;
    let channel = Channels::new("convoke").status(job.id);
    let reader = bus.multiplex().await.expect("a reader");
    reader.add(&[channel]).await.expect("added");
    let read = tokio::time::timeout(Duration::from_secs(20), reader.next()).await.expect("it is there").expect("read");
    let bodies: Vec<Bytes> = read.into_iter().flat_map(|(_, entries)| entries).map(|entry| entry.body).collect();
    assert_eq!(bodies, [body("new")], "and nothing of the run before");
    coordinator.stop().await;
}
