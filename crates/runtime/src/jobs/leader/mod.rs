//! The duties of the leader. Every duty takes the [`Term`]; every write carries its fence.
//!
//! Each duty reads the store, acts, and sleeps until the next item is due, a hint comes, or [`LOOK_INTERVAL`] has
//! passed: hints may be lost, reads are not. A fenced write that is rejected ends the term for all of them.

pub mod bus_workers;
pub mod cleanup;
pub mod dead_nodes;
pub mod dead_workers;
pub mod dispatcher;
pub mod group_readers;
pub mod orphans;
mod ownerless;
pub mod promoter;
pub mod reconciler;
pub mod requeue;
pub mod retention;
pub mod scheduler;
pub mod timeouts;
mod unread;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::history::{FenceKind, RefusedWrite, TermEnd};
use convoke_core::jobs::inboxes::Inboxes;
use convoke_core::jobs::wire::{Ready, WorkerState};
use convoke_core::{Error, QueueName, Result};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::bus_workers::BusWorkers;
use self::group_readers::GroupReaders;
use super::duty::{DutyRun, Scope, SubscribedTo};
use super::feed::{Feed, Received};
use super::intake::WORKERS;
use super::node::{Node, NodeBase};
use crate::election::Term;

/// How often a duty reads the store without a hint.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a node while it leads: created when a term begins, dropped when it ends. The next term starts without
/// it.
pub struct LeaderState {
    pub node: Arc<Node>,
    pub term: Term,
    /// Before the first dispatch of this term.
    pub began_at: Timestamp,
    pub bus_workers: BusWorkers,
    pub group_readers: GroupReaders,
    /// The runs that were sent to the inboxes of other nodes.
    pub inboxes: Mutex<Inboxes>,
    /// Queues of which runs were published to the bus.
    pub bus_queues: Mutex<BTreeSet<QueueName>>,
    /// Notified if a queue was paused.
    pub paused: Notify,
    /// When this term last dispatched a run; before that, when it began.
    pub dispatched: Mutex<Instant>,
}

impl LeaderState {
    pub fn new(node: Arc<Node>, term: Term) -> Self {
        LeaderState {
            began_at: node.now(),
            bus_workers: BusWorkers::default(),
            group_readers: GroupReaders::new(node.settings.worker.stale_after),
            inboxes: Mutex::new(Inboxes::new(term.fence().epoch())),
            bus_queues: Mutex::default(),
            paused: Notify::new(),
            dispatched: Mutex::new(Instant::now()),
            node,
            term,
        }
    }
}

/// Leads for one term: runs all duties of the leader until they have ended.
pub async fn lead(node: Arc<Node>, term: Term) {
    let duties = node.election.duties.clone();
    node.history.term_began(term.epoch(), node.now());
    let leader = Arc::new(LeaderState::new(node, term));
    let mut running = JoinSet::new();
    for place in (0..duties.len()).filter(|place| duties[*place].scope() == Scope::Leader) {
        let (duties, leader) = (duties.clone(), leader.clone());
        running.spawn(async move { duties[place].lead(leader).await });
    }
    running.join_all().await;
    let LeaderState { node, term, began_at, .. } = &*leader;
    node.history.term_ended(term.epoch(), *began_at, why_it_ended(node, term), node.now());
}

/// Returns why a term is over.
fn why_it_ended(node: &Node, term: &Term) -> TermEnd {
    let was_refused = |refused: &RefusedWrite| {
        refused.node == node.id && refused.fence == FenceKind::Leader && refused.number == term.epoch().to_string()
    };
    if node.history.read(|log| log.refused().any(was_refused)) {
        TermEnd::Fenced
    } else if node.election.resign.is_cancelled() {
        TermEnd::Stopped
    } else if term.certain_until() <= Instant::now() {
        TermEnd::Expired
    } else if node.election.leadership.borrow().leader.as_ref().is_some_and(|leader| *leader != node.id) {
        // A renewal was refused: the lease is another node's.
        TermEnd::Fenced
    } else {
        TermEnd::Resigned
    }
}

