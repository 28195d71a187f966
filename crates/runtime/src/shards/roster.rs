//! Writes the roster of shard workers, concurrently with the coordinator.
//!
//! One change is written at a time, and retried until the store confirms it or the term is over. While the store is
//! unavailable, listed workers go on, and new ones wait: they receive no shard that a successor could not know of.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::Error;
use convoke_core::ports::Store;
use convoke_core::shards::{Coordinator, RosterChange};

use crate::election::Term;
use crate::outage::Outages;

const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// The name of the task in the log.
const TASK: &str = "shard roster";

type Writing<'a> = Pin<Box<dyn Future<Output = Option<RosterChange>> + Send + 'a>>;

/// Writes the changes of one term.
pub struct RosterWriter<'a> {
    store: Option<Arc<dyn Store>>,
    outages: &'a Outages,
    term: &'a Term,
    writing: Option<Writing<'a>>,
}

impl<'a> RosterWriter<'a> {
    pub fn new(store: Option<Arc<dyn Store>>, outages: &'a Outages, term: &'a Term) -> Self {
        RosterWriter { store, outages, term, writing: None }
    }

    /// Begins to write pending changes, unless a write is under way.
    pub fn begin(&mut self, coordinator: &mut Coordinator) {
        if self.writing.is_none()
            && let Some(store) = &self.store
            && let Some(change) = coordinator.roster_change()
        {
            self.writing = Some(Box::pin(write(store.clone(), self.outages, self.term, change)));
        }
    }

    /// Waits until the store has confirmed the present write; never completes if there is none. Cancel safe.
    pub async fn written(&mut self) -> RosterChange {
        let written = match &mut self.writing {
            Some(writing) => writing.await,
            None => None,
        };
        self.writing = None;
        match written {
            Some(change) => change,
            // Nothing is written, or the term is over, which ends the caller's wait.
            None => pending().await,
        }
    }
}

/// Returns the change once the store has confirmed it, `None` if the term is over.
async fn write(store: Arc<dyn Store>, outages: &Outages, term: &Term, change: RosterChange) -> Option<RosterChange> {
    let mut pause = RETRY_MIN;
    loop {
        match store.change_shard_roster(term.fence(), &change).await {
            Ok(()) => {
                outages.succeeded("store");
                return Some(change);
            }
            Err(Error::Fenced { .. }) => {
                term.end();
                return None;
            }
            Err(error) => outages.failed(TASK, &error),
        }
        if !term.sleep(pause).await {
            return None;
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}
