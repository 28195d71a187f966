//! Hints to the leader, gathered so that a thousand enqueues ring once.
//!
//! Whoever changes something says so here, under a short lock; one task publishes what has gathered as soon as the
//! publication before is done. Under load a hint stands for many, at rest it goes out at once.

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
    /// Something in `queue` can be dispatched.
    pub fn ready(&self, queue: &QueueName) {
        self.gather(|gathered| {
            if !gathered.queues.contains(queue.as_str()) {
                gathered.queues.insert(queue.clone());
            }
        });
    }

    /// Something will be due at `at`.
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

    /// A worker has more or fewer free slots.
    pub fn slots(&self, worker: &WorkerId) {
        self.gather(|gathered| {
            if !gathered.workers.contains(worker.as_str()) {
                gathered.workers.insert(worker.clone());
            }
        });
    }

    /// Workers whose slots changed and of whom the topic does not know yet.
    pub fn changed_slots(&self) -> Vec<WorkerId> {
        self.gathered.lock().workers.iter().cloned().collect()
    }

    /// A worker has no slots any more.
    pub fn gone(&self, last: WorkerHeartbeat) {
        self.gather(|gathered| gathered.gone.push(last));
    }

    /// Runs that this node's gateway handed out: no other node need claim them.
    pub fn taken(&self, executions: impl IntoIterator<Item = ExecutionId>) {
        self.gather(|gathered| gathered.taken.extend(executions));
    }

    fn gather(&self, add: impl FnOnce(&mut Gathered)) {
        add(&mut self.gathered.lock());
        self.ring.notify_one();
    }
}

/// Publishes what gathers.
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
        // A hint that is lost costs a moment: the leader also looks by itself.
        debug!(%error, topic, "publishing a hint failed");
    }
}
