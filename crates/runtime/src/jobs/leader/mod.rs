//! What only the leader does. Every duty takes the [`Term`]; every write carries its fence.
//!
//! Each duty looks at the store, acts, and sleeps until the store says that something is due, a hint says that something
//! is new, or [`LOOK_INTERVAL`] has passed: hints may be lost, looking is not. A write that comes back fenced ends the
//! term for all of them.

mod bus_workers;
mod cleanup;
mod dead_nodes;
mod dead_workers;
mod dispatcher;
mod group_readers;
mod orphans;
mod promoter;
mod reconciler;
mod requeue;
mod retention;
mod scheduler;
mod timeouts;
mod unread;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::{Ready, WorkerState};
use convoke_core::ports::Subscription;
use convoke_core::{Error, QueueName, Result};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tracing::{error, warn};

pub use bus_workers::BusWorkers;
pub use group_readers::GroupReaders;

use super::node::{Node, WORKERS};
use super::telemetry;
use crate::election::{Duty, EventSink, Term};

/// How often a duty looks without being told to.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Leads for one term. `others` are the duties that have nothing to do with jobs.
pub async fn lead(node: Arc<Node>, term: Term, others: Arc<[Arc<dyn Duty>]>) {
    let began_at = node.now();
    let mut duties = JoinSet::new();
    for duty in others.iter() {
        let (duty, term, telling) = (duty.clone(), term.clone(), node.clone());
        let publish_event: EventSink = Arc::new(move |what| telling.publish_event(what));
        duties.spawn(async move { duty.lead(term, publish_event).await });
    }
    duties.spawn(dispatcher::run(node.clone(), term.clone()));
    duties.spawn(promoter::run(node.clone(), term.clone()));
    duties.spawn(scheduler::run(node.clone(), term.clone()));
    duties.spawn(timeouts::run(node.clone(), term.clone()));
    duties.spawn(bus_workers::run(node.clone(), term.clone()));
    duties.spawn(group_readers::run(node.clone(), term.clone()));
    duties.spawn(dead_workers::run(node.clone(), term.clone()));
    duties.spawn(dead_nodes::run(node.clone(), term.clone()));
    duties.spawn(orphans::run(node.clone(), term.clone()));
    duties.spawn(reconciler::run(node.clone(), term.clone(), began_at));
    duties.spawn(requeue::run(node.clone(), term.clone()));
    duties.spawn(cleanup::run(node.clone(), term.clone()));
    duties.spawn(retention::run(node, term.clone()));
    while let Some(ended) = duties.join_next().await {
        if let Err(failure) = ended {
            // A duty that panicked must not leave a leader that only seems to lead.
            error!(error = %failure, "leader task panicked: the term ends");
            term.end();
        }
    }
}

/// Ends the term if `error` says that it is over; otherwise the duty tries again.
fn handle_duty_error(node: &Node, term: &Term, duty: &'static str, error: &Error) {
    if telemetry::is_fenced(error) {
        warn!(task = duty, epoch = term.fence().epoch().0, "write rejected: another node leads");
        term.end();
    } else {
        node.outages.failed(duty, error);
    }
}

/// How many runs of a queue lie on the bus for whoever takes them. `None` where something else is in the place of its channel:
/// no other queue must suffer from that.
async fn untaken(node: &Node, queue: &QueueName) -> Result<Option<u64>> {
    match node.bus().backlog(&node.channels.dispatch(queue), WORKERS).await {
        Err(Error::Conflict(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Queues that some live worker serves.
async fn served(node: &Node) -> Result<HashSet<QueueName>> {
    let workers = node.store().workers().await?;
    let live = workers.into_iter().filter(|worker| worker.state != WorkerState::Gone);
    Ok(live.flat_map(|worker| worker.queues).collect())
}

/// Waits until `due`, a hint for which `concerns` is true, or the next look; false once the term is over.
async fn wait_for(
    node: &Node,
    term: &Term,
    hints: &mut Option<Box<dyn Subscription>>,
    due: Option<Timestamp>,
    concerns: impl Fn(&Ready) -> bool,
) -> bool {
    let until_due = due.map_or(LOOK_INTERVAL, |due| until(node.now(), due).min(LOOK_INTERVAL));
    let wake = tokio::time::sleep(until_due);
    tokio::pin!(wake);
    loop {
        let Some(subscription) = hints else {
            return term.sleep(until_due).await;
        };
        tokio::select! {
            () = term.ended() => return false,
            () = &mut wake => return true,
            hint = subscription.next() => match hint {
                Ok(Some(message)) => {
                    if serde_json::from_slice::<Ready>(&message.body).is_ok_and(|ready| concerns(&ready)) {
                        return true;
                    }
                }
                Ok(None) => return true,
                Err(_) => *hints = None,
            },
        }
    }
}

/// Listens to the hints on `job.ready`; without them a duty still looks by itself.
async fn listen(node: &Node) -> Option<Box<dyn Subscription>> {
    let listening: Result<_> = node.bus().subscribe(&[node.channels.ready()]).await;
    listening.inspect_err(|error| node.outages.failed("hints", error)).ok()
}

/// How long from `now` to `at`; nothing where it has passed.
fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}
