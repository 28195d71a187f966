//! Takes over runs that were delivered to a consumer and that no worker started: of a worker on the bus that died, or
//! of the gateway of a dead node. Other workers on the bus do the same; there may be none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::ports::Consumer;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::debug;

use super::handout::Taken;
use crate::jobs::node::Node;

/// When each of a node's consumers last looked for such runs, by its address in memory. A consumer at the address of a
/// former one may look one interval later.
#[derive(Default)]
pub struct Reclaims(Mutex<HashMap<usize, Instant>>);

impl Reclaims {
    /// Returns whether it is time to look, and counts it as done if so.
    fn take_turn(&self, consumer: &Arc<dyn Consumer>, interval: Duration) -> bool {
        let (now, place) = (Instant::now(), Arc::as_ptr(consumer).cast::<()>() as usize);
        let mut last = self.0.lock();
        let is_recent = |at: &Instant| now.duration_since(*at) < interval;
        if last.get(&place).is_some_and(is_recent) {
            return false;
        }
        last.retain(|_, at| is_recent(at));
        last.insert(place, now);
        true
    }
}

/// How often a queue is checked.
pub fn interval(node: &Node) -> Duration {
    node.settings.worker.stale_after / 3
}

/// Takes over at most `max` entries of the queues that were not checked lately.
pub async fn take(node: &Node, consumers: &[Arc<dyn Consumer>], max: usize) -> Taken {
    let (mut taken, mut wanted) = (Taken::new(), max);
    for consumer in consumers {
        if wanted == 0 {
            break;
        }
        if !node.gateway.sessions.reclaims.take_turn(consumer, interval(node)) {
            continue;
        }
        match consumer.take_over(node.settings.worker.stale_after, wanted).await {
            Ok(deliveries) if deliveries.is_empty() => {}
            Ok(deliveries) => {
                wanted -= deliveries.len().min(wanted);
                taken.push((consumer.clone(), deliveries));
            }
            // It is retried; runs on the bus can be handed out meanwhile.
            Err(error) => debug!(%error, "taking over from dead consumers failed"),
        }
    }
    taken
}
