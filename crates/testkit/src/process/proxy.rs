//! A wire that can be cut: a TCP proxy between one process and one server.
//!
//! Each node of a test has one proxy to each engine, so that it can be parted from one of them alone while it keeps the
//! other. A wire is in one of three states:
//!
//! - **open**: bytes go through, both ways.
//! - **frozen**, both ways or one: connections stay, new ones are even made, nothing arrives. Bytes that were sent meanwhile are held
//!   in the wire and arrive when it heals, as late as that is: so a test makes a write come too late.
//! - **cut**: every connection is reset, with all that it held, and every new one is reset as soon as it is made. The port
//!   stays ours, since another process may take it otherwise.
//!
//! Beside that it may be slow: what the server sends arrives later.
//!
//! If the server itself is away, a connection to the proxy is reset too. Dropping the proxy cuts the wire permanently.

use std::collections::VecDeque;
use std::io::Result;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Bytes read at once. The kernel's buffers hold more while a wire is frozen.
const CHUNK_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    wire: watch::Sender<Wire>,
    traffic: Arc<Traffic>,
    accepting: AbortHandle,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

#[derive(Debug, Clone)]
struct Wire {
    target: SocketAddr,
    to_server: bool,
    to_client: bool,
    cut: bool,
    /// Delay of the server's bytes.
    delay: Duration,
    /// Counted, so that a connection which sleeps through a cut and a healing still dies of it.
    cuts: u64,
}

#[derive(Debug, Default)]
struct Traffic {
    connections: AtomicUsize,
    held: AtomicUsize,
}

/// Counts for as long as it lives, however its task ends.
struct Counted<'a>(&'a AtomicUsize, usize);

