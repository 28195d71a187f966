//! What a handler knows of its run and can say of it.

use convoke_core::jobs::LogLevel;
use convoke_core::{ExecutionId, JobId};
use convoke_runtime::jobs::worker;

use crate::error::Result;

/// Cheap to clone; a clone can be given to a task that the handler starts.
#[derive(Debug, Clone)]
pub struct Context(worker::Context);

impl Context {
    pub(crate) fn new(inner: worker::Context) -> Self {
        Context(inner)
    }

    pub fn job_id(&self) -> JobId {
        self.0.job_id()
    }

    /// New for every attempt: what to fence one's own writes with.
    pub fn execution_id(&self) -> ExecutionId {
        self.0.execution_id()
    }

    pub fn job_type(&self) -> &str {
        self.0.job_type().as_str()
    }

    pub fn queue(&self) -> &str {
        self.0.queue().as_str()
    }

    /// 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    pub fn max_retries(&self) -> u32 {
        self.0.max_retries()
    }

    pub fn correlation_id(&self) -> Option<&str> {
        self.0.correlation_id()
    }

    pub fn tags(&self) -> &[String] {
        &self.0.input().tags
    }

    /// Adds a line to the job's log. Fails only once the run is over.
    pub async fn log(&self, message: impl Into<String>) -> Result<()> {
        self.log_at(LogLevel::Info, message).await
    }

    pub async fn log_at(&self, level: LogLevel, message: impl Into<String>) -> Result<()> {
        Ok(self.0.log(level, message).await?)
    }

    /// Says how far the run has got, in percent. Fails only once the run is over.
    pub async fn progress(&self, percent: u8, message: impl Into<String>) -> Result<()> {
        Ok(self.0.progress(percent, message).await?)
    }

    /// Whether the handler should stop: its job was cancelled, its time is up, or the worker ends.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Ready as soon as the handler should stop. One that goes on is dropped a few seconds later.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}
