//! The context of a handler: reads and reports on its run.

use std::time::Duration;

use convoke_core::jobs::LogLevel;
use convoke_core::{Epoch, ExecutionId, JobId};
use convoke_runtime::jobs::worker;

use crate::error::Result;

/// The run of a handler. Cheap to clone; tasks that the handler starts may use a clone.
#[derive(Debug, Clone)]
pub struct Context(worker::Context);

impl Context {
    pub(crate) fn new(inner: worker::Context) -> Self {
        Context(inner)
    }

    /// Returns the id of the job, the same for all its attempts.
    pub fn job_id(&self) -> JobId {
        self.0.job_id()
    }

    /// Returns the id of this run, new for every attempt: use it to fence your own writes.
    pub fn execution_id(&self) -> ExecutionId {
        self.0.execution_id()
    }

    /// Returns the job's type.
    pub fn job_type(&self) -> &str {
        self.0.job_type().as_str()
    }

    /// Returns the job's queue.
    pub fn queue(&self) -> &str {
        self.0.queue().as_str()
    }

    /// Returns the number of this attempt; 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// Returns the epoch of the leader that dispatched the run. It never falls from one run of a job to the next; to
    /// fence your own writes use [`execution_id`](Self::execution_id), which is new for every run. 0 if the node is of a
    /// version that does not send it.
    pub fn epoch(&self) -> Epoch {
        self.0.epoch()
    }

    /// Returns how many attempts may follow the first.
    pub fn max_retries(&self) -> u32 {
        self.0.max_retries()
    }

    /// Returns how long this attempt may take.
    pub fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }

    /// Returns the correlation id that was set when the job was enqueued.
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.correlation_id()
    }

    /// Returns the job's tags.
    pub fn tags(&self) -> &[String] {
        &self.0.input().tags
    }

    /// Adds a line to the job's log. Fails only if the run is over.
    pub async fn log(&self, message: impl Into<String>) -> Result<()> {
        self.log_at(LogLevel::Info, message).await
    }

    /// Adds a line of the given level to the job's log. Fails only if the run is over.
    pub async fn log_at(&self, level: LogLevel, message: impl Into<String>) -> Result<()> {
        Ok(self.0.log(level, message).await?)
    }

    /// Reports the progress of the run in percent. Fails only if the run is over.
    pub async fn progress(&self, percent: u8, message: impl Into<String>) -> Result<()> {
        Ok(self.0.progress(percent, message).await?)
    }

    /// Returns whether the handler should stop: its job was cancelled, its deadline has passed, or the worker stops.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when the handler should stop. A handler that continues is dropped a few seconds later.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}
