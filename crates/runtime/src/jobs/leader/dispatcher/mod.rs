//! Dispatches pending jobs to workers: never far ahead of their free slots, so that a later job of higher priority
//! still overtakes, and a queue that no worker serves keeps its jobs pending.
//!
//! Hints wake it (a queue has new jobs; a worker has other free slots): those of its own node in the same process, those
//! of other nodes and of bus workers by the bus. It requests as many jobs as fit the [windows](open) of the changed
//! queues, in one fenced write, and [sends](sending) the runs after the commit: to the inbox of the node whose worker
//! has the slot, or to the bus. If it dies in between, the reconciler finds runs that no worker picked up. A queue that
//! is paused, rate-limited or empty costs nothing and does not block others; nor does one whose channel cannot be used.
//! If a limit over all queues is used up, queues share the freed runs ([`Turns`]).

mod open;
mod sending;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::event::ClusterEvent;
use convoke_core::jobs::rate_limit::SlidingWindow;
use convoke_core::jobs::window::{Place, Windows};
use convoke_core::jobs::wire::{Dispatch, InboxReport, Ready, V1, WorkerHeartbeat};
use convoke_core::jobs::{Outcome, Queue, RateLimit, RunReport, Status, Turns};
use convoke_core::ports::Message;
use convoke_core::ports::store::{DispatchOrder, UnreadableRun, WorkerRecord};
use convoke_core::{ExecutionId, QueueName, Result};
use futures_util::FutureExt;
use jiff::Timestamp;

use self::open::OpenWindow;
use self::sending::Sender;
use super::LeaderState;
use crate::jobs::duty::{DutyRun, SubscribedTo};
use crate::jobs::feed::{Feed, Received};
use crate::jobs::hints::{Leading, LocalHints};
use crate::jobs::node::Node;
use crate::jobs::{history, recorder, telemetry};

