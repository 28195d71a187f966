//! Gives pending jobs to workers: never far ahead of their free slots, so that a later job of higher priority still
//! overtakes, and a queue that nobody serves keeps its jobs pending.
//!
//! Woken by hints (a queue has something new; a worker has other free slots), it asks the store for as many jobs as fit the
//! windows of the queues that were touched, in one fenced write, and publishes after the commit. If it dies in between,
//! the reconciler finds runs that nobody picked up. A queue that is paused, rate-limited or empty costs nothing and holds
//! up no other; nor does one whose channel cannot be used.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::jobs::event::Happening;
use convoke_core::jobs::rate_limit::SlidingWindow;
use convoke_core::jobs::window::Windows;
use convoke_core::jobs::wire::{self, Assigned, Ready, RunRef, V1, WorkerHeartbeat};
use convoke_core::jobs::{Queue, Status};
use convoke_core::ports::store::{DispatchOrder, Dispatched, Window, WorkerRecord};
use convoke_core::ports::{Message, Subscription};
use convoke_core::{QueueName, Result};
use futures_util::FutureExt;
use jiff::Timestamp;
use tracing::{debug, warn};

use crate::election::Term;
use crate::jobs::node::Node;
use crate::jobs::telemetry;

/// What one write may dispatch: more would keep enqueues waiting for the commit.
const BATCH_MAX: usize = 2_000;
/// How many hints are read before the dispatcher acts on them.
const HINTS_MAX: usize = 1_000;
/// How many runs one `job.assigned` entry carries.
const ASSIGNED_MAX: usize = 500;

pub async fn run(node: Arc<Node>, term: Term) {
    while !term.is_over() {
        let mut dispatcher = Dispatcher::new(node.clone(), term.clone());
        if let Err(error) = dispatcher.serve().await {
            super::note(&node, &term, "dispatcher", &error);
            term.sleep(Duration::from_millis(100)).await;
        }
    }
}

struct Dispatcher {
    node: Arc<Node>,
    term: Term,
    windows: Windows,
    /// Queues that may have pending jobs.
    waiting: BTreeSet<QueueName>,
    /// Queues of which something changed since the last dispatch.
    touched: BTreeSet<QueueName>,
    /// Queues whose channel is none.
    unusable: BTreeSet<QueueName>,
    meters: HashMap<QueueName, SlidingWindow>,
    /// When a queue's rate limit lets the next job through.
    metered_until: Option<Timestamp>,
    looked_at: tokio::time::Instant,
}

impl Dispatcher {
    fn new(node: Arc<Node>, term: Term) -> Self {
        Dispatcher {
            node,
            term,
            windows: Windows::default(),
            waiting: BTreeSet::new(),
            touched: BTreeSet::new(),
            unusable: BTreeSet::new(),
            meters: HashMap::new(),
            metered_until: None,
            looked_at: tokio::time::Instant::now(),
        }
    }

    /// Dispatches until the term is over. Any error starts it afresh, from what the store says.
    async fn serve(&mut self) -> Result<()> {
        // Subscribed before the state is read, so that no change falls between.
        let topics = [self.node.channels.worker_heartbeat(), self.node.channels.ready()];
        let mut hints = self.node.bus().subscribe(&topics).await?;
        self.look().await?;
        loop {
            while self.dispatch().await? {}
            let term = self.term.clone();
            let pause = self.until_next_look();
            let node = self.node.clone();
            let hint = tokio::select! {
                () = term.ended() => return Ok(()),
                beats = node.group_readers.next_beats() => {
                    self.see_readers(beats);
                    continue;
                }
                hint = hints.next() => Some(hint?),
                () = tokio::time::sleep(pause) => None,
            };
            match hint {
                Some(Some(message)) => self.hear(message, &mut *hints).await?,
                // Some hints were lost, or it is time anyway.
                Some(None) | None => self.look_if_due(hint.is_some()).await?,
            }
        }
    }

    fn until_next_look(&self) -> Duration {
        let look = super::LOOK_INTERVAL.saturating_sub(self.looked_at.elapsed());
        self.metered_until.map_or(look, |at| super::until(self.node.now(), at).min(look))
    }

    async fn look_if_due(&mut self, missed: bool) -> Result<()> {
        let now = self.node.now();
        if self.metered_until.take_if(|at| *at <= now).is_some() {
            self.touched.extend(self.meters.keys().cloned());
        }
        if missed || self.looked_at.elapsed() >= super::LOOK_INTERVAL {
            self.look().await?;
        }
        Ok(())
    }

