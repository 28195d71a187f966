use std::sync::Arc;

use convoke_core::jobs::event::ClusterEvent;

/// Tells whoever watches the node what happened.
pub type EventSink = Arc<dyn Fn(ClusterEvent) + Send + Sync>;
