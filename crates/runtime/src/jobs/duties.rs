//! Every task that a node runs by itself: the one table from which the duties are started.
//!
//! The tables of `docs/architecture.md` and the label `duty` of the metrics come from here.

use std::sync::Arc;

use super::duty::{Consumes, Duty, Every, SubscribedTo, WokenBy};
use super::{cache, candidacy, events_forward, follower, gateway, heartbeats, hints, history, leader, node_hints};
use crate::shards::ShardsDuty;

const fn topics(topics: &'static [&'static str]) -> SubscribedTo {
    SubscribedTo { topics, also: "" }
}

/// Returns all duties of a node, those of the leader included.
pub fn all() -> Vec<Duty> {
    let mut duties = of_every_node();
    duties.extend(of_the_leader());
    duties
}

fn of_every_node() -> Vec<Duty> {
    vec![
        Duty::competing(
            "consume_assignments",
            Consumes("job.assigned"),
            follower::consume_assignments,
            "claims dispatched runs of bus workers",
            "the entry goes to another node",
        ),
        Duty::competing(
            "consume_enqueues",
            Consumes("job.enqueue"),
            follower::consume_enqueues,
            "inserts jobs that were enqueued over the bus",
            "not acknowledged until committed",
        ),
        Duty::competing(
            "consume_handoffs",
            Consumes("job.handoff"),
            follower::consume_handoffs,
            "takes over runs of a node that drains or died",
            "the offer is repeated",
        ),
        Duty::competing(
            "balance_load",
            Every {
                text: "`cluster.heartbeat_interval`",
                interval: |node| node.settings.cluster.heartbeat_interval.mul_f64(0.9 + node.fraction() * 0.2),
            },
            follower::balance_load,
            "offers runs if it owns far more than the idlest node",
            "tried at the next heartbeat",
        ),
        Duty::node(
            "record_channel_events",
            WokenBy("a bell, then the job's channels"),
            follower::record_channel_events,
            "commits the status and logs that bus workers publish",
            "not acknowledged: read again",
        ),
        Duty::node(
            "maintain_claims",
            Every { text: "every 50 ms", interval: |_| follower::MAINTAIN_INTERVAL },
            follower::maintain_claims,
            "writes claims of runs that take longer than 200 ms, subscribes to their channels",
            "tried again",
        ),
        Duty::node(
            "audit_claims",
            Every { text: "`cluster.heartbeat_interval`", interval: |node| node.settings.cluster.heartbeat_interval },
            follower::audit_claims,
            "compares its claims with the store",
            "tried again",
        ),
        Duty::node(
            "receive_peer_heartbeats",
            topics(&["coordinator.heartbeat"]),
            follower::receive_peer_heartbeats,
            "follows the load and state of other nodes",
            "the registry is read instead",
        ),
        Duty::node(
            "heartbeats",
            WokenBy("`cluster.heartbeat_interval`, sooner while it fails or drains"),
            heartbeats::heartbeats,
            "writes and publishes that this node is alive",
            "the node counts as dead after `cluster.dead_node_timeout`",
        ),
        Duty::node(
            "campaign",
            WokenBy("`cluster.renew_interval`, a leader that resigns"),
            candidacy::campaign,
            "competes for the lease, renews it, seals the epoch",
            "another node leads",
        ),
        Duty::node(
            "watch_leadership",
            WokenBy("the lease"),
            candidacy::watch_leadership,
            "logs and publishes changes of the leader",
            "–",
        ),
        Duty::node(
            "watch_sessions",
            Every {
                text: "ten times in `worker.stale_after`, at most once a second",
                interval: |node| leader::silence_interval(node.settings.worker.stale_after),
            },
            gateway::watch_sessions,
            "writes that gateway workers are alive, ends silent sessions, loses runs that a worker no longer names, \
             releases runs that wait for no worker",
            "the leader declares the workers dead",
        ),
        Duty::node(
            "receive_runs",
            WokenBy("`job.inbox.{nodeId}`"),
            gateway::receive_runs,
            "puts runs that the leader sent for this node's workers into the inbox, releases those that are recalled",
            "the leader releases the runs",
        ),
        Duty::node(
            "receive_cancellations",
            topics(&["job.cancel"]),
            gateway::receive_cancellations,
            "marks cancelled runs for the next poll or heartbeat of their worker",
            "the worker's report is rejected",
        ),
        Duty::node(
            "publish_hints",
            WokenBy("commits of this node"),
            hints::publish,
            "informs the leader of new work, free slots and the state of the inbox",
            "the leader reads the store every second",
        ),
        Duty::node(
            "receive_node_hints",
            topics(&[
                "cache",
                "interest",
                "job.ended",
                "events",
                "history",
                "coordinator.heartbeat",
                "coordinator.drain",
            ]),
            node_hints::receive_hints,
            "drops what is cached and has changed, wakes waiters, forwards `/v1/events`, keeps the history of other nodes, \
             drains on request",
            "the cache is off, waiters read the store",
        ),
        Duty::node(
            "publish_node_hints",
            WokenBy("changes of this node, `cluster.heartbeat_interval`"),
            node_hints::publish_hints,
            "publishes changes for other nodes' caches and waiters, and which events this node wants",
            "others read the store",
        ),
        Duty::node(
            "receive_worker_heartbeats",
            WokenBy("a list of workers that somebody reads, then `worker.heartbeat`"),
            node_hints::receive_worker_heartbeats,
            "keeps the cached list of workers up to date",
            "the list is read from the store",
        ),
        Duty::node(
            "maintain_shared_cache",
            WokenBy("changes of this node, an outage of `cache.url`"),
            cache::maintain_connection,
            "outdates what nodes share of changed jobs, workers and nodes; finds out whether the shared cache responds",
            "requests bypass the cache",
        ),
        Duty::node(
            "forward_events",
            WokenBy("events of this node while another one wants them"),
            events_forward::forward,
            "publishes events for watchers on other nodes",
            "they receive that events are missing",
        ),
        Duty::node(
            "share_history",
            WokenBy("records of this node, every 10 s"),
            history::share_history,
            "counts jobs for the time series, publishes terms, refused writes and handoffs to other nodes",
            "other nodes do not show them",
        ),
    ]
}

