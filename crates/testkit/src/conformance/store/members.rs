//! Workers and nodes, and the roster of shard workers.

use convoke_core::ServiceName;
use convoke_core::jobs::wire::{NodeRole, NodeState, WorkerState};
use convoke_core::ports::Store;
use convoke_core::ports::store::{NodeRecord, WorkerRecord};
use convoke_core::shards::{RosterChange, ShardMember};

use super::stage::*;

pub fn worker_record(name: &str) -> WorkerRecord {
    WorkerRecord {
        worker_id: worker(name),
        name: format!("worker {name}"),
        queues: vec![queue("b"), queue("a")],
        concurrency: 10,
        running: 3,
        state: WorkerState::Active,
        registered_at: at(1),
        last_heartbeat_at: at(2),
        via: Some(node("n")),
    }
}

pub fn node_record(name: &str) -> NodeRecord {
    NodeRecord {
        node_id: node(name),
        role: NodeRole::Leader,
        state: NodeState::Active,
        since: at(1),
        job_count: 4,
        started_at: at(1),
        last_heartbeat_at: at(2),
        version: "0.1.0".into(),
    }
}

/// Adds and removes workers, by service and worker.
pub fn roster_change(add: &[(&str, &str)], remove: &[(&str, &str)]) -> RosterChange {
    let member = |(service, worker_name): &(&str, &str)| ShardMember {
        service: ServiceName::new(service).expect("a name"),
        worker: worker(worker_name),
    };
    RosterChange { add: add.iter().map(member).collect(), remove: remove.iter().map(member).collect() }
}

pub async fn workers_are_kept_by_id(store: &dyn Store) {
    assert!(store.workers().await.expect("workers").is_empty());
    store.record_worker_heartbeats(&[worker_record("b"), worker_record("a")]).await.expect("a heartbeat");
    assert_eq!(store.workers().await.expect("workers"), [worker_record("a"), worker_record("b")]);
    let later = WorkerRecord {
        running: 0,
        state: WorkerState::Draining,
        last_heartbeat_at: at(9),
        via: None,
        queues: vec![],
        ..worker_record("b")
    };
    store.record_worker_heartbeats(std::slice::from_ref(&later)).await.expect("a heartbeat");
    assert_eq!(store.worker(&worker("b")).await.expect("worker"), Some(later.clone()));
    assert_eq!(store.worker(&worker("c")).await.expect("worker"), None);
    store.remove_workers(None, &[worker("a"), worker("c")]).await.expect("remove");
    assert_eq!(store.workers().await.expect("workers"), [later]);
}

pub async fn nodes_are_kept_by_id(store: &dyn Store) {
    assert!(store.nodes().await.expect("nodes").is_empty());
    store.record_node_heartbeat(node_record("b")).await.expect("a heartbeat");
    store.record_node_heartbeat(node_record("a")).await.expect("a heartbeat");
    let later = NodeRecord {
        role: NodeRole::Follower,
        state: NodeState::Draining,
        since: at(6),
        job_count: 9,
        last_heartbeat_at: at(7),
        ..node_record("b")
    };
    store.record_node_heartbeat(later.clone()).await.expect("a heartbeat");
    assert_eq!(store.nodes().await.expect("nodes"), [node_record("a"), later.clone()]);
    store.retire_node(None, &node("c"), NodeState::Left, at(8)).await.expect("not an error");
    assert_eq!(store.nodes().await.expect("nodes"), [node_record("a"), later]);
}

pub async fn a_node_that_is_gone_is_listed_until_it_is_forgotten_or_comes_back(store: &dyn Store) {
    let fence = Stage::new(store).await.fence;
    for name in ["a", "b", "c", "d"] {
        store.record_node_heartbeat(node_record(name)).await.expect("a heartbeat");
    }
    store.retire_node(None, &node("a"), NodeState::Left, at(7)).await.expect("retire");
    store.retire_node(Some(fence), &node("b"), NodeState::Dead, at(8)).await.expect("retire");
    store.retire_node(Some(fence), &node("c"), NodeState::Dead, at(8)).await.expect("retire");
    let gone =
        |name, state, second| NodeRecord { role: NodeRole::Follower, state, since: at(second), ..node_record(name) };
    let expected =
        [gone("a", NodeState::Left, 7), gone("b", NodeState::Dead, 8), gone("c", NodeState::Dead, 8), node_record("d")];
    assert_eq!(store.nodes().await.expect("nodes"), expected);
    store.record_node_heartbeat(node_record("c")).await.expect("it comes back");
    store.forget_nodes(fence, &["a", "b", "c", "d", "e"].map(node)).await.expect("forget");
    assert_eq!(store.nodes().await.expect("nodes"), [node_record("c"), node_record("d")]);
}

pub async fn the_roster_of_shard_workers_is_a_set_of_rows(store: &dyn Store) {
    let stage = Stage::new(store).await;
    assert!(store.shard_roster().await.expect("roster").is_empty());
    let change = roster_change(&[("t", "a"), ("s", "b"), ("s", "ä 1"), ("s", "B")], &[]);
    store.change_shard_roster(stage.fence, &change).await.expect("change");
    // A row that is there is not added again, one that is not there need not be removed.
    let again = roster_change(&[("s", "b"), ("s", "a")], &[("t", "a"), ("t", "b")]);
    store.change_shard_roster(stage.fence, &again).await.expect("change");
    let expected = roster_change(&[("s", "B"), ("s", "a"), ("s", "b"), ("s", "ä 1")], &[]);
    assert_eq!(store.shard_roster().await.expect("roster"), expected.add);
    store.change_shard_roster(stage.fence, &roster_change(&[], &[])).await.expect("nothing is a change too");
    assert_eq!(store.shard_roster().await.expect("roster").len(), 4);
}
