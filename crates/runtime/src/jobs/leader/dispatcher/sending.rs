//! Sends dispatched runs to where their workers are.
//!
//! Runs for workers of this node go to its inbox at once. The others are encoded and pushed one batch after the other,
//! while the dispatcher does its next write. The runs for another node are packed: one message
//! carries many.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use convoke_core::jobs::window::Place;
use convoke_core::jobs::wire::{self, Assigned, Dispatch, Inbox, RunRef, V1};
use convoke_core::limits::{INBOX_MESSAGE_BYTES_MAX, INBOX_MESSAGE_RUNS_MAX};
use convoke_core::{NodeId, QueueName};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tracing::debug;

use super::LeaderState;
use crate::jobs::gateway;

/// How many runs one `job.assigned` entry carries.
const ASSIGNED_MAX: usize = 500;
/// How many batches may wait to be published.
const BATCHES_MAX: usize = 4;

/// The runs of one dispatch, by where they are sent to.
pub struct Batch {
    own_node: NodeId,
    own: Vec<Dispatch>,
    nodes: BTreeMap<NodeId, Vec<Dispatch>>,
    bus: Vec<Dispatch>,
}

impl Batch {
    /// Adds a run. Runs are added in the order of dispatch.
    pub fn add(&mut self, place: &Place, run: Dispatch) {
        match place {
            Place::Bus => self.bus.push(run),
            Place::Node(node) if *node == self.own_node => self.own.push(run),
            Place::Node(node) => match self.nodes.get_mut(node) {
                Some(runs) => runs.push(run),
                None => {
                    self.nodes.insert(node.clone(), vec![run]);
                }
            },
        }
    }
}

/// Runs of each queue that were handed over for the bus and are not published yet.
type Unpublished = Arc<Mutex<BTreeMap<QueueName, u64>>>;

/// What one batch publishes.
struct Publication {
    messages: Vec<(NodeId, Inbox)>,
    bus: Vec<Dispatch>,
}

/// Sends runs, until it is closed.
pub struct Sender {
    leader: Arc<LeaderState>,
    batches: Option<mpsc::Sender<Publication>>,
    unpublished: Unpublished,
}

/// Publishes the batches that a [`Sender`] hands over.
pub struct Sending {
    leader: Arc<LeaderState>,
    batches: mpsc::Receiver<Publication>,
    unpublished: Unpublished,
}

impl Sending {
    /// Publishes one batch after the other until the sender is closed.
    pub async fn run(mut self) {
        while let Some(publication) = self.batches.recv().await {
            let counts = counts_of(&publication.bus);
            publish(&self.leader, publication).await;
            let mut unpublished = self.unpublished.lock();
            for (queue, published) in counts {
                if let Some(count) = unpublished.get_mut(&queue) {
                    *count -= published;
                    if *count == 0 {
                        unpublished.remove(&queue);
                    }
                }
            }
        }
    }
}

impl Sender {
    /// Returns a sender, and what publishes its batches.
    pub fn new(leader: Arc<LeaderState>) -> (Self, Sending) {
        let (batches, waiting) = mpsc::channel(BATCHES_MAX);
        let unpublished = Unpublished::default();
        let sending = Sending { leader: leader.clone(), batches: waiting, unpublished: unpublished.clone() };
        (Sender { leader, batches: Some(batches), unpublished }, sending)
    }

    pub fn batch(&self) -> Batch {
        let own_node = self.leader.node.id.clone();
        Batch { own_node, own: Vec::new(), nodes: BTreeMap::new(), bus: Vec::new() }
    }

