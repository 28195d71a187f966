//! The background tasks of a worker on the bus: receive cancellations and timings, acknowledge, publish slots, send
//! heartbeats.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::jobs::wire::{Cancel, CoordinatorHeartbeat};
use convoke_core::ports::Subscription;

use super::held_runs::PendingActions;
use super::timings::Timings;
use super::{Post, Session};
use crate::jobs::worker::backoff::Backoff;
use crate::machine;

/// So that a worker of no-op jobs publishes its slots in batches.
const PAUSE: Duration = Duration::from_millis(1);
/// The same if few of many slots changed: each heartbeat makes the leader dispatch, and a batch costs little more than
/// one job.
const LONG_PAUSE: Duration = Duration::from_millis(5);
/// A change of fewer slots than this part of all is a small one, and a worker with at least so many slots has many.
const SMALL_PART: u32 = 8;
const MANY_SLOTS: u32 = 64;

/// Receives which runs have ended, and the timings that the leader expects of workers. A message that is missed while
/// the bus is unavailable costs work, not correctness.
pub(super) async fn receive(
    post: Post,
    session: Arc<Session>,
    timings: Arc<Timings>,
    mut topics: Box<dyn Subscription>,
) {
    let leader = post.channels.coordinator_heartbeat();
    let mut backoff = Backoff::new(machine::bits());
    loop {
        match topics.next().await {
            Ok(Some(message)) if message.channel == leader => {
                match serde_json::from_slice::<CoordinatorHeartbeat>(&message.body) {
                    Ok(heartbeat) => timings.follow(&heartbeat),
                    Err(error) => tracing::debug!(%error, "heartbeat of a node could not be read"),
                }
            }
            Ok(Some(message)) => {
                backoff.reset();
                match serde_json::from_slice::<Cancel>(&message.body) {
                    Ok(cancel) => {
                        if session.held_runs.lock().cancel(cancel.execution_id) {
                            session.bell.notify_waiters();
                        }
                    }
                    // The coordinators receive it too, and set it aside.
                    Err(error) => tracing::debug!(%error, "cancellation could not be read"),
                }
            }
            Ok(None) => {}
            Err(error) => {
                // The heartbeat logs that the bus is unavailable.
                tracing::debug!(%error, "subscription to cancellations failed");
                topics = subscribe(&post, &mut backoff).await;
            }
        }
    }
}

async fn subscribe(post: &Post, backoff: &mut Backoff) -> Box<dyn Subscription> {
    loop {
        tokio::time::sleep(backoff.next_delay()).await;
        match post.bus.subscribe(&post.topics()).await {
            Ok(topics) => return topics,
            Err(error) => tracing::debug!(%error, "subscribing to cancellations failed"),
        }
    }
}

/// Sends heartbeats if the worker's own are too rare for the cluster.
pub(super) async fn keep_pace(post: Post, session: Arc<Session>, timings: Arc<Timings>) {
    loop {
        timings.due().await;
        let executions = session.held_runs.lock().executions();
        if let Err(error) = session.send_heartbeat(&post, session.state(), Some(executions)).await {
            // The worker's own heartbeat logs that the bus is unavailable.
            tracing::debug!(%error, "worker heartbeat failed");
        }
    }
}

/// Runs errands as they come; those that gathered meanwhile together.
pub(super) async fn run(post: Post, session: Arc<Session>) {
    let mut backoff = Backoff::new(machine::bits());
    let mut before = 0;
    loop {
        session.action_ready.notified().await;
        let (running, slots) = {
            let held_runs = session.held_runs.lock();
            (held_runs.running(), held_runs.concurrency)
        };
        let pause = pause_after(running.abs_diff(std::mem::replace(&mut before, running)), slots);
        let done = async {
            // Slots first: the leader waits for them; an acknowledgement is not urgent.
            session.send_heartbeat(&post, session.state(), None).await?;
            flush(&post, &session).await
        };
        match done.await {
            Ok(()) => {
                backoff.reset();
                tokio::time::sleep(pause).await;
            }
            Err(error) => {
                tracing::debug!(%error, "publishing job events failed");
                tokio::time::sleep(backoff.next_delay()).await;
                session.action_ready.notify_one();
            }
        }
    }
}

/// Returns how long to gather after a change of this many slots.
fn pause_after(changed: u32, slots: u32) -> Duration {
    if slots >= MANY_SLOTS && changed < slots / SMALL_PART { LONG_PAUSE } else { PAUSE }
}

/// Publishes the gathered events, then acknowledges. A failed errand is kept for the next time: publishing or
/// acknowledging twice does no harm.
pub(super) async fn flush(post: &Post, session: &Session) -> Result<()> {
    let _one_at_a_time = session.flushing.lock().await;
    let PendingActions { push, mut ack } = session.held_runs.lock().take_pending_actions();
    if !push.is_empty()
        && let Err(error) = post.bus.push(push.clone()).await
    {
        session.held_runs.lock().put_back(PendingActions { push, ack });
        return Err(error);
    }
    while let Some((place, ids)) = ack.pop() {
        if let Err(error) = session.consumers[place].ack(&ids).await {
            ack.push((place, ids));
            session.held_runs.lock().put_back(PendingActions { push: Vec::new(), ack });
            return Err(error);
        }
    }
    Ok(())
}
