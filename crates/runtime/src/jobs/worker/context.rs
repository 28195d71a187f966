//! The view that a handler has of its run, and its messages about it.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::link::{Event, EventKind};
use convoke_core::jobs::{LogLevel, RunInput};
use convoke_core::limits::{LOG_LINE_BYTES_MAX, PROGRESS_MESSAGE_BYTES_MAX};
use convoke_core::{Epoch, ExecutionId, JobId, JobType, QueueName};

use super::run::{Run, Stop};
use super::run_table::RunTable;

/// The handle of a run for its handler. Cheap to clone. Messages sent through it after the run has ended are dropped.
#[derive(Clone)]
pub struct Context {
    run: Arc<Run>,
    run_table: Arc<RunTable>,
}

/// The run has ended, or is no longer this worker's: the message cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run is over")]
pub struct Stopped;

impl Context {
    pub(super) fn new(run: Arc<Run>, run_table: Arc<RunTable>) -> Self {
        Context { run, run_table }
    }

    /// Returns the id of the job, the same for all its attempts.
    pub fn job_id(&self) -> JobId {
        self.run.job
    }

    /// Returns the id of this run, new for every attempt.
    pub fn execution_id(&self) -> ExecutionId {
        self.run.execution
    }

    /// Returns the input of the run, without its arguments, which the handler received.
    pub fn input(&self) -> &RunInput {
        &self.run.input
    }

    /// Returns the type of the job, by which the handler was chosen.
    pub fn job_type(&self) -> &JobType {
        &self.run.input.job_type
    }

    /// Returns the queue that the run came from.
    pub fn queue(&self) -> &QueueName {
        &self.run.input.queue
    }

    /// Returns the number of this attempt, 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Returns the epoch of the leader that dispatched the run; 0 if the node did not send it.
    pub fn epoch(&self) -> Epoch {
        self.run.epoch
    }

    /// Returns how many attempts may follow the first.
    pub fn max_retries(&self) -> u32 {
        self.run.input.max_retries
    }

    /// Returns how long this attempt may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.run.input.timeout
    }

    /// Returns the id that the client gave the job to trace it by; `None` if it gave none.
    pub fn correlation_id(&self) -> Option<&str> {
        self.run.input.correlation_id.as_deref()
    }

    /// Returns whether the handler should stop: its job was cancelled or given to another worker, its time is up, or
    /// the worker ends.
    pub fn is_cancelled(&self) -> bool {
        self.run.token.is_cancelled()
    }

    /// Completes as soon as the handler should stop. The handler is dropped soon after that if it goes on.
    pub async fn cancelled(&self) {
        self.run.token.cancelled().await;
    }

    /// Adds a line to the job's log. A long one is cut. Waits while too many messages wait to be sent.
    pub async fn log(&self, level: LogLevel, message: impl Into<String>) -> Result<(), Stopped> {
        let message = cut(message.into(), LOG_LINE_BYTES_MAX);
        let event = Event { level: Some(level), message: Some(message), ..self.run.event(EventKind::Log) };
        self.report(event).await
    }

    /// Reports the progress of the run; the last one counts.
    pub async fn progress(&self, percent: u8, message: impl Into<String>) -> Result<(), Stopped> {
        let message = cut(message.into(), PROGRESS_MESSAGE_BYTES_MAX);
        let message = (!message.is_empty()).then_some(message);
        let event = Event { percent: Some(percent.min(100)), message, ..self.run.event(EventKind::Progress) };
        self.report(event).await
    }

    async fn report(&self, event: Event) -> Result<(), Stopped> {
        if self.run.is_over() || self.run.stopped() == Stop::Stale {
            return Err(Stopped);
        }
        self.run_table.report(&self.run, event).await
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("job", &self.run.job).field("execution", &self.run.execution).finish()
    }
}

/// Returns at most `bytes_max` of a text, with a mark if it was cut, never within a character.
pub(super) fn cut(mut text: String, bytes_max: usize) -> String {
    const MARK: &str = "… (cut)";
    if text.len() > bytes_max {
        let mut end = bytes_max - MARK.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("short".into(), 16), "short");
        let line = cut("ü".repeat(100), 20);
        assert!(line.len() <= 20 && line.ends_with("… (cut)") && line.starts_with("üü"), "{line}");
    }
}
