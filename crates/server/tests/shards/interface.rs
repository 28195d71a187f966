//! The interfaces of shards: the command line, HTTP, events, settings.

use std::time::Duration;

use convoke::connect::ZmqKeys;
use convoke_testkit::process::{Node, Signal, wait_for_value};
use serde_json::{Value, json};

use super::stage::Stage;

fn address_of(listening: &Value) -> &str {
    listening["listening"].as_str().expect("it listens")
}

#[tokio::test]
async fn the_command_line_joins_shows_and_leaves_and_watchers_are_told() {
    let node = Node::builder(env!("CARGO_BIN_EXE_convoke"))
        .store("memory:")
        .args(["--shards", "tcp://127.0.0.1:0"])
        .start()
        .await;
    let mut events = node.http().sse("/v1/events?types=shards").await.expect("a stream");
    let shards = node.http().read("/v1/shards").await;
    let address = address_of(&shards);
    assert_eq!(shards["services"], json!([]));
    let join = |worker: &str| {
        let args = ["shards", "join", "s", "--worker-id", worker, "--shards", "10", "--json", "--coordinator", address];
        node.start_process(worker, args)
    };
    let (mut a, mut b) = (join("a"), join("b"));
    let counts = || async {
        let service = node.http().get("/v1/shards/s").await.expect("it responds").json();
        let workers = service["workers"].as_array().cloned().unwrap_or_default();
        workers.iter().map(|worker| worker["shards"].as_array().map_or(0, Vec::len)).collect::<Vec<_>>()
    };
    wait_for_value("five each", vec![5, 5], counts).await;
    let received =
        events.wait_for("a rebalance", |event| event.event.as_deref() == Some("shards:rebalanced")).await.json();
    assert_eq!(received["service"], "s");
    assert!(received["version"].is_u64() && received["moved"].is_u64() && received["at"].is_string(), "{received}");

    let all = node.cli().run(["shards", "status"]).await;
    assert!(all.expect(0).contains("2/2"), "{}", all.expect(0));
    let one = node.cli().run(["shards", "status", "s"]).await;
    assert!(one.expect(0).contains("0-4") && one.expect(0).contains("5-9"), "{}", one.expect(0));
    let json = node.cli().run(["shards", "status", "s", "--json"]).await.json();
    assert_eq!((&json["maxShardCount"], &json["strategy"]), (&json!(10), &json!("contiguous")));
    let none = node.cli().run(["shards", "status", "nobody"]).await;
    none.expect(1);
    assert_eq!(node.metric("convoke_shard_workers", &[r#"service="s""#]).await, 2.0);

    a.signal(Signal::TERM);
    assert!(a.wait().await.success(), "{:?}", a.printed());
    wait_for_value("all of them", vec![10], counts).await;
    b.kill().await;
    assert!(b.printed().iter().any(|line| line.contains(r#""removed":[]"#)));
}

#[tokio::test]
async fn keys_and_passwords_are_asked_for_and_who_has_none_is_not_heard() {
    let made = Node::builder(env!("CARGO_BIN_EXE_convoke")).cli().run(["shards", "keys", "--json"]).await.json();
    let secret = made["secretKey"].as_str().expect("a key");
    let keys = ZmqKeys::from_secret(secret).expect("a key");
    assert_eq!(made["publicKey"], keys.public_z85());
    let node = Node::builder(env!("CARGO_BIN_EXE_convoke"))
        .store("memory:")
        .args(["--shards", "tcp://127.0.0.1:0"])
        .set("shards.curve", secret)
        .start()
        .await;
    let shards = node.http().read("/v1/shards").await;
    let address = address_of(&shards);
    let join = |worker: &str, more: &[&str]| {
        let args = ["shards", "join", "s", "--worker-id", worker, "--shards", "4", "--json", "--coordinator", address];
        node.start_process(worker, args.iter().chain(more))
    };
    let public = keys.public_z85();
    let (_open, _other, mut right) = (
        join("open", &[]),
        join("other", &["--curve-server-key", &ZmqKeys::generate().public_z85()]),
        join("right", &["--curve-server-key", &public]),
    );
    right.line("its shards", |line| line.contains("[0,1,2,3]").then_some(())).await.expect("it runs");
    let service = node.http().read("/v1/shards/s").await;
    let names: Vec<_> = service["workers"].as_array().expect("workers").iter().map(|it| &it["workerId"]).collect();
    assert_eq!(names, ["right"]);
}

#[tokio::test]
async fn the_original_s_variables_are_heeded_and_a_taken_address_stops_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let builder = || {
        Node::builder(env!("CARGO_BIN_EXE_convoke"))
            .store("memory:")
            .env("SHARD_COORDINATOR_BIND_HOST", "tcp://127.0.0.1")
            .env("SHARD_COORDINATOR_BIND_PORT", &port)
            .env("HEARTBEAT_TIMEOUT_SECONDS", "2")
            .env("HEARTBEAT_CHECK_INTERVAL_SECONDS", "1")
    };
    let mut refused = builder().spawn();
    assert_eq!(refused.wait().await.code(), Some(1), "{:?}", refused.printed());
    drop(taken);
    let node = builder().start().await;
    assert_eq!(address_of(&node.http().read("/v1/shards").await), format!("tcp://127.0.0.1:{port}"));
    let health = node.http().read("/health").await;
    assert!(health["checks"].as_array().expect("checks").contains(&json!({"component": "Shards", "isHealthy": true})));
}

#[tokio::test]
async fn a_silent_worker_s_shards_go_to_the_others() {
    let stage = Stage::start("rendezvous", Duration::from_millis(600), Duration::from_millis(50)).await;
    let connect = |worker: &'static str| convoke::ShardWorker::connect(stage.address(), "s", worker, 20);
    let (one, two) = (connect("one").await.expect("an address"), connect("two").await.expect("an address"));
    let shared = || async { (one.shards().len() + two.shards().len(), two.shards().is_empty()) };
    wait_for_value("all twenty, shared by both", (20, false), shared).await;
    drop(two);
    wait_for_value("all twenty by one", 20, || async { one.shards().len() }).await;
}
