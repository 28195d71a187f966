use std::sync::Arc;

use convoke_core::jobs::event::ClusterEvent;

/// Publishes an event to the node's watchers.
pub type EventSink = Arc<dyn Fn(ClusterEvent) + Send + Sync>;
