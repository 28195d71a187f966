//! Messages of unknown programs on the channels are counted and do no harm.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::mesh::MeshSettings;
use convoke_testkit::process::{PATIENCE, RedisServer, eventually};
use convoke_testkit::scale::Scaled;
use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};
use serde_json::Value;

use crate::stage::*;

const MESSAGES: Scaled<u64> = Scaled { quick: 20_000, full: 100_000 };
const BATCH: u64 = 1_000;

/// Bytes, pieces of JSON, and messages that are right but for one thing. None can be read.
fn garbage(dice: &mut Dice) -> Vec<u8> {
    let length = dice.roll(64);
    match dice.roll(5) {
        0 => (0..length).map(|_| dice.roll(256) as u8).chain([0xff]).collect(),
        1 => {
            let pieces =
                ["{", "}", "[", "]", ":", ",", "\"requestId\"", "\"reply\"", "true", "null", "1e9", "\"\\ud800\""];
            (0..length).map(|_| dice.pick(&pieces)).collect::<String>().into_bytes().into_iter().chain(*b"{").collect()
        }
        2 => "[".repeat(1 + dice.roll(5_000) as usize).into_bytes(),
        3 => {
            let whole =
                r#"{"requestId":"0198c0de-0000-7000-8000-0000000000ff","senderInstanceId":1,"type":"echo","data":1}"#;
            whole.as_bytes()[..dice.roll(whole.len() as u64) as usize].to_vec()
        }
        _ => {
            let id = dice.pick(&["null", "7", "\"\"", "{}", "true"]);
            let sender = dice.pick(&["-1", "0", "1.5", "\"1\"", "1e99", "[]"]);
            let mark = dice.pick(&[
                "\"type\":7",
                "\"reply\":true",
                "\"heartbeat\":true",
                "\"broadcast\":true",
                "\"timeoutMs\":-1",
            ]);
            format!(r#"{{"requestId":{id},"senderInstanceId":{sender},{mark}}}"#).into_bytes()
        }
    }
}

/// Readable, but without a receiver or a meaning: it gets a reply or is ignored.
fn nonsense(dice: &mut Dice, target: u64) -> Vec<u8> {
    let id = format!("0198c0de-0000-7000-8000-{:012x}", dice.roll(1 << 40));
    let sender = [1, target, 99, u64::MAX][dice.roll(4) as usize];
    match dice.roll(5) {
        0 => format!(r#"{{"requestId":"{id}","reply":true,"data":[{}]}}"#, dice.roll(9)),
        1 => format!(r#"{{"requestId":"{id}","heartbeat":true}}"#),
        2 => format!(r#"{{"requestId":"{id}","senderInstanceId":{sender},"type":"unknown","timeoutMs":0.001}}"#),
        3 => format!(r#"{{"requestId":"{id}","senderInstanceId":{sender},"type":"echo","data":{{"not":"a number"}}}}"#),
        _ => format!(r#"{{"broadcast":true,"senderInstanceId":{sender},"type":"clear","data":[[[]]]}}"#),
    }
    .into_bytes()
}

async fn publish(probe: &mut MultiplexedConnection, channel: &str, messages: impl Iterator<Item = Vec<u8>>) {
    let mut pipe = redis::pipe();
    for message in messages {
        pipe.cmd("PUBLISH").arg(channel).arg(message).ignore();
    }
    let _: () = pipe.query_async(probe).await.expect("publishes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_garbage_are_counted_and_never_fatal() {
    let count = MESSAGES.get();
    let server = RedisServer::start().await;
    let mut probe = probe(&server).await;
    let (a, b) = (start(&server).await, start(&server).await);
    let own = format!("app:mesh:{KEY}:node:{}", b.instance_id());
    let (mut dice, target) = (Dice(7), b.instance_id().0);
    for batch in 0..count / BATCH {
        let channel = if batch % 10 == 9 { format!("app:mesh:{KEY}:broadcast") } else { own.clone() };
        publish(&mut probe, &channel, (0..BATCH).map(|_| garbage(&mut dice))).await;
        publish(&mut probe, &own, (0..BATCH / 10).map(|_| nonsense(&mut dice, target))).await;
        if batch % 10 == 0 {
            assert_eq!(a.invoke(b.instance_id(), Echo(batch)).await.expect("it still replies"), batch);
        }
    }
    let reached = async || (b.messages_malformed() >= count && a.messages_malformed() >= count / 10).then_some(());
    eventually("each is counted", reached).await;
    assert_eq!(a.invoke(b.instance_id(), Echo(1)).await.expect("it still replies"), 1);
    let idle = async || (a.calls_open() + b.calls_open() + b.handlers_running() == 0).then_some(());
    eventually("nothing is left", idle).await;
    assert_eq!((b.messages_malformed(), a.messages_malformed()), (count, count / 10), "nothing else is counted");
}

#[tokio::test]
async fn a_flood_of_requests_leaves_nothing_behind() {
    let server = RedisServer::start().await;
    let mut probe = probe(&server).await;
    let settings = MeshSettings { handlers_max: 10, ..quick() };
    let (a, b) = (start(&server).await, start(&server).await);
    b.stop().await;
    let b = b.settings(settings).start().await.expect("starts again");
    let own = format!("app:mesh:{KEY}:node:{}", b.instance_id());
    let request =
        |n| format!(r#"{{"requestId":"{n}","senderInstanceId":77,"type":"sleep","data":{{"ms":300}}}}"#).into_bytes();
    publish(&mut probe, &own, (0..20_000).map(request)).await;
    assert!(b.handlers_running() <= 10);
    eventually("it replies again", async || a.invoke(b.instance_id(), Echo(1)).await.ok()).await;
    eventually("nothing is left", async || (b.handlers_running() == 0).then_some(())).await;
}

/// Receives what is sent to a number that no instance has.
async fn listen_as(server: &RedisServer, number: u64) -> PubSub {
    let mut listener = redis::Client::open(server.url()).expect("a URL").get_async_pubsub().await.expect("connects");
    listener.subscribe(format!("app:mesh:{KEY}:node:{number}")).await.expect("subscribes");
    listener
}

/// The next reply; heartbeats are passed over.
async fn reply(listener: &mut PubSub) -> Value {
    let mut messages = listener.on_message();
    let next = async {
        loop {
            let message = messages.next().await.expect("the connection holds");
            let message: Value = serde_json::from_slice(message.get_payload_bytes()).expect("JSON");
            if message["reply"] == true {
                return message;
            }
        }
    };
    tokio::time::timeout(PATIENCE, next).await.expect("a reply")
}

#[tokio::test]
async fn a_request_with_too_much_data_is_answered_by_name() {
    let server = RedisServer::start().await;
    let (mut probe, mut listener) = (probe(&server).await, listen_as(&server, 77).await);
    let (a, b) = (start(&server).await, start(&server).await);
    let own = format!("app:mesh:{KEY}:node:{}", b.instance_id());
    let fill = "x".repeat(1 << 20);
    let request = format!(r#"{{"requestId":"r","senderInstanceId":77,"type":"echo","data":"{fill}"}}"#);
    publish(&mut probe, &own, [request.into_bytes()].into_iter()).await;
    let expected = serde_json::json!({"requestId": "r", "reply": true, "error": "MESH_TOO_LARGE:echo"});
    assert_eq!(reply(&mut listener).await, expected);
    assert_eq!((b.handlers_running(), b.messages_malformed()), (0, 0), "it was understood, and did not run");
    assert_eq!(a.invoke(b.instance_id(), Echo(1)).await.expect("it still replies"), 1);
}

#[tokio::test]
async fn each_of_a_burst_to_a_full_instance_is_told_that_it_is_busy() {
    // As many as may wait to be sent.
    const BURST: usize = 4_096;
    let server = RedisServer::start().await;
    let (mut probe, mut listener) = (probe(&server).await, listen_as(&server, 77).await);
    let settings = MeshSettings { handlers_max: 1, stop_grace: Duration::ZERO, ..quick() };
    let mesh = connect(&server).await.settings(settings).on(|_: Sleep| std::future::pending());
    let mesh = mesh.start().await.expect("starts");
    let own = format!("app:mesh:{KEY}:node:{}", mesh.instance_id());
    let request = |n: usize| {
        let wanted = r#""senderInstanceId":77,"type":"sleep","data":{"ms":1},"timeoutMs":600000"#;
        format!(r#"{{"requestId":"{n}",{wanted}}}"#).into_bytes()
    };
    publish(&mut probe, &own, std::iter::once(request(BURST))).await;
    eventually("one runs", async || (mesh.handlers_running() == 1).then_some(())).await;
    publish(&mut probe, &own, (0..BURST).map(request)).await;
    let mut reported = BTreeSet::new();
    while reported.len() < BURST {
        let reply = reply(&mut listener).await;
        assert_eq!(reply["error"], "MESH_BUSY:sleep", "{reply}");
        assert!(reported.insert(reply["requestId"].to_string()), "once each: {reply}");
    }
    mesh.stop().await;
}
