//! Dispatches pending jobs to workers: never far ahead of their free slots, so that a later job of higher priority
//! still overtakes, and a queue that no worker serves keeps its jobs pending.
//!
//! Hints wake it (a queue has new jobs; a worker has other free slots). It requests as many jobs as fit the windows of
//! the changed queues, in one fenced write, and publishes after the commit. If it dies in between, the reconciler finds
//! runs that no worker picked up. A queue that is paused, rate-limited or empty costs nothing and does not block
//! others; nor does one whose channel cannot be used. If a limit over all queues is used up, queues share the freed
//! runs ([`Turns`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::jobs::event::ClusterEvent;
use convoke_core::jobs::rate_limit::SlidingWindow;
use convoke_core::jobs::window::Windows;
use convoke_core::jobs::wire::{self, Assigned, Ready, RunRef, V1, WorkerHeartbeat};
use convoke_core::jobs::{Queue, RateLimit, Status, Turns};
use convoke_core::ports::Message;
use convoke_core::ports::store::{DispatchOrder, Dispatched, Window, WorkerRecord};
use convoke_core::{QueueName, Result};
use futures_util::FutureExt;
use jiff::Timestamp;
use tracing::{debug, warn};

use super::LeaderState;
use crate::jobs::duty::{DutyRun, SubscribedTo};
use crate::jobs::feed::{Feed, Received};
use crate::jobs::node::Node;
use crate::jobs::telemetry;

/// Upper bound of the jobs of one write: more would delay enqueues until the commit.
const BATCH_MAX: usize = 2_000;
/// How many hints are read before the dispatcher acts on them.
const HINTS_MAX: usize = 1_000;
/// How many runs one `job.assigned` entry carries.
const ASSIGNED_MAX: usize = 500;
const RETRY_AFTER: Duration = Duration::from_millis(100);

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let mut hints = run.feed("dispatcher");
    while !run.must_stop() {
        // Any error restarts it from the state of the store.
        let mut dispatcher = Dispatcher::new(leader.clone());
        if let Err(error) = dispatcher.serve(&mut run, &mut hints).await {
            run.failed("dispatcher", &error);
            run.sleep(RETRY_AFTER).await;
            hints = run.feed("dispatcher");
        }
    }
    Ok(())
}

/// Why the dispatcher wakes.
enum Wake {
    Readers(Vec<WorkerHeartbeat>),
    Hint(Received),
    Time,
}

struct Dispatcher {
    leader: Arc<LeaderState>,
    node: Arc<Node>,
    windows: Windows,
    /// Queues that may have pending jobs.
    waiting: BTreeSet<QueueName>,
    /// Queues that changed since the last dispatch.
    touched: BTreeSet<QueueName>,
    /// Queues whose Redis key has the wrong type.
    unusable: BTreeSet<QueueName>,
    /// Of queues with a rate limit, their own or the default. A meter of the default starts with the queue's first
    /// dispatch.
    meters: HashMap<QueueName, SlidingWindow>,
    /// Of all queues together.
    global: Option<SlidingWindow>,
    turns: Turns,
    /// Queues that a rate limit holds back.
    held: BTreeSet<QueueName>,
    /// When a rate limit permits the next job of one of them.
    metered_until: Option<Timestamp>,
    looked_at: tokio::time::Instant,
}

impl Dispatcher {
    fn new(leader: Arc<LeaderState>) -> Self {
        Dispatcher {
            node: leader.node.clone(),
            leader,
            windows: Windows::default(),
            waiting: BTreeSet::new(),
            touched: BTreeSet::new(),
            unusable: BTreeSet::new(),
            meters: HashMap::new(),
            global: None,
            turns: Turns::default(),
            held: BTreeSet::new(),
            metered_until: None,
            looked_at: tokio::time::Instant::now(),
        }
    }

