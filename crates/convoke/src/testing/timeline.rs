//! Moves time, and waits until nothing is left to do. The only task that lets the clock go on.
//!
//! Time moves from timer to timer. Whenever a run was dispatched, time stops until its worker has reported its end, so
//! that it does not depend on the speed of the machine at which time a worker runs what. Runs that were in progress when
//! the test moved time are not waited for: the test may want them to time out.
//!
//! A node has timers of a fraction of a second. If nothing is due for a longer time, and nothing can be lost, the clock
//! leaps over it: to the node this is as if its machine had slept. All that is due lies outside of such a leap.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::ports::store::{InFlight, InFlightFilter, RunStore, WorkerStore};
use convoke_core::{Error, ExecutionId, QueueName, Result, WorkerId};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::clock::Hold;
use super::shared::Shared;
use crate::connect::Kept;

/// The longest step between two signs of life of connected workers.
const STEP_MAX: Duration = Duration::from_secs(5);
/// How long time goes on without a leap after something happened.
const STEADY: Duration = Duration::from_secs(2);
/// How long before the next event a leap ends.
const LEAP_MARGIN: Duration = Duration::from_secs(1);
/// Longer leaps would end the lease of the leader.
pub(super) const LEAP_MAX: Duration = Duration::from_secs(50 * 86_400);
/// How often, in real time, the state of workers is looked at while runs are waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How many runs an error names.
const NAMED_MAX: usize = 5;

/// A request to the timeline.
pub(super) enum Command {
    Advance { to: Target, patience: Duration, reply: oneshot::Sender<Result<Advanced>> },
    RunUntilIdle { patience: Duration, reply: oneshot::Sender<Result<Timestamp>> },
    KillLeader { reply: oneshot::Sender<Result<()>> },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    By(Duration),
    To(Timestamp),
}

/// The result of a move of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Advanced {
    pub now: Timestamp,
    /// How many runs of connected workers are still in progress.
    pub running: usize,
}

pub(super) struct Timeline {
    shared: Arc<Shared>,
    hold: Option<Hold>,
    /// When something last happened.
    eventful: Instant,
}

