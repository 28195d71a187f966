//! The runs in hand: those that wait for a slot, that run, and whose end was not accepted yet.
//!
//! One short lock protects all of it. A slot takes it once per run, to record the end of the last one and to take the
//! next; the loops take it once per request. A run is in `runs` from when it was fetched until its end was accepted or
//! rejected, and heartbeats list these: a run that is missing there is given to another worker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_core::jobs::link::{Assignment, Event, EventKind, Rejected};
use convoke_core::limits::{POLL_JOBS_MAX, WORKER_CONCURRENCY_MAX};
use convoke_core::ports::Clock;
use convoke_core::{ExecutionId, Json};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::Stopped;
use super::outbox::Outbox;
use super::pace::Pace;
use super::run::{Run, Stop};
use super::settings::Settings;
use crate::line_rate::LineRate;

/// The start of a run is reported this late: the end of a faster run carries it.
const STARTED_HELD: Duration = Duration::from_millis(100);
/// With this many unsent events a worker fetches no more.
const UNSENT_MAX: usize = 50_000;
const UNSENT_BYTES_MAX: usize = 64 << 20;

/// The results of the runs of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs that completed.
    pub completed: u64,
    /// Runs whose handler failed or panicked.
    pub failed: u64,
    /// Runs that exceeded their timeout.
    pub timed_out: u64,
    /// Runs that stopped because their job was cancelled.
    pub cancelled: u64,
    /// Runs that were released unfinished.
    pub released: u64,
    /// Runs that were rejected because they were no longer this worker's.
    pub stale: u64,
    /// Log lines and progress that found no room while the coordinator was unavailable.
    pub lines_dropped: u64,
    /// Runs in hand when the worker ended: the coordinator never confirmed their end.
    pub unaccepted: u64,
}

/// How a run ended, and how long it took.
pub(super) struct Ended {
    pub run: Arc<Run>,
    pub event: Event,
    pub took: Duration,
}

pub(super) struct RunTable {
    clock: Arc<dyn Clock>,
    concurrency: usize,
    state: Mutex<State>,
    /// The coordinator does not respond.
    away: AtomicBool,
    /// Limits the rate of the log line of each run.
    pub lines: LineRate,
    /// Notified when there are events to report, or a start to hold back.
    pub news: Notify,
    /// Notified when there may be room for more runs.
    pub room: Notify,
    /// Notified when runs wait for a slot.
    pub queued: Notify,
    /// Notified when events were sent: there may be room for log lines, and no run left in hand.
    sent: Notify,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<ExecutionId, Arc<Run>>,
    waiting: VecDeque<Waiting>,
    /// Slots in use.
    busy: usize,
    /// Runs that started, the oldest first, until their start is reported.
    held: VecDeque<(Instant, Arc<Run>)>,
    outbox: Outbox,
    pace: Pace,
    summary: Summary,
}

struct Waiting {
    run: Arc<Run>,
    args: Json,
    since: Instant,
}

impl RunTable {
    pub fn new(clock: Arc<dyn Clock>, settings: &Settings) -> Self {
        RunTable {
            clock,
            concurrency: settings.concurrency as usize,
            state: Mutex::default(),
            away: AtomicBool::new(false),
            lines: LineRate::new("jobs"),
            news: Notify::new(),
            room: Notify::new(),
            queued: Notify::new(),
            sent: Notify::new(),
        }
    }

    /// Returns how many runs to poll for now.
    pub fn wanted(&self) -> usize {
        self.state.lock().wanted(self.concurrency)
    }

    /// Adds fetched runs. Returns how many slots to start.
    pub fn accept(&self, assignments: Vec<Assignment>) -> usize {
        if assignments.is_empty() {
            return 0;
        }
        let since = Instant::now();
        let mut state = self.state.lock();
        for assignment in assignments {
            let (run, args) = Run::new(assignment);
            let run = Arc::new(run);
            // A response that came twice must not start a run twice.
            if let std::collections::btree_map::Entry::Vacant(entry) = state.runs.entry(run.execution) {
                entry.insert(run.clone());
                state.waiting.push_back(Waiting { run, args, since });
            }
        }
        let slots = (self.concurrency - state.busy).min(state.waiting.len());
        state.busy += slots;
        if state.waiting.len() > slots {
            self.queued.notify_one();
        }
        slots
    }

