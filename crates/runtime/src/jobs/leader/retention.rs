//! Deletes ended jobs and old entries of the audit after their retention, and queues that are not used.
//!
//! Names of queues come from clients and are limited in number. A queue without jobs, settings and workers is deleted after
//! [a day](convoke_core::jobs::queue::UNUSED_FOR), counted from when this leader first saw it so: a change of leader begins the count anew.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::queue::UnusedQueues;
use convoke_core::ports::store::Cutoffs;
use convoke_core::{Error, Result};
use tokio::time::Instant;
use tracing::info;

use super::LeaderState;
use crate::election::Term;
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::node::NodeBase;
use crate::jobs::settings::Settings;

/// Rows of one deletion, log lines included. Small, so that it never keeps an enqueue waiting for long.
const ROWS_MAX: usize = 1_000;

/// How often queues are checked.
const QUEUES_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// How often ended jobs are checked.
pub fn interval(settings: &Settings) -> Duration {
    let kept = &settings.retention;
    let shortest = kept.completed.min(kept.cancelled).min(kept.dead).min(kept.audit);
    (shortest / 10).clamp(Duration::from_millis(100), Duration::from_secs(30))
}

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<Every>) -> Result<()> {
    let LeaderState { node, term, .. } = &*leader;
    let (began, mut unused) = (Instant::now(), UnusedQueues::default());
    let mut queues_checked = began;
    while run.next().await {
        if let Err(error) = expire(node, term).await {
            run.failed("retention", &error);
        }
        if let Err(error) = expire_audit(node, term).await {
            run.failed("retention of the audit", &error);
        }
        if queues_checked.elapsed() >= QUEUES_INTERVAL {
            queues_checked = Instant::now();
            if let Err(error) = delete_unused_queues(node, &mut unused, began.elapsed()).await {
                run.failed("retention of queues", &error);
            }
        }
    }
    Ok(())
}

async fn delete_unused_queues(node: &NodeBase, unused: &mut UnusedQueues, now: Duration) -> Result<()> {
    let served = super::served(node).await?;
    let queues = node.store().queues().await?;
    let idle = queues.into_iter().filter(|queue| queue.is_unused() && !served.contains(&queue.name));
    for name in unused.observe(idle.map(|queue| queue.name), now) {
        match node.store().delete_queue(&name).await {
            Ok(_) => info!(queue = %name, "deleted a queue that was unused for a day"),
            // It has a job by now.
            Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn expire(node: &NodeBase, term: &Term) -> Result<()> {
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

async fn expire_audit(node: &NodeBase, term: &Term) -> Result<()> {
    while !term.is_over() {
        let before = node.now() - node.settings.retention.audit;
        if node.store().expire_audit(term.fence(), before, ROWS_MAX).await? < ROWS_MAX {
            return Ok(());
        }
    }
    Ok(())
}
