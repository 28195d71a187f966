//! The views of jobs, queues, workers and nodes.
//!
//! Views may be read through the cache, so they may be a moment old: nothing is decided from them. A job is cached once
//! it no longer changes by itself: it has ended and its channels are cleaned. Then only a retry, a purge or the end of
//! its retention changes it, and each of them removes it from the cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::liveness::suspect_after;
use convoke_core::jobs::wire::NodeState;
use convoke_core::jobs::{Job, Queue, RateLimit, Status};
use convoke_core::ports::store::{InFlight, InFlightFilter, NodeRecord, WorkerRecord};
use convoke_core::{Epoch, Error, JobId, NodeId, QueueName, Result, WorkerId};
use jiff::Timestamp;
use metrics::gauge;

use super::cache::{Cache, Keep, Key};
use super::coordinator::Coordinator;
use super::health::Health;
use super::node::NodeBase;
use super::node_hints::{Belief, NodeHints};
use super::settings::{RateLimitSettings, RetentionSettings};
use super::telemetry;

/// The state that a node keeps for views, and shares with other nodes. Nothing is decided from it.
pub struct Views {
    pub cache: Cache,
    pub health: Health,
    pub node_hints: NodeHints,
}

impl Views {
    pub fn new(base: &NodeBase) -> Self {
        let shared = base.ports.cache.clone().map(|cache| (cache, base.outages.clone()));
        Views {
            cache: Cache::new(&base.settings.bus.prefix, &base.settings.cache, shared),
            health: Health::default(),
            node_hints: NodeHints::default(),
        }
    }
}

/// A queue, the rate limit that applies to it, and how many live workers serve it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    /// The queue as the store has it.
    pub queue: Queue,
    /// Its own, or the default.
    pub effective_rate_limit: Option<RateLimit>,
    /// How many live workers serve the queue.
    pub workers: u32,
}

/// Nodes as they are, or as they were when the store last responded.
#[derive(Debug, Clone)]
pub struct KnownNodes {
    /// The nodes, those that left within the last hour included.
    pub nodes: Vec<NodeRecord>,
    /// When `nodes` was read.
    pub as_of: Timestamp,
    /// Why the nodes could not be read; `None` if they were.
    pub error: Option<Error>,
}

/// Runs on their way from one node to another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Handoffs {
    /// The first hundred of them.
    pub shown: Vec<InFlight>,
    /// Counted up to ten thousand.
    pub total: usize,
}

const PAGE: usize = 1_000;
/// How long a view of the cluster waits for the store.
const VIEW_PATIENCE: Duration = Duration::from_secs(2);
/// How many runs are shown at once.
const SHOWN_MAX: usize = 100;
/// How many are counted at most: a view must not cost more than the move itself.
const COUNTED_MAX: usize = 10_000;
/// The runs of a node change with every run: their view is cached only briefly.
const OWNED_LIFETIME: Duration = Duration::from_secs(1);
/// The weight of a worker, a node or a run in memory: a rough upper bound.
const RECORD_BYTES: usize = 1 << 10;

/// Reads all runs in flight that match.
pub async fn in_flight(node: &NodeBase, filter: InFlightFilter) -> Result<Vec<InFlight>> {
    let mut runs: Vec<InFlight> = Vec::new();
    loop {
        let after = runs.last().map(|run| run.job);
        let page = node.store().in_flight(filter.clone(), after, PAGE).await?;
        let full = page.len() == PAGE;
        runs.extend(page);
        if !full {
            return Ok(runs);
        }
    }
}

impl Coordinator {
    /// Returns all queues.
    pub async fn queue_views(&self) -> Result<Vec<QueueView>> {
        let mut workers: BTreeMap<QueueName, u32> = BTreeMap::new();
        for worker in self.workers().await? {
            for queue in worker.queues {
                *workers.entry(queue).or_default() += 1;
            }
        }
        let queues = self.store().queues().await?;
        let views = queues.into_iter().map(|queue| {
            let workers = workers.get(&queue.name).copied().unwrap_or(0);
            self.queue_seen(queue, workers)
        });
        Ok(views.collect())
    }

    /// Returns one queue. `NotFound` if there is none of that name.
    pub async fn queue_view(&self, name: &QueueName) -> Result<QueueView> {
        let queue = self.store().queue(name).await?.ok_or_else(|| Error::not_found("queue", name))?;
        let workers = self.workers().await?.iter().filter(|worker| worker.queues.contains(name)).count() as u32;
        Ok(self.queue_seen(queue, workers))
    }

    fn queue_seen(&self, queue: Queue, workers: u32) -> QueueView {
        QueueView { effective_rate_limit: self.rate_limits().of(&queue), queue, workers }
    }

