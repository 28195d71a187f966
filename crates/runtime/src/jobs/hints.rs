//! Hints to the leader, gathered so that a thousand enqueues send one message.
//!
//! The sender of a hint adds it here, under a short lock; one task publishes the gathered hints as soon as the previous
//! publication is done. Under load one message carries many hints, at rest a hint is sent at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use convoke_core::jobs::wire::{self, Ready, Taken, V1, WorkerHeartbeat};
use convoke_core::{ExecutionId, QueueName, Result, WorkerId};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::debug;

use super::duty::{DutyRun, WokenBy};
use super::gateway::Gateway;
use super::node::{Node, NodeBase};

#[derive(Default)]
pub struct Hints {
    gathered: Mutex<Gathered>,
    ring: Notify,
}

#[derive(Default)]
struct Gathered {
    queues: BTreeSet<QueueName>,
    configured: BTreeSet<QueueName>,
    due_at: Option<Timestamp>,
    schedules: bool,
    workers: BTreeSet<WorkerId>,
    gone: Vec<WorkerHeartbeat>,
    taken: Vec<ExecutionId>,
}

impl Hints {
    /// Hints that a job in `queue` can be dispatched.
    pub fn ready(&self, queue: &QueueName) {
        self.gather(|gathered| {
            if !gathered.queues.contains(queue.as_str()) {
                gathered.queues.insert(queue.clone());
            }
        });
    }

    /// Hints that a job will be due at `at`.
    pub fn due(&self, at: Timestamp) {
        self.gather(|gathered| gathered.due_at = Some(gathered.due_at.map_or(at, |before| before.min(at))));
    }

    pub fn configured(&self, queue: &QueueName) {
        self.gather(|gathered| {
            gathered.configured.insert(queue.clone());
        });
    }

    pub fn schedules(&self) {
        self.gather(|gathered| gathered.schedules = true);
    }

    /// Hints that a worker has more or fewer free slots.
    pub fn slots(&self, worker: &WorkerId) {
        self.gather(|gathered| {
            if !gathered.workers.contains(worker.as_str()) {
                gathered.workers.insert(worker.clone());
            }
        });
    }

    /// Returns workers whose changed slots are not published yet.
    pub fn changed_slots(&self) -> Vec<WorkerId> {
        self.gathered.lock().workers.iter().cloned().collect()
    }

    /// Hints that a worker has no slots any more.
    pub fn gone(&self, last: WorkerHeartbeat) {
        self.gather(|gathered| gathered.gone.push(last));
    }

    /// Hints that this node's gateway handed out runs: no other node need claim them.
    pub fn taken(&self, executions: impl IntoIterator<Item = ExecutionId>) {
        self.gather(|gathered| gathered.taken.extend(executions));
    }

    fn gather(&self, add: impl FnOnce(&mut Gathered)) {
        add(&mut self.gathered.lock());
        self.ring.notify_one();
    }
}

/// Publishes the gathered hints.
pub async fn publish(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let Gateway { hints, sessions, .. } = &node.gateway;
    while run.wait(hints.ring.notified()).await.is_some() {
        let gathered = std::mem::take(&mut *hints.gathered.lock());
        let beats = gathered.workers.iter().filter_map(|worker| sessions.heartbeat(worker, node.now()));
        for beat in beats.chain(gathered.gone) {
            send(&node, &node.channels.worker_heartbeat(), &beat).await;
        }
        if !gathered.taken.is_empty() && !node.bus().is_in_process() {
            let taken = Taken { v: V1, node_id: node.id.clone(), executions: gathered.taken };
            send(&node, &node.channels.taken(), &taken).await;
        }
        let ready = Ready {
            v: V1,
            queues: gathered.queues.into_iter().collect(),
            configured: gathered.configured.into_iter().collect(),
            due_at: gathered.due_at,
            schedules: gathered.schedules,
        };
        if !ready.queues.is_empty() || !ready.configured.is_empty() || ready.due_at.is_some() || ready.schedules {
            send(&node, &node.channels.ready(), &ready).await;
        }
    }
    Ok(())
}

async fn send(node: &NodeBase, topic: &str, message: &impl serde::Serialize) {
    if let Err(error) = node.bus().publish(topic, wire::encode(message)).await {
        // A lost hint costs a moment: the leader also polls the store.
        debug!(%error, topic, "publishing a hint failed");
    }
}
