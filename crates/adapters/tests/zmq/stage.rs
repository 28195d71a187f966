//! A router, dealers, and handwritten ZMTP connections.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use convoke_adapters::zmq::{ZmqDealer, ZmqLimits, ZmqRouter};
use convoke_core::ports::router::{Dealer, DealerConnecting, Peer, Received, Router, RouterBinding, Sent};
use convoke_testkit::process::{PATIENCE, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Any free port of this machine's own address.
pub const ANYWHERE: &str = "tcp://127.0.0.1:0";

pub async fn within<T>(what: &str, waited: impl Future<Output = T>) -> T {
    timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub async fn bind() -> Box<dyn Router> {
    bind_with(ZmqLimits::default()).await
}

pub async fn bind_with(limits: ZmqLimits) -> Box<dyn Router> {
    let router = ZmqRouter::new(ANYWHERE).expect("an address").limits(limits);
    router.bind().await.expect("a free port")
}

pub async fn connect(router: &dyn Router) -> Box<dyn Dealer> {
    ZmqDealer::new().connect(router.address()).await.expect("an address")
}

pub async fn connect_as(router: &dyn Router, id: &'static str) -> Box<dyn Dealer> {
    ZmqDealer::new().routing_id(id).connect(router.address()).await.expect("an address")
}

/// Returns the next message of the router.
pub async fn receive(router: &mut dyn Router) -> Received {
    let mut batch = within("a message", router.receive(1)).await.expect("an open socket");
    assert_eq!(batch.len(), 1);
    batch.remove(0)
}

/// Sends to one peer.
pub async fn reply(router: &mut dyn Router, to: &Peer, message: impl Into<Bytes>) -> Sent {
    router.send(vec![(to.clone(), message.into())]).await[0]
}

/// How often a worker without a reply repeats its message.
const REPEAT: Duration = Duration::from_millis(200);

/// Asserts that a new dealer is served. Messages on a failed connection are lost, so it repeats its message.
pub async fn serves(router: &mut dyn Router) {
    let mut dealer = connect(router).await;
    let message = Bytes::from_static(b"are you there?");
    let from = within("an honest worker's message", async {
        loop {
            if dealer.send(message.clone()).await.is_err() {
                // It was rejected: a receive returns that, and the next send connects again.
                let _ = timeout(REPEAT, dealer.receive()).await;
                continue;
            }
            while let Ok(received) = timeout(REPEAT, router.receive(1)).await {
                let received = received.expect("an open socket").remove(0);
                if received.frames == [message.clone()] {
                    return received.from;
                }
            }
        }
    })
    .await;
    assert_eq!(reply(router, &from, "yes").await, Sent::Queued);
    assert_eq!(within("its reply", dealer.receive()).await.expect("a message"), [Bytes::from_static(b"yes")]);
}

pub async fn refused(router: &dyn Router, what: &str, at_least: u64) {
    eventually(what, async || (router.refusals().handshakes >= at_least).then_some(())).await;
}

/// Returns an address without a listener.
pub fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("tcp://{}", listener.local_addr().expect("it has one"))
}

/// Opens a TCP connection to the router's port.
pub async fn raw(router: &dyn Router) -> TcpStream {
    let address = router.address().strip_prefix("tcp://").expect("a TCP address");
    TcpStream::connect(address).await.expect("the port is open")
}

/// Waits until the other side has closed, whatever it sends before.
pub async fn closed(stream: &mut TcpStream) {
    let mut buffer = [0; 1024];
    within("the connection's end", async { while matches!(stream.read(&mut buffer).await, Ok(1..)) {} }).await;
}

/// The first 64 bytes of ZMTP 3.0 with no security.
pub fn greeting() -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
    bytes.extend(b"NULL");
    bytes.resize(64, 0);
    bytes
}

/// One frame: its flags (1 more, 4 command), then its body.
pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(body.len()) {
        Ok(short) => vec![flags, short],
        Err(_) => [&[flags | 2][..], &(body.len() as u64).to_be_bytes()].concat(),
    };
    bytes.extend(body);
    bytes
}

/// `READY` of a dealer with that routing id.
pub fn ready(id: &str) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", "DEALER"), ("Identity", id)] {
        body.push(u8::try_from(name.len()).expect("a short name"));
        body.extend(name.as_bytes());
        body.extend(u32::try_from(value.len()).expect("a short value").to_be_bytes());
        body.extend(value.as_bytes());
    }
    frame(4, &body)
}

/// Returns a handwritten peer that has completed the handshake and has sent `hello`.
pub async fn by_hand(router: &mut dyn Router, id: &str) -> (TcpStream, Peer) {
    let mut stream = raw(router).await;
    let hello = frame(0, b"hello");
    stream.write_all(&[greeting(), ready(id), hello].concat()).await.expect("it is read");
    let received = receive(router).await;
    assert_eq!(received.frames, [Bytes::from_static(b"hello")]);
    (stream, received.from)
}

/// Limits short enough that a test can wait for them.
pub fn impatient() -> ZmqLimits {
    ZmqLimits { handshake_timeout: Duration::from_millis(300), ..ZmqLimits::default() }
}