/// How often the silence of workers is checked: often enough for a short time-out.
pub fn silence_interval(stale_after: Duration) -> Duration {
    (stale_after / 10).clamp(Duration::from_millis(20), LOOK_INTERVAL)
}

/// Returns how many runs of a queue lie on the bus for any worker. `None` if the key of its channel has the wrong type:
/// that must not block other queues.
async fn untaken(node: &NodeBase, queue: &QueueName) -> Result<Option<u64>> {
    match node.bus().backlog(&node.channels.dispatch(queue), WORKERS).await {
        Err(Error::Conflict(_)) => Ok(None),
        result => result.map(Some),
    }
}

/// Returns the queues that a live worker serves.
async fn served(node: &NodeBase) -> Result<BTreeSet<QueueName>> {
    let workers = node.store().workers().await?;
    let live = workers.into_iter().filter(|worker| worker.state != WorkerState::Gone);
    Ok(live.flat_map(|worker| worker.queues).collect())
}

/// Returns the queues that a live worker on the bus serves.
async fn served_by_bus(node: &NodeBase) -> Result<BTreeSet<QueueName>> {
    let workers = node.store().workers().await?;
    let live = workers.into_iter().filter(|worker| worker.via.is_none() && worker.state != WorkerState::Gone);
    Ok(live.flat_map(|worker| worker.queues).collect())
}

/// Waits until `due`, a hint for which `concerns` is true, or the next interval. Returns false once the term is over.
async fn wait_for(
    run: &mut DutyRun<SubscribedTo>,
    hints: &mut Feed,
    due: Option<Timestamp>,
    concerns: impl Fn(&Ready) -> bool,
) -> bool {
    let until_due = due.map_or(LOOK_INTERVAL, |due| until(run.node().now(), due).min(LOOK_INTERVAL));
    let hint = async {
        loop {
            match hints.next().await {
                Received::Message(message) => {
                    if serde_json::from_slice::<Ready>(&message.body).is_ok_and(|ready| concerns(&ready)) {
                        return;
                    }
                }
                Received::Subscribed | Received::Missed => return,
                Received::Broken => {}
            }
        }
    };
    let woken = run.wait(tokio::time::timeout(until_due, hint)).await;
    woken.is_some()
}

/// Returns the time from `now` to `at`; zero if it has passed.
fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use convoke_core::jobs::wire::{V1, WorkerHeartbeat};
    use convoke_core::{Epoch, WorkerId};

    use super::*;
    use crate::jobs::node::fixture;

    fn heartbeat(worker: &WorkerId, queue: &QueueName, node: &Node) -> WorkerHeartbeat {
        WorkerHeartbeat {
            v: V1,
            worker_id: worker.clone(),
            queues: vec![queue.clone()],
            running: 0,
            free: 1,
            state: WorkerState::Active,
            at: node.now(),
            name: None,
            concurrency: None,
            via: None,
            executions: None,
            inbox: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_term_starts_empty() {
        let node = fixture::node().await;
        let (worker, queue) = (WorkerId::new("w").expect("a name"), QueueName::new("q").expect("a name"));
        let first = fixture::leader(node.clone(), Epoch(1)).await;
        first.bus_workers.sight(heartbeat(&worker, &queue, &node), Duration::ZERO, node.now());
        first.group_readers.watch(&queue);
        first.paused.notify_one();
        let knows = |leader: &LeaderState| leader.bus_workers.heartbeat(&worker).is_some();
        assert!(knows(&first) && first.group_readers.is_watched(&queue));
        first.term.end();
        drop(first);
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = fixture::leader(node.clone(), Epoch(2)).await;
        assert!(!knows(&second) && !second.group_readers.is_watched(&queue));
        let paused = tokio::time::timeout(Duration::from_secs(1), second.paused.notified()).await;
        assert!(paused.is_err(), "a queue that was paused in another term wakes nobody");
    }
}
