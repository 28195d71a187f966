//! Unknown clients at the real port: their messages get a reply or are counted, and a correct worker is not affected.

use std::time::Duration;

use bytes::Bytes;
use convoke_testkit::process::{HandDealer, wait_for_value};
use convoke_testkit::shard_frames::hostile::{self, Dice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stage::Stage;

const MESSAGES: usize = 3_000;
const REGISTER: &str = r#"{"type":"register","data":{"serviceName":"honest","workerId":"w","maxShardCount":3}}"#;

async fn honest_worker_is_served(stage: &Stage) {
    let mut dealer = HandDealer::connect(stage.address()).await.expect("it is let in");
    dealer.send(REGISTER.as_bytes()).await.expect("it is connected");
    let response = dealer.receive().await.expect("it gets a reply");
    let text = String::from_utf8_lossy(&response[0]);
    assert!(text.contains(r#""assignedShards":[0,1,2]"#), "{text}");
}

#[tokio::test]
async fn thousands_of_hostile_messages_are_answered_or_counted_and_never_fatal() {
    let stage = Stage::start("sticky", Duration::from_secs(5), Duration::from_millis(500)).await;
    let mut dice = Dice::new(7);
    let mut before: Vec<Vec<Bytes>> = Vec::new();
    let mut dealer = HandDealer::connect(stage.address()).await.expect("it is let in");
    for _ in 0..MESSAGES {
        let frames = hostile::frames(&mut dice, &before);
        if frames.is_empty() {
            continue;
        }
        // A client whose connection is closed connects again, as a real one does.
        let sent = dealer.send_frames(&frames).await;
        while let Ok(received) = tokio::time::timeout(Duration::ZERO, dealer.receive()).await {
            if received.is_err() {
                break;
            }
        }
        if sent.is_err() {
            dealer = HandDealer::connect(stage.address()).await.expect("it is let in again");
        }
        if before.len() < 50 {
            before.push(frames);
        }
    }
    honest_worker_is_served(&stage).await;
    wait_for_value("what made no sense is counted", true, async || {
        let codes = ["invalid_message", "invalid_argument"];
        let mut counted = true;
        for code in codes {
            counted &= stage.metric("convoke_shard_errors_total", &format!("code=\"{code}\"")).await > 10.0;
        }
        counted
    })
    .await;
}

#[tokio::test]
async fn a_browser_at_the_port_is_turned_away_and_counted() {
    let stage = Stage::start("contiguous", Duration::from_secs(5), Duration::from_millis(500)).await;
    let port = stage.address().strip_prefix("tcp://").expect("TCP");
    let mut browser = TcpStream::connect(port).await.expect("the port is open");
    browser
        .write_all(b"GET / HTTP/1.1\r\nHost: shards\r\nAccept: text/html,application/xhtml+xml,*/*\r\n\r\n")
        .await
        .expect("sent");
    let mut printed = Vec::new();
    let _ = browser.read_to_end(&mut printed).await;
    honest_worker_is_served(&stage).await;
    wait_for_value("it is counted", 1.0, async || {
        stage.metric("convoke_shard_errors_total", "code=\"handshake\"").await
    })
    .await;
}
