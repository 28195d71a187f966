//! The settings of a worker.

use std::time::Duration;

use convoke_core::limits::{WORKER_CONCURRENCY_MAX, WORKER_QUEUES_MAX};
use convoke_core::{Invalid, QueueName, WorkerId};

use crate::jobs::WorkerSettings;

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Generated if it is `None`. Two live workers must not share one.
    pub id: Option<WorkerId>,
    /// A name for people, shown beside the id.
    pub name: Option<String>,
    /// The queues that it serves. Each poll begins with the next one.
    pub queues: Vec<QueueName>,
    /// How many handlers run at once.
    pub concurrency: u32,
    /// How long runs may go on after the worker was asked to stop.
    pub shutdown_grace: Duration,
    /// How long a handler may go on after its run was cancelled, before it is dropped.
    pub cancel_grace: Duration,
    /// How long a poll waits for a first run.
    pub poll_wait: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            id: None,
            name: None,
            queues: Vec::new(),
            concurrency: 10,
            shutdown_grace: WorkerSettings::default().shutdown_grace,
            cancel_grace: Duration::from_secs(5),
            poll_wait: Duration::from_secs(20),
        }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let (queues, concurrency) = (self.queues.len(), self.concurrency);
        if !(1..=WORKER_QUEUES_MAX).contains(&queues) {
            return Err(Invalid::new("queues", format!("expected 1 to {WORKER_QUEUES_MAX} queues, got {queues}")));
        }
        if !(1..=WORKER_CONCURRENCY_MAX).contains(&concurrency) {
            let message = format!("expected 1 to {WORKER_CONCURRENCY_MAX}, got {concurrency}");
            return Err(Invalid::new("concurrency", message));
        }
        Ok(())
    }
}