impl<'a> Counted<'a> {
    fn add(counter: &'a AtomicUsize, count: usize) -> Self {
        counter.fetch_add(count, Ordering::Relaxed);
        Counted(counter, count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Wire {
    fn flows(&self, way: Way) -> bool {
        match way {
            Way::ToServer => self.to_server,
            Way::ToClient => self.to_client,
        }
    }
}

impl Proxy {
    /// Listens on a free port of this machine and forwards to `target`.
    pub async fn start(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let wire = watch::Sender::new(Wire {
            target,
            to_server: true,
            to_client: true,
            cut: false,
            delay: Duration::ZERO,
            cuts: 0,
        });
        let traffic = Arc::<Traffic>::default();
        let accepting = tokio::spawn(accept(listener, wire.subscribe(), traffic.clone())).abort_handle();
        Proxy { address, wire, traffic, accepting }
    }

    /// Returns the address to connect to instead of the server's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.traffic.connections.load(Ordering::Relaxed)
    }

    /// Returns the least number of bytes that a frozen wire holds: sent and not yet delivered.
    pub fn held_bytes(&self) -> usize {
        self.traffic.held.load(Ordering::Relaxed)
    }

    /// Changes the server's address: new connections go there.
    pub fn retarget(&self, target: SocketAddr) {
        self.wire.send_modify(|wire| wire.target = target);
    }

    /// Resets every connection and, until it heals, every new one.
    pub fn cut(&self) {
        self.wire.send_modify(|wire| {
            wire.cut = true;
            wire.cuts += 1;
        });
    }

    /// Stops delivery both ways, without closing a connection.
    pub fn freeze(&self) {
        self.wire.send_modify(|wire| (wire.to_server, wire.to_client) = (false, false));
    }

    /// Stops delivery this way. The other stays as it is.
    pub fn freeze_one_way(&self, way: Way) {
        self.wire.send_modify(|wire| match way {
            Way::ToServer => wire.to_server = false,
            Way::ToClient => wire.to_client = false,
        });
    }

    /// Delays the server's bytes, until the wire heals.
    pub fn slow(&self, delay: Duration) {
        self.wire.send_modify(|wire| wire.delay = delay);
    }

    /// Resumes delivery, first of the bytes that a frozen wire held.
    pub fn heal(&self) {
        self.wire.send_modify(|wire| {
            (wire.to_server, wire.to_client, wire.cut, wire.delay) = (true, true, false, Duration::ZERO);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, wire: watch::Receiver<Wire>, traffic: Arc<Traffic>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others must be closed first.
            tokio::task::yield_now().await;
            continue;
        };
        let (wire, traffic) = (wire.clone(), traffic.clone());
        tokio::spawn(async move {
            let _living = Counted::add(&traffic.connections, 1);
            carry(client, wire, &traffic).await;
        });
    }
}

/// Forwards one connection from its beginning to its end.
async fn carry(client: TcpStream, mut wire: watch::Receiver<Wire>, traffic: &Traffic) {
    let born = wire.borrow_and_update().clone();
    // Without lingering, what is dropped is reset instead of closed: nobody may take a cut for an orderly end.
    if client.set_zero_linger().is_err() || born.cut {
        return;
    }
    let cuts = born.cuts;
    let mut seen = wire.clone();
    tokio::select! {
        _ = seen.wait_for(|wire| wire.cuts != cuts) => {}
        _ = join(client, wire, traffic) => {}
    }
}

async fn join(mut client: TcpStream, mut wire: watch::Receiver<Wire>, traffic: &Traffic) -> Result<()> {
    // Not even the handshake reaches a server to which nothing flows.
    flowing(&mut wire, Way::ToServer).await?;
    let target = wire.borrow().target;
    let mut server = TcpStream::connect(target).await?;
    server.set_zero_linger()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    // Borrowed halves: an owned one that is dropped shuts the connection down first.
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::try_join!(
        pump(from_client, to_server, Way::ToServer, wire.clone(), traffic),
        pump(from_server, to_client, Way::ToClient, wire, traffic)
    )?;
    Ok(())
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    way: Way,
    mut wire: watch::Receiver<Wire>,
    traffic: &Traffic,
) -> Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    // Bytes that arrive later do not delay the bytes after them by more.
    let mut late: VecDeque<(Instant, Vec<u8>, Counted<'_>)> = VecDeque::new();
    loop {
        let due = late.front().map(|(due, ..)| *due);
        let read = tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => None,
            read = from.read(&mut buffer), if late.back().is_none_or(|(_, bytes, _)| !bytes.is_empty()) => Some(read?),
        };
        match read {
            Some(read) => {
                let delay = if way == Way::ToClient { wire.borrow().delay } else { Duration::ZERO };
                // In a frozen wire these bytes are held here, and what follows them in the kernel's buffers.
                let holding = Counted::add(&traffic.held, read);
                late.push_back((Instant::now() + delay, buffer[..read].to_vec(), holding));
            }
            None => {
                let Some((_, bytes, holding)) = late.pop_front() else { continue };
                flowing(&mut wire, way).await?;
                drop(holding);
                if bytes.is_empty() {
                    return to.shutdown().await;
                }
                to.write_all(&bytes).await?;
            }
        }
    }
}

/// Waits until bytes may go this way. Returns an error once the proxy is gone.
async fn flowing(wire: &mut watch::Receiver<Wire>, way: Way) -> Result<()> {
    match wire.wait_for(|wire| wire.flows(way)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(std::io::ErrorKind::ConnectionAborted.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::wait_for_value;

    /// Sends back whatever it is sent.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        address
    }

    async fn open(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(proxy.address()).await.expect("the proxy listens")
    }

    async fn write_text(stream: &mut TcpStream, text: &str) {
        stream.write_all(text.as_bytes()).await.expect("it is written");
    }

    async fn read_text(stream: &mut TcpStream, bytes: usize) -> Result<String> {
        let mut received = vec![0; bytes];
        stream.read_exact(&mut received).await?;
        Ok(String::from_utf8(received).expect("text"))
    }

    async fn assert_reset(stream: &mut TcpStream) {
        let error = read_text(stream, 1).await.expect_err("no more bytes");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "an orderly end would be another kind");
    }

    /// Whether nothing comes. That cannot be waited for, so a wire that leaks is caught by most runs, not by each.
    async fn silent(stream: &mut TcpStream) -> bool {
        let mut byte = [0];
        tokio::time::timeout(Duration::from_millis(50), stream.peek(&mut byte)).await.is_err()
    }

    #[tokio::test]
    async fn an_open_wire_carries_everything_and_its_orderly_end() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = open(&proxy).await;
        let text = "all of it ".repeat(10_000);
        let (mut read, mut write) = stream.split();
        let (sent, received) = tokio::join!(
            async {
                write.write_all(text.as_bytes()).await?;
                write.shutdown().await
            },
            async {
                let mut received = String::new();
                read.read_to_string(&mut received).await.map(|_| received)
            }
        );
        sent.expect("it is sent");
        assert_eq!(received.expect("an end without an error"), text);
        wait_for_value("connections left", 0, || async { proxy.connections() }).await;
    }

    #[tokio::test]
    async fn a_cut_resets_what_is_there_and_what_comes_until_it_heals() {
        let proxy = Proxy::start(echo().await).await;
        let mut before = open(&proxy).await;
        write_text(&mut before, "a").await;
        assert_eq!(read_text(&mut before, 1).await.expect("an echo"), "a");
        proxy.cut();
        assert_reset(&mut before).await;
        // It may be over before it was made: the kernel's greeting and the reset race.
        if let Ok(mut meanwhile) = TcpStream::connect(proxy.address()).await {
            assert_reset(&mut meanwhile).await;
        }
        proxy.heal();
        let mut after = open(&proxy).await;
        write_text(&mut after, "b").await;
        assert_eq!(read_text(&mut after, 1).await.expect("an echo"), "b");
    }

    #[tokio::test]
    async fn a_connection_that_slept_through_a_cut_is_reset_nevertheless() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = open(&proxy).await;
        write_text(&mut stream, "a").await;
        assert_eq!(read_text(&mut stream, 1).await.expect("an echo"), "a");
        proxy.cut();
        proxy.heal();
        assert_reset(&mut stream).await;
    }

