//! Makes scheduled jobs pending when their time has come: delayed ones and retries.

use std::sync::Arc;

use crate::election::Term;
use crate::jobs::node::Node;
use crate::jobs::telemetry;

const BATCH_MAX: usize = 1_000;

pub async fn run(node: Arc<Node>, term: Term) {
    let mut hints = super::listen(&node).await;
    loop {
        let promoted = telemetry::timed("promote", node.store().promote(term.fence(), node.now(), BATCH_MAX)).await;
        let next = match promoted {
            Ok(promoted) => {
                for queue in &promoted.queues {
                    node.hints.ready(queue);
                }
                if promoted.count == BATCH_MAX {
                    continue;
                }
                promoted.next_due_at
            }
            Err(error) => {
                super::handle_duty_error(&node, &term, "promoter", &error);
                None
            }
        };
        let sooner = |due_at| next.is_none_or(|next| due_at < next);
        if !super::wait_for(&node, &term, &mut hints, next, |ready| ready.due_at.is_some_and(sooner)).await {
            return;
        }
    }
}
