//! The loop that fetches: one poll at a time, for as many runs as there is room.

use std::time::Duration;

use convoke_core::Result;
use convoke_core::jobs::link::{Poll, Polled};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::run_table::RunTable;
use super::session::Session;
use super::slots::Slots;

/// An empty response that came sooner than this did not wait.
const HASTY: Duration = Duration::from_millis(5);

/// A worker of short jobs is full all the time, and never for long.
const FULL_FOR: Duration = Duration::from_millis(250);

/// Fetches until `drain`. A poll that is under way then is dropped: runs that it may have received are released when
/// the worker leaves.
pub(super) async fn run(
    session: &Session,
    run_table: &RunTable,
    slots: &mut Slots,
    wait: Duration,
    drain: &CancellationToken,
) {
    let mut backoff = session.backoff();
    loop {
        let (asked, term) = (Instant::now(), session.term());
        let answer = tokio::select! {
            biased;
            () = drain.cancelled() => return,
            answer = poll(session, run_table, wait) => answer,
        };
        let pause = match answer {
            Ok(polled) => {
                session.on_reply(run_table);
                let empty = polled.jobs.is_empty() && polled.cancel.is_empty();
                take(polled, run_table, slots, drain);
                // A coordinator that returns nothing at once must not be polled in a tight loop.
                let hasty = empty && asked.elapsed() < HASTY.min(wait);
                if !hasty {
                    backoff.reset();
                }
                hasty
            }
            Err(error) => {
                // Even after registering again, in case that does not help for long.
                session.recover(run_table, "poll", &error, term).await;
                true
            }
        };
        if pause {
            tokio::select! {
                biased;
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = drain.cancelled() => return,
            }
        }
    }
}

/// Polls for as many runs as there is room. A worker that stays full polls for none, to receive cancellations at once.
async fn poll(session: &Session, run_table: &RunTable, wait: Duration) -> Result<Polled> {
    let ask = |max| session.link.poll(Poll { worker_id: session.id.clone(), max, wait });
    loop {
        match run_table.wanted() {
            0 if tokio::time::timeout(FULL_FOR, run_table.room.notified()).await.is_ok() => {}
            0 => tokio::select! {
                biased;
                () = run_table.room.notified() => {}
                answer = ask(0) => return answer,
            },
            max => return ask(max).await,
        }
    }
}

fn take(polled: Polled, run_table: &RunTable, slots: &mut Slots, drain: &CancellationToken) {
    slots.start(run_table.accept(polled.jobs));
    run_table.cancel(&polled.cancel);
    if polled.drain {
        tracing::info!("draining: the coordinator asked for it");
        drain.cancel();
    }
}
