//! Workers and nodes, by their heartbeats, and the roster of shard workers.

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::wire::{NodeRole, NodeState};
use convoke_core::ports::store::{NodeRecord, NodeStore, RosterStore, WorkerRecord, WorkerStore};
use convoke_core::shards::{RosterChange, ShardMember};
use convoke_core::{NodeId, Result, WorkerId};
use jiff::Timestamp;

use super::MemoryStore;

#[async_trait]
impl WorkerStore for MemoryStore {
    async fn record_worker_heartbeats(&self, workers: &[WorkerRecord]) -> Result<()> {
        let records = workers.iter().map(|worker| (worker.worker_id.clone(), worker.clone()));
        self.state().workers.extend(records);
        Ok(())
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        Ok(self.state().workers.values().cloned().collect())
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<WorkerRecord>> {
        Ok(self.state().workers.get(id).cloned())
    }

    async fn remove_workers(&self, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
        let mut state = self.fenced_if(fence, "remove_workers")?;
        ids.iter().for_each(|id| {
            state.workers.remove(id);
        });
        Ok(())
    }
}

#[async_trait]
impl NodeStore for MemoryStore {
    async fn record_node_heartbeat(&self, node: NodeRecord) -> Result<()> {
        self.state().nodes.insert(node.node_id.clone(), node);
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        Ok(self.state().nodes.values().cloned().collect())
    }

    async fn retire_node(&self, fence: Option<Fence>, id: &NodeId, state: NodeState, at: Timestamp) -> Result<()> {
        if let Some(node) = self.fenced_if(fence, "retire_node")?.nodes.get_mut(id) {
            (node.role, node.state, node.since) = (NodeRole::Follower, state, at);
        }
        Ok(())
    }

    async fn forget_nodes(&self, fence: Fence, ids: &[NodeId]) -> Result<()> {
        let mut state = self.fenced_if(Some(fence), "forget_nodes")?;
        state.nodes.retain(|id, node| !(node.state.is_gone() && ids.contains(id)));
        Ok(())
    }
}

#[async_trait]
impl RosterStore for MemoryStore {
    async fn change_shard_roster(&self, fence: Fence, change: &RosterChange) -> Result<()> {
        let mut state = self.fenced(fence, "change_shard_roster")?;
        for member in &change.remove {
            state.shard_roster.remove(member);
        }
        state.shard_roster.extend(change.add.iter().cloned());
        Ok(())
    }

    async fn shard_roster(&self) -> Result<Vec<ShardMember>> {
        Ok(self.state().shard_roster.iter().cloned().collect())
    }
}
