//! Passes cancellations on to the workers of this node.

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::wire::Cancel;

use crate::jobs::duty::{DutyRun, SubscribedTo};
use crate::jobs::feed::Received;
use crate::jobs::node::Node;
use crate::jobs::telemetry;

/// Marks cancelled runs for their workers. If a cancellation was missed, the reports of its run are rejected.
pub async fn receive_cancellations(node: Arc<Node>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let mut feed = run.feed("cancellations");
    while let Some(received) = run.next(&mut feed).await {
        let Received::Message(message) = received else { continue };
        match serde_json::from_slice::<Cancel>(&message.body) {
            Ok(cancel) => node.gateway.sessions.cancel(cancel.execution_id),
            Err(error) => telemetry::poison(&node, message.channel, message.body, &error).await,
        }
    }
    Ok(())
}
