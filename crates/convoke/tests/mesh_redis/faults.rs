use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke::mesh::MeshAddress;
use convoke::{InstanceId, Mesh, MeshError};
use convoke_testkit::process::{RedisSentinel, RedisServer, eventually, wait_for_value};
use parking_lot::Mutex;

use crate::stage::*;

async fn listed(mesh: &Mesh) -> Vec<(u64, String)> {
    let nodes = mesh.nodes().await.unwrap_or_default();
    nodes.into_iter().map(|node| (node.instance_id.0, node.hostname)).collect()
}

/// Waits until a call from one to the other gets its reply.
async fn reaches(from: &Mesh, to: &Mesh) {
    let call = async || from.invoke(to.instance_id(), Echo(7)).await.ok();
    assert_eq!(eventually("a reply to a call", call).await, 7);
}

#[tokio::test]
async fn a_redis_that_was_emptied_knows_everybody_again_by_name() {
    let mut server = RedisServer::start().await;
    let (a, b) = (start(&server).await, start(&server).await);
    let before = listed(&a).await;
    assert_eq!(before.len(), 2);
    server.restart_empty().await;
    wait_for_value("both are listed with their host names", before, async || listed(&a).await).await;
    reaches(&a, &b).await;
    reaches(&b, &a).await;
    let c = start(&server).await;
    assert_eq!(c.instance_id(), InstanceId(3), "the counter was lost, the numbers were not");
}

#[tokio::test]
async fn who_joins_an_emptied_redis_first_is_given_nobodys_number() {
    let mut server = RedisServer::start().await;
    let (a, b) = (start(&server).await, start(&server).await);
    server.restart_empty().await;
    let mut probe = probe(&server).await;
    // They listen again, and their heartbeats are lost once more.
    for mesh in [&a, &b] {
        reaches(mesh, mesh).await;
        wait_for_value("it listens", vec![1], async || listeners(&mut probe.clone(), &[mesh.instance_id()]).await)
            .await;
    }
    let _: () = redis::cmd("FLUSHALL").query_async(&mut probe).await.expect("empties");
    assert_eq!(start(&server).await.instance_id(), InstanceId(3));
}