fn of_the_leader() -> Vec<Duty> {
    vec![
        Duty::leader(
            "dispatcher",
            SubscribedTo { topics: &["job.ready", "worker.heartbeat"], also: "hints of this node, every second" },
            leader::dispatcher::run,
            "gives pending jobs to free slots, in one fenced write, then sends them to the inboxes of nodes and to the bus",
            "starts afresh from the store",
        ),
        Duty::leader(
            "promoter",
            SubscribedTo { topics: &["job.ready"], also: "the next due time" },
            leader::promoter::run,
            "makes scheduled jobs pending when they are due",
            "tried again within a second",
        ),
        Duty::leader(
            "scheduler",
            SubscribedTo { topics: &["job.ready"], also: "the next tick" },
            leader::scheduler::run,
            "makes one job for each tick of a schedule",
            "tried again within a second",
        ),
        Duty::leader(
            "timeouts",
            WokenBy("the next deadline, every 250 ms, once a second after a minute without a dispatch"),
            leader::timeouts::run,
            "ends runs whose deadline has passed",
            "tried again within a second",
        ),
        Duty::leader(
            "bus_workers",
            SubscribedTo { topics: &["worker.heartbeat", "job.ready"], also: "ten times in `worker.stale_after`" },
            leader::bus_workers::run,
            "keeps the registry of workers on the bus, ends runs that they no longer name",
            "nobody is declared dead meanwhile",
        ),
        Duty::leader(
            "group_readers",
            WokenBy("hints, while a queue has jobs and no worker"),
            leader::group_readers::run,
            "finds workers on the bus that send no heartbeats, by who reads the queues that have jobs",
            "tried again",
        ),
        Duty::leader(
            "dead_workers",
            Every {
                text: "ten times in `worker.stale_after`, at most once a second",
                interval: |node| leader::silence_interval(node.settings.worker.stale_after),
            },
            leader::dead_workers::run,
            "declares silent workers dead and their runs lost",
            "tried again",
        ),
        Duty::leader(
            "dead_nodes",
            Every {
                text: "six times in `cluster.dead_node_timeout`",
                interval: |node| node.settings.cluster.dead_node_timeout / 6,
            },
            leader::dead_nodes::run,
            "declares silent nodes dead, releases their runs that no worker has and offers the others",
            "tried again",
        ),
        Duty::leader(
            "orphans",
            Every {
                text: "`cluster.orphan_check_interval`",
                interval: |node| node.settings.cluster.orphan_check_interval,
            },
            leader::orphans::run,
            "offers runs that nobody owns",
            "tried again",
        ),
        Duty::leader(
            "reconciler",
            WokenBy("every second, less often under load"),
            leader::reconciler::run,
            "requeues runs that were dispatched and never picked up",
            "tried again",
        ),
        Duty::leader(
            "requeue",
            WokenBy("a queue that was paused, every second"),
            leader::requeue::run,
            "requeues runs of queues that no bus worker serves or that were paused",
            "the reconciler requeues them",
        ),
        Duty::leader(
            "cleanup",
            Every { text: "`channels.scan_interval`", interval: |node| node.settings.channels.scan_interval },
            leader::cleanup::run,
            "closes the channels of finished jobs",
            "tried again",
        ),
        Duty::leader(
            "retention",
            Every {
                text: "a tenth of the shortest retention, at most 30 s",
                interval: |node| leader::retention::interval(&node.settings),
            },
            leader::retention::run,
            "deletes ended jobs and audit entries older than `retention.*`, and unused queues",
            "tried again",
        ),
    ]
}

