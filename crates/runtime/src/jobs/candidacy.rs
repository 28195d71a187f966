//! The election of the leading node: this node is a candidate, and follows the result.

use std::sync::Arc;

use convoke_core::election::ElectionEvent;
use convoke_core::jobs::event::ClusterEvent;
use convoke_core::{NodeId, Result};
use tokio::sync::watch;
use tracing::info;

use super::duty::{DutyRun, WokenBy};
use super::heartbeats::send_heartbeat;
use super::leader;
use super::node::{Node, NodeBase};
use super::settings::NAMESPACE;
use crate::election::{Campaign, CampaignOptions, Leadership};

/// Competes for the lease until the node resigns, and leads for each term that it wins.
pub async fn campaign(node: Arc<Node>, _: DutyRun<WokenBy>) -> Result<()> {
    let _shown = ShownAsLeader(node.election.view.clone());
    let campaign = Campaign::new(options(&node));
    *node.election.health.write() = Some(campaign.election_health());
    let resign = node.election.resign.clone();
    campaign.run(resign, move |term| leader::lead(node.clone(), term)).await;
    Ok(())
}

/// An open breaker keeps the node out for one renewal at most: an outage that is over must not cost more than a
/// failover.
fn options(node: &Node) -> CampaignOptions {
    let mut settings = node.settings.election.clone();
    let reset_timeout = &mut settings.circuit_breaker.reset_timeout;
    *reset_timeout = node.settings.cluster.renew_interval.min(*reset_timeout);
    let (events, base, view) = (node.events.clone(), node.base.clone(), node.election.leadership.clone());
    CampaignOptions {
        namespace: NAMESPACE,
        candidate: node.id.clone(),
        leases: node.ports.leases.clone(),
        store: node.ports.store.clone(),
        clock: node.ports.clock.clone(),
        ttl: node.settings.cluster.lease_duration,
        renew_interval: node.settings.cluster.renew_interval,
        settings,
        view: node.election.view.clone(),
        vacancy: node.ownership.peers.vacancy.clone(),
        fit: node.election.fitness.subscribe(),
        publish_event: Arc::new(move |what| {
            record_slow_renewal(&base, &view, &what);
            events.publish(what);
        }),
        outages: node.outages.clone(),
    }
}

/// Records a renewal of the lease that took too long, if this node leads.
fn record_slow_renewal(node: &NodeBase, view: &watch::Receiver<Leadership>, what: &ClusterEvent) {
    let view = view.borrow();
    if let ClusterEvent::Election { what: ElectionEvent::ContentionDetected(slow), .. } = what
        && view.is_me
    {
        node.history.slow_renewal(view.epoch, slow.duration, slow.expected, node.now());
    }
}

/// However a campaign ends, no node is shown as the leader afterwards.
struct ShownAsLeader(watch::Sender<Leadership>);

impl Drop for ShownAsLeader {
    fn drop(&mut self) {
        self.0.send_if_modified(|view| {
            let was_leader = view.is_me;
            if was_leader {
                *view = Leadership { epoch: view.epoch, seen: view.seen, ..Leadership::default() };
            }
            was_leader
        });
    }
}

/// Publishes a change of leader to watchers and the registry.
pub async fn watch_leadership(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let mut leadership = node.election.leadership.clone();
    let (mut shown, mut last_leader) = (None, None);
    while let Some(Ok(())) = run.wait(leadership.changed()).await {
        let view = leadership.borrow_and_update().clone();
        crate::election::telemetry::leads(NAMESPACE, view.is_me, view.epoch);
        if let Some(leader) = view.leader.as_ref().filter(|_| !view.is_me) {
            node.history.observe_term(view.epoch, leader, node.now());
        }
        if view.leader != shown {
            let (namespace, new_leader, epoch) = (NAMESPACE.to_owned(), view.leader.clone(), view.epoch);
            // During a vacancy the previous leader is remembered.
            let previous_leader = last_leader.clone();
            info!(
                previous_leader = previous_leader.as_ref().map(NodeId::as_str),
                new_leader = new_leader.as_ref().map(NodeId::as_str),
                epoch = epoch.0,
                "leader changed"
            );
            node.publish_event(ClusterEvent::LeaderChanged { namespace, previous_leader, new_leader, epoch });
            last_leader = view.leader.clone().or(last_leader);
            shown = view.leader;
            if let Err(error) = send_heartbeat(&node).await {
                run.failed("heartbeat", &error);
            }
        }
    }
    Ok(())
}
