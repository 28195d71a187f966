//! Gives back what was fetched ahead and found no slot: somebody else may have a free one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::Ledger;

/// Many times what fetching ahead counts on.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) async fn run(ledger: Arc<Ledger>) {
    loop {
        let Some(since) = ledger.waiting_since() else {
            ledger.queued.notified().await;
            continue;
        };
        tokio::time::sleep_until(since + PATIENCE).await;
        let released = ledger.release_waiting(Instant::now() - PATIENCE);
        if released > 0 {
            tracing::info!(runs = released, "runs given back: no slot became free for them");
        }
    }
}