    #[tokio::test]
    async fn a_frozen_wire_holds_what_is_sent_until_it_heals() {
        let proxy = Proxy::start(echo().await).await;
        let mut before = open(&proxy).await;
        write_text(&mut before, "a").await;
        assert_eq!(read_text(&mut before, 1).await.expect("an echo"), "a");
        proxy.freeze();
        write_text(&mut before, "late").await;
        let mut meanwhile = open(&proxy).await;
        write_text(&mut meanwhile, "too").await;
        wait_for_value("bytes held", 4, || async { proxy.held_bytes() }).await;
        assert!(silent(&mut before).await && silent(&mut meanwhile).await);
        proxy.heal();
        assert_eq!(read_text(&mut before, 4).await.expect("what was held"), "late");
        assert_eq!(read_text(&mut meanwhile, 3).await.expect("what was held"), "too");
    }

    #[tokio::test]
    async fn a_wire_that_is_cut_while_it_is_frozen_loses_what_it_held() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = open(&proxy).await;
        proxy.freeze();
        write_text(&mut stream, "lost").await;
        proxy.cut();
        assert_reset(&mut stream).await;
    }

    #[tokio::test]
    async fn one_way_can_freeze_alone() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let proxy = Proxy::start(listener.local_addr().expect("its address")).await;
        let mut client = open(&proxy).await;
        let (mut server, _) = listener.accept().await.expect("a connection");
        proxy.freeze_one_way(Way::ToClient);
        write_text(&mut client, "request").await;
        assert_eq!(read_text(&mut server, 7).await.expect("the request"), "request");
        write_text(&mut server, "result").await;
        assert!(silent(&mut client).await);
        proxy.heal();
        assert_eq!(read_text(&mut client, 6).await.expect("the response"), "result");
        proxy.freeze_one_way(Way::ToServer);
        write_text(&mut server, "push").await;
        assert_eq!(read_text(&mut client, 4).await.expect("the push"), "push");
        write_text(&mut client, "held").await;
        assert!(silent(&mut server).await);
    }

    #[tokio::test]
    async fn what_a_server_sends_over_a_slow_wire_arrives_later() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = open(&proxy).await;
        proxy.slow(Duration::from_secs(600));
        write_text(&mut stream, "a").await;
        wait_for_value("bytes held", 1, || async { proxy.held_bytes() }).await;
        assert!(silent(&mut stream).await);
        proxy.heal();
        let mut after = open(&proxy).await;
        write_text(&mut after, "b").await;
        assert_eq!(read_text(&mut after, 1).await.expect("an echo"), "b");
    }

    #[tokio::test]
    async fn a_server_that_is_away_resets_and_one_elsewhere_is_followed() {
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = nobody.local_addr().expect("its address");
        drop(nobody);
        let proxy = Proxy::start(address).await;
        let mut stream = open(&proxy).await;
        assert_reset(&mut stream).await;
        proxy.retarget(echo().await);
        let mut stream = open(&proxy).await;
        write_text(&mut stream, "a").await;
        assert_eq!(read_text(&mut stream, 1).await.expect("an echo"), "a");
    }

    #[tokio::test]
    async fn the_end_of_the_proxy_is_the_end_of_its_connections() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = open(&proxy).await;
        write_text(&mut stream, "a").await;
        assert_eq!(read_text(&mut stream, 1).await.expect("an echo"), "a");
        drop(proxy);
        assert_reset(&mut stream).await;
    }
}