    /// Dispatches until the term is over, or until its subscription breaks.
    async fn serve(&mut self, run: &mut DutyRun<SubscribedTo>, hints: &mut Feed) -> Result<()> {
        // Subscribed before the state is read, so that no change is missed in between.
        if run.next(hints).await.is_none() {
            return Ok(());
        }
        if let Some(limit) = self.node.settings.rate_limit.global {
            self.global = Some(self.restored(None, limit).await?);
        }
        self.read_state().await?;
        loop {
            while self.dispatch().await? {}
            let (leader, pause) = (self.leader.clone(), self.until_next_look());
            let woken = run.wait(async {
                tokio::select! {
                    beats = leader.group_readers.next_beats() => Wake::Readers(beats),
                    hint = hints.next() => Wake::Hint(hint),
                    () = tokio::time::sleep(pause) => Wake::Time,
                }
            });
            match woken.await {
                None | Some(Wake::Hint(Received::Broken)) => return Ok(()),
                Some(Wake::Readers(beats)) => self.see_readers(beats),
                Some(Wake::Hint(Received::Message(message))) => self.receive_hint(message, hints).await?,
                Some(Wake::Hint(Received::Missed | Received::Subscribed)) => self.read_state().await?,
                Some(Wake::Time) => self.read_state_if_due().await?,
            }
        }
    }

    fn until_next_look(&self) -> Duration {
        let look = super::LOOK_INTERVAL.saturating_sub(self.looked_at.elapsed());
        self.metered_until.map_or(look, |at| super::until(self.node.now(), at).min(look))
    }

    async fn read_state_if_due(&mut self) -> Result<()> {
        if self.looked_at.elapsed() >= super::LOOK_INTERVAL {
            self.read_state().await?;
        }
        Ok(())
    }

    /// Reads the state from the store: workers, limits, pending jobs.
    async fn read_state(&mut self) -> Result<()> {
        let now = self.node.now();
        let stale_after = self.node.settings.worker.stale_after;
        for worker in self.node.store().workers().await? {
            // For workers on the bus and those of its own gateway, the node's state is newer than the store's.
            let (node, id) = (&self.node, &worker.worker_id);
            let own = worker.via.as_ref() == Some(&node.id);
            let beat =
                if own { node.gateway.sessions.heartbeat(id, now) } else { self.leader.bus_workers.heartbeat(id) };
            self.windows.on_heartbeat(&beat.unwrap_or_else(|| heartbeat(worker)), now);
        }
        self.windows.forget_stale(now, stale_after);
        for queue in self.node.store().queues().await? {
            let is_metered = queue.rate_limit.is_some() || self.meters.contains_key(&queue.name);
            if is_metered && self.configure(&queue).await? {
                self.touched.insert(queue.name.clone());
            }
            if queue.counts.get(Status::Pending) > 0 {
                self.leader.group_readers.watch(&queue.name);
                self.touched.insert(queue.name.clone());
                self.waiting.insert(queue.name);
            }
        }
        self.looked_at = tokio::time::Instant::now();
        Ok(())
    }

    /// Applies the last observation of workers without heartbeats. Queues that no worker serves may be probed.
    fn see_readers(&mut self, beats: Vec<WorkerHeartbeat>) {
        let now = self.node.now();
        for beat in beats {
            self.windows.on_heartbeat(&beat, now);
            self.touched.extend(beat.queues);
        }
        self.touched.extend(self.waiting.iter().filter(|queue| self.windows.workers(queue) == 0).cloned());
    }

    /// Follows a queue's rate limit. Returns whether it has changed.
    async fn configure(&mut self, queue: &Queue) -> Result<bool> {
        let limit = self.node.settings.rate_limit.of(queue);
        let known = self.meters.get(&queue.name).map(SlidingWindow::limit);
        if known == limit {
            return Ok(false);
        }
        match limit {
            Some(limit) => {
                let meter = self.restored(Some(&queue.name), limit).await?;
                self.meters.insert(queue.name.clone(), meter);
            }
            None => {
                self.meters.remove(&queue.name);
            }
        }
        Ok(true)
    }

