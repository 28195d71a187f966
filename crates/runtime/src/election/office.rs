use async_trait::async_trait;
use convoke_core::election::{ElectionEvent, Elector as Rules};
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Result};

use super::holder::Timeline;
use super::tenure::Tenure;

/// What the holder of a lease does with it. The three holders (an application's elector, the coordinator's campaign, the
/// leader of a mesh) are three offices; everything else is the [driver](super::driver)'s.
#[async_trait]
pub(crate) trait Office: Send + Sync {
    /// Returns what the epoch of a new term must be above; `received` is the highest that the rules know.
    async fn floor(&self, received: Epoch) -> Result<Floor> {
        Ok(Floor::Received(received))
    }

    /// Seals the epoch of a term that was just won, if the conduct asks for it.
    async fn seal(&self, _epoch: Epoch) -> Result<()> {
        Ok(())
    }

    /// A term begins. Must not wait.
    fn begin(&self, _term: &Tenure) {}

    /// A term is over. Returns once nothing acts on it any more: only then is another asked for.
    async fn end(&self, _term: &Tenure) {}

    /// The rules have learned something.
    fn observe(&self, _rules: &Rules, _timeline: Timeline) {}

    /// Something happened that watchers want to know.
    fn announce(&self, what: ElectionEvent);

    /// Nothing will happen any more.
    fn close(&self) {}
}