    /// Sends a batch. Waits only while too many batches before it are not published yet.
    pub async fn send(&mut self, Batch { own, nodes, bus, .. }: Batch, now: Timestamp) {
        let LeaderState { node, inboxes, bus_queues, .. } = &*self.leader;
        if !own.is_empty() {
            let rest = node.gateway.inbox.put(own);
            if !rest.is_empty()
                && let Err(error) = gateway::release_runs(node, rest).await
            {
                // The reconciler finds them: no worker has them.
                node.outages.failed("runs beyond the inbox", &error);
            }
        }
        let mut messages = Vec::new();
        for (to, runs) in nodes {
            let mut inboxes = inboxes.lock();
            for runs in packed(runs) {
                let epoch = self.leader.term.fence().epoch();
                let seq = inboxes.send(&to, counts_of(&runs), now);
                messages.push((to.clone(), Inbox { v: V1, epoch, seq, runs, recalled: Vec::new() }));
            }
        }
        if !bus.is_empty() {
            let mut bus_queues = bus_queues.lock();
            for run in &bus {
                if !bus_queues.contains(&run.input.queue) {
                    bus_queues.insert(run.input.queue.clone());
                }
            }
        }
        if (!messages.is_empty() || !bus.is_empty())
            && let Some(batches) = &self.batches
        {
            {
                let mut unpublished = self.unpublished.lock();
                for (queue, count) in counts_of(&bus) {
                    *unpublished.entry(queue).or_default() += count;
                }
            }
            // Fails only if publishing has ended with the term.
            let _ = batches.send(Publication { messages, bus }).await;
        }
    }

    /// Returns how many runs of a queue were handed over for the bus and are not published yet.
    pub fn unpublished(&self, queue: &QueueName) -> u64 {
        self.unpublished.lock().get(queue).copied().unwrap_or(0)
    }

    /// Hands nothing more over: publishing ends with the last batch.
    pub fn close(&mut self) {
        self.batches = None;
    }
}

/// Returns how many runs of each queue there are.
fn counts_of(runs: &[Dispatch]) -> BTreeMap<QueueName, u64> {
    let mut counts: BTreeMap<QueueName, u64> = BTreeMap::new();
    for run in runs {
        match counts.get_mut(&run.input.queue) {
            Some(count) => *count += 1,
            None => {
                counts.insert(run.input.queue.clone(), 1);
            }
        }
    }
    counts
}

/// Divides the runs for a node into messages.
fn packed(runs: Vec<Dispatch>) -> Vec<Vec<Dispatch>> {
    let (mut messages, mut message, mut bytes) = (Vec::new(), Vec::new(), 0);
    for run in runs {
        let size = run.input.args.as_str().len();
        if !message.is_empty() && (message.len() >= INBOX_MESSAGE_RUNS_MAX || bytes + size > INBOX_MESSAGE_BYTES_MAX) {
            messages.push(std::mem::take(&mut message));
            bytes = 0;
        }
        bytes += size;
        message.push(run);
    }
    messages.push(message);
    messages
}

/// Pushes runs to the inboxes of other nodes and to the bus. For those on the bus the owners come first: a run should
/// have one before it ends.
async fn publish(leader: &LeaderState, Publication { messages, bus }: Publication) {
    let LeaderState { node, term, .. } = leader;
    let epoch = term.fence().epoch();
    let mut entries: Vec<(String, Bytes)> = Vec::with_capacity(messages.len() + bus.len() + 1);
    let count = bus.len() + messages.iter().map(|(_, message)| message.runs.len()).sum::<usize>();
    entries.extend(messages.iter().map(|(to, message)| (node.channels.inbox(to), wire::encode(message))));
    let assigned = node.channels.assigned();
    for runs in bus.chunks(ASSIGNED_MAX) {
        let jobs = runs.iter().map(|run| RunRef { job_id: run.job_id, execution_id: run.execution_id });
        let message = Assigned { v: V1, epoch, jobs: jobs.collect() };
        let bodies = node.settings.bus.format().encode_assigned(&message);
        entries.extend(bodies.into_iter().map(|body| (assigned.clone(), body)));
    }
    let mut channel: Option<(&QueueName, String)> = None;
    for run in &bus {
        let name = match &channel {
            Some((queue, name)) if **queue == run.input.queue => name.clone(),
            _ => channel.insert((&run.input.queue, node.channels.dispatch(&run.input.queue))).1.clone(),
        };
        entries.push((name, wire::encode(run)));
    }
    if let Err(error) = node.bus().push(entries).await {
        debug!(runs = count, "dispatched runs were not published: the reconciler releases them");
        node.outages.failed("dispatcher", &error);
    }
}
