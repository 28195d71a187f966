//! What the tests of the Redis adapters have in common.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use convoke_adapters::redis::RedisBus;
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::{Bus, Delivery, Entry};
use convoke_core::{JobId, Result};
use parking_lot::Mutex;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub fn channels() -> Channels {
    Channels::new("convoke")
}

pub async fn try_connect(url: &str) -> Result<RedisBus> {
    RedisBus::connect(url, channels()).await
}

pub async fn connect(url: &str) -> RedisBus {
    try_connect(url).await.unwrap_or_else(|error| panic!("cannot connect to {url}: {error}"))
}

pub fn job(n: u128) -> JobId {
    JobId(uuid::Uuid::from_u128(n))
}

pub fn status(n: u128) -> String {
    channels().status(job(n))
}

pub fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn texts(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| std::str::from_utf8(&delivery.body).expect("text was sent")).collect()
}

pub fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery.id.clone()).collect()
}

pub fn texts_read(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| std::str::from_utf8(&entry.body).expect("text was sent")).collect()
}

pub fn ids_read(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.id.clone()).collect()
}

pub async fn push(bus: &dyn Bus, queue: &str, bodies: &[&str]) {
    let entries = bodies.iter().map(|text| (queue.to_owned(), body(text))).collect();
    bus.push(entries).await.expect("push");
}

/// A connection of the test's own, to look at what the adapter left and to do what a stranger would.
pub struct Probe(MultiplexedConnection);

impl Probe {
    pub async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        Probe(client.get_multiplexed_async_connection().await.expect("connects"))
    }

    pub async fn ask(&mut self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut self.0).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub async fn number(&mut self, words: &[&str]) -> i64 {
        match self.ask(words).await {
            Value::Int(number) => number,
            other => panic!("{words:?} answered {other:?}"),
        }
    }

    pub async fn keys(&mut self, pattern: &str) -> Vec<String> {
        let Value::Array(keys) = self.ask(&["KEYS", pattern]).await else { panic!("KEYS answers a list") };
        let text = |key| match key {
            Value::BulkString(bytes) => String::from_utf8(bytes).expect("our keys are text"),
            other => panic!("a key is {other:?}"),
        };
        let mut keys: Vec<String> = keys.into_iter().map(text).collect();
        keys.sort();
        keys
    }

    /// Connections to the server, this one included.
    pub async fn connections(&mut self) -> usize {
        let Value::BulkString(list) = self.ask(&["CLIENT", "LIST"]).await else { panic!("CLIENT LIST answers text") };
        String::from_utf8_lossy(&list).lines().count()
    }
}

/// Stands before a server and loses one answer on demand: the request arrives, and the connection breaks instead of the
/// answer.
pub struct Proxy {
    address: SocketAddr,
    trap: Arc<Trap>,
}

#[derive(Default)]
struct Trap {
    word: Mutex<Option<String>>,
    has_lost_one: AtomicBool,
}

impl Trap {
    fn is_sprung_by(&self, request: &[u8]) -> bool {
        let mut word = self.word.lock();
        let is_in = |word: &String| request.windows(word.len()).any(|part| part == word.as_bytes());
        word.take_if(|word| is_in(word)).is_some()
    }
}

impl Proxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let trap = Arc::new(Trap::default());
        let shared = trap.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server is there");
                tokio::spawn(relay(client, server, shared.clone()));
            }
        });
        Proxy { address, trap }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub fn lose_the_answer_to(&self, word: &str) {
        self.trap.has_lost_one.store(false, Ordering::SeqCst);
        *self.trap.word.lock() = Some(word.to_owned());
    }

    pub fn has_lost_one(&self) -> bool {
        self.trap.has_lost_one.load(Ordering::SeqCst)
    }
}

/// Until either side is done, or the answer to a request that sprang the trap is there.
async fn relay(mut client: TcpStream, mut server: TcpStream, trap: Arc<Trap>) {
    let (mut request, mut answer) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let is_sprung = trap.is_sprung_by(&request[..length]);
                if server.write_all(&request[..length]).await.is_err() {
                    return;
                }
                if is_sprung && matches!(server.read(&mut answer).await, Ok(1..)) {
                    trap.has_lost_one.store(true, Ordering::SeqCst);
                    return;
                }
            }
            read = server.read(&mut answer) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&answer[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
