//! Deletes ended jobs once nobody is expected to ask for them.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::ports::store::Cutoffs;

use crate::election::Term;
use crate::jobs::node::Node;

/// Rows of one deletion, log lines included. Small, so that it never keeps an enqueue waiting for long.
const ROWS_MAX: usize = 1_000;

pub async fn run(node: Arc<Node>, term: Term) {
    let kept = &node.settings.retention;
    let shortest = kept.completed.min(kept.cancelled).min(kept.dead);
    let interval = (shortest / 10).clamp(Duration::from_millis(100), Duration::from_secs(30));
    while term.sleep(interval).await {
        if let Err(error) = expire(&node, &term).await {
            super::note(&node, &term, "retention", &error);
        }
    }
}

async fn expire(node: &Node, term: &Term) -> Result<()> {
    let kept = &node.settings.retention;
    while !term.is_over() {
        let now = node.now();
        let cutoffs =
            Cutoffs { completed: now - kept.completed, cancelled: now - kept.cancelled, dead: now - kept.dead };
        if !node.store().expire(term.fence(), cutoffs, ROWS_MAX).await?.more {
            return Ok(());
        }
    }
    Ok(())
}