#[tokio::test]
async fn who_came_back_to_find_its_number_given_to_another_takes_a_new_one() {
    let mut server = RedisServer::start().await;
    let (a, b) = (start(&server).await, start(&server).await);
    // Away for so long that they try again only now and then, and others are there first.
    server.kill().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.restart_empty().await;
    let (c, d) = (start(&server).await, start(&server).await);
    let all = [&a, &b, &c, &d];
    let numbers = async || {
        let mut numbers: Vec<_> = all.iter().map(|mesh| mesh.instance_id().0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let is_listed = listed(&a).await.iter().map(|(id, _)| *id).eq(numbers.iter().copied());
        (numbers.len() == 4 && is_listed).then_some(())
    };
    eventually("each has a number of its own, and is listed by it", numbers).await;
    for (from, to) in all.into_iter().zip([&b, &c, &d, &a]) {
        reaches(from, to).await;
    }
}

#[tokio::test]
async fn who_is_told_that_its_number_is_anothers_joins_anew_and_goes_on() {
    let server = RedisServer::start().await;
    let (a, b) = (start(&server).await, start(&server).await);
    let mut loss = redis::pipe();
    loss.atomic().cmd("FLUSHALL").cmd("SET").arg(format!("app:mesh:{KEY}:bearer:1")).arg("another");
    let _: () = loss.query_async(&mut probe(&server).await).await.expect("empties");
    let renewed = async || (a.instance_id() > b.instance_id()).then_some(());
    eventually("it has a number that it did not have", renewed).await;
    assert_eq!(b.instance_id(), InstanceId(2), "nobody took this one");
    reaches(&a, &b).await;
    reaches(&b, &a).await;
}

#[tokio::test]
async fn who_lived_through_an_outage_is_not_taken_for_gone() {
    let mut server = RedisServer::builder().args(["--appendonly", "yes"]).start().await;
    let gone: Arc<Mutex<Vec<InstanceId>>> = Arc::default();
    let member = async || {
        let gone = gone.clone();
        start(&server).await.on_node_gone(move |id| {
            gone.lock().push(id);
            async {}
        })
    };
    let mut all = vec![member().await, member().await, member().await, member().await];
    eventually("one leads", async || all.iter().position(Mesh::is_leader)).await;
    server.kill().await;
    // Longer than an instance may be silent.
    tokio::time::sleep(quick().node_ttl + Duration::from_millis(500)).await;
    server.restart().await;
    wait_for_value("all are there", 4, async || listed(&all[0]).await.len()).await;
    let leader = eventually("one leads", async || all.iter().position(Mesh::is_leader)).await;
    // An instance that would wrongly be considered gone is so by the time that the really missing one is.
    let victim = all.remove((leader + 1) % 4);
    let killed = victim.instance_id();
    drop(victim);
    wait_for_value("one is gone, and no other", vec![killed], async || gone.lock().clone()).await;
}

#[tokio::test]
async fn lost_connections_are_made_anew_and_calls_go_on() {
    let server = RedisServer::start().await;
    let mut probe = probe(&server).await;
    let (a, b) = (start(&server).await, start(&server).await);
    for _ in 0..5 {
        drop_connections(&mut probe).await;
        reaches(&a, &b).await;
        reaches(&b, &a).await;
    }
    assert_eq!(a.calls_open() + b.calls_open(), 0);
}

#[tokio::test]
async fn calls_in_flight_when_connections_drop_end_and_run_once() {
    let server = RedisServer::start().await;
    let mut probe = probe(&server).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let b = start(&server).await.on(move |Sleep { ms }| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(())
        }
    });
    let a = start(&server).await;
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let (a, to) = (a.clone(), b.instance_id());
            tokio::spawn(async move { a.invoke(to, Sleep { ms: 500 }).await })
        })
        .collect();
    eventually("all run", async || (runs.load(Ordering::Relaxed) == 100).then_some(())).await;
    drop_connections(&mut probe).await;
    for call in calls {
        match call.await.expect("no panic") {
            Ok(()) | Err(MeshError::RequestTimeout { .. } | MeshError::Unavailable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(runs.load(Ordering::Relaxed), 100, "none ran twice");
    wait_for_value("nothing is left", (0, 0), async || (a.calls_open(), b.handlers_running())).await;
}

#[tokio::test]
async fn a_call_while_redis_is_away_fails_by_name_and_works_when_it_is_back() {
    let mut server = RedisServer::start().await;
    let (a, b) = (start(&server).await, start(&server).await);
    server.kill().await;
    // The first may have been sent on a connection that was breaking: it is unknown whether it arrived.
    let call = async || match a.invoke(b.instance_id(), Echo(1)).await {
        Err(MeshError::Unavailable { instance, what, .. }) => Some((instance, what)),
        Err(MeshError::RequestTimeout { .. }) => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(eventually("the error that Redis is unavailable", call).await, (b.instance_id(), "echo".to_owned()));
    assert_eq!(a.calls_open(), 0);
    assert_eq!(a.invoke(a.instance_id(), Echo(1)).await.expect("a local call needs no Redis"), 1);
    server.restart().await;
    reaches(&a, &b).await;
}

#[tokio::test]
async fn a_redis_that_hangs_does_not_hang_a_call() {
    let server = RedisServer::start().await;
    let (a, b) = (start(&server).await, start(&server).await);
    server.pause();
    let error = a.invoke(b.instance_id(), Echo(1)).await.expect_err("Redis does not respond");
    assert!(matches!(error, MeshError::RequestTimeout { .. } | MeshError::Unavailable { .. }), "{error}");
    server.resume();
    reaches(&a, &b).await;
    assert_eq!(a.calls_open(), 0);
}

#[tokio::test]
async fn a_mesh_speaks_tls_and_follows_a_sentinel_to_the_new_master() {
    let server = RedisServer::builder().tls().start().await;
    let (a, b) = (start(&server).await, start(&server).await);
    reaches(&a, &b).await;
    let mut master = RedisServer::start().await;
    let port = master.port().to_string();
    let _replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start().await;
    let sentinel = RedisSentinel::watch(&master).await;
    let address = MeshAddress::new(sentinel.url());
    let by_sentinel = async || {
        let mesh = Mesh::at(&address, KEY).await.expect("connects").settings(quick());
        mesh.on(|Echo(n)| async move { Ok(n) }).start().await.expect("starts")
    };
    let (c, d) = (by_sentinel().await, by_sentinel().await);
    reaches(&d, &c).await;
    master.kill().await;
    reaches(&d, &c).await;
    wait_for_value("both are on the new master", 2, async || listed(&c).await.len()).await;
}
