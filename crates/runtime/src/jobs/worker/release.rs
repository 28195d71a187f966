//! Releases runs that were fetched ahead and found no slot: another worker may have a free one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::run_table::RunTable;

/// Many times the horizon of fetching ahead.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) async fn run(run_table: Arc<RunTable>) {
    loop {
        let Some(since) = run_table.waiting_since() else {
            run_table.queued.notified().await;
            continue;
        };
        tokio::time::sleep_until(since + PATIENCE).await;
        let released = run_table.release_waiting(Instant::now() - PATIENCE);
        if released > 0 {
            tracing::info!(runs = released, "runs released: no slot became free for them");
        }
    }
}