impl Timeline {
    /// Takes the timeline over from a runtime whose clock is held.
    pub fn new(shared: Arc<Shared>, hold: Hold) -> Self {
        Timeline { shared, hold: Some(hold), eventful: Instant::now() }
    }

    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Advance { to, patience, reply } => {
                    let advanced = self.advance(to, patience, || reply.is_closed()).await;
                    let _ = reply.send(advanced);
                }
                Command::RunUntilIdle { patience, reply } => {
                    let idle = self.run_until_idle(patience, || reply.is_closed()).await;
                    let _ = reply.send(idle);
                }
                Command::KillLeader { reply } => {
                    let killed = self.kill_leader().await;
                    let _ = reply.send(killed);
                }
            }
        }
    }

    async fn advance(&mut self, to: Target, patience: Duration, is_gone: impl Fn() -> bool) -> Result<Advanced> {
        let shared = self.shared.clone();
        shared.idle.until_idle().await;
        // Whether a worker that cut off its request is gone must not depend on when the test asks.
        while shared.presence.is_doubtful() {
            self.pause(LOOK_INTERVAL).await;
        }
        let to = match to {
            Target::To(at) => at,
            Target::By(time) => shared.now().checked_add(time).unwrap_or(Timestamp::MAX),
        };
        let mut known: BTreeSet<ExecutionId> = self.busy().await?.into_iter().map(|run| run.execution).collect();
        self.eventful = Instant::now();
        loop {
            let late = self.wait_for_runs(&known, patience, &is_gone).await?;
            known.extend(late.into_iter().map(|run| run.execution));
            let now = shared.now();
            if now >= to || is_gone() {
                break;
            }
            self.go_on(now, to).await?;
        }
        Ok(Advanced { now: shared.now(), running: self.busy().await?.len() })
    }

    /// Moves time to the next event, by one step, or by a leap.
    async fn go_on(&mut self, now: Timestamp, to: Timestamp) -> Result<()> {
        let shared = self.shared.clone();
        let running = shared.running()?;
        let live = shared.live_workers();
        running.coordinator.keep_workers_alive(&live).await?;
        running.coordinator.expect_heartbeats(&shared.silent_workers());
        let due = shared.store().next_due_at(now, &self.kept()).unwrap_or(Timestamp::MAX);
        let next = due.min(to);
        let left = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        let leap = left.saturating_sub(LEAP_MARGIN).min(LEAP_MAX);
        if leap > LEAP_MARGIN && self.eventful.elapsed() >= self.steady_after(&live).await? {
            // The signs of life are recorded before any other task can compare them with the time.
            let ((), kept) =
                tokio::join!(biased; tokio::time::advance(leap), running.coordinator.keep_workers_alive(&live));
            kept?;
            shared.idle.until_idle().await;
            return Ok(());
        }
        let dispatched = self.step(shared.clock.instant_of(next).min(Instant::now() + STEP_MAX)).await;
        if shared.now() >= next {
            // Duties that look at intervals would find what is due now a moment later.
            running.coordinator.look_now();
            shared.idle.until_idle().await;
        }
        if dispatched || shared.now() >= due {
            self.eventful = Instant::now();
        }
        Ok(())
    }

    /// Returns how long time must go on without an event before it may leap: until every silent worker is found out.
    async fn steady_after(&self, live: &[WorkerId]) -> Result<Duration> {
        let workers = self.shared.store().workers().await?;
        let is_silent = workers.iter().any(|worker| !live.contains(&worker.worker_id));
        Ok(if is_silent { self.shared.settings.worker.stale_after * 3 } else { STEADY })
    }

    fn kept(&self) -> Kept {
        let settings = &self.shared.settings;
        let (kept, channels) = (&settings.retention, settings.channels.cleanup_delay);
        Kept { completed: kept.completed, cancelled: kept.cancelled, dead: kept.dead, channels }
    }

    /// Lets the clock go on until `until`, or until a run is dispatched. Returns whether one was.
    async fn step(&mut self, until: Instant) -> bool {
        let (idle, store) = (self.shared.idle.clone(), self.shared.store().clone());
        let before = store.dispatched();
        let (seen, hold) = (store.clone(), self.hold.take());
        let moving = async {
            if let Some(hold) = hold {
                hold.release().await;
            }
            std::future::pending::<()>().await
        };
        tokio::select! {
            // The timer is set before the clock is released.
            biased;
            () = tokio::time::sleep_until(until) => {}
            () = idle.when(move || seen.dispatched() != before) => {}
            () = moving => {}
        }
        self.hold = Some(Hold::new());
        idle.until_idle().await;
        store.dispatched() != before
    }

    /// Returns the runs that a connected worker has, or can take.
    async fn busy(&self) -> Result<Vec<InFlight>> {
        let shared = &self.shared;
        let runs = shared.store().in_flight(InFlightFilter::default(), None, usize::MAX).await?;
        if runs.is_empty() {
            return Ok(runs);
        }
        let (running, live) = (shared.running()?, shared.live_workers());
        let workers = shared.store().workers().await?.into_iter();
        let served = workers.filter(|worker| live.contains(&worker.worker_id)).flat_map(|worker| worker.queues);
        let served: BTreeSet<QueueName> = served.collect();
        let is_busy =
            |run: &InFlight| match run.worker.clone().or_else(|| running.coordinator.worker_of(&run.execution)) {
                Some(worker) => live.contains(&worker),
                None => served.contains(&run.queue),
            };
        Ok(runs.into_iter().filter(is_busy).collect())
    }

    /// Waits until all runs have ended but those that are known. Returns those that took longer than `patience`.
    async fn wait_for_runs(
        &self,
        known: &BTreeSet<ExecutionId>,
        patience: Duration,
        is_gone: &impl Fn() -> bool,
    ) -> Result<Vec<InFlight>> {
        let since = std::time::Instant::now();
        loop {
            let activity = self.shared.activity.notified();
            tokio::pin!(activity);
            activity.as_mut().enable();
            self.shared.idle.until_idle().await;
            let mut busy = self.busy().await?;
            busy.retain(|run| !known.contains(&run.execution));
            if busy.is_empty() || since.elapsed() >= patience || is_gone() {
                return Ok(busy);
            }
            tokio::select! {
                () = activity => {}
                () = self.pause(LOOK_INTERVAL) => {}
            }
        }
    }

    async fn run_until_idle(&mut self, patience: Duration, is_gone: impl Fn() -> bool) -> Result<Timestamp> {
        let late = self.wait_for_runs(&BTreeSet::new(), patience, &is_gone).await?;
        if late.is_empty() {
            return Ok(self.shared.now());
        }
        let named: Vec<String> = late.iter().take(NAMED_MAX).map(|run| self.describe(run)).collect();
        let others = late.len().saturating_sub(NAMED_MAX);
        let others = if others > 0 { format!(" and {others} more") } else { String::new() };
        Err(Error::Conflict(format!(
            "after {} there are still runs in progress: {}{others}",
            convoke_core::duration::format(patience),
            named.join(", "),
        )))
    }

    fn describe(&self, run: &InFlight) -> String {
        let sessions = self.shared.running().ok().and_then(|node| node.coordinator.worker_of(&run.execution));
        let place = match run.worker.clone().or(sessions) {
            Some(worker) => format!("on worker {worker}"),
            None => format!("no worker of queue {} has polled for it", run.queue),
        };
        format!("job {} of type {}, {place}, since {}", run.job, run.job_type, run.dispatched_at)
    }

    async fn kill_leader(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        shared.idle.until_idle().await;
        shared.kill_node().await?;
        if let Some(hold) = self.hold.take() {
            // The election needs a moment of the runtime's time.
            let (started, ()) = tokio::join!(shared.start_node(), hold.release());
            self.hold = Some(Hold::new());
            started?;
        }
        shared.idle.until_idle().await;
        self.eventful = Instant::now();
        Ok(())
    }

    /// Waits for so long in real time.
    async fn pause(&self, time: Duration) {
        let _ = self.shared.real_time.spawn(async move { tokio::time::sleep(time).await }).await;
    }
}