    /// Records how a slot's last run ended and returns its next. With `None` the slot is free and must end.
    pub fn turn(&self, ended: Option<Ended>) -> Option<(Arc<Run>, Json)> {
        let (at, now) = (self.clock.now(), Instant::now());
        let mut state = self.state.lock();
        if let Some(Ended { run, event, took }) = ended {
            state.pace.ended(took);
            state.end(&run, Event { at: Some(at), ..event });
            self.news.notify_one();
        }
        let next = loop {
            let Some(Waiting { run, args, .. }) = state.waiting.pop_front() else {
                state.busy -= 1;
                break None;
            };
            if run.stopped() == Stop::No {
                // Set once, here: a run leaves `waiting` once.
                let _ = run.started_at.set(at);
                if state.held.is_empty() {
                    self.news.notify_one();
                }
                state.held.push_back((now, run.clone()));
                break Some((run, args));
            }
            let event = ending(&run);
            state.end(&run, Event { at: Some(at), ..event });
            self.news.notify_one();
        };
        if state.wanted(self.concurrency) > 0 {
            self.room.notify_one();
        }
        next
    }

    /// Adds an event of a run that goes on. Waits for room, unless the coordinator is unavailable: then the event is
    /// lost, and counted.
    pub async fn report(&self, run: &Run, event: Event) -> Result<(), Stopped> {
        let mut event = Some(Event { at: Some(self.clock.now()), ..event });
        loop {
            let sent = self.sent.notified();
            {
                let mut state = self.state.lock();
                if run.is_over() {
                    return Err(Stopped);
                }
                if state.outbox.has_room_for_chatter() {
                    // The start of a run must be sent before its other events.
                    let started = run.take_started_event();
                    for mut event in started.into_iter().chain(event.take()) {
                        if event.kind == EventKind::Log {
                            event.seq = Some(run.next_line());
                        }
                        state.outbox.push(event);
                    }
                    self.news.notify_one();
                    return Ok(());
                }
                if self.away.load(Ordering::Acquire) {
                    state.summary.lines_dropped += 1;
                    metrics::counter!("convoke_worker_lines_dropped_total").increment(1);
                    return Ok(());
                }
            }
            sent.await;
        }
    }

    /// Returns when the next start has been held back long enough.
    pub fn held_until(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        while state.held.front().is_some_and(|(_, run)| run.is_over()) {
            state.held.pop_front();
        }
        state.held.front().map(|(since, _)| *since + STARTED_HELD)
    }

    /// Returns the events to report now, at most `events_max`.
    pub fn take(&self, events_max: usize) -> Vec<Event> {
        let now = Instant::now();
        let mut state = self.state.lock();
        while state.held.front().is_some_and(|(since, run)| run.is_over() || *since + STARTED_HELD <= now) {
            let Some((_, run)) = state.held.pop_front() else { break };
            if !run.is_over()
                && let Some(event) = run.take_started_event()
            {
                state.outbox.push(event);
            }
        }
        let events = state.outbox.take(events_max);
        drop(state);
        self.sent.notify_waiters();
        events
    }

    /// Records that the coordinator has these events, except those it rejected. Returns how many runs were stale.
    pub fn accepted(&self, events: &[Event], rejected: &[Rejected]) -> usize {
        let mut state = self.state.lock();
        let mut stale = 0;
        for rejected in rejected {
            if let Some(run) = state.runs.remove(&rejected.execution_id) {
                run.stop(Stop::Stale);
                stale += 1;
            }
        }
        state.summary.stale += stale as u64;
        for event in events.iter().filter(|event| event.kind.is_end()) {
            state.runs.remove(&event.execution_id);
        }
        drop(state);
        self.room.notify_one();
        self.sent.notify_waiters();
        stale
    }

    /// Drops an event that the coordinator rejects permanently. If it was the run's end, the run gets another end.
    pub fn refused(&self, event: &Event, why: &str) {
        let mut state = self.state.lock();
        if !event.kind.is_end() {
            return;
        }
        if event.kind == EventKind::Completed {
            let error = Some(format!("its end could not be reported: {why}"));
            let failed = Event::new(event.job_id, event.execution_id, EventKind::Failed);
            let (at, started_at) = (event.at, event.started_at);
            state.outbox.push(Event { at, started_at, error, retry: Some(false), ..failed });
            self.news.notify_one();
        } else {
            state.runs.remove(&event.execution_id);
        }
        drop(state);
        self.sent.notify_waiters();
    }

    /// Stops runs that were cancelled.
    pub fn cancel(&self, executions: &[ExecutionId]) {
        if executions.is_empty() {
            return;
        }
        let state = self.state.lock();
        executions.iter().filter_map(|id| state.runs.get(id)).for_each(|run| run.stop(Stop::Cancelled));
    }