    /// Reads the state from the store: workers, limits, what is pending.
    async fn look(&mut self) -> Result<()> {
        let now = self.node.now();
        let stale_after = self.node.settings.worker.stale_after;
        for worker in self.node.store().workers().await? {
            // Of its own workers, and of those it hears, the node knows more than the store.
            let (node, id) = (&self.node, &worker.worker_id);
            let own = worker.via.as_ref() == Some(&node.id);
            let beat = if own { node.sessions.heartbeat(id, now) } else { node.bus_workers.heartbeat(id) };
            self.windows.on_heartbeat(&beat.unwrap_or_else(|| heartbeat(worker)), now);
        }
        self.windows.forget_stale(now, stale_after);
        for queue in self.node.store().queues().await? {
            self.configure(&queue).await?;
            if queue.counts.get(Status::Pending) > 0 {
                self.node.group_readers.watch(&queue.name);
                self.touched.insert(queue.name.clone());
                self.waiting.insert(queue.name);
            }
        }
        self.looked_at = tokio::time::Instant::now();
        Ok(())
    }

    /// Takes in what a look at workers without heartbeats found. Queues that nobody serves may be probed.
    fn see_readers(&mut self, beats: Vec<WorkerHeartbeat>) {
        let now = self.node.now();
        for beat in beats {
            self.windows.on_heartbeat(&beat, now);
            self.touched.extend(beat.queues);
        }
        self.touched.extend(self.waiting.iter().filter(|queue| self.windows.workers(queue) == 0).cloned());
    }

    /// Follows a queue's rate limit. What a former leader granted is read back, so that the limit holds across the change.
    async fn configure(&mut self, queue: &Queue) -> Result<()> {
        let known = self.meters.get(&queue.name).map(SlidingWindow::limit);
        if known == queue.rate_limit {
            return Ok(());
        }
        self.touched.insert(queue.name.clone());
        let Some(limit) = queue.rate_limit else {
            self.meters.remove(&queue.name);
            return Ok(());
        };
        let since = self.node.now() - limit.per;
        let mut meter = SlidingWindow::new(limit);
        meter.restore(self.node.store().grants(&queue.name, since).await?);
        self.meters.insert(queue.name.clone(), meter);
        Ok(())
    }

    /// Takes in a hint and all that came with it.
    async fn hear(&mut self, first: Message, hints: &mut dyn Subscription) -> Result<()> {
        let mut next = Some(first);
        for _ in 0..HINTS_MAX {
            let Some(message) = next else { return Ok(()) };
            self.understand(message).await?;
            next = match hints.next().now_or_never() {
                Some(hint) => match hint? {
                    Some(message) => Some(message),
                    None => return self.look().await,
                },
                None => None,
            };
        }
        Ok(())
    }

    async fn understand(&mut self, message: Message) -> Result<()> {
        if message.channel.ends_with(".worker.heartbeat") {
            match serde_json::from_slice::<WorkerHeartbeat>(&message.body) {
                Ok(beat) => {
                    self.windows.on_heartbeat(&beat, self.node.now());
                    self.touched.extend(beat.queues);
                }
                Err(error) => telemetry::poison(&self.node, message.channel, message.body, &error).await,
            }
            return Ok(());
        }
        match serde_json::from_slice::<Ready>(&message.body) {
            Ok(ready) => {
                for name in &ready.configured {
                    if let Some(queue) = self.node.store().queue(name).await? {
                        self.configure(&queue).await?;
                        if queue.paused {
                            self.node.paused.notify_one();
                        }
                        self.touched.insert(queue.name.clone());
                        self.waiting.insert(queue.name);
                    } else {
                        // Deleted: its limits went with it.
                        self.meters.remove(name);
                    }
                }
                for queue in ready.queues.iter().filter(|queue| self.windows.workers(queue) == 0) {
                    self.node.group_readers.watch(queue);
                }
                self.waiting.extend(ready.queues.iter().cloned());
                self.touched.extend(ready.queues);
            }
            Err(error) => telemetry::poison(&self.node, message.channel, message.body, &error).await,
        }
        Ok(())
    }

    /// One write for all queues that can take something. True where there is more to do at once.
    async fn dispatch(&mut self) -> Result<bool> {
        if self.touched.is_empty() {
            return Ok(false);
        }
        let now = self.node.now();
        // What the leader's own workers have just been given may not have come round by the topic yet.
        for worker in self.node.hints.changed_slots() {
            if let Some(beat) = self.node.sessions.heartbeat(&worker, now) {
                self.windows.on_heartbeat(&beat, now);
            }
        }
        let windows = self.open_windows(now).await?;
        let total: usize = windows.iter().map(|window| window.limit).sum();
        if total == 0 {
            return Ok(false);
        }
        let executions = (0..total).map(|_| self.node.execution_id(now)).collect();
        let order = DispatchOrder { now, windows: windows.clone(), executions };
        let done = telemetry::timed("dispatch", self.node.store().dispatch(self.term.fence(), order)).await?;
        for (window, queue) in windows.iter().zip(&done.queues) {
            self.windows.dispatched(&queue.queue, queue.taken, now);
            if let Some(meter) = self.meters.get_mut(&queue.queue) {
                meter.take(now, queue.taken as u32);
            }
            if queue.pending == 0 {
                self.waiting.remove(&queue.queue);
            } else if queue.taken == window.limit || queue.is_cut {
                // The window may have been cut to the batch, in count or in bytes, not to the slots.
                self.touched.insert(queue.queue.clone());
            }
        }
        if !done.runs.is_empty() {
            telemetry::dispatched(done.runs.len());
            self.publish(done).await;
        }
        Ok(!self.touched.is_empty())
    }

