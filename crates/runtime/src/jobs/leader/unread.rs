//! Postpones the leader's decision on runs whose job has status messages that its owner has not read: one of them may
//! be the run's end.
//!
//! A bell can be lost, and some workers send none: the leader sends one to the owner. Not for ever: an owner that does
//! not read has failed in another way, and reports may come faster than they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use convoke_core::jobs::wire::{self, Bell, RunRef, V1};
use convoke_core::{Error, ExecutionId, JobId, Result, WorkerId};
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::debug;

use super::LeaderState;
use crate::jobs::node::{COORDINATORS, NodeBase};

/// How long each run has been postponed.
pub struct Unread {
    patience: Duration,
    postponed: BTreeMap<ExecutionId, Postponed>,
}

struct Postponed {
    since: Instant,
    asked: Instant,
}

impl Unread {
    pub fn new(node: &NodeBase) -> Self {
        // Long enough for a dead owner to be detected and for another to read in its place.
        Unread { patience: node.settings.cluster.dead_node_timeout * 2, postponed: BTreeMap::new() }
    }

    /// Returns which of `runs` must wait until their owner has read the entries of their job's channel, and sends a
    /// bell for it. A run comes with its worker, if one is known.
    pub async fn postpone<'a>(
        &mut self,
        leader: &LeaderState,
        runs: impl IntoIterator<Item = (RunRef, Option<&'a WorkerId>)>,
    ) -> BTreeSet<ExecutionId> {
        let (node, now) = (&leader.node, Instant::now());
        // Reports of this node's own workers do not come by the channel.
        let asked = runs.into_iter().filter(|(run, _)| !node.gateway.sessions.has(&run.execution_id));
        let reads =
            join_all(asked.map(|(run, worker)| async move { (run, may_have_ended(leader, run, worker).await) }));
        let (mut waiting, mut jobs) = (BTreeSet::new(), Vec::new());
        for (run, may_have_ended) in reads.await {
            if !may_have_ended {
                self.postponed.remove(&run.execution_id);
                continue;
            }
            let postponed = self.postponed.entry(run.execution_id).or_insert(Postponed { since: now, asked: now });
            postponed.asked = now;
            if postponed.since.elapsed() < self.patience {
                waiting.insert(run.execution_id);
                jobs.push(run.job_id);
            }
        }
        // Runs that are no longer asked about have ended.
        self.postponed.retain(|_, postponed| now.duration_since(postponed.asked) < self.patience);
        ring(node, jobs).await;
        waiting
    }
}

async fn ring(node: &NodeBase, jobs: Vec<JobId>) {
    if jobs.is_empty() {
        return;
    }
    let bell = Bell { v: V1, jobs, logs: Some(Vec::new()) };
    if let Err(error) = node.bus().publish(&node.channels.bell(), wire::encode(&bell)).await {
        debug!(%error, "sending bells to owners failed");
    }
}

async fn may_have_ended(leader: &LeaderState, run: RunRef, worker: Option<&WorkerId>) -> bool {
    match has_unread(&leader.node, run.job_id).await {
        Ok(is_unread) => is_unread,
        // The bus is unavailable: no report of a worker on the bus can be received.
        Err(_) => worker.is_some_and(|worker| leader.bus_workers.heartbeat(worker).is_some()),
    }
}

/// Returns whether a job's channel holds entries that its owner has not read.
async fn has_unread(node: &NodeBase, job: JobId) -> Result<bool> {
    match node.bus().backlog(&node.channels.status(job), COORDINATORS).await {
        Err(Error::Conflict(_)) => Ok(false),
        result => result.map(|count| count > 0),
    }
}