    /// Returns the runs to list in a heartbeat.
    pub fn in_hand(&self) -> Vec<ExecutionId> {
        self.state.lock().runs.keys().copied().collect()
    }

    /// Returns since when the oldest waiting run has waited for a slot.
    pub fn waiting_since(&self) -> Option<Instant> {
        self.state.lock().waiting.front().map(|waiting| waiting.since)
    }

    /// Releases runs that have waited for a slot since `before` or longer. Returns their number.
    pub fn release_waiting(&self, before: Instant) -> usize {
        let at = self.clock.now();
        let mut state = self.state.lock();
        let mut released = 0;
        while state.waiting.front().is_some_and(|waiting| waiting.since <= before) {
            let Some(waiting) = state.waiting.pop_front() else { break };
            waiting.run.stop(Stop::Drained);
            let event = ending(&waiting.run);
            state.end(&waiting.run, Event { at: Some(at), ..event });
            released += 1;
        }
        if released > 0 {
            state.pace.was_too_fast();
            self.news.notify_one();
        }
        released
    }

    /// Stops all runs, because the worker ends.
    pub fn stop_all(&self) -> usize {
        let state = self.state.lock();
        state.runs.values().filter(|run| !run.is_over()).map(|run| run.stop(Stop::Drained)).count()
    }

    /// Releases runs that did not stop when they were asked to.
    pub fn abandon(&self) -> usize {
        let at = self.clock.now();
        let mut state = self.state.lock();
        let stuck: Vec<_> = state.runs.values().filter(|run| !run.is_over()).cloned().collect();
        for run in &stuck {
            let event = ending(run);
            state.end(run, Event { at: Some(at), ..event });
        }
        self.news.notify_one();
        stuck.len()
    }

    /// Completes once no run is in hand and no event waits.
    pub async fn flushed(&self) {
        loop {
            let sent = self.sent.notified();
            {
                let state = self.state.lock();
                if state.runs.is_empty() && state.outbox.is_empty() {
                    return;
                }
            }
            sent.await;
        }
    }

    /// Records whether the coordinator responds. Returns whether that has changed.
    pub fn set_away(&self, away: bool) -> bool {
        let changed = self.away.swap(away, Ordering::AcqRel) != away;
        if changed && away {
            // A task that waits for room would wait for the coordinator.
            self.sent.notify_waiters();
        }
        changed
    }

    pub fn summary(&self) -> Summary {
        let state = self.state.lock();
        Summary { unaccepted: state.runs.len() as u64, ..state.summary }
    }
}

impl State {
    fn wanted(&self, concurrency: usize) -> usize {
        if self.outbox.len() > UNSENT_MAX || self.outbox.bytes() > UNSENT_BYTES_MAX {
            return 0;
        }
        let (running, waiting) = (self.busy, self.waiting.len());
        let prefetch = self.pace.prefetch(concurrency);
        let room = (concurrency + prefetch).saturating_sub(running + waiting);
        // A free slot needs its run now. Runs are fetched ahead by the half: a poll for each run that ends would cost
        // more than the run.
        let free = running + waiting < concurrency;
        // A heartbeat must be able to list all runs in hand.
        let room = room.min((WORKER_CONCURRENCY_MAX as usize).saturating_sub(self.runs.len()));
        if free || room >= prefetch.div_ceil(2).max(1) { room.min(POLL_JOBS_MAX) } else { 0 }
    }

    /// Records the end of a run, once. A stale run sends no more events.
    fn end(&mut self, run: &Arc<Run>, event: Event) {
        if !run.end() {
            return;
        }
        if run.stopped() == Stop::Stale {
            self.runs.remove(&run.execution);
            return;
        }
        let counter = match event.kind {
            EventKind::Completed => &mut self.summary.completed,
            EventKind::TimedOut => &mut self.summary.timed_out,
            EventKind::Cancelled => &mut self.summary.cancelled,
            EventKind::Released => &mut self.summary.released,
            _ => &mut self.summary.failed,
        };
        *counter += 1;
        // The end of a fast run carries its start: one event.
        self.outbox.push(Event { started_at: run.take_start(), ..event });
    }
}

/// Returns the end of a run that was asked to stop.
pub(super) fn ending(run: &Run) -> Event {
    match run.stopped() {
        Stop::Cancelled => run.event(EventKind::Cancelled),
        // No events of a stale run are sent; it is released in case that ever changes.
        Stop::Drained | Stop::Stale | Stop::No => run.event(EventKind::Released),
    }
}
