//! The link of a mesh on Redis: its data there, and that no message is sent twice.
#![cfg(feature = "redis")]

mod redis_stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_adapters::redis::RedisMesh;
use convoke_core::mesh::InstanceId;
use convoke_core::ports::{MeshInbox, MeshLink};
use convoke_core::{Error, Result};
use convoke_testkit::process::{RedisServer, eventually, wait_for_value};
use redis::Value;

use redis_stage::{Probe, Proxy};

const LONG: Duration = Duration::from_secs(600);

/// Counts received messages, and notices that some may have been missed.
#[derive(Default)]
struct CountingInbox {
    received: AtomicUsize,
    missed: AtomicUsize,
}

impl MeshInbox for CountingInbox {
    fn on_message(&self, _message: Bytes) {
        self.received.fetch_add(1, Ordering::SeqCst);
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }
}

impl CountingInbox {
    fn count(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }
}

async fn connect(url: &str) -> RedisMesh {
    RedisMesh::connect(url, "app", "locks", "my-app").await.expect("connects")
}

fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_in_redis_is_what_the_existing_system_reads() {
    let server = RedisServer::start().await;
    let mut probe = Probe::connect(&server.url()).await;
    let link = connect(&server.url()).await;
    let seat = link.join("host-a", Arc::new(CountingInbox::default())).await.expect("join");
    assert!(link.lead("a-token", LONG).await.expect("lead"));
    let keys =
        ["app:mesh:my-app:heartbeats", "app:mesh:my-app:next_id", "app:mesh:my-app:nodes", "locks:leader:mesh:my-app"];
    let ours = "app:mesh:my-app:bearer:1";
    assert_eq!(probe.keys("*").await, [&[ours][..], &keys].concat());
    assert_eq!(text(probe.ask(&["GET", keys[1]]).await), "1");
    assert_eq!(text(probe.ask(&["HGET", keys[2], "1"]).await), "host-a");
    assert_eq!(text(probe.ask(&["GET", keys[3]]).await), "a-token");
    assert!((590_000..=600_000).contains(&probe.number(&["PTTL", keys[3]]).await));
    // The score is the server's own time in whole milliseconds.
    let score: u64 = text(probe.ask(&["ZSCORE", keys[0], "1"]).await).parse().expect("whole milliseconds");
    let Value::Array(time) = probe.ask(&["TIME"]).await else { panic!("TIME returns a list") };
    let seconds: u64 = text(time.into_iter().next().expect("seconds")).parse().expect("a number");
    assert!((seconds - 60..=seconds + 1).contains(&(score / 1_000)), "{score} at {seconds}");
    seat.leave().await.expect("leave");
    link.resign("a-token").await.expect("resign");
    assert_eq!(probe.keys("*").await, [keys[1]], "the counter survives");
}

#[tokio::test]
async fn a_link_has_two_connections_however_many_join_by_it() {
    let server = RedisServer::start().await;
    let mut probe = Probe::connect(&server.url()).await;
    let link = connect(&server.url()).await;
    let mut seats = Vec::new();
    for _ in 0..20 {
        seats.push(link.join("h", Arc::new(CountingInbox::default())).await.expect("join"));
    }
    assert_eq!(probe.connections().await, 3, "two, and the test's own");
}

async fn send(link: &RedisMesh, to: InstanceId, text: &'static str) -> Result<u64> {
    link.send(&[(to, Bytes::from_static(text.as_bytes()))]).await.pop().expect("a result for each")
}

#[tokio::test]
async fn a_message_whose_fate_is_unknown_is_not_sent_again() {
    let server = RedisServer::start().await;
    let proxy = Proxy::to(server.port()).await;
    let (there, here) = (connect(&server.url()).await, connect(&proxy.url()).await);
    let inbox = Arc::new(CountingInbox::default());
    let seat = there.join("h", inbox.clone()).await.expect("join");
    proxy.lose_response_to("PUBLISH");
    let result = send(&here, seat.id(), "once").await;
    assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
    assert!(proxy.has_lost_one());
    let send = async || send(&here, seat.id(), "another").await.ok();
    assert_eq!(eventually("the line is made anew", send).await, 1);
    wait_for_value("the first came once, and so did the second", 2, async || inbox.count()).await;
}

