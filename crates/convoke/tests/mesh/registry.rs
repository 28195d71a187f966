use std::time::Duration;

use convoke::mesh::MeshSettings;
use convoke::{InstanceId, Mesh};
use tokio::sync::mpsc;

use crate::stage::*;

async fn ids(mesh: &Mesh) -> Vec<(u64, bool)> {
    let nodes = mesh.nodes().await.expect("nodes");
    assert!(nodes.iter().all(|node| !node.hostname.is_empty()));
    nodes.into_iter().map(|node| (node.instance_id.0, node.is_self)).collect()
}

#[tokio::test(start_paused = true)]
async fn those_who_live_are_listed_and_those_who_stopped_are_not() {
    let key = new_key();
    let idle = idle(&key).await;
    assert!(ids(&idle).await.is_empty());
    let (a, b) = (start(&key).await, start(&key).await);
    assert_eq!(ids(&idle).await, [(1, false), (2, false)], "without having joined");
    assert_eq!(ids(&b).await, [(1, false), (2, true)]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(ids(&a).await, [(1, true), (2, false)], "their heartbeats keep them listed");
    b.stop().await;
    assert_eq!(ids(&a).await, [(1, true)]);
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_tells_of_those_that_are_gone() {
    let key = new_key();
    let (reported, mut telling) = mpsc::unbounded_channel();
    let record = |mesh: Mesh, who: &'static str| {
        let reported = reported.clone();
        mesh.on_node_gone(move |id| {
            let _ = reported.send((who, id));
            async {}
        })
    };
    let (a, b, c) = (record(start(&key).await, "a"), record(start(&key).await, "b"), start(&key).await);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(a.is_leader() && !b.is_leader() && !c.is_leader());
    // Dropped without a stop: as good as killed.
    drop(c);
    assert_eq!(telling.recv().await, Some(("a", InstanceId(3))));
    a.stop().await;
    assert!(!a.is_leader());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let d = start(&key).await;
    assert!(b.is_leader(), "the lock was released");
    drop(d);
    assert_eq!(telling.recv().await, Some(("b", InstanceId(4))));
    assert!(telling.is_empty(), "whoever stops is not gone");
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_keeps_nobody_from_being_told_of() {
    let key = new_key();
    let (reported, mut telling) = mpsc::unbounded_channel();
    let a = start(&key).await.on_node_gone(move |id| {
        let _ = reported.send(id);
        async move { assert_ne!(id, InstanceId(2), "as planned") }
    });
    let (b, c) = (start(&key).await, start(&key).await);
    drop((b, c));
    let mut gone = [telling.recv().await, telling.recv().await].map(|id| id.expect("received").0);
    gone.sort_unstable();
    assert_eq!(gone, [2, 3]);
    assert!(a.is_leader());
}

#[tokio::test(start_paused = true)]
async fn the_next_leads_when_the_leader_is_gone() {
    let key = new_key();
    let quick = MeshSettings {
        leader_ttl: Duration::from_millis(300),
        leader_renew_interval: Duration::from_millis(100),
        leader_retry_delay: Duration::from_millis(50),
        ..MeshSettings::default()
    };
    let (a, b) = (start_with(&key, quick.clone()).await, start_with(&key, quick).await);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(a.is_leader() && !b.is_leader());
    drop(a);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(b.is_leader());
}