/// Upper bound of the jobs of one write: more would delay enqueues until the commit.
const BATCH_MAX: usize = 2_000;
/// How many hints are read before the dispatcher acts on them.
const HINTS_MAX: usize = 1_000;
const RETRY_AFTER: Duration = Duration::from_millis(100);

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let mut hints = run.feed("dispatcher");
    while !run.must_stop() {
        // Any error restarts it from the state of the store.
        let (sender, sending) = Sender::new(leader.clone());
        let mut dispatcher = Dispatcher::new(leader.clone(), sender);
        let serving = async {
            let served = dispatcher.serve(&mut run, &mut hints).await;
            dispatcher.sender.close();
            served
        };
        // What is committed is sent, also at the end of a term.
        let (served, ()) = tokio::join!(serving, sending.run());
        if let Err(error) = served {
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
    Local(LocalHints),
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
    /// How many runs of a queue lie on the bus at most: what was read last, and what was sent since.
    on_bus: BTreeMap<QueueName, u64>,
    /// Of queues with a rate limit, their own or the default. A meter of the default starts with the queue's first
    /// dispatch.
    meters: BTreeMap<QueueName, SlidingWindow>,
    /// Of all queues together.
    global: Option<SlidingWindow>,
    turns: Turns,
    /// Queues that a rate limit holds back.
    held: BTreeSet<QueueName>,
    /// When a rate limit permits the next job of one of them.
    metered_until: Option<Timestamp>,
    looked_at: tokio::time::Instant,
    /// The queue that came first in the last dispatch: another one is the next, so that queues whose workers are the
    /// same take turns.
    first: Option<QueueName>,
    /// Queues for which the other queues of a dispatch may have left slots.
    cut: BTreeSet<QueueName>,
    sender: Sender,
}

impl Dispatcher {
    fn new(leader: Arc<LeaderState>, sender: Sender) -> Self {
        Dispatcher {
            sender,
            node: leader.node.clone(),
            leader,
            windows: Windows::default(),
            waiting: BTreeSet::new(),
            touched: BTreeSet::new(),
            unusable: BTreeSet::new(),
            on_bus: BTreeMap::new(),
            meters: BTreeMap::new(),
            global: None,
            turns: Turns::default(),
            held: BTreeSet::new(),
            metered_until: None,
            looked_at: tokio::time::Instant::now(),
            first: None,
            cut: BTreeSet::new(),
        }
    }

    /// Dispatches until the term is over, or until its subscription breaks.
    async fn serve(&mut self, run: &mut DutyRun<SubscribedTo>, hints: &mut Feed) -> Result<()> {
        // Subscribed before the state is read, so that no change is missed in between.
        if run.next(hints).await.is_none() {
            return Ok(());
        }
        let node = self.node.clone();
        let local = node.gateway.hints.lead();
        if let Some(limit) = self.node.settings.rate_limit.global {
            self.global = Some(self.restored(None, limit).await?);
        }
        self.read_state().await?;
        let mut is_local_first = false;
        loop {
            while self.dispatch(&local).await? {}
            let (leader, pause) = (self.leader.clone(), self.until_next_look());
            is_local_first = !is_local_first;
            let woken = run.wait(async {
                // Either kind of hints may come without end: they take turns.
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(pause) => Wake::Time,
                    beats = leader.group_readers.next_beats() => Wake::Readers(beats),
                    hints = local.next(), if is_local_first => Wake::Local(hints),
                    hint = hints.next() => Wake::Hint(hint),
                    hints = local.next(), if !is_local_first => Wake::Local(hints),
                }
            });
            match woken.await {
                None | Some(Wake::Hint(Received::Broken)) => return Ok(()),
                Some(Wake::Readers(beats)) => self.see_readers(beats),
                Some(Wake::Local(hints)) => self.receive_local(hints).await?,
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
        // Read again before the next dispatch: a channel may have been emptied, or have got another type.
        self.on_bus.clear();
        for worker in self.node.store().workers().await? {
            // For workers on the bus and those of its own gateway, the node's state is newer than the store's.
            let (node, id) = (&self.node, &worker.worker_id);
            let own = worker.via.as_ref() == Some(&node.id);
            let beat =
                if own { node.gateway.sessions.heartbeat(id, now) } else { self.leader.bus_workers.heartbeat(id) };
            self.windows.on_heartbeat(&beat.unwrap_or_else(|| heartbeat(worker)), now);
        }
        self.windows.forget_stale(now, stale_after);
        self.leader.inboxes.lock().forget_lost(now, stale_after);
        self.recall_stuck(now).await?;
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

    /// Applies the hints of this node.
    async fn receive_local(&mut self, hints: LocalHints) -> Result<()> {
        // Before the jobs that may have been enqueued after it: a limit holds for them.
        self.reconfigure(&hints.configured).await?;
        let now = self.node.now();
        for worker in &hints.workers {
            if let Some(beat) = self.node.gateway.sessions.heartbeat(worker, now) {
                self.windows.on_heartbeat(&beat, now);
                self.touched.extend(beat.queues);
            }
        }
        for beat in hints.gone {
            self.windows.on_heartbeat(&beat, now);
        }
        self.add_ready(hints.queues);
        Ok(())
    }

    /// Reads the settings of queues that have changed.
    async fn reconfigure(&mut self, names: impl IntoIterator<Item = &QueueName>) -> Result<()> {
        for name in names {
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
        Ok(())
    }

    /// Adds queues that have new pending jobs.
    fn add_ready(&mut self, queues: impl IntoIterator<Item = QueueName>) {
        for queue in queues {
            if self.windows.workers(&queue) == 0 {
                self.leader.group_readers.watch(&queue);
            }
            self.waiting.insert(queue.clone());
            self.touched.insert(queue);
        }
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
                    let now = self.node.now();
                    if let (Some(node), Some(report)) = (&beat.via, &beat.inbox)
                        && *node != self.node.id
                    {
                        self.leader.inboxes.lock().on_report(node, report, now);
                    }
                    self.windows.on_heartbeat(&beat, now);
                    self.touched.extend(beat.queues);
                }
                Err(error) => telemetry::poison(&self.node, message.channel, message.body, &error).await,
            }
            return Ok(());
        }
        match serde_json::from_slice::<Ready>(&message.body) {
            Ok(ready) => {
                self.reconfigure(&ready.configured).await?;
                self.add_ready(ready.queues);
            }
            Err(error) => telemetry::poison(&self.node, message.channel, message.body, &error).await,
        }
        Ok(())
    }

    /// Does one write for all queues with a window. Returns true if there is more to do at once.
    async fn dispatch(&mut self, local: &Leading<'_>) -> Result<bool> {
        // Slots that the leader's own workers have filled or freed meanwhile.
        if let Some(hints) = local.take() {
            self.receive_local(hints).await?;
        }
        let now = self.node.now();
        // Before the hinted queues are served: a queue that was held back takes part in what is free now.
        if self.metered_until.take_if(|at| *at <= now).is_some() {
            self.touched.append(&mut self.held);
        }
        if self.touched.is_empty() {
            return Ok(false);
        }
        let windows = self.open_windows(now).await?;
        let total: usize = windows.iter().map(|window| window.order.limit).sum();
        if total == 0 {
            return Ok(false);
        }
        let executions = (0..total).map(|_| self.node.execution_id(now)).collect();
        let order =
            DispatchOrder { now, windows: windows.iter().map(|window| window.order.clone()).collect(), executions };
        let done = telemetry::timed("dispatch", self.node.store().dispatch(self.leader.term.fence(), order)).await?;
        if !done.runs.is_empty() {
            *self.leader.dispatched.lock() = tokio::time::Instant::now();
        }
        for (window, queue) in windows.iter().zip(&done.queues) {
            if queue.taken > 0 {
                history::count_started(&self.node, &queue.queue, queue.taken as u64);
            }
            for meter in self.meters.get_mut(&queue.queue).into_iter().chain(&mut self.global) {
                meter.take(now, queue.taken as u32);
            }
            if queue.pending == 0 {
                self.waiting.remove(&queue.queue);
            } else if queue.taken == window.order.limit || queue.is_cut {
                // The window may have been cut to the batch, in count or in bytes, not to the slots.
                self.touched.insert(queue.queue.clone());
            }
        }
        self.touched.append(&mut self.cut);
        if !done.runs.is_empty() {
            telemetry::dispatched(done.runs.len());
            self.publish_events(&done.runs);
            let taken: Vec<usize> = done.queues.iter().map(|queue| queue.taken).collect();
            let unreadable = done.unreadable.iter().map(|run| run.execution).collect();
            self.send(windows, &taken, done.runs, &unreadable, now).await;
            self.end_unreadable(done.unreadable, now).await?;
        }
        Ok(!self.touched.is_empty())
    }

    /// Sends each new run to the place that its window names for it.
    async fn send(
        &mut self,
        windows: Vec<OpenWindow>,
        taken: &[usize],
        runs: Vec<Dispatch>,
        unreadable: &BTreeSet<ExecutionId>,
        now: Timestamp,
    ) {
        let mut runs = runs.into_iter();
        let mut batch = self.sender.batch();
        for (window, mut left) in windows.into_iter().zip(taken.iter().copied()) {
            let rate_limit = self.meters.get(&window.order.queue).map(SlidingWindow::limit);
            for (place, share) in window.shares {
                let count = share.min(left);
                left -= count;
                self.windows.dispatched(&window.order.queue, &place, count, now);
                if place == Place::Bus
                    && let Some(waiting) = self.on_bus.get_mut(&window.order.queue)
                {
                    *waiting += count as u64;
                }
                for mut run in runs.by_ref().take(count).filter(|run| !unreadable.contains(&run.execution_id)) {
                    run.rate_limit = rate_limit;
                    self.windows.untaken().sent(&run.input.queue, &place, run.input.args.as_str().len());
                    batch.add(&place, run);
                }
            }
        }
        self.sender.send(batch, now).await;
    }

    /// Ends the runs of jobs that the store cannot read: no worker can run them, and another attempt would be the same.
    async fn end_unreadable(&self, runs: Vec<UnreadableRun>, now: Timestamp) -> Result<()> {
        let reports = runs.into_iter().map(|run| {
            let outcome = Outcome::Failed { error: run.error, retry: false };
            RunReport::of(run.job, run.execution).ended(now, outcome, self.node.fraction())
        });
        recorder::end_as_leader(&self.node, self.leader.term.fence(), reports.collect()).await?;
        Ok(())
    }

    fn publish_events(&self, runs: &[Dispatch]) {
        if !self.node.is_watched() {
            return;
        }
        for run in runs {
            self.node.publish_event(ClusterEvent::Job {
                status: Status::Dispatched,
                job_id: run.job_id,
                job_type: run.input.job_type.clone(),
                queue: run.input.queue.clone(),
                attempt: run.attempt,
            });
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
        // The registry does not have it: a node without an inbox is known by its heartbeats.
        inbox: worker.via.as_ref().map(|_| InboxReport::default()),
        via: worker.via,
        executions: None,
    }
}
