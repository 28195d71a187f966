//! The worker's registration with the coordinator, and whether the coordinator responds.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke_core::jobs::link::{Register, Registered, WorkerLink};
use convoke_core::{Error, QueueName, Result, WorkerId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::run_table::RunTable;
use super::settings::Settings;
use crate::outage::Outages;

/// The name of the coordinator in errors.
const COORDINATOR: &str = "the coordinator";

pub(super) struct Session {
    pub link: Arc<dyn WorkerLink>,
    /// Chosen by the worker, so that a registration whose response was lost makes no second worker.
    pub id: WorkerId,
    /// Notified to send a heartbeat at once.
    pub beat_now: Notify,
    registration: Register,
    heartbeat_interval: Mutex<Duration>,
    /// Counts registrations, so that loops that were rejected together register once.
    term: AtomicU64,
    registering: tokio::sync::Mutex<()>,
    outages: Outages,
}

impl Session {
    /// Registers, for as long as that takes. Returns `None` if the worker was asked to stop before it succeeded.
    pub async fn open(
        link: Arc<dyn WorkerLink>,
        settings: &Settings,
        stop: &CancellationToken,
    ) -> Result<Option<Self>> {
        let id = match &settings.id {
            Some(id) => id.clone(),
            None => WorkerId::new(format!("w-{}", crate::machine::id().simple()))?,
        };
        let registration = Register {
            worker_id: Some(id.clone()),
            name: settings.name.clone(),
            queues: settings.queues.clone(),
            concurrency: settings.concurrency,
        };
        let mut backoff = Backoff::new(seed(&id));
        let outages = Outages::new([(COORDINATOR, link.address())]);
        loop {
            let answer = tokio::select! {
                biased;
                answer = link.register(registration.clone()) => answer,
                () = stop.cancelled() => return Ok(None),
            };
            let error = match answer {
                Ok(registered) => return Ok(Some(Session::of(link, id, registration, registered, outages))),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => error,
            };
            let delay = backoff.next_delay();
            outages.failed("register", &error);
            tokio::select! {
                biased;
                () = tokio::time::sleep(delay) => {}
                () = stop.cancelled() => return Ok(None),
            }
        }
    }

    fn of(
        link: Arc<dyn WorkerLink>,
        id: WorkerId,
        registration: Register,
        registered: Registered,
        outages: Outages,
    ) -> Self {
        let Registered { worker_id, heartbeat_interval, .. } = registered;
        let queues: Vec<&str> = registration.queues.iter().map(QueueName::as_str).collect();
        let (queues, concurrency) = (queues.join(","), registration.concurrency);
        tracing::info!(worker = %worker_id, queues, concurrency, "worker registered");
        Session {
            link,
            registration: Register { worker_id: Some(worker_id.clone()), ..registration },
            id: if worker_id == id { id } else { worker_id },
            beat_now: Notify::new(),
            heartbeat_interval: Mutex::new(heartbeat_interval),
            term: AtomicU64::new(0),
            registering: tokio::sync::Mutex::new(()),
            outages,
        }
    }

    pub fn heartbeat_interval(&self) -> Duration {
        (*self.heartbeat_interval.lock()).max(Duration::from_millis(1))
    }

    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    pub fn backoff(&self) -> Backoff {
        Backoff::new(seed(&self.id))
    }

    /// Records that a call succeeded.
    pub fn on_reply(&self, run_table: &RunTable) {
        self.outages.succeeded(COORDINATOR);
        if run_table.set_away(false) {
            // It may no longer know which runs are here.
            self.beat_now.notify_one();
        }
    }

    /// Handles a failed call that was made in `term`: registers again if the coordinator does not know the worker.
    /// Returns true if that succeeded and the call can be retried.
    pub async fn recover(&self, run_table: &RunTable, call: &'static str, error: &Error, term: u64) -> bool {
        if matches!(error, Error::NotFound { .. }) {
            match self.register_again(term).await {
                Ok(()) => {
                    run_table.set_away(false);
                    self.beat_now.notify_one();
                    return true;
                }
                Err(error) => self.outages.failed("register", &error),
            }
        } else {
            if error.is_transient() {
                run_table.set_away(true);
            }
            self.outages.failed(call, error);
        }
        false
    }

    async fn register_again(&self, term: u64) -> Result<()> {
        let _only_one = self.registering.lock().await;
        if self.term() != term {
            return Ok(());
        }
        let registered = self.link.register(self.registration.clone()).await?;
        *self.heartbeat_interval.lock() = registered.heartbeat_interval;
        self.term.fetch_add(1, Ordering::AcqRel);
        tracing::info!(worker = %self.id, "worker registered again");
        Ok(())
    }
}

/// Workers that lost the same coordinator must not come back in step.
fn seed(id: &WorkerId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
