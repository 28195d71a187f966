//! The five calls of a worker.

use std::collections::BTreeSet;

use async_trait::async_trait;
use convoke_core::jobs::event::{ClusterEvent, WorkerChange};
use convoke_core::jobs::link::{
    Heartbeat, HeartbeatReply, Poll, Polled, Register, Registered, Report, Reported, WorkerLink,
};
use convoke_core::jobs::wire::{RunRef, WorkerState};
use convoke_core::ports::store::{InFlightFilter, WorkerRecord};
use convoke_core::{Error, Result, WorkerId};

use super::handout::release_runs;
use super::sessions::expect_stored;
use crate::jobs::coordinator::Coordinator;
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::views::in_flight;

#[async_trait]
impl WorkerLink for Coordinator {
    async fn register(&self, worker: Register) -> Result<Registered> {
        let node = self.node();
        worker.check()?;
        node.ensure_accepting()?;
        let worker_id = match worker.worker_id {
            Some(id) => id,
            None => WorkerId::new(node.ports.chance.id(node.now()).to_string())?,
        };
        let now = node.now();
        let record = WorkerRecord {
            name: worker.name.unwrap_or_else(|| worker_id.to_string()),
            worker_id: worker_id.clone(),
            queues: worker.queues,
            concurrency: worker.concurrency,
            running: 0,
            state: WorkerState::Active,
            registered_at: now,
            last_heartbeat_at: now,
            via: Some(node.id.clone()),
        };
        node.store().record_worker_heartbeats(std::slice::from_ref(&record)).await?;
        node.views.cache.worker_changed(&worker_id);
        node.gateway.sessions.enter(record);
        expect_stored(node, &worker_id).await?;
        node.gateway.hints.slots(&worker_id);
        node.publish_event(ClusterEvent::Worker { change: WorkerChange::Joined, worker_id: worker_id.clone() });
        let settings = &node.settings.worker;
        Ok(Registered { worker_id, heartbeat_interval: settings.heartbeat_interval, stale_after: settings.stale_after })
    }

    async fn poll(&self, poll: Poll) -> Result<Polled> {
        super::handout::poll(self.node(), poll).await
    }

    async fn report(&self, report: Report) -> Result<Reported> {
        super::report::report(self.node(), report).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatReply> {
        super::heartbeat::heartbeat(self.node(), heartbeat).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<()> {
        let node = self.node();
        ensure_known(node, &worker).await?;
        let barred = node.gateway.sessions.bar(&worker);
        leave(node, &worker).await?;
        drop(barred);
        node.publish_event(ClusterEvent::Worker { change: WorkerChange::Left, worker_id: worker });
        Ok(())
    }
}

async fn leave(node: &Node, worker: &WorkerId) -> Result<()> {
    // The runs that the session has, and those handed out before this node was restarted or by another.
    let mut runs: BTreeSet<RunRef> = runs_of(node, worker).await?.into_iter().collect();
    if let Some((own, last)) = node.gateway.sessions.leave(worker, node.now()) {
        runs.extend(own);
        node.gateway.hints.gone(last);
    }
    release_runs(node, runs).await?;
    let _writing = node.gateway.sessions.registry.lock().await;
    node.store().remove_workers(None, std::slice::from_ref(worker)).await?;
    node.views.cache.worker_changed(worker);
    Ok(())
}

/// Returns the runs that a worker has by the store.
pub async fn runs_of(node: &NodeBase, worker: &WorkerId) -> Result<Vec<RunRef>> {
    let filter = InFlightFilter { worker: Some(worker.clone()), ..InFlightFilter::default() };
    let runs = in_flight(node, filter).await?;
    Ok(runs.into_iter().map(|run| RunRef { job_id: run.job, execution_id: run.execution }).collect())
}

/// Restores the session of a worker that registered with another node, or with this one before it was restarted.
pub async fn ensure_known(node: &Node, worker: &WorkerId) -> Result<()> {
    let unknown = || Error::not_found("worker", worker);
    while !node.gateway.sessions.contains(worker) {
        let bars = node.gateway.sessions.bars(worker).ok_or_else(unknown)?;
        let found = node.store().worker(worker).await?;
        let record = found.filter(|record| record.state != WorkerState::Gone).ok_or_else(unknown)?;
        // If a worker has left meanwhile, it may have been this one: the store is read again.
        if node.gateway.sessions.enter_again(WorkerRecord { via: Some(node.id.clone()), ..record }, bars) {
            expect_stored(node, worker).await?;
            node.gateway.hints.slots(worker);
        }
    }
    Ok(())
}
