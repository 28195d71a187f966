//! Makes scheduled jobs pending when their time has come: delayed ones and retries.

use std::sync::Arc;

use convoke_core::Result;

use super::LeaderState;
use crate::jobs::duty::{DutyRun, SubscribedTo};
use crate::jobs::telemetry;

const BATCH_MAX: usize = 1_000;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let LeaderState { node, term, .. } = &*leader;
    let mut hints = run.feed("hints");
    loop {
        let promoted = telemetry::timed("promote", node.store().promote(term.fence(), node.now(), BATCH_MAX)).await;
        let next = match promoted {
            Ok(promoted) => {
                for queue in &promoted.queues {
                    node.gateway.hints.ready(queue);
                }
                if promoted.count == BATCH_MAX {
                    continue;
                }
                promoted.next_due_at
            }
            Err(error) => {
                run.failed("promoter", &error);
                None
            }
        };
        let sooner = |due_at| next.is_none_or(|next| due_at < next);
        if !super::wait_for(&mut run, &mut hints, next, |ready| ready.due_at.is_some_and(sooner)).await {
            return Ok(());
        }
    }
}
