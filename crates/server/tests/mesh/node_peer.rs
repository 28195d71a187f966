//! The existing system's protocol, with a client of its own kind: both ways, errors, heartbeats, cleanup, broadcasts.

use std::path::PathBuf;
use std::time::Duration;

use convoke::mesh::{MeshAddress, MeshSettings};
use convoke::{Broadcast, InstanceId, Mesh, MeshError, Request};
use convoke_testkit::process::{Launch, Program, RedisServer, eventually, skip_loudly};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::peer::{self, Peer};

const KEY: &str = "my-app";

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Echo(Value);

impl Request for Echo {
    const TYPE: &'static str = "echo";
    type Response = Value;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sleep {
    ms: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Slept {
    slept: u64,
}

impl Request for Sleep {
    const TYPE: &'static str = "sleep";
    type Response = Slept;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fail {
    message: String,
}

impl Request for Fail {
    const TYPE: &'static str = "fail";
    type Response = ();
}

/// The peer's reply to it has no data at all.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Nothing {}

impl Request for Nothing {
    const TYPE: &'static str = "nothing";
    type Response = ();
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Unknown {}

impl Request for Unknown {
    const TYPE: &'static str = "unknown";
    type Response = ();
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Clear {
    keys: Vec<String>,
}

impl Broadcast for Clear {
    const TYPE: &'static str = "clear";
}

struct Stage {
    redis: RedisServer,
    directory: PathBuf,
}

impl Stage {
    /// `None`, with a message, if Node.js is not installed.
    async fn set(test: &str) -> Option<Stage> {
        let Some(directory) = peer::installed().await else {
            skip_loudly(test, "there is no node or no npm on this machine");
            return None;
        };
        Some(Stage { redis: RedisServer::start().await, directory })
    }

    async fn peer(&self, options: Value) -> Peer {
        Peer::start(&self.directory, self.redis.port(), KEY, options).await
    }

    async fn ours(&self) -> Mesh {
        self.ours_with(MeshSettings::default()).await
    }

    async fn ours_with(&self, settings: MeshSettings) -> Mesh {
        let mesh = Mesh::at(&MeshAddress::new(self.redis.url()), KEY).await.expect("connects").settings(settings);
        let mesh = mesh
            .on(|Echo(value)| async move { Ok(value) })
            .on(|Sleep { ms }| async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(Slept { slept: ms })
            })
            .on(|Fail { message }| async move { Err(message.into()) })
            .on(|_: Nothing| async move { Ok(()) });
        mesh.start().await.expect("starts")
    }

    /// One of ours in a process of its own, and its number.
    async fn process(&self) -> (Program, u64) {
        let times = quick();
        let set = |key: &str, value: Duration| (format!("CONVOKE_MESH__{key}"), format!("{}ms", value.as_millis()));
        let mut program = Program::start(&Launch {
            name: "convoke mesh serve".into(),
            binary: env!("CARGO_BIN_EXE_convoke").into(),
            // The directory has a package.json, whose name would be the prefix.
            args: ["mesh", "serve", KEY, "--prefix", "app", "--redis", &self.redis.url()].map(Into::into).into(),
            env: vec![set("HEARTBEAT_INTERVAL", times.heartbeat_interval), set("NODE_TTL", times.node_ttl)],
            directory: self.directory.clone(),
        });
        let number = |line: &str| line.strip_prefix("instance ")?.split(' ').next()?.parse().ok();
        let number = program.line("that it is ready", number).await.expect("it gets ready");
        (program, number)
    }

    /// One of ours and one of theirs.
    async fn pair(&self) -> (Mesh, Peer) {
        (self.ours().await, self.peer(json!({})).await)
    }
}

/// A short life, for tests that wait for one to end.
fn quick() -> MeshSettings {
    MeshSettings {
        heartbeat_interval: Duration::from_millis(100),
        // Long beside the heartbeats: on a busy machine those who live must not be taken for dead.
        node_ttl: Duration::from_secs(2),
        leader_ttl: Duration::from_millis(900),
        leader_renew_interval: Duration::from_millis(200),
        leader_retry_delay: Duration::from_millis(100),
        ..MeshSettings::default()
    }
}

fn quick_peer() -> Value {
    json!({"heartbeatIntervalMs": 100, "nodeTtlMs": 2_000, "leaderTtlMs": 900, "leaderRenewMs": 200, "leaderRetryMs": 100})
}

#[tokio::test]
async fn calls_are_answered_both_ways() {
    let Some(stage) = Stage::set("calls_are_answered_both_ways").await else { return };
    let (ours, peer) = stage.pair().await;
    assert_eq!((ours.instance_id(), peer.id), (InstanceId(1), 2));
    let values =
        [json!(null), json!(0.5), json!({"a": [1, "ü\u{1f600}\u{0}\"\\\n"], "b": {}}), json!("x".repeat(500_000))];
    for value in values {
        assert_eq!(ours.invoke(InstanceId(peer.id), Echo(value.clone())).await.expect("the peer responds"), value);
        assert_eq!(peer.invoke(1, "echo", value.clone()).await["ok"], value);
    }
    ours.invoke(InstanceId(peer.id), Nothing {}).await.expect("no data is nothing");
    assert_eq!(peer.invoke(1, "nothing", json!({})).await["ok"], Value::Null);
    // The fields that ours adds to a request do not disturb theirs.
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().expect("a trace");
    let options = convoke::mesh::CallOptions { epoch: Some(convoke::Epoch(7)), ..Default::default() };
    let call = ours.invoke_with(InstanceId(peer.id), Echo(json!(1)), options);
    assert_eq!(convoke::mesh::in_trace(trace, call).await.expect("the peer responds"), 1);
}

#[tokio::test]
async fn each_side_lists_both() {
    let Some(stage) = Stage::set("each_side_lists_both").await else { return };
    let (ours, peer) = stage.pair().await;
    let nodes = ours.nodes().await.expect("nodes");
    let seen: Vec<_> = nodes.iter().map(|node| (node.instance_id.0, node.is_self)).collect();
    assert_eq!(seen, [(1, true), (2, false)]);
    let theirs = peer.order("nodes", json!({})).await;
    let hostname = &nodes[0].hostname;
    assert_eq!(nodes[1].hostname, *hostname, "they are on one machine");
    let expected = json!([{"instanceId": 1, "hostname": hostname, "self": false}, {"instanceId": 2, "hostname": hostname, "self": true}]);
    assert_eq!(theirs["ok"], expected);
    peer.stop().await;
    assert_eq!(ours.nodes().await.expect("nodes").len(), 1);
    let error = ours.invoke(InstanceId(2), Echo(json!(1))).await.expect_err("it has left");
    assert!(matches!(error, MeshError::NoNode { .. }), "{error}");
}

#[tokio::test]
async fn errors_are_the_same_on_both_sides() {
    let Some(stage) = Stage::set("errors_are_the_same_on_both_sides").await else { return };
    let (ours, peer) = stage.pair().await;
    let to = InstanceId(peer.id);
    match ours.invoke(to, Fail { message: "no such user".into() }).await {
        Err(MeshError::Handler { message, .. }) => assert_eq!(message, "no such user"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(ours.invoke(to, Unknown {}).await, Err(MeshError::NoHandler { .. })));
    let failed = peer.invoke(1, "fail", json!({"message": "no such user"})).await;
    assert_eq!((&failed["name"], &failed["error"]), (&json!("MeshHandlerError"), &json!("no such user")));
    let unknown = peer.invoke(1, "unknown", json!({})).await;
    assert_eq!((&unknown["name"], &unknown["error"]), (&json!("MeshNoHandlerError"), &json!("unknown")));
    let late = peer.order("invoke", json!({"to": 99, "type": "echo", "data": 1, "timeoutMs": 200})).await;
    assert_eq!(late["name"], "MeshRequestTimeoutError");
}

#[tokio::test]
async fn what_ours_adds_to_the_errors_is_a_handlers_error_there() {
    let Some(stage) = Stage::set("what_ours_adds_to_the_errors_is_a_handlers_error_there").await else { return };
    let narrow = MeshSettings { handlers_max: 1, stop_grace: Duration::ZERO, ..MeshSettings::default() };
    let ours = stage.ours_with(narrow).await;
    let peer = stage.peer(json!({})).await;
    let large = peer.invoke(1, "echo", json!("x".repeat(1 << 20))).await;
    let slow = peer.invoke(1, "sleep", json!({"ms": 600_000}));
    let meanwhile = async {
        eventually("it runs", async || (ours.handlers_running() == 1).then_some(())).await;
        let busy = peer.invoke(1, "echo", json!(1)).await;
        ours.stop().await;
        busy
    };
    let (stopped, busy) = tokio::join!(slow, meanwhile);
    for (response, error) in [(large, "MESH_TOO_LARGE:echo"), (busy, "MESH_BUSY:echo"), (stopped, "MESH_STOPPED:sleep")]
    {
        assert_eq!((&response["name"], &response["error"]), (&json!("MeshHandlerError"), &json!(error)));
    }
}

/// Both ways at once, for real: 30 s of work under a timeout of 1 s.
#[tokio::test]
async fn heartbeats_keep_a_handler_of_30_seconds_under_a_timeout_of_1() {
    let Some(stage) = Stage::set("heartbeats_keep_a_handler_of_30_seconds_under_a_timeout_of_1").await else { return };
    let (ours, peer) = stage.pair().await;
    let there = ours.invoke_with_timeout(InstanceId(peer.id), Sleep { ms: 30_000 }, Duration::from_secs(1));
    let back = peer.order("invoke", json!({"to": 1, "type": "sleep", "data": {"ms": 30_000}, "timeoutMs": 1_000}));
    let (there, back) = tokio::join!(there, back);
    assert_eq!(there.expect("the peer sends heartbeats"), Slept { slept: 30_000 });
    assert_eq!(back["ok"], json!({"slept": 30_000}), "{back}");
}

#[tokio::test]
async fn mixed_timeouts_get_heartbeats_of_their_own() {
    let Some(stage) = Stage::set("mixed_timeouts_get_heartbeats_of_their_own").await else { return };
    let (ours, peer) = stage.pair().await;
    let there = |ms| ours.invoke_with_timeout(InstanceId(peer.id), Sleep { ms: 3_000 }, Duration::from_millis(ms));
    let back =
        |ms: u64| peer.order("invoke", json!({"to": 1, "type": "sleep", "data": {"ms": 3_000}, "timeoutMs": ms}));
    let responses = tokio::join!(there(500), there(1_500), there(20_000), back(500), back(1_500), back(20_000));
    for response in [responses.0, responses.1, responses.2] {
        response.expect("the peer sends heartbeats");
    }
    for response in [responses.3, responses.4, responses.5] {
        assert_eq!(response["ok"]["slept"], 3_000, "{response}");
    }
}

#[tokio::test]
async fn our_leader_removes_their_killed_instance() {
    let Some(stage) = Stage::set("our_leader_removes_their_killed_instance").await else { return };
    let (reported, mut receiver) = mpsc::unbounded_channel();
    let ours = stage.ours_with(quick()).await.on_node_gone(move |id| {
        let _ = reported.send(id);
        async {}
    });
    eventually("ours leads", async || ours.is_leader().then_some(())).await;
    let peer = stage.peer(quick_peer()).await;
    assert_eq!(peer.order("leader", json!({})).await["ok"], false, "they share one lock");
    let id = peer.id;
    peer.kill().await;
    assert_eq!(receiver.recv().await, Some(InstanceId(id)));
    assert_eq!(ours.nodes().await.expect("nodes").len(), 1);
}

#[tokio::test]
async fn their_leader_removes_our_killed_instance() {
    let Some(stage) = Stage::set("their_leader_removes_our_killed_instance").await else { return };
    let peer = stage.peer(quick_peer()).await;
    let peer = &peer;
    eventually("theirs leads", async || (peer.order("leader", json!({})).await["ok"] == true).then_some(())).await;
    let (mut ours, gone) = stage.process().await;
    let other = stage.ours_with(quick()).await;
    assert_eq!(other.nodes().await.expect("nodes").len(), 3);
    ours.kill().await;
    assert_eq!(peer.event("cleaned").await["instanceId"], gone);
    assert!(!other.is_leader());
    assert_eq!(other.nodes().await.expect("nodes").len(), 2);
}

#[tokio::test]
async fn the_lock_passes_from_one_side_to_the_other() {
    let Some(stage) = Stage::set("the_lock_passes_from_one_side_to_the_other").await else { return };
    let ours = stage.ours_with(quick()).await;
    eventually("ours leads", async || ours.is_leader().then_some(())).await;
    let peer = stage.peer(quick_peer()).await;
    let peer_leads = async || (peer.order("leader", json!({})).await["ok"] == true).then_some(());
    ours.stop().await;
    eventually("theirs leads", peer_leads).await;
    let ours = stage.ours_with(quick()).await;
    peer.kill().await;
    eventually("ours leads again", async || ours.is_leader().then_some(())).await;
}

#[tokio::test]
async fn broadcasts_are_heard_on_both_sides() {
    let Some(stage) = Stage::set("broadcasts_are_heard_on_both_sides").await else { return };
    let (received, mut receiver) = mpsc::unbounded_channel();
    let (ours, peer) = stage.pair().await;
    let ours = ours.on_broadcast(move |from, clear: Clear| {
        let _ = received.send((from, clear));
        async {}
    });
    let clear = Clear { keys: vec!["a".into()] };
    assert_eq!(ours.broadcast(clear.clone()).await.expect("broadcast"), 1);
    assert_eq!(receiver.recv().await, Some((InstanceId(1), clear.clone())), "our own is received here, once");
    let theirs = peer.event("broadcast").await;
    assert_eq!((&theirs["data"], &theirs["from"]), (&json!({"keys": ["a"]}), &json!(1)));
    peer.order("broadcast", json!({"type": "clear", "data": {"keys": ["b"]}})).await;
    assert_eq!(receiver.recv().await, Some((InstanceId(2), Clear { keys: vec!["b".into()] })));
    assert!(receiver.is_empty());
}

#[tokio::test]
async fn ten_thousand_calls_come_back_as_they_went() {
    let Some(stage) = Stage::set("ten_thousand_calls_come_back_as_they_went").await else { return };
    let (ours, peer) = stage.pair().await;
    let (ours, to) = (&ours, InstanceId(peer.id));
    let lanes = (0..64_u64).map(|lane| async move {
        for n in (lane..5_000).step_by(64) {
            let data = json!({"n": n, "text": format!("ü\"\\{n}")});
            assert_eq!(ours.invoke(to, Echo(data.clone())).await.expect("the peer responds"), data);
        }
    });
    let there = futures_util::future::join_all(lanes);
    let back = peer.order("many", json!({"to": 1, "count": 5_000, "width": 64, "from": "node"}));
    let (_, back) = tokio::join!(there, back);
    assert_eq!(back["ok"], json!({"mismatches": 0}), "{back}");
    assert_eq!((ours.calls_open(), ours.handlers_running()), (0, 0));
}
