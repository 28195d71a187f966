//! Hints to the leader, gathered so that a thousand enqueues send one message.
//!
//! The sender of a hint adds it here, under a short lock. On the node that leads, the dispatcher takes the gathered
//! hints itself, in the same process and at once. On any other node one task publishes them as soon as the previous
//! publication is done: under load one message carries many hints, at rest a hint is sent at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::{self, InboxReport, Ready, V1, WorkerHeartbeat};
use convoke_core::{QueueName, Result, WorkerId};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::debug;

use super::duty::{DutyRun, WokenBy};
use super::gateway::Gateway;
use super::node::{Node, NodeBase};

/// How often a leader publishes the slots of its own workers, for the views of other nodes.
const VIEW_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Default)]
pub struct Hints {
    gathered: Mutex<Gathered>,
    /// Notified for the task that publishes; the second one for hints that must not wait.
    ring: Notify,
    ring_urgent: Notify,
    /// Notified for the dispatcher of this node.
    ring_dispatcher: Notify,
}

#[derive(Default)]
struct Gathered {
    queues: BTreeSet<QueueName>,
    configured: BTreeSet<QueueName>,
    due_at: Option<Timestamp>,
    schedules: bool,
    workers: BTreeSet<WorkerId>,
    gone: Vec<WorkerHeartbeat>,
    /// The hints for the dispatcher, while this node leads.
    local: Option<LocalHints>,
}

/// The hints that a dispatcher takes on its own node.
#[derive(Default)]
pub struct LocalHints {
    /// Queues with new pending jobs.
    pub queues: BTreeSet<QueueName>,
    /// Queues that were paused, resumed or whose limits changed.
    pub configured: BTreeSet<QueueName>,
    /// Workers of this node with more or fewer free slots.
    pub workers: BTreeSet<WorkerId>,
    /// The last heartbeats of workers that left.
    pub gone: Vec<WorkerHeartbeat>,
}

impl LocalHints {
    fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.configured.is_empty() && self.workers.is_empty() && self.gone.is_empty()
    }
}

impl Hints {
    /// Hints that a job in `queue` can be dispatched.
    pub fn ready(&self, queue: &QueueName) {
        self.gather(|gathered| {
            let queues = gathered.local.as_mut().map_or(&mut gathered.queues, |local| &mut local.queues);
            if !queues.contains(queue.as_str()) {
                queues.insert(queue.clone());
            }
        });
    }

    /// Hints that a job will be due at `at`.
    pub fn due(&self, at: Timestamp) {
        self.gather(|gathered| gathered.due_at = Some(gathered.due_at.map_or(at, |before| before.min(at))));
    }

    pub fn configured(&self, queue: &QueueName) {
        self.gather(|gathered| {
            if let Some(local) = &mut gathered.local {
                local.configured.insert(queue.clone());
            }
            gathered.configured.insert(queue.clone());
        });
    }

    pub fn schedules(&self) {
        self.gather(|gathered| gathered.schedules = true);
    }

    /// Hints that a worker has more or fewer free slots.
    pub fn slots(&self, worker: &WorkerId) {
        self.gather(|gathered| {
            let local = gathered.local.as_mut().map(|local| &mut local.workers);
            for workers in local.into_iter().chain([&mut gathered.workers]) {
                if !workers.contains(worker.as_str()) {
                    workers.insert(worker.clone());
                }
            }
        });
    }

    /// Hints that a worker has no slots any more.
    pub fn gone(&self, last: WorkerHeartbeat) {
        self.gather(|gathered| {
            if let Some(local) = &mut gathered.local {
                local.gone.push(last.clone());
            }
            gathered.gone.push(last);
        });
    }

    /// Begins to gather hints for the dispatcher of this node, until the result is dropped.
    pub fn lead(&self) -> Leading<'_> {
        self.gathered.lock().local = Some(LocalHints::default());
        Leading { hints: self }
    }

    fn gather(&self, add: impl FnOnce(&mut Gathered)) {
        let mut gathered = self.gathered.lock();
        add(&mut gathered);
        let (is_led, is_urgent) = (gathered.local.is_some(), gathered.is_urgent());
        drop(gathered);
        if is_led {
            self.ring_dispatcher.notify_one();
        }
        if is_urgent {
            self.ring_urgent.notify_one();
        }
        self.ring.notify_one();
    }
}

impl Gathered {
    /// Returns what is to be published; the hints for the dispatcher stay.
    fn take(&mut self) -> Gathered {
        let local = self.local.take();
        std::mem::replace(self, Gathered { local, ..Gathered::default() })
    }

    /// Returns whether something is to be published that cannot wait: the slots of a leader's own workers can.
    fn is_urgent(&self) -> bool {
        let has_slots = !self.workers.is_empty() && self.local.is_none();
        let has_rest = self.schedules || self.due_at.is_some() || !self.configured.is_empty() || !self.gone.is_empty();
        has_slots || has_rest || !self.queues.is_empty()
    }
}

/// The hints of the node that leads.
pub struct Leading<'a> {
    hints: &'a Hints,
}

impl Leading<'_> {
    /// Waits for hints, and returns them.
    pub async fn next(&self) -> LocalHints {
        loop {
            if let Some(local) = self.take() {
                return local;
            }
            self.hints.ring_dispatcher.notified().await;
        }
    }

    /// Returns the hints that have come.
    pub fn take(&self) -> Option<LocalHints> {
        let mut gathered = self.hints.gathered.lock();
        gathered.local.as_mut().map(std::mem::take).filter(|local| !local.is_empty())
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut gathered = self.hints.gathered.lock();
        // The next leader should learn of what this one did not dispatch.
        if let Some(local) = gathered.local.take() {
            gathered.queues.extend(local.queues);
        }
        drop(gathered);
        self.hints.ring.notify_one();
    }
}

/// Publishes the gathered hints.
pub async fn publish(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let Gateway { hints, sessions, inbox, .. } = &node.gateway;
    while run.wait(hints.ring.notified()).await.is_some() {
        if !hints.gathered.lock().is_urgent() {
            let _ = run.wait(tokio::time::timeout(VIEW_INTERVAL, hints.ring_urgent.notified())).await;
        }
        let gathered = hints.gathered.lock().take();
        // Before the slots are read: a run that is handed out in between counts twice, and not not at all.
        let report = inbox.report();
        let with_inbox = |heartbeat: WorkerHeartbeat| WorkerHeartbeat {
            inbox: heartbeat.inbox.map(|own| InboxReport { prefetch: own.prefetch, ..report.clone() }),
            ..heartbeat
        };
        let heartbeats = gathered.workers.iter().filter_map(|worker| sessions.heartbeat(worker, node.now()));
        for heartbeat in heartbeats.map(with_inbox).chain(gathered.gone) {
            send(&node, &node.channels.worker_heartbeat(), &heartbeat).await;
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