    /// Returns a window with the runs that a former leader granted, so that the limit holds across the change of
    /// leader.
    async fn restored(&self, queue: Option<&QueueName>, limit: RateLimit) -> Result<SlidingWindow> {
        let since = self.node.now().checked_sub(limit.per).unwrap_or(Timestamp::MIN);
        let mut window = SlidingWindow::new(limit);
        window.restore(self.node.store().grants(queue, since).await?);
        Ok(window)
    }

    /// Applies a hint and all that came with it.
    async fn receive_hint(&mut self, first: Message, hints: &mut Feed) -> Result<()> {
        let mut next = Some(first);
        for _ in 0..HINTS_MAX {
            let Some(message) = next else { return Ok(()) };
            self.understand(message).await?;
            next = match hints.next().now_or_never() {
                Some(Received::Message(message)) => Some(message),
                Some(_) => return self.read_state().await,
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
                            self.leader.paused.notify_one();
                        }
                        self.touched.insert(queue.name.clone());
                        self.waiting.insert(queue.name);
                    } else {
                        // Deleted: its limits went with it.
                        self.meters.remove(name);
                    }
                }
                for queue in ready.queues.iter().filter(|queue| self.windows.workers(queue) == 0) {
                    self.leader.group_readers.watch(queue);
                }
                self.waiting.extend(ready.queues.iter().cloned());
                self.touched.extend(ready.queues);
            }
            Err(error) => telemetry::poison(&self.node, message.channel, message.body, &error).await,
        }
        Ok(())
    }

    /// Does one write for all queues with a window. Returns true if there is more to do at once.
    async fn dispatch(&mut self) -> Result<bool> {
        let now = self.node.now();
        // Before the hinted queues are served: a queue that was held back takes part in what is free now.
        if self.metered_until.take_if(|at| *at <= now).is_some() {
            self.touched.append(&mut self.held);
        }
        if self.touched.is_empty() {
            return Ok(false);
        }
        // Runs that the leader's own workers have just received may not have come back by the topic yet.
        for worker in self.node.gateway.hints.changed_slots() {
            if let Some(beat) = self.node.gateway.sessions.heartbeat(&worker, now) {
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
        let done = telemetry::timed("dispatch", self.node.store().dispatch(self.leader.term.fence(), order)).await?;
        for (window, queue) in windows.iter().zip(&done.queues) {
            self.windows.dispatched(&queue.queue, queue.taken, now);
            for meter in self.meters.get_mut(&queue.queue).into_iter().chain(&mut self.global) {
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

    /// Returns how many jobs of each changed queue may be dispatched now.
    async fn open_windows(&mut self, now: Timestamp) -> Result<Vec<Window>> {
        let global = self.global.as_mut().map(|global| (global.available(now) as usize, global.next_at(now)));
        let is_shared = global.is_some();
        let (available, next_at) = global.unwrap_or((BATCH_MAX, None));
        let budget = available.min(BATCH_MAX);
        if budget == 0 {
            self.held.append(&mut self.touched);
            self.wake_at(next_at);
            return Ok(Vec::new());
        }
        if self.windows.untaken().is_full() {
            self.observe_untaken().await?;
        }
        let mut wants: Vec<(QueueName, usize)> = Vec::new();
        let (mut total, mut last) = (0, None);
        // Each queue gets at least one job of a shared limit: no more queues are needed than there are jobs to
        // dispatch.
        while (if is_shared { wants.len() } else { total }) < budget
            && let Some(queue) = self.turns.next(&mut self.touched, last.as_ref())
        {
            last = Some(queue.clone());
            let want = self.wanted(&queue, now).await?;
            if want > 0 {
                total += want;
                wants.push((queue, want));
            }
        }
        let shares = self.turns.share(budget, &wants);
        let windows = wants.into_iter().zip(shares).filter(|(_, share)| *share > 0);
        let windows = windows.map(|((queue, _), limit)| Window { metered: self.kept_for(&queue), queue, limit });
        Ok(windows.collect())
    }

    /// Returns how many jobs of a queue could be dispatched now, if there were no other queue.
    async fn wanted(&mut self, queue: &QueueName, now: Timestamp) -> Result<usize> {
        if !self.waiting.contains(queue) {
            return Ok(0);
        }
        if self.node.settings.rate_limit.default.is_some()
            && !self.meters.contains_key(queue)
            && let Some(queue) = self.node.store().queue(queue).await?
        {
            self.configure(&queue).await?;
        }
        let meter = self.meters.get_mut(queue).map(|meter| (meter.available(now) as usize, meter.next_at(now)));
        let (available, next_at) = meter.unwrap_or((BATCH_MAX, None));
        if available == 0 {
            self.held.insert(queue.clone());
            self.wake_at(next_at);
            return Ok(0);
        }
        let is_probe = self.windows.workers(queue) == 0;
        if is_probe && !self.leader.group_readers.probe(queue) {
            return Ok(0);
        }
        let Some(backlog) = super::untaken(&self.node, queue).await? else {
            // Checked again with every pass and every heartbeat, and logged once.
            if self.unusable.insert(queue.clone()) {
                warn!(%queue, "queue not dispatched: its Redis key has the wrong type");
            }
            return Ok(0);
        };
        self.unusable.remove(queue);
        let open = if is_probe { usize::from(backlog == 0) } else { self.windows.limit(queue, backlog, now) };
        Ok(open.min(BATCH_MAX).min(available))
    }

    /// Returns how long the store must remember the grants of a queue.
    fn kept_for(&self, queue: &QueueName) -> Option<Duration> {
        self.meters.get(queue).into_iter().chain(&self.global).map(|meter| meter.limit().per).max()
    }

    fn wake_at(&mut self, at: Option<Timestamp>) {
        self.metered_until = self.metered_until.into_iter().chain(at).min();
    }

    /// Reads the backlog of every queue whose runs may lie on the bus: those of a queue without pending jobs count
    /// until the backlog is read.
    async fn observe_untaken(&mut self) -> Result<()> {
        let queues: Vec<QueueName> = self.windows.untaken().queues().cloned().collect();
        for queue in queues {
            let backlog = super::untaken(&self.node, &queue).await?.unwrap_or(0);
            self.windows.untaken().observe(&queue, backlog);
        }
        Ok(())
    }

    /// Publishes the new runs. Owners first: a run should have one before it ends.
    async fn publish(&mut self, mut done: Dispatched) {
        let epoch = self.leader.term.fence().epoch();
        let assigned = self.node.channels.assigned();
        let mut entries: Vec<(String, Bytes)> = Vec::with_capacity(done.runs.len() + 1);
        for runs in done.runs.chunks(ASSIGNED_MAX) {
            let jobs = runs.iter().map(|run| RunRef { job_id: run.job_id, execution_id: run.execution_id });
            let message = Assigned { v: V1, epoch, jobs: jobs.collect() };
            let bodies = self.node.settings.bus.format().encode_assigned(&message);
            entries.extend(bodies.into_iter().map(|body| (assigned.clone(), body)));
        }
        let mut channel: Option<(&QueueName, String)> = None;
        for run in &mut done.runs {
            run.rate_limit = self.meters.get(&run.input.queue).map(SlidingWindow::limit);
            self.windows.untaken().published(&run.input.queue, run.input.args.as_str().len());
        }
        for run in &done.runs {
            let name = match &channel {
                Some((queue, name)) if **queue == run.input.queue => name.clone(),
                _ => channel.insert((&run.input.queue, self.node.channels.dispatch(&run.input.queue))).1.clone(),
            };
            entries.push((name, wire::encode(run)));
        }
        if let Err(error) = self.node.bus().push(entries).await {
            debug!(runs = done.runs.len(), "dispatched runs were not published: the reconciler releases them");
            self.node.outages.failed("dispatcher", &error);
        }
        if self.node.is_watched() {
            for run in done.runs {
                self.node.publish_event(ClusterEvent::Job {
                    status: Status::Dispatched,
                    job_id: run.job_id,
                    job_type: run.input.job_type,
                    queue: run.input.queue,
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
