//! The bus of a world, and a process's way to it.
//!
//! The bus may forget everything, as a Redis that was restarted without its data. Its readers then begin again on the new
//! one, and learn that there is a gap.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_adapters::memory::MemoryBus;
use convoke_core::Result;
use convoke_core::jobs::wire::Enqueue;
use convoke_core::ports::{Bus, Consumer, Multiplex, QueueEnd, QueueReaders, Subscription};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::bus_readers::{SimConsumer, SimMultiplex, SimSubscription};
use super::{Way, now};
use crate::network::{Network, Passage};

/// The bus itself.
pub struct BusServer {
    current: Mutex<(u64, MemoryBus)>,
    forgotten: Notify,
    network: Arc<Network>,
    /// The queue of enqueues, whose entries are acknowledged to clients.
    enqueue: String,
}

impl BusServer {
    pub fn new(network: Arc<Network>, enqueue: String) -> Arc<Self> {
        let current = Mutex::new((0, MemoryBus::new()));
        Arc::new(BusServer { current, forgotten: Notify::new(), network, enqueue })
    }

    /// Loses all that it had.
    pub fn forget(&self) {
        let mut current = self.current.lock();
        *current = (current.0 + 1, MemoryBus::new());
        drop(current);
        self.forgotten.notify_waiters();
    }

    /// Returns the present bus and its generation.
    pub fn current(&self) -> (u64, MemoryBus) {
        self.current.lock().clone()
    }

    pub fn bus(&self) -> MemoryBus {
        self.current().1
    }

    /// Waits until it has forgotten what it had in this generation.
    pub async fn forgets(&self, generation: u64) {
        while self.current.lock().0 == generation {
            self.forgotten.notified().await;
        }
    }

    /// The jobs of these entries were acknowledged, and are lost.
    fn excuse(&self, entries: &[(String, Bytes)]) {
        let enqueues = entries.iter().filter(|(queue, _)| *queue == self.enqueue);
        let jobs = enqueues.filter_map(|(_, body)| serde_json::from_slice::<Enqueue>(body).ok()?.spec.id);
        self.network.history.excuse(jobs);
    }

    fn publish(self: &Arc<Self>, topic: String, message: Bytes, passage: Passage) -> Result<()> {
        let server = self.clone();
        let act = move || {
            for _ in 0..1 + usize::from(passage.is_repeated) {
                // Nobody is there to learn that it failed.
                let _ = now(server.bus().publish(&topic, message.clone()));
            }
        };
        if !passage.is_lost {
            delayed(passage.delay, act);
        }
        Ok(())
    }

    fn push(self: &Arc<Self>, entries: Vec<(String, Bytes)>, passage: Passage) -> Result<()> {
        if passage.is_lost {
            self.excuse(&entries);
            return Ok(());
        }
        if passage.is_repeated {
            now(self.bus().push(entries.clone()))?;
        }
        now(self.bus().push(entries))
    }
}

fn delayed(delay: Duration, act: impl FnOnce() + Send + 'static) {
    if delay.is_zero() {
        return act();
    }
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        act();
    });
}

/// A process's way to the bus.
#[derive(Clone)]
pub struct SimBus {
    pub way: Way,
    pub server: Arc<BusServer>,
}

impl SimBus {
    async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        is_write: bool,
        act: impl FnOnce(&MemoryBus) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let server = self.server.clone();
        self.way.call(what, is_write, move || act(&server.bus())).await
    }
}

#[async_trait]
impl Bus for SimBus {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<()> {
        let (server, topic) = (self.server.clone(), topic.to_owned());
        let passage = self.way.network.passage(false);
        self.way.call("publish", true, move || server.publish(topic, message, passage)).await
    }

    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()> {
        let (server, topic) = (self.server.clone(), topic.to_owned());
        let passage = self.way.network.passage(false);
        self.way
            .call("announce", true, move || {
                if passage.is_lost {
                    return Ok(());
                }
                now(server.bus().announce(&topic, message, kept))
            })
            .await
    }

    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>> {
        let (server, topics, way) = (self.server.clone(), topics.to_vec(), self.way.clone());
        self.way
            .call("subscribe", false, move || {
                Ok(Box::new(SimSubscription::open(way, server, topics)?) as Box<dyn Subscription>)
            })
            .await
    }

    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()> {
        let server = self.server.clone();
        let passage = self.way.network.passage(true);
        self.way.call("push", true, move || server.push(entries, passage)).await
    }

    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>> {
        let (server, way) = (self.server.clone(), self.way.clone());
        let names = [queue, group, name].map(str::to_owned);
        self.way
            .call("consumer", false, move || Ok(Box::new(SimConsumer::join(way, server, names)?) as Box<dyn Consumer>))
            .await
    }

    async fn backlog(&self, queue: &str, group: &str) -> Result<u64> {
        let (queue, group) = (queue.to_owned(), group.to_owned());
        self.call("backlog", false, move |bus| now(bus.backlog(&queue, &group))).await
    }

    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        let (queues, group) = (queues.to_vec(), group.to_owned());
        self.call("readers", false, move |bus| now(bus.readers(&queues, &group, idle))).await
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        let (server, way) = (self.server.clone(), self.way.clone());
        self.way
            .call("multiplex", false, move || Ok(Box::new(SimMultiplex::open(way, server)?) as Box<dyn Multiplex>))
            .await
    }

    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>> {
        let queues = queues.to_vec();
        self.call("ends", false, move |bus| now(bus.ends(&queues))).await
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        let ends = ends.to_vec();
        self.call("close", true, move |bus| now(bus.close(&ends))).await
    }

    async fn trim(&self, queues: &[String]) -> Result<()> {
        let queues = queues.to_vec();
        self.call("trim", true, move |bus| now(bus.trim(&queues))).await
    }

    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()> {
        let queues = queues.to_vec();
        self.call("forget_unread", true, move |bus| now(bus.forget_unread(&queues, idle))).await
    }

    async fn queues(&self, prefix: &str) -> Result<Vec<String>> {
        let prefix = prefix.to_owned();
        self.call("queues", false, move |bus| now(bus.queues(&prefix))).await
    }

    async fn ping(&self) -> Result<()> {
        self.call("ping", false, |bus| now(bus.ping())).await
    }
}
