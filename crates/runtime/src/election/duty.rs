use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::jobs::event::ClusterEvent;

use super::Term;

/// Tells whoever watches the node what happened.
pub type EventSink = Arc<dyn Fn(ClusterEvent) + Send + Sync>;

/// Something that only the leader does, beside the jobs.
#[async_trait]
pub trait Duty: Send + Sync {
    /// Does it until the term is over. One that panics ends the term.
    async fn lead(&self, term: Term, publish_event: EventSink);
}
