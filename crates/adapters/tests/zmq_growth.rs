//! Rounds of valid and hostile peers leave nothing behind. Alone in its process, whose memory and files are counted.
#![cfg(all(feature = "zmq", target_os = "linux"))]

use bytes::Bytes;
use convoke_adapters::zmq::{ZmqDealer, ZmqLimits, ZmqRouter};
use convoke_core::ports::router::{DealerConnecting, Peer, Router, RouterBinding, Sent};
use convoke_testkit::process::{PATIENCE, wait_for_value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const ROUNDS: usize = 30;
const PEERS_A_ROUND: usize = 20;
/// How much the allocator may keep between two measurements.
const SLACK_BYTES: u64 = 16 << 20;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux has it").count()
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel shows it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

async fn receive(router: &mut dyn Router) -> Peer {
    let batch = timeout(PATIENCE, router.receive(1)).await.expect("a message").expect("an open socket");
    batch[0].from.clone()
}

/// Peers that connect, send and leave; peers that send garbage; peers whose message is too large.
async fn round(router: &mut dyn Router) {
    let port = router.address().strip_prefix("tcp://").expect("TCP").to_owned();
    for _ in 0..PEERS_A_ROUND {
        let mut dealer = ZmqDealer::new().routing_id("same").connect(router.address()).await.expect("an address");
        dealer.send(Bytes::from(vec![b'x'; 100_000])).await.expect("room");
        let peer = receive(router).await;
        router.send(vec![(peer, Bytes::from(vec![b'y'; 100_000]))]).await;
        timeout(PATIENCE, dealer.receive()).await.expect("a response").expect("a message");
        dealer.close().await;

        let mut stranger = TcpStream::connect(&port).await.expect("the port is open");
        let _ = stranger.write_all(&[b'G'; 4096]).await;
        let mut buffer = [0; 1024];
        while matches!(timeout(PATIENCE, stranger.read(&mut buffer)).await.expect("an end"), Ok(1..)) {}
    }
    let mut dealer = ZmqDealer::new().connect(router.address()).await.expect("an address");
    dealer.send(Bytes::from(vec![b'x'; 2 << 20])).await.expect("room");
    dealer.close().await;
}

#[tokio::test]
async fn rounds_of_peers_leave_neither_files_nor_memory_behind() {
    let mut router = ZmqRouter::new("tcp://127.0.0.1:0").expect("an address").bind().await.expect("a free port");
    for _ in 0..ROUNDS / 3 {
        round(&mut *router).await;
    }
    wait_for_value("old connections are closed", true, async || open_files() < 40).await;
    let (files, bytes) = (open_files(), resident_bytes());
    for _ in 0..ROUNDS {
        round(&mut *router).await;
    }
    wait_for_value("no file stays open", true, async || open_files() <= files + 2).await;
    let grown = resident_bytes().saturating_sub(bytes);
    assert!(grown < SLACK_BYTES, "{grown} bytes more after {ROUNDS} rounds");

    // Peers that never read, each of which is sent far more than it may keep.
    let mut deaf = Vec::new();
    for _ in 0..PEERS_A_ROUND {
        let mut dealer = ZmqDealer::new().connect(router.address()).await.expect("an address");
        dealer.send(Bytes::from_static(b"here")).await.expect("room");
        deaf.push((receive(&mut *router).await, dealer));
    }
    let before = resident_bytes();
    let mut dropped = 0;
    for _ in 0..500 {
        let sends = deaf.iter().map(|(peer, _)| (peer.clone(), Bytes::from(vec![b'z'; 10_000]))).collect();
        dropped += router.send(sends).await.into_iter().filter(|sent| *sent == Sent::Full).count();
    }
    assert!(dropped > 0, "100 megabytes were all taken");
    // Both sides of a connection are in this process: its two queues of messages, and the bytes framed ahead.
    let kept = u64::from(ZmqLimits::default().peer_queue_max) * 10_000 * 3 + (256 << 10);
    let grown = resident_bytes().saturating_sub(before);
    assert!(
        grown < PEERS_A_ROUND as u64 * kept + SLACK_BYTES,
        "{grown} bytes for {PEERS_A_ROUND} peers that do not read"
    );
}