impl From<Arc<ShardsDuty>> for Duty {
    fn from(shards: Arc<ShardsDuty>) -> Self {
        Duty::of_leader(
            "shards",
            "messages of shard workers",
            "coordinates shards over ZeroMQ",
            move |term, publish_event, record| {
                let shards = shards.clone();
                async move { shards.lead(term, publish_event, record).await }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use async_trait::async_trait;
    use convoke_core::ports::Clock;
    use convoke_core::ports::router::{Router, RouterBinding};
    use convoke_core::{Error, Result};
    use jiff::Timestamp;

    use super::*;
    use crate::jobs::duty::Scope;

    struct Nowhere;

    #[async_trait]
    impl RouterBinding for Nowhere {
        async fn bind(&self) -> Result<Box<dyn Router>> {
            Err(Error::unavailable("socket", "there is none"))
        }
    }

    impl Clock for Nowhere {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
    }

    /// The rows of the table in the documents for these scopes.
    fn table(duties: &[Duty], scopes: &[Scope]) -> String {
        let mut table = "| task | scope | duty | trigger | if it fails |\n| --- | --- | --- | --- | --- |\n".to_owned();
        for duty in duties.iter().filter(|duty| scopes.contains(&duty.scope())) {
            let Duty { name, trigger, does, if_it_fails, .. } = duty;
            let scope = duty.scope().as_str();
            writeln!(table, "| `{name}` | {scope} | {does} | {trigger} | {if_it_fails} |").expect("a string grows");
        }
        table
    }

    #[test]
    fn the_tables_of_the_architecture_are_those_of_the_code() {
        let shards = ShardsDuty::new(Arc::new(Nowhere), Default::default(), false, Arc::new(Nowhere));
        let duties: Vec<Duty> = all().into_iter().chain([Arc::new(shards).into()]).collect();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/architecture.md");
        let page = std::fs::read_to_string(page).expect("the page exists");
        for scopes in [&[Scope::Node, Scope::Competing][..], &[Scope::Leader]] {
            let table = table(&duties, scopes);
            assert!(page.contains(&table), "docs/architecture.md lacks this table:\n\n{table}");
        }
    }

    #[test]
    fn every_duty_has_a_name_of_its_own() {
        let duties = all();
        let names: BTreeSet<&str> = duties.iter().map(|duty| duty.name).collect();
        assert_eq!(names.len(), duties.len());
    }
}