    /// How many jobs each touched queue may be given now.
    async fn open_windows(&mut self, now: Timestamp) -> Result<Vec<Window>> {
        let mut windows = Vec::new();
        let mut total = 0;
        if self.windows.untaken().is_full() {
            self.observe_untaken().await?;
        }
        while let Some(queue) = self.touched.pop_first() {
            if total >= BATCH_MAX {
                self.touched.insert(queue);
                break;
            }
            if !self.waiting.contains(&queue) {
                continue;
            }
            let is_probe = self.windows.workers(&queue) == 0;
            if is_probe && !self.node.group_readers.probe(&queue) {
                continue;
            }
            let Some(backlog) = super::untaken(&self.node, &queue).await? else {
                // Asked again with every look and every beat, and said once.
                if self.unusable.insert(queue.clone()) {
                    warn!(%queue, "queue not dispatched: its Redis key has the wrong type");
                }
                continue;
            };
            self.unusable.remove(&queue);
            let open = if is_probe { usize::from(backlog == 0) } else { self.windows.limit(&queue, backlog, now) };
            let mut limit = open.min(BATCH_MAX - total);
            let meter = self.meters.get_mut(&queue);
            if let Some(meter) = meter {
                limit = limit.min(meter.available(now) as usize);
                if let Some(at) = meter.next_at(now).filter(|_| limit == 0) {
                    self.metered_until = Some(self.metered_until.map_or(at, |known| known.min(at)));
                }
            }
            if limit > 0 {
                total += limit;
                windows.push(Window { metered: self.meters.contains_key(&queue), queue, limit });
            }
        }
        Ok(windows)
    }

    /// Asks for the backlog of every queue whose runs may lie on the bus: those of a queue that has nothing to dispatch count
    /// until somebody looks.
    async fn observe_untaken(&mut self) -> Result<()> {
        let queues: Vec<QueueName> = self.windows.untaken().queues().cloned().collect();
        for queue in queues {
            let backlog = super::untaken(&self.node, &queue).await?.unwrap_or(0);
            self.windows.untaken().observe(&queue, backlog);
        }
        Ok(())
    }

    /// Says who may run what. Owners first: a run should have one before it ends.
    async fn publish(&mut self, mut done: Dispatched) {
        let epoch = self.term.fence().epoch();
        let assigned = self.node.channels.assigned();
        let mut entries: Vec<(String, Bytes)> = Vec::with_capacity(done.runs.len() + 1);
        for runs in done.runs.chunks(ASSIGNED_MAX) {
            let jobs = runs.iter().map(|run| RunRef { job_id: run.job_id, execution_id: run.execution_id });
            let message = Assigned { v: V1, epoch, jobs: jobs.collect() };
            let bodies = self.node.settings.bus_format.encode_assigned(&message);
            entries.extend(bodies.into_iter().map(|body| (assigned.clone(), body)));
        }
        let mut channel: Option<(&QueueName, String)> = None;
        for run in &mut done.runs {
            run.rate_limit = self.meters.get(&run.queue).map(SlidingWindow::limit);
            self.windows.untaken().published(&run.queue, run.args.as_str().len());
        }
        for run in &done.runs {
            let name = match &channel {
                Some((queue, name)) if **queue == run.queue => name.clone(),
                _ => channel.insert((&run.queue, self.node.channels.dispatch(&run.queue))).1.clone(),
            };
            entries.push((name, wire::encode(run)));
        }
        if let Err(error) = self.node.bus().push(entries).await {
            debug!(runs = done.runs.len(), "dispatched runs were not published: the reconciler releases them");
            self.node.outages.failed("dispatcher", &error);
        }
        if self.node.is_watched() {
            for run in done.runs {
                self.node.tell(Happening::Job {
                    status: Status::Dispatched,
                    job_id: run.job_id,
                    job_type: run.job_type,
                    queue: run.queue,
                    attempt: run.attempt,
                });
            }
        }
    }
}

fn heartbeat(worker: WorkerRecord) -> WorkerHeartbeat {
    WorkerHeartbeat {
        v: V1,
        worker_id: worker.worker_id,
        queues: worker.queues,
        running: worker.running,
        free: worker.concurrency.saturating_sub(worker.running),
        state: worker.state,
        at: worker.last_heartbeat_at,
        name: None,
        concurrency: Some(worker.concurrency),
        via: worker.via,
        executions: None,
    }
}