#[tokio::test]
async fn a_number_that_was_given_to_another_is_the_others() {
    let server = RedisServer::start().await;
    let mut probe = Probe::connect(&server.url()).await;
    let (old, new) = (connect(&server.url()).await, connect(&server.url()).await);
    let before = old.join("old", Arc::new(CountingInbox::default())).await.expect("join");
    // Redis lost all data, and assigns the number to the next instance before the first sends a heartbeat.
    probe.ask(&["FLUSHALL"]).await;
    probe.ask(&["SET", "app:mesh:my-app:bearer:1", "another"]).await;
    let fenced = |result| matches!(result, Err(Error::Fenced { .. }));
    assert!(fenced(before.heartbeat(LONG).await));
    probe.ask(&["ZADD", "app:mesh:my-app:heartbeats", "1", "1"]).await;
    before.leave().await.expect("leave");
    assert_eq!(probe.number(&["ZCARD", "app:mesh:my-app:heartbeats"]).await, 1, "what is the other's stays");
    assert_eq!(new.join("new", Arc::new(CountingInbox::default())).await.expect("join").id(), InstanceId(2));
    // An instance of the existing system has no token: its subscription is enough.
    probe.ask(&["FLUSHALL"]).await;
    let mut stranger = Probe::connect(&server.url()).await;
    stranger.ask(&["SUBSCRIBE", "app:mesh:my-app:node:1"]).await;
    assert!(fenced(before.heartbeat(LONG).await));
    drop(stranger);
    let heartbeat = async || before.heartbeat(LONG).await.ok();
    assert_eq!(eventually("it is its own again", heartbeat).await, 1);
}

#[tokio::test]
async fn a_lock_whose_answer_was_lost_is_found_to_be_ones_own() {
    let server = RedisServer::start().await;
    let proxy = Proxy::to(server.port()).await;
    let link = connect(&proxy.url()).await;
    // Known to the server from here on, so that the next request is the script itself.
    link.lead("before", LONG).await.expect("lead");
    link.resign("before").await.expect("resign");
    proxy.lose_response_to("EVALSHA");
    let result = link.lead("mine", LONG).await;
    assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
    assert!(eventually("it leads", async || link.lead("mine", LONG).await.ok()).await);
    assert!(!link.lead("another", LONG).await.expect("lead"));
}

#[tokio::test]
async fn who_lost_its_connection_hears_again_and_is_told() {
    let server = RedisServer::start().await;
    let mut probe = Probe::connect(&server.url()).await;
    let link = connect(&server.url()).await;
    let inbox = Arc::new(CountingInbox::default());
    let seat = link.join("h", inbox.clone()).await.expect("join");
    probe.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    eventually("the gap is reported", async || (inbox.missed.load(Ordering::SeqCst) > 0).then_some(())).await;
    assert_eq!(send(&link, seat.id(), "x").await.expect("send"), 1, "subscribed first, reported second");
    wait_for_value("it receives", 1, async || inbox.count()).await;
}

#[tokio::test]
async fn strange_things_in_the_registry_are_passed_over() {
    let server = RedisServer::start().await;
    let mut probe = Probe::connect(&server.url()).await;
    let link = connect(&server.url()).await;
    let seat = link.join("h", Arc::new(CountingInbox::default())).await.expect("join");
    let heartbeats = "app:mesh:my-app:heartbeats";
    for member in ["x", "-1", "0", "99999999999999999999"] {
        probe.ask(&["ZADD", heartbeats, "9999999999999", member]).await;
        probe.ask(&["ZADD", heartbeats, "1", &format!("{member}old")]).await;
    }
    // An instance of the existing system that was removed and came back without its name.
    probe.ask(&["ZADD", heartbeats, "9999999999999", "7"]).await;
    let nodes = link.nodes(LONG).await.expect("nodes");
    let seen: Vec<_> = nodes.into_iter().map(|node| (node.instance_id, node.hostname)).collect();
    assert_eq!(seen, [(seat.id(), "h".to_owned()), (InstanceId(7), "unknown".to_owned())]);
    assert!(link.lead("l", LONG).await.expect("lead"));
    assert!(link.sweep("l", LONG).await.expect("sweep").is_empty(), "gone, but nobody that could be named");
    assert_eq!(probe.number(&["ZCARD", heartbeats]).await, 6);
}

#[tokio::test]
async fn a_wrong_address_is_complained_of_by_its_setting_and_without_its_password() {
    for url in ["redis://:hunter2@h:port", "http://:hunter2@h", "rediss://h?ca=/nowhere.pem"] {
        let error = RedisMesh::connect(url, "app", "app", "k").await.err().expect(url).to_string();
        assert!(error.starts_with("mesh.url: ") && !error.contains("hunter2"), "{error}");
    }
}
