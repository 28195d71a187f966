//! Reads runs from several queues, one read at a time.
//!
//! A read takes entries off the bus, and an entry that no worker asked for is hidden from every other. So a poll first
//! waits for a signal of any of its queues, which takes nothing, and then reads one queue after the other for the runs
//! that it still wants.

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::ports::{Consumer, Delivery};
use futures_util::future::select_all;
use tracing::debug;

/// The consumer group of workers on the bus.
pub const WORKERS: &str = "workers";

/// Reads at most `max` entries from the first of the queues, in this order, that has any. Returns its index with them;
/// `None` while the bus is unavailable. Safe to cancel: an entry that was not returned was not taken.
pub async fn take_from_first(
    consumers: &[Arc<dyn Consumer>],
    order: impl Iterator<Item = usize>,
    max: usize,
) -> Result<Option<(usize, Vec<Delivery>)>> {
    if max == 0 {
        return Ok(None);
    }
    for place in order {
        match consumers[place].take_now(max).await {
            Ok(deliveries) if deliveries.is_empty() => {}
            Ok(deliveries) => return Ok(Some((place, deliveries))),
            Err(error) if error.is_transient() => {
                debug!(%error, "reading runs from the bus failed");
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Waits until one of the queues may hold an entry, and returns its index. Takes nothing. Safe to cancel. Read that
/// queue next: its signal woke this caller alone.
pub async fn ready(consumers: &[Arc<dyn Consumer>], max: usize) -> Result<usize> {
    // A worker without free slots asks for no runs, and waits for cancellations.
    if consumers.is_empty() || max == 0 {
        return std::future::pending().await;
    }
    let (signal, place, _) = select_all(consumers.iter().map(|consumer| consumer.ready())).await;
    signal.map(|()| place)
}
