//! Workers whose handlers do nothing, on a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};
use convoke_core::jobs::link::{Event, EventKind, Poll, Polled, Register, Registered, Report};
use convoke_core::{JobType, Json, QueueName, WorkerId};
use convoke_runtime::jobs::worker::{Handlers, Settings, Shutdown, Worker};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::enqueue::JOB_TYPE;
use super::wire::{Connection, Target};

/// Runs of the bare poller at once, on each of its connections.
const RAW_POLL: usize = 100;
const RAW_CONNECTIONS: usize = 4;

/// Counts started jobs, and lets a task wait for a count.
#[derive(Default)]
pub struct Tally {
    begun: AtomicU64,
    changed: Notify,
}

impl Tally {
    fn count(&self, more: u64) {
        // About one notification per 256 jobs is enough: a waiting task also polls.
        if (self.begun.fetch_add(more, Ordering::Relaxed) + more) % 256 < more {
            self.changed.notify_one();
        }
    }

    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until this many have started.
    pub async fn reaches(&self, count: u64) {
        while self.begun() < count {
            let _ = tokio::time::timeout(std::time::Duration::from_millis(2), self.changed.notified()).await;
        }
    }
}

pub struct Workers {
    shutdown: Shutdown,
    thread: JoinHandle<Result<()>>,
    pub tally: Arc<Tally>,
}

impl Workers {
    /// Starts the worker that applications use. It calls `seen` when a run starts.
    pub fn start(
        target: &Target,
        queue: &str,
        concurrency: u32,
        seen: impl Fn(&Json) + Send + Sync + 'static,
    ) -> Result<Workers> {
        let tally = Arc::new(Tally::default());
        let (job_type, queue, seen) = (JobType::new(JOB_TYPE)?, QueueName::new(queue)?, Arc::new(seen));
        let shutdown = Shutdown::default();
        let (target, begun, until) = (target.clone(), tally.clone(), shutdown.clone());
        let thread = on_a_thread(async move {
            // One for each node, so that every node is polled.
            let share = concurrency.div_ceil(target.urls.len() as u32);
            let mut workers = tokio::task::JoinSet::new();
            for url in &target.urls {
                let link = match &target.bus {
                    Some((bus, prefix)) => convoke::connect::worker_way(bus, None, prefix).await?,
                    None => convoke::connect::worker_link(url, target.token.clone())?,
                };
                let (name, queues) = (Some("bench".into()), vec![queue.clone()]);
                let settings = Settings { name, queues, concurrency: share, ..Settings::default() };
                let mut handlers = Handlers::default();
                let (begun, seen) = (begun.clone(), seen.clone());
                handlers.add(job_type.clone(), move |_, args| {
                    seen(&args);
                    begun.count(1);
                    Box::pin(std::future::ready(Ok(None)))
                });
                workers.spawn(Worker::new(link, convoke::connect::clock(), settings, handlers).run(until.clone()));
            }
            while let Some(ended) = workers.join_next().await {
                ended??;
            }
            Ok(())
        })?;
        Ok(Workers { shutdown, thread, tally })
    }

    /// Starts a bare poller of the gateway: the minimal worker.
    pub fn start_raw(target: &Target, queue: &str) -> Result<Workers> {
        let (tally, shutdown) = (Arc::new(Tally::default()), Shutdown::default());
        let (target, queue) = (target.clone(), QueueName::new(queue)?);
        let (counted, until) = (tally.clone(), shutdown.drain.clone());
        let thread = on_a_thread(async move { poll(target, queue, counted, until).await })?;
        Ok(Workers { shutdown, thread, tally })
    }

    pub async fn stop(self) -> Result<()> {
        self.shutdown.drain.cancel();
        match tokio::task::spawn_blocking(|| self.thread.join()).await? {
            Ok(ended) => ended,
            Err(_) => bail!("the worker panicked"),
        }
    }
}

fn on_a_thread(work: impl Future<Output = Result<()>> + Send + 'static) -> Result<JoinHandle<Result<()>>> {
    let named = std::thread::Builder::new().name("bench-worker".into());
    Ok(named.spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))?)
}

async fn poll(target: Target, queue: QueueName, tally: Arc<Tally>, until: CancellationToken) -> Result<()> {
    let mut pollers = tokio::task::JoinSet::new();
    for _ in 0..RAW_CONNECTIONS {
        let (target, queue, tally, until) = (target.clone(), queue.clone(), tally.clone(), until.clone());
        pollers.spawn(async move {
            let mut connection = target.connect().await?;
            let concurrency = RAW_POLL as u32;
            let worker = Register { worker_id: None, name: Some("bare".into()), queues: vec![queue], concurrency };
            let answer = post(&target, &mut connection, "register", &worker).await?;
            let id = serde_json::from_slice::<Registered>(answer)?.worker_id;
            until.run_until_cancelled(poll_on(&target, &mut connection, id, &tally)).await.unwrap_or(Ok(()))
        });
    }
    while let Some(ended) = pollers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn poll_on(target: &Target, connection: &mut Connection, id: WorkerId, tally: &Tally) -> Result<()> {
    let wait = std::time::Duration::from_secs(5);
    loop {
        let ask = Poll { worker_id: id.clone(), max: RAW_POLL, wait };
        let polled: Polled = serde_json::from_slice(post(target, connection, "poll", &ask).await?)?;
        if polled.jobs.is_empty() {
            continue;
        }
        tally.count(polled.jobs.len() as u64);
        let completed =
            |run: &convoke_core::jobs::link::Assignment| Event::new(run.job_id, run.execution_id, EventKind::Completed);
        let report = Report { worker_id: id.clone(), events: polled.jobs.iter().map(completed).collect() };
        post(target, connection, "report", &report).await?;
    }
}

async fn post<'c>(
    target: &Target,
    connection: &'c mut Connection,
    verb: &str,
    body: &impl serde::Serialize,
) -> Result<&'c [u8]> {
    let body = serde_json::to_string(body)?;
    let request = target.request("POST", &format!("/v1/worker/{verb}"), &body);
    connection.exchange(&request).await.with_context(|| format!("/v1/worker/{verb}"))
}
