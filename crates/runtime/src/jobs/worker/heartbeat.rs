//! The loop that sends heartbeats, which list every run in hand.

use std::sync::Arc;

use convoke_core::jobs::link::Heartbeat;
use tokio_util::sync::CancellationToken;

use super::run_table::RunTable;
use super::session::Session;

/// Sends heartbeats for as long as the worker lives, also while it drains: its runs go on.
pub(super) async fn run(session: Arc<Session>, run_table: Arc<RunTable>, drain: CancellationToken) {
    let mut backoff = session.backoff();
    let mut pause = session.heartbeat_interval();
    loop {
        // Either the time has come, or a heartbeat was requested at once.
        let _ = tokio::time::timeout(pause, session.beat_now.notified()).await;
        let term = session.term();
        let (worker_id, draining) = (session.id.clone(), drain.is_cancelled());
        let heartbeat = Heartbeat { worker_id, running: run_table.in_hand(), draining };
        pause = match session.link.heartbeat(heartbeat).await {
            Ok(reply) => {
                session.on_reply(&run_table);
                run_table.lines.flush();
                backoff.reset();
                run_table.cancel(&reply.cancel);
                if reply.drain && !drain.is_cancelled() {
                    tracing::info!("draining: the coordinator asked for it");
                    drain.cancel();
                }
                session.heartbeat_interval()
            }
            Err(error) => {
                session.recover(&run_table, "heartbeat", &error, term).await;
                // Not later than the heartbeat that is due anyway.
                backoff.next_delay().min(session.heartbeat_interval())
            }
        };
    }
}
