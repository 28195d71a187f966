//! The readers of the bus: subscriptions, consumers, and readers of many queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::{Bus, Consumer, Delivery, Entry, Message, Multiplex, Subscription};
use convoke_core::{Error, Result};
use parking_lot::Mutex;

use super::bus::BusServer;
use super::{Way, now};

/// How long a reader that met a failure waits before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub struct SimSubscription {
    way: Way,
    server: Arc<BusServer>,
    topics: Vec<String>,
    generation: u64,
    inner: Box<dyn Subscription>,
    /// Messages were missed while the process could not reach the bus.
    has_gap: bool,
    held: Option<Message>,
}

impl SimSubscription {
    pub fn open(way: Way, server: Arc<BusServer>, topics: Vec<String>) -> Result<Self> {
        let (generation, bus) = server.current();
        let inner = now(bus.subscribe(&topics))?;
        Ok(SimSubscription { way, server, topics, generation, inner, has_gap: false, held: None })
    }
}

#[async_trait]
impl Subscription for SimSubscription {
    async fn next(&mut self) -> Result<Option<Message>> {
        loop {
            if let Some(held) = self.held.take() {
                return Ok(Some(held));
            }
            let received = tokio::select! {
                biased;
                () = self.server.forgets(self.generation) => None,
                received = self.inner.next() => Some(received?),
            };
            self.way.process.running().await;
            let Some(message) = received else {
                let (generation, bus) = self.server.current();
                self.inner = now(bus.subscribe(&self.topics))?;
                (self.generation, self.has_gap) = (generation, false);
                return Ok(None);
            };
            if self.way.network.is_cut_from_bus(&self.way.process) {
                self.has_gap = true;
            } else if std::mem::take(&mut self.has_gap) {
                self.held = message;
                return Ok(None);
            } else {
                return Ok(message);
            }
        }
    }
}

pub struct SimConsumer {
    way: Way,
    server: Arc<BusServer>,
    /// Of the queue, the group and the consumer.
    names: [String; 3],
    inner: Mutex<(u64, Arc<dyn Consumer>)>,
    has_failed: AtomicBool,
}

impl SimConsumer {
    pub fn join(way: Way, server: Arc<BusServer>, names: [String; 3]) -> Result<Self> {
        let inner = Mutex::new(open(&server, &names)?);
        Ok(SimConsumer { way, server, names, inner, has_failed: AtomicBool::new(false) })
    }

    /// Returns the consumer on the present bus; joins again if that has forgotten it.
    fn inner(&self) -> Result<Arc<dyn Consumer>> {
        let mut inner = self.inner.lock();
        if inner.0 != self.server.current().0 {
            *inner = open(&self.server, &self.names)?;
        }
        Ok(inner.1.clone())
    }
}

fn open(server: &BusServer, [queue, group, name]: &[String; 3]) -> Result<(u64, Arc<dyn Consumer>)> {
    let (generation, bus) = server.current();
    Ok((generation, now(bus.consumer(queue, group, name))?.into()))
}

#[async_trait]
impl Consumer for SimConsumer {
    async fn take_now(&self, max: usize) -> Result<Vec<Delivery>> {
        let inner = self.inner()?;
        let taken = self.way.call("take", false, move || now(inner.take_now(max))).await;
        self.has_failed.store(taken.is_err(), Ordering::Relaxed);
        taken
    }

    async fn ready(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK_AGAIN).await;
            return Ok(());
        }
        let inner = self.inner()?;
        let generation = self.inner.lock().0;
        tokio::select! {
            biased;
            () = self.server.forgets(generation) => Ok(()),
            ready = inner.ready() => ready,
        }
    }

    async fn ack(&self, ids: &[String]) -> Result<()> {
        let (inner, ids) = (self.inner()?, ids.to_vec());
        self.way.call("acknowledge", true, move || now(inner.ack(&ids))).await
    }

    async fn take_over(&self, idle: Duration, max: usize) -> Result<Vec<Delivery>> {
        let (inner, network) = (self.inner()?, self.way.network.clone());
        self.way
            .call("take over", false, move || {
                let taken = now(inner.take_over(idle, max))?;
                if !taken.is_empty() {
                    network.history.reach("entry of a dead reader taken over");
                }
                Ok(taken)
            })
            .await
    }

    async fn leave(&self) -> Result<()> {
        let inner = self.inner()?;
        self.way.call("leave", true, move || now(inner.leave())).await
    }
}

pub struct SimMultiplex {
    way: Way,
    server: Arc<BusServer>,
    queues: Mutex<BTreeSet<String>>,
    inner: Mutex<(u64, Arc<dyn Multiplex>)>,
}

impl SimMultiplex {
    pub fn open(way: Way, server: Arc<BusServer>) -> Result<Self> {
        let (generation, bus) = server.current();
        let inner = Mutex::new((generation, now(bus.multiplex())?.into()));
        Ok(SimMultiplex { way, server, queues: Mutex::default(), inner })
    }

    /// Returns the reader on the present bus; begins again if that has forgotten it.
    fn inner(&self) -> Result<(u64, Arc<dyn Multiplex>)> {
        let mut inner = self.inner.lock();
        let (generation, bus) = self.server.current();
        if inner.0 != generation {
            let queues: Vec<String> = self.queues.lock().iter().cloned().collect();
            let reader: Arc<dyn Multiplex> = now(bus.multiplex())?.into();
            now(reader.add(&queues))?;
            *inner = (generation, reader);
        }
        Ok(inner.clone())
    }
}

#[async_trait]
impl Multiplex for SimMultiplex {
    async fn add(&self, queues: &[String]) -> Result<()> {
        let (_, inner) = self.inner()?;
        let names = queues.to_vec();
        let added = self.way.call("read queues", false, move || now(inner.add(&names))).await;
        if added.is_ok() {
            self.queues.lock().extend(queues.iter().cloned());
        }
        added
    }

    async fn remove(&self, queues: &[String]) -> Result<()> {
        let (_, inner) = self.inner()?;
        self.queues.lock().retain(|queue| !queues.contains(queue));
        let names = queues.to_vec();
        self.way.call("read no more", false, move || now(inner.remove(&names))).await
    }

    async fn next(&self) -> Result<Vec<(String, Vec<Entry>)>> {
        if self.way.network.is_cut_from_bus(&self.way.process) {
            tokio::time::sleep(LOOK_AGAIN).await;
            return Err(Error::unavailable("bus", "connection refused"));
        }
        loop {
            let (generation, inner) = self.inner()?;
            let read = tokio::select! {
                biased;
                () = self.server.forgets(generation) => continue,
                read = inner.next() => read?,
            };
            while self.way.network.is_cut_from_bus(&self.way.process) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            self.way.process.running().await;
            return Ok(read);
        }
    }

    async fn ack(&self, done: &[(String, Vec<String>)]) -> Result<()> {
        let ((_, inner), done) = (self.inner()?, done.to_vec());
        self.way.call("acknowledge events", true, move || now(inner.ack(&done))).await
    }

    async fn finish(&self, done: &[(String, Vec<String>)]) -> Result<()> {
        let ((_, inner), done) = (self.inner()?, done.to_vec());
        self.queues.lock().retain(|queue| !done.iter().any(|(name, _)| name == queue));
        self.way.call("finish", true, move || now(inner.finish(&done))).await
    }
}
