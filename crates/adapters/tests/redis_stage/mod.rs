//! Shared parts of the tests of the Redis adapters.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::Ipv4Addr;
use std::ops::Deref;

use bytes::Bytes;
use convoke_adapters::redis::RedisBus;
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::{Bus, Delivery, Entry};
use convoke_core::{JobId, Result};
use convoke_testkit::process::LosingProxy;
use redis::Value;
use redis::aio::MultiplexedConnection;

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

/// A connection of the test's own, to inspect the adapter's data and to act as a foreign client.
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
            other => panic!("{words:?} returned {other:?}"),
        }
    }

    /// Returns the length of the list in the reply.
    pub async fn rows(&mut self, words: &[&str]) -> usize {
        match self.ask(words).await {
            Value::Array(rows) => rows.len(),
            other => panic!("{words:?} returned {other:?}"),
        }
    }

    pub async fn keys(&mut self, pattern: &str) -> Vec<String> {
        let Value::Array(keys) = self.ask(&["KEYS", pattern]).await else { panic!("KEYS returns a list") };
        let text = |key| match key {
            Value::BulkString(bytes) => String::from_utf8(bytes).expect("our keys are text"),
            other => panic!("a key is {other:?}"),
        };
        let mut keys: Vec<String> = keys.into_iter().map(text).collect();
        keys.sort();
        keys
    }

    /// Returns the number of connections to the server, this one included.
    pub async fn connections(&mut self) -> usize {
        let Value::BulkString(list) = self.ask(&["CLIENT", "LIST"]).await else { panic!("CLIENT LIST returns text") };
        String::from_utf8_lossy(&list).lines().count()
    }
}

/// A proxy of a Redis that loses one reply on demand.
pub struct Proxy(LosingProxy);

impl Proxy {
    pub async fn to(port: u16) -> Self {
        Proxy(LosingProxy::to((Ipv4Addr::LOCALHOST, port).into()).await)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.0.address())
    }
}

impl Deref for Proxy {
    type Target = LosingProxy;

    fn deref(&self) -> &LosingProxy {
        &self.0
    }
}
