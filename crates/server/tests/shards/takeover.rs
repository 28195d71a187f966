//! Several coordinators, of which one listens: another takes its place, and nothing moves that need not.

use std::time::Duration;

use convoke_testkit::process::{Node, NodeBuilder, Program, RedisServer, Signal, eventually, wait_for_value};
use serde_json::Value;

const SERVICE: &str = "prices";
const SHARDS: &str = "12";
/// Longer than a takeover takes: who holds shards does not fall silent in between.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// A coordinator that shares leases and an address with others. Its store is its own: it keeps no jobs.
fn coordinator(redis: &RedisServer, id: &str, address: &str) -> NodeBuilder {
    Node::builder(env!("CARGO_BIN_EXE_convoke"))
        .store("memory:")
        .args(["--node-id", id, "--leases", &redis.url(), "--shards", address])
        .set("cluster.lease_duration", "1s")
        .set("cluster.renew_interval", "250ms")
        .set("shards.heartbeat_timeout", &format!("{}ms", HEARTBEAT_TIMEOUT.as_millis()))
        .set("shards.check_interval", "100ms")
}

/// A worker in a process of its own, which gets `address` alone.
fn join(beside: &Node, address: &str, worker: &str, more: &[&str]) -> Program {
    let args =
        ["shards", "join", SERVICE, "--worker-id", worker, "--shards", SHARDS, "--json", "--coordinator", address];
    beside.start_process(worker, args.iter().chain(more))
}

/// The lines of a worker about its shards.
fn changes(worker: &Program) -> Vec<Value> {
    worker.printed().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// How many shards it has, by its last line.
fn has(worker: &Program) -> usize {
    changes(worker).last().and_then(|change| change["shards"].as_array().map(Vec::len)).unwrap_or_default()
}

async fn service(node: &Node) -> Option<Value> {
    let response = node.http().get(&format!("/v1/shards/{SERVICE}")).await.ok()?;
    (response.status == 200).then(|| response.json())
}

/// The number of shards of each active worker, in order of their ids.
async fn loads(node: &Node) -> Vec<usize> {
    let service = service(node).await.unwrap_or_default();
    let workers = service["workers"].as_array().cloned().unwrap_or_default();
    let active = workers.iter().filter(|worker| worker["active"] == true);
    active.map(|worker| worker["shards"].as_array().map_or(0, Vec::len)).collect()
}

#[tokio::test]
async fn another_coordinator_takes_over_with_higher_versions_and_no_shard_moves() {
    let redis = RedisServer::start().await;
    let address = format!("tcp://{}", free_address());
    let mut first = coordinator(&redis, "first", &address).start().await;
    let second = coordinator(&redis, "second", &address).start().await;
    let listening = first.http().read("/v1/shards").await;
    assert_eq!((&listening["coordinator"], &listening["listening"]), (&"first".into(), &address.clone().into()));
    let standby = second.http().read("/v1/shards").await;
    assert_eq!((&standby["coordinator"], &standby["listening"]), (&"first".into(), &Value::Null), "it does not bind");
    let elsewhere = second.http().get("/v1/shards/prices").await.expect("it responds");
    assert!(elsewhere.status == 503 && elsewhere.text().contains("first"), "{}", elsewhere.text());

    let joining = [("a", &[][..]), ("b", &["--handoff"]), ("c", &[])];
    let workers = joining.map(|(id, more)| join(&second, &address, id, more));
    wait_for_value("an even spread", vec![4, 4, 4], || loads(&first)).await;
    let before = service(&first).await.expect("it is there");
    wait_for_value("that each got its shards", true, || async { workers.iter().all(|worker| has(worker) == 4) }).await;
    let received = || workers.iter().map(|worker| changes(worker).len()).collect::<Vec<_>>();
    let received_before = received();

    first.kill().await;
    let after = eventually("that the second has received all three", || async {
        let service = service(&second).await?;
        let workers = service["workers"].as_array()?;
        (workers.len() == 3 && workers.iter().all(|worker| worker["active"] == true)).then_some(service)
    })
    .await;
    let owned = |service: &Value| -> Vec<Value> {
        service["workers"].as_array().expect("workers").iter().map(|worker| worker["shards"].clone()).collect()
    };
    assert_eq!(owned(&after), owned(&before), "each has what it had");
    assert_eq!(received(), received_before, "and did not notice");
    // A worker that joins while nothing may move gets shards once it may.
    let late = join(&second, &address, "d", &[]);
    wait_for_value("an even spread over four", vec![3, 3, 3, 3], || loads(&second)).await;
    let version = |service: &Value| service["version"].as_u64().expect("a number");
    let last = service(&second).await.expect("it is there");
    assert!(version(&last) > version(&before), "{last} after {before}");
    let first_of_late =
        eventually("that the late one got shards", || async { changes(&late).into_iter().next() }).await;
    assert!(first_of_late["version"].as_u64() > before["version"].as_u64());
    for mut worker in workers.into_iter().chain([late]) {
        worker.signal(Signal::TERM);
        assert!(worker.wait().await.success(), "it leaves: {:?}", worker.printed());
    }
    wait_for_value("that nobody is left", Vec::<usize>::new(), || loads(&second)).await;
}

#[tokio::test]
async fn a_coordinator_that_was_restarted_finds_its_workers_again() {
    let redis = RedisServer::start().await;
    let address = format!("tcp://{}", free_address());
    let mut only = coordinator(&redis, "only", &address).start().await;
    let workers = ["a", "b"].map(|id| join(&only, &address, id, &["--handoff"]));
    wait_for_value("an even spread", vec![6, 6], || loads(&only)).await;
    wait_for_value("that both got shards", true, || async { workers.iter().all(|worker| has(worker) == 6) }).await;
    let received = || workers.iter().map(|worker| changes(worker).len()).collect::<Vec<_>>();
    let before = received();
    only.kill().await;
    only.restart().await;
    wait_for_value("the same spread", vec![6, 6], || loads(&only)).await;
    assert_eq!(received(), before, "and nobody noticed");
    // Once nothing is held any more a third is given some.
    let third = join(&only, &address, "c", &[]);
    wait_for_value("an even spread over three", vec![4, 4, 4], || loads(&only)).await;
    wait_for_value("that all got shards", true, || async {
        workers.iter().chain([&third]).all(|worker| has(worker) == 4)
    })
    .await;
}

#[tokio::test]
async fn epochs_and_versions_rise_also_where_all_that_knew_them_is_gone() {
    let mut redis = RedisServer::start().await;
    let (mut epoch, mut version) = (0, 0);
    for round in 0..2 {
        let address = format!("tcp://{}", free_address());
        let mut only = coordinator(&redis, "only", &address).start().await;
        let worker = join(&only, &address, &format!("w-{round}"), &[]);
        wait_for_value("that it has all", 12, || async { has(&worker) }).await;
        let now = only.http().read("/v1/cluster").await["epoch"].as_u64().expect("a number");
        assert!(now > epoch, "epoch {now} after {epoch}");
        let given = changes(&worker).last().and_then(|change| change["version"].as_u64()).expect("a version");
        assert!(given > version, "version {given} after {version}");
        (epoch, version) = (now, given);
        only.kill().await;
        redis.restart_empty().await;
    }
}

fn free_address() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound")
}
