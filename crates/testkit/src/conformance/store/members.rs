//! Workers and nodes.

use convoke_core::jobs::wire::{NodeRole, NodeState, WorkerState};
use convoke_core::ports::Store;
use convoke_core::ports::store::{NodeRecord, WorkerRecord};

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
        job_count: 4,
        started_at: at(1),
        last_heartbeat_at: at(2),
        version: "0.1.0".into(),
    }
}

pub async fn workers_are_kept_by_id(store: &dyn Store) {
    assert!(store.workers().await.expect("workers").is_empty());
    store.beat_workers(&[worker_record("b"), worker_record("a")]).await.expect("beat");
    assert_eq!(store.workers().await.expect("workers"), [worker_record("a"), worker_record("b")]);
    let later = WorkerRecord {
        running: 0,
        state: WorkerState::Draining,
        last_heartbeat_at: at(9),
        via: None,
        queues: vec![],
        ..worker_record("b")
    };
    store.beat_workers(std::slice::from_ref(&later)).await.expect("beat");
    assert_eq!(store.worker(&worker("b")).await.expect("worker"), Some(later.clone()));
    assert_eq!(store.worker(&worker("c")).await.expect("worker"), None);
    store.remove_workers(None, &[worker("a"), worker("c")]).await.expect("remove");
    assert_eq!(store.workers().await.expect("workers"), [later]);
}

pub async fn nodes_are_kept_by_id(store: &dyn Store) {
    assert!(store.nodes().await.expect("nodes").is_empty());
    store.beat_node(node_record("b")).await.expect("beat");
    store.beat_node(node_record("a")).await.expect("beat");
    let later = NodeRecord {
        role: NodeRole::Follower,
        state: NodeState::Draining,
        job_count: 9,
        last_heartbeat_at: at(7),
        ..node_record("b")
    };
    store.beat_node(later.clone()).await.expect("beat");
    assert_eq!(store.nodes().await.expect("nodes"), [node_record("a"), later.clone()]);
    store.remove_node(None, &node("a")).await.expect("remove");
    store.remove_node(None, &node("c")).await.expect("not an error");
    assert_eq!(store.nodes().await.expect("nodes"), [later]);
}
