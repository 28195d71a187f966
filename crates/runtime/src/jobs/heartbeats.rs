//! Publishes that this node is alive, and follows which others are.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::election::{self, Moment};
use convoke_core::jobs::event::ClusterEvent;
use convoke_core::jobs::wire::{CoordinatorHeartbeat, NodeRole, V1};
use convoke_core::ports::store::NodeRecord;

use super::duty::{DutyRun, WokenBy};
use super::follower;
use super::node::Node;
use super::settings::NAMESPACE;

/// The longest heartbeat interval of a draining node.
const DRAINING_INTERVAL: Duration = Duration::from_secs(1);

/// Sends heartbeats, and records whether the node could lead: it must reach both the bus and the store.
pub async fn heartbeats(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let interval = node.settings.cluster.heartbeat_interval;
    let (mut failures, mut roster) = (0_u32, election::Roster::default());
    loop {
        // After a failure it retries sooner: one failure must not make it count as dead.
        let pause = if failures == 0 { interval } else { interval / 3 };
        // An operator may watch the remaining runs while it drains.
        let pause = if node.drain.begun.is_cancelled() { pause.min(DRAINING_INTERVAL) } else { pause };
        let woken = run.wait(async {
            tokio::select! {
                biased;
                () = node.drain.begun.cancelled(), if !node.drain.begun.is_cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        });
        if woken.await.is_none() {
            return Ok(());
        }
        failures = match send_heartbeat(&node).await {
            Ok(()) => 0,
            Err(error) => {
                run.failed("heartbeat", &error);
                failures.saturating_add(1)
            }
        };
        node.job_lines.flush();
        let is_fit = failures < 2;
        node.election.fitness.send_if_modified(|fit| std::mem::replace(fit, is_fit) != is_fit);
        match follower::read_registry(&node, &node.ownership.peers).await {
            Ok(nodes) => publish_members(&node, &nodes, &mut roster),
            Err(error) => run.failed("node registry", &error),
        }
    }
}

/// Publishes to watchers which nodes are alive, if that has changed.
fn publish_members(node: &Node, nodes: &[NodeRecord], roster: &mut election::Roster) {
    let timeout = node.settings.cluster.dead_node_timeout;
    let live = nodes
        .iter()
        .filter(|other| !other.state.is_gone() && node.ownership.peers.unchanged_for(&other.node_id) <= timeout);
    let workers: Vec<String> = live.map(|other| other.node_id.to_string()).collect();
    let turnover = roster.update(&workers, Moment::default(), timeout);
    if !turnover.is_none() {
        if let Some(health) = node.election.health() {
            health.members_changed(turnover);
        }
        let what = election::ElectionEvent::WorkersUpdated { workers };
        node.publish_event(ClusterEvent::Election { namespace: NAMESPACE.to_owned(), what });
    }
}

/// Publishes that this node is alive, and its load. To the bus first: a node that the bus does not reach cannot record
/// the reports that workers send there, and should count as dead.
pub async fn send_heartbeat(node: &Node) -> Result<()> {
    let now = node.now();
    let leadership = node.election.leadership.borrow().clone().at(tokio::time::Instant::now());
    let role = if leadership.is_me { NodeRole::Leader } else { NodeRole::Follower };
    let ((state, since), job_count, epoch) = (node.state(), node.ownership.claims.len() as u64, leadership.epoch);
    let message = CoordinatorHeartbeat {
        v: V1,
        node_id: node.id.clone(),
        job_count,
        state,
        role: Some(role),
        epoch,
        leader: leadership.leader,
        lease_read_at: leadership.seen.map(|seen| now - seen.elapsed()),
        at: now,
        worker_heartbeat_interval: Some(node.settings.worker.heartbeat_interval),
        worker_stale_after: Some(node.settings.worker.stale_after),
    };
    let body = node.settings.bus.format().encode(&message);
    let published = node.bus().publish(&node.channels.coordinator_heartbeat(), body).await;
    node.reach.bus.record_result(published, node.now())?;
    node.outages.succeeded("bus");
    let record = NodeRecord {
        node_id: node.id.clone(),
        role,
        state,
        since,
        job_count,
        started_at: node.started_at,
        last_heartbeat_at: now,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    node.reach.store.record_result(node.store().record_node_heartbeat(record).await, node.now())?;
    node.outages.succeeded("store");
    node.views.cache.node_changed(&node.id);
    Ok(())
}
