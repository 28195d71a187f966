use async_trait::async_trait;
use convoke_core::election::{ElectionEvent, Elector as Rules};
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Result};

use super::holder::Timeline;
use super::tenure::Tenure;

/// The work of the holder of a lease. The three holders (an application's elector, the coordinator's campaign, the
/// leader of a mesh) are three offices; the [driver](super::driver) does everything else.
#[async_trait]
pub(crate) trait Office: Send + Sync {
    /// Returns the floor for the epoch of a new term; `received` is the highest that the rules know.
    async fn floor(&self, received: Epoch) -> Result<Floor> {
        Ok(Floor::Received(received))
    }

    /// Seals the epoch of a term that was just won, if the conduct requires it.
    async fn seal(&self, _epoch: Epoch) -> Result<()> {
        Ok(())
    }

    /// Begins a term. Must not wait.
    fn begin(&self, _term: &Tenure) {}

    /// Ends a term. Returns when nothing acts on it any more: only then is another requested.
    async fn end(&self, _term: &Tenure) {}

    /// Called when the state of the rules has changed.
    fn observe(&self, _rules: &Rules, _timeline: Timeline) {}

    /// Publishes an event to the watchers.
    fn announce(&self, what: ElectionEvent);

    /// Called when no more events will follow.
    fn close(&self) {}
}
