//! What is shown of queues, workers and nodes.

use std::collections::HashMap;

use convoke_core::jobs::Queue;
use convoke_core::ports::store::{InFlight, InFlightFilter, NodeRecord, WorkerRecord};
use convoke_core::{Error, QueueName, Result};
use metrics::gauge;

use super::coordinator::Coordinator;
use super::node::Node;
use super::telemetry;

/// A queue, and how many live workers serve it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    pub queue: Queue,
    pub workers: u32,
}

const PAGE: usize = 1_000;

/// All runs in flight that match.
pub async fn in_flight(node: &Node, filter: InFlightFilter) -> Result<Vec<InFlight>> {
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
    pub async fn queue_views(&self) -> Result<Vec<QueueView>> {
        let mut workers: HashMap<QueueName, u32> = HashMap::new();
        for worker in self.workers().await? {
            for queue in worker.queues {
                *workers.entry(queue).or_default() += 1;
            }
        }
        let queues = self.store().queues().await?;
        let views = queues.into_iter().map(|queue| {
            let workers = workers.get(&queue.name).copied().unwrap_or(0);
            QueueView { queue, workers }
        });
        Ok(views.collect())
    }

    pub async fn queue_view(&self, name: &QueueName) -> Result<QueueView> {
        let queue = self.store().queue(name).await?.ok_or_else(|| Error::not_found("queue", name))?;
        let workers = self.workers().await?.iter().filter(|worker| worker.queues.contains(name)).count() as u32;
        Ok(QueueView { queue, workers })
    }

    /// Workers as the store has them, those of this node up to the moment.
    pub async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let now = self.node().now();
        let stored = self.store().workers().await?;
        let workers = stored.into_iter();
        Ok(workers.map(|worker| self.node().sessions.record(&worker.worker_id, now).unwrap_or(worker)).collect())
    }

    pub async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        let mut nodes = self.store().nodes().await?;
        let own = nodes.iter_mut().find(|node| &node.node_id == self.node_id());
        if let Some(own) = own {
            own.job_count = self.node().claims.len() as u64;
        }
        Ok(nodes)
    }

    /// Brings the gauges up to date before they are read.
    pub async fn refresh_gauges(&self) -> Result<()> {
        let now = self.node().now();
        let leadership = self.cluster();
        telemetry::leads(leadership.is_me, leadership.epoch.0);
        telemetry::owned(self.node().claims.len());
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
