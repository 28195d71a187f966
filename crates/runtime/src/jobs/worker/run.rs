//! One run in this worker's hands.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use convoke_core::jobs::RunInput;
use convoke_core::jobs::link::{Assignment, Event, EventKind};
use convoke_core::{Epoch, ExecutionId, JobId, Json};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

/// Why a run should stop, in rising order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Stop {
    No = 0,
    /// The worker ends: another worker will run it.
    Drained = 1,
    /// The job was cancelled.
    Cancelled = 2,
    /// The coordinator has given the job to another worker, or ended it: no more events of this run are sent.
    Stale = 3,
}

/// A run. Its marks are changed under the lock of the table only; they are atomic so that a handler can read them
/// without it.
pub(super) struct Run {
    pub job: JobId,
    pub execution: ExecutionId,
    /// Without its arguments, which belong to the handler.
    pub input: RunInput,
    pub attempt: u32,
    pub epoch: Epoch,
    /// Cancelled when the run should stop, for whatever reason.
    pub token: CancellationToken,
    pub started_at: OnceLock<Timestamp>,
    stop: AtomicU8,
    /// The number of its last log line.
    lines: AtomicU64,
    /// Its start is on its way to the coordinator.
    start_taken: AtomicBool,
    /// Its end is on its way to the coordinator, or will never be.
    over: AtomicBool,
}

impl Run {
    pub fn new(mut assignment: Assignment) -> (Run, Json) {
        let args = std::mem::take(&mut assignment.input.args);
        let run = Run {
            job: assignment.job_id,
            execution: assignment.execution_id,
            input: assignment.input,
            attempt: assignment.attempt,
            epoch: assignment.epoch,
            token: CancellationToken::new(),
            started_at: OnceLock::new(),
            stop: AtomicU8::new(Stop::No as u8),
            lines: AtomicU64::new(0),
            start_taken: AtomicBool::new(false),
            over: AtomicBool::new(false),
        };
        (run, args)
    }

    pub fn stop(&self, why: Stop) {
        self.stop.fetch_max(why as u8, Ordering::AcqRel);
        self.token.cancel();
    }

    pub fn stopped(&self) -> Stop {
        match self.stop.load(Ordering::Acquire) {
            0 => Stop::No,
            1 => Stop::Drained,
            2 => Stop::Cancelled,
            _ => Stop::Stale,
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns the number of its next log line, from 1 on.
    pub fn next_line(&self) -> u64 {
        self.lines.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Marks it as ended. Returns false if it was already.
    pub fn end(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel)
    }

    /// Returns when it started, the first time it is asked for and only if it did start.
    pub fn take_start(&self) -> Option<Timestamp> {
        let started_at = *self.started_at.get()?;
        (!self.start_taken.swap(true, Ordering::AcqRel)).then_some(started_at)
    }

    /// Returns the event of its start, unless it was reported before.
    pub fn take_started_event(&self) -> Option<Event> {
        let at = Some(self.take_start()?);
        Some(Event { at, ..self.event(EventKind::Started) })
    }

    pub fn event(&self, kind: EventKind) -> Event {
        Event::new(self.job, self.execution, kind)
    }
}
