//! Closes the channels of finished jobs, after a delay in which their last events may still be read.

use std::sync::Arc;

use convoke_core::Result;

use crate::election::Term;
use crate::jobs::node::Node;

pub async fn run(node: Arc<Node>, term: Term) {
    while term.sleep(node.settings.channels.scan_interval).await {
        if let Err(error) = clean(&node, &term).await {
            super::note(&term, "channel cleanup", &error);
        }
    }
}

/// Goes on until nothing is due: a batch a scan could not keep up.
async fn clean(node: &Node, term: &Term) -> Result<()> {
    let before = node.now() - node.settings.channels.cleanup_delay;
    let batch_size = node.settings.channels.batch_size;
    while !term.is_over() {
        let jobs = node.store().uncleaned(before, batch_size).await?;
        if jobs.is_empty() {
            return Ok(());
        }
        node.bus().close(&node.channels.of_jobs(&jobs)).await?;
        node.store().mark_cleaned(term.fence(), &jobs).await?;
        if jobs.len() < batch_size {
            return Ok(());
        }
    }
    Ok(())
}
