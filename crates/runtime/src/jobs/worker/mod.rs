//! The worker: fetches runs, runs their handlers, reports their results.
//!
//! Four loops around one `RunTable` of the runs in hand. *Fetch* polls for as many runs as there is room for; *slots*
//! run handlers, at most `concurrency` at once; *report* sends all waiting events in one request and collects the next
//! meanwhile; *heartbeat* lists the runs in hand, so that the coordinator can detect a lost run.
//!
//! A run stays in the table until the coordinator has accepted its end: ends are sent again, with backoff, for as long
//! as it takes. While the coordinator is unavailable the worker keeps running what it has. A run that the coordinator
//! gave to another worker meanwhile is rejected as stale, and dropped.
//!
//! Asked to stop, by its process or by the coordinator, a worker fetches no more, lets runs finish for a grace period,
//! then releases the rest and leaves. Dropping the future of [`Worker::run`] instead stops everything at once: the
//! coordinator notices by the missing heartbeats.

mod backoff;
mod bus_link;
mod context;
mod drain;
mod fetch;
mod handlers;
mod heartbeat;
mod outbox;
mod pace;
mod release;
mod report;
mod run;
mod run_table;
mod session;
mod settings;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::link::WorkerLink;
use convoke_core::ports::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use bus_link::{BusLink, BusLinkSettings};
pub use context::{Context, Stopped};
pub use handlers::{Failure, HandlerFuture, Handlers};
pub use run_table::Summary;
pub use settings::Settings;

use run_table::RunTable;
use session::Session;
use slots::Slots;

/// Two ways to ask a worker to end.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Fetch no more, and finish the runs in hand within the grace period.
    pub drain: CancellationToken,
    /// The grace period is over now.
    pub hurry: CancellationToken,
}

/// A worker: runs the handlers of its process for jobs of its queues.
pub struct Worker {
    link: Arc<dyn WorkerLink>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    handlers: Handlers,
}

impl Worker {
    /// Creates a worker, which does nothing until [`run`](Self::run) is called.
    pub fn new(link: Arc<dyn WorkerLink>, clock: Arc<dyn Clock>, settings: Settings, handlers: Handlers) -> Self {
        Worker { link, clock, settings, handlers }
    }

    /// Works until it is asked to stop. Fails only if it could not begin: with invalid settings, or if the coordinator
    /// rejects it.
    pub async fn run(self, shutdown: Shutdown) -> Result<Summary> {
        self.settings.check()?;
        let Some(session) = Session::open(self.link, &self.settings, &shutdown.drain).await? else {
            return Ok(Summary::default());
        };
        let session = Arc::new(session);
        // The coordinator's request to drain is this worker's alone; the caller's token may be shared.
        let drain = shutdown.drain.child_token();
        let run_table = Arc::new(RunTable::new(self.clock, &self.settings));
        // Aborted when dropped, whichever way this function ends.
        let mut chores = JoinSet::new();
        chores.spawn(report::run(session.clone(), run_table.clone()));
        chores.spawn(heartbeat::run(session.clone(), run_table.clone(), drain.clone()));
        chores.spawn(release::run(run_table.clone()));
        let mut slots = Slots::new(run_table.clone(), Arc::new(self.handlers), self.settings.cancel_grace);
        fetch::run(&session, &run_table, &mut slots, self.settings.poll_wait, &drain).await;
        drain::run(&session, &run_table, &mut slots, self.settings.shutdown_grace, &shutdown.hurry).await;
        Ok(run_table.summary())
    }
}