    /// Returns the rate limits beside those that queues set for themselves, as this node is configured.
    pub fn rate_limits(&self) -> &RateLimitSettings {
        &self.node().settings.rate_limit
    }

    /// Returns the job, as a view.
    pub async fn job_view(&self, id: JobId) -> Result<Arc<Job>> {
        let node = self.node();
        let keep = |job: &Job| {
            let lifetime = kept_for(job, &node.settings.retention, node.now())?;
            let texts = [
                job.result.as_ref().map(|json| json.as_str()),
                job.error.as_deref(),
                job.definition.unique_key.as_deref(),
            ];
            let texts = texts.into_iter().flatten().map(str::len).sum::<usize>();
            Some(Keep { lifetime, bytes: RECORD_BYTES + job.definition.args.as_str().len() + texts })
        };
        node.views.cache.read(Key::Job(id), self.job(id, None), keep).await
    }

    /// Returns all workers; the records of this node's own are current.
    pub async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let node = self.node();
        let keep = |workers: &Vec<WorkerRecord>| whole(workers.iter().map(worker_bytes).sum());
        let workers = node.views.cache.read(Key::Workers, self.store().workers(), keep).await?;
        let now = node.now();
        let present = |worker: &WorkerRecord| node.gateway.sessions.record(&worker.worker_id, now);
        Ok(workers.iter().map(|worker| present(worker).unwrap_or_else(|| worker.clone())).collect())
    }

    /// Returns one worker. `NotFound` if it is not in the registry.
    pub async fn worker(&self, id: &WorkerId) -> Result<WorkerRecord> {
        let node = self.node();
        let load = async { self.store().worker(id).await?.ok_or_else(|| Error::not_found("worker", id)) };
        let worker = node.views.cache.read(Key::Worker(id), load, |worker| whole(worker_bytes(worker))).await?;
        Ok(node.gateway.sessions.record(id, node.now()).unwrap_or_else(|| WorkerRecord::clone(&worker)))
    }

    /// Returns all nodes, those that left within the last hour included.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        let node = self.node();
        let keep = |nodes: &Vec<NodeRecord>| whole(nodes.len() * RECORD_BYTES);
        let nodes = node.views.cache.read(Key::Nodes, self.read_nodes(), keep).await?;
        Ok(nodes.iter().map(|record| self.up_to_date(record)).collect())
    }

    /// Returns the nodes and when they were read: now, or as they were known last if the store does not respond.
    pub async fn known_nodes(&self) -> Result<KnownNodes> {
        let node = self.node();
        let silent = || Error::unavailable("store", format!("no response within {VIEW_PATIENCE:?}"));
        let read = match node.reach.store.is_reachable() {
            true => tokio::time::timeout(VIEW_PATIENCE, self.nodes()).await.unwrap_or_else(|_| Err(silent())),
            false => Err(silent()),
        };
        match (read, node.ownership.peers.last_registry()) {
            (Ok(nodes), _) => Ok(KnownNodes { nodes, as_of: node.now(), error: None }),
            (Err(error), Some((at, nodes))) => {
                let nodes = nodes.iter().map(|record| self.up_to_date(record)).collect();
                Ok(KnownNodes { nodes, as_of: node.now() - at.elapsed(), error: Some(error) })
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns one node. `NotFound` if it is not in the registry.
    pub async fn node_view(&self, id: &NodeId) -> Result<NodeRecord> {
        let load = async {
            let nodes = self.read_nodes().await?;
            nodes.into_iter().find(|node| &node.node_id == id).ok_or_else(|| Error::not_found("node", id))
        };
        let node = self.node().views.cache.read(Key::Node(id), load, |_| whole(RECORD_BYTES)).await?;
        Ok(self.up_to_date(&node))
    }

    /// Reads the registry as clients do, and records which heartbeats have changed.
    async fn read_nodes(&self) -> Result<Vec<NodeRecord>> {
        let nodes = self.store().nodes().await?;
        self.node().ownership.peers.refresh(self.node_id(), &nodes);
        Ok(nodes)
    }

    /// Returns the record with the newer state that this node has: its own state, who leads by the lease, who is
    /// silent.
    fn up_to_date(&self, record: &NodeRecord) -> NodeRecord {
        let (node, mut record) = (self.node(), record.clone());
        record.role = self.cluster().role_of(&record.node_id);
        if &record.node_id == self.node_id() {
            record.job_count = node.ownership.claims.len() as u64;
            if !record.state.is_gone() {
                (record.state, record.since) = node.state();
            }
        } else if !record.state.is_gone() {
            let patience = suspect_after(node.settings.cluster.heartbeat_interval);
            if record.state == NodeState::Active
                && node.ownership.peers.state_of(&record.node_id) == Some(NodeState::Draining)
            {
                // It has published that, and is about to write it.
                (record.state, record.since) = (NodeState::Draining, node.now());
            }
            if let Some(suspected) = self.silence_of(&record.node_id).checked_sub(patience) {
                (record.state, record.since) = (NodeState::Suspect, node.now() - suspected);
            }
        }
        record
    }

    /// Returns how long this node has received no sign of another, by the bus or in the registry.
    pub fn silence_of(&self, id: &NodeId) -> Duration {
        if id == self.node_id() { Duration::ZERO } else { self.node().ownership.peers.silent_for(id) }
    }

    /// Returns the term that a node last published.
    pub fn epoch_of(&self, id: &NodeId) -> Option<Epoch> {
        self.belief_of(id).map(|belief| belief.epoch)
    }

    /// Returns whom a node believes to lead, by its last heartbeat; `None` before the first.
    pub fn belief_of(&self, id: &NodeId) -> Option<Belief> {
        let node = self.node();
        if id != self.node_id() {
            return node.views.node_hints.belief_of(id);
        }
        let (view, now) = (self.cluster(), node.now());
        let lease_read_at = view.seen.map(|seen| now - seen.elapsed());
        Some(Belief { leader: view.leader, epoch: view.epoch, lease_read_at, at: now })
    }

    /// Returns the first runs whose events a node records, as far as the claims are written.
    pub async fn jobs_of(&self, id: &NodeId) -> Result<Arc<Vec<InFlight>>> {
        let filter = InFlightFilter { owner: Some(id.clone()), ..InFlightFilter::default() };
        let load = self.store().in_flight(filter, None, SHOWN_MAX);
        let keep = |runs: &Vec<InFlight>| Some(Keep { lifetime: OWNED_LIFETIME, bytes: runs.len() * RECORD_BYTES });
        self.node().views.cache.read(Key::JobsOf(id), load, keep).await
    }

    /// Returns the runs on their way from one node to another; nothing if the store does not respond.
    pub async fn known_handoffs(&self) -> Option<Handoffs> {
        if !self.node().reach.store.is_reachable() {
            return None;
        }
        tokio::time::timeout(VIEW_PATIENCE, self.handoffs()).await.ok()?.ok()
    }

    /// Reads the runs on their way from one node to another from the store.
    pub async fn handoffs(&self) -> Result<Handoffs> {
        let filter = InFlightFilter { moving: true, ..InFlightFilter::default() };
        let mut handoffs = Handoffs::default();
        let mut after = None;
        while handoffs.total < COUNTED_MAX {
            let page = self.store().in_flight(filter.clone(), after, PAGE).await?;
            handoffs.total += page.len();
            after = page.last().map(|run| run.job);
            let full = page.len() == PAGE;
            let room = SHOWN_MAX - handoffs.shown.len();
            handoffs.shown.extend(page.into_iter().take(room));
            if !full {
                break;
            }
        }
        Ok(handoffs)
    }

    /// Updates the gauges before they are read.
    pub async fn refresh_gauges(&self) -> Result<()> {
        let now = self.node().now();
        let leadership = self.cluster();
        crate::election::telemetry::leads(super::NAMESPACE, leadership.is_me, leadership.epoch);
        telemetry::owned(self.node().ownership.claims.len());
        for queue in self.store().queues().await? {
            let name = queue.name.to_string();
            for (status, count) in queue.counts.iter() {
                gauge!("convoke_queue_depth", "queue" => name.clone(), "status" => status.as_str()).set(count as f64);
            }
            let waited = queue.oldest_pending_at.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
            gauge!("convoke_queue_oldest_pending_seconds", "queue" => name).set(waited);
        }
        gauge!("convoke_workers").set(self.store().workers().await?.len() as f64);
        Ok(())
    }
}

/// Returns how long a job may be cached: not at all while it may change by itself.
fn kept_for(job: &Job, retention: &RetentionSettings, now: Timestamp) -> Option<Duration> {
    if job.status.is_live() || !job.channels_cleaned {
        return None;
    }
    let kept = match job.status {
        Status::Completed => retention.completed,
        Status::Cancelled => retention.cancelled,
        _ => retention.dead,
    };
    let age = Duration::try_from(now.duration_since(job.completed_at?)).unwrap_or_default();
    kept.checked_sub(age).filter(|left| !left.is_zero())
}

/// For as long as its kind lives.
fn whole(bytes: usize) -> Option<Keep> {
    Some(Keep { lifetime: Duration::MAX, bytes })
}

fn worker_bytes(worker: &WorkerRecord) -> usize {
    RECORD_BYTES + worker.queues.iter().map(|queue| queue.as_str().len() + 32).sum::<usize>()
}
