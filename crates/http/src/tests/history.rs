//! The recent past: terms, refused writes, handoffs, rebalances and the time series.

use std::time::Duration;

use convoke_core::history::{
    Bucket, Counts, DrainRecord, FenceKind, HandoffRecord, HistoryMessage, Record, RefusedWrite, Slots, SlowRenewal,
    TermEnd, TermRecord,
};
use convoke_core::jobs::handoff::AckCase;
use convoke_core::jobs::wire::{HandoffReason, V1};
use convoke_core::{Epoch, ExecutionId, JobId, NodeId, QueueName};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::cluster::until;
use super::{World, in_time, ports};
use crate::Access;

/// A term, a refused write, a handoff, a drain and a step of the time series, with a value in every field.
pub fn records_of_another_node(now: Timestamp) -> HistoryMessage {
    records_of("node-2", now)
}

/// The same, of a node with any name.
pub fn records_of(node: &str, now: Timestamp) -> HistoryMessage {
    let node = NodeId::new(node).expect("a name");
    let (job_id, execution_id) = (JobId(Uuid::from_u128(1)), ExecutionId(Uuid::from_u128(2)));
    let slow = SlowRenewal { at: now, duration: Duration::from_secs(9), expected: Duration::from_secs(3) };
    let term = TermRecord {
        epoch: Epoch(1 << 40),
        node: node.clone(),
        began_at: now,
        ended_at: Some(now),
        ended_by: Some(TermEnd::Fenced),
        slow_renewals: vec![slow],
        reported: true,
    };
    let refused = RefusedWrite {
        at: now,
        node: node.clone(),
        fence: FenceKind::Leader,
        what: "dispatch".into(),
        by: node.to_string(),
        number: "7".into(),
        against: Some("8".into()),
        job_id: Some(job_id),
    };
    let handoff = HandoffRecord {
        at: now,
        job_id,
        execution_id,
        from_node: node.clone(),
        to_node: Some(NodeId::new("node-1").expect("a name")),
        reason: HandoffReason::Shutdown,
        case: Some(AckCase::OfferedAgain),
        tries: Some(2),
        duration: Some(Duration::from_millis(5_030)),
    };
    let drain =
        DrainRecord { node: node.clone(), began_at: now, at: now, runs: 3, open: 0, orphans: 0, ended_at: Some(now) };
    let counts = Counts { enqueued: 5, started: 4, completed: 3, failed: 2, dead: 1 };
    let bucket = Bucket {
        step: Bucket::step_of(now) - 2,
        refused: 1,
        slots: Some(Slots { busy: 1, free: 2 }),
        queues: [(QueueName::new("elsewhere").expect("a name"), counts)].into(),
        other: Counts::default(),
    };
    let records = vec![
        Record::Term(term),
        Record::Refused(refused),
        Record::Handoff(handoff),
        Record::Drain(drain),
        Record::Bucket { node: node.clone(), bucket },
    ];
    HistoryMessage { v: V1, node_id: node, asks: false, since: None, records }
}

#[tokio::test]
async fn the_term_of_the_leader_is_shown_while_it_lasts() {
    let world = World::new().await;
    let terms = until(&world, "/v1/cluster/terms", |terms| terms["terms"][0].is_object()).await;
    let (leader, epoch) = (&terms["terms"][0]["node"], &terms["terms"][0]["epoch"]);
    let cluster = world.get("/v1/cluster").await.body;
    assert_eq!((leader, epoch), (&cluster["leader"], &cluster["epoch"]));
    assert_eq!(terms["terms"][0]["endedAt"], json!(null));
    assert_eq!(cluster["nodes"][0]["believes"]["leader"], cluster["leader"]);
}

#[tokio::test]
async fn records_of_other_nodes_are_shown_and_outlive_them() {
    let ports = ports();
    let world = World::node("node-1", ports.clone(), Access::Insecure).await;
    let message = convoke_core::jobs::wire::encode(&records_of_another_node(ports.clock.now()));
    let is_shown = |terms: &Value| terms["terms"][0]["node"] == "node-2";
    let shown = async {
        // It may not have subscribed yet.
        while !is_shown(&world.get("/v1/cluster/terms").await.body) {
            ports.bus.publish("convoke.history", message.clone()).await.expect("published");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("the records of another node", shown).await;
    let terms = world.get("/v1/cluster/terms").await.body;
    assert_eq!(terms["terms"][0]["endedBy"], "fenced");
    assert_eq!(terms["terms"][0]["slowRenewals"][0]["duration"], "9s");
    let refusals = world.get("/v1/cluster/refusals").await.body;
    assert_eq!(refusals["refusals"][0]["number"], "7");
    let handoffs = world.get("/v1/cluster/handoffs").await.body;
    assert_eq!(handoffs["handoffs"][0]["case"], "offeredAgain");
    assert_eq!(handoffs["drains"][0]["node"], "node-2");
    let series = world.get("/v1/timeseries?queue=elsewhere").await.body;
    let sum: u64 = series["points"].as_array().expect("points").iter().filter_map(|it| it["completed"].as_u64()).sum();
    assert_eq!((sum, series["points"].as_array().map(Vec::len)), (3, Some(360)));
    assert_eq!(world.get("/v1/timeseries?window=30s").await.body["points"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_window_that_is_not_kept_is_rejected() {
    let world = World::new().await;
    for query in ["window=2h", "window=0s", "window=x", "limit=5", "queue="] {
        let status = world.get(&format!("/v1/timeseries?{query}")).await.status.as_u16();
        assert_eq!(status, if query == "queue=" { 200 } else { 400 }, "{query}");
    }
    for query in ["limit=0", "limit=1001", "x=1"] {
        assert_eq!(world.get(&format!("/v1/cluster/terms?{query}")).await.status.as_u16(), 400, "{query}");
    }
}
