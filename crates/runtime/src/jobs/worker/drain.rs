//! The end of a worker: finish, then release, then leave.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::run_table::{RunTable, Summary};
use super::session::Session;
use super::slots::Slots;

/// How long handlers that were asked to stop may take: a little more than a slot allows them.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// How long an unavailable coordinator may delay the end of the worker.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn run(
    session: &Session,
    run_table: &RunTable,
    slots: &mut Slots,
    grace: Duration,
    hurry: &CancellationToken,
) {
    // The coordinator must not count its slots any more.
    session.beat_now.notify_one();
    // A run that never started can start elsewhere at once.
    run_table.release_waiting(Instant::now());
    let finished = tokio::select! {
        biased;
        () = slots.idle() => true,
        () = tokio::time::sleep(grace) => false,
        () = hurry.cancelled() => false,
    };
    if !finished {
        let runs = run_table.stop_all();
        tracing::warn!(runs, "grace period is over: unfinished runs are released");
        if timeout(STOP_LIMIT, slots.idle()).await.is_err() {
            // A handler that blocks its thread cannot be dropped, but its run can be released.
            let runs = run_table.abandon();
            tracing::error!(runs, "handlers could not be stopped: their runs are released");
        }
    }
    if timeout(FLUSH_LIMIT, run_table.flushed()).await.is_err() {
        tracing::warn!("the outcome of the last runs could not be reported");
    }
    match timeout(FLUSH_LIMIT, session.link.leave(session.id.clone())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "leaving the cluster failed"),
        Err(_) => tracing::warn!("leaving the cluster timed out"),
    }
    run_table.lines.flush();
    let Summary { completed, failed, timed_out, cancelled, released, stale, lines_dropped, unaccepted } =
        run_table.summary();
    tracing::info!(
        worker = %session.id,
        completed,
        failed,
        timed_out,
        cancelled,
        released,
        stale,
        lines_dropped,
        unaccepted,
        "worker stopped"
    );
}
