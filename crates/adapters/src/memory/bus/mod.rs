//! The bus of one process.
//!
//! Queues are under one lock and topics under another; a call takes its lock once, whatever the size of its batch,
//! never holds it across an await, and wakes waiting tasks after it has released it. Nothing polls: a consumer sleeps
//! on its group's bell, a multiplex on its own, and the cost of a message to a multiplex does not depend on the number
//! of queues.
//!
//! All of it is lost when the process ends. That is allowed: the bus is a hint, the store is the truth.

mod consumer;
mod multiplex;
mod queue;
mod topics;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::Result;
use convoke_core::limits::GROUP_READERS_MAX;
use convoke_core::ports::{Bus, Consumer, Multiplex, QueueEnd, QueueReaders, Subscription};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use consumer::MemoryConsumer;
use multiplex::{MemoryMultiplex, Ready};
use queue::Queue;
use topics::Topics;

/// A bus within the process. Clones are the same bus.
#[derive(Clone, Default)]
pub struct MemoryBus {
    queues: Arc<Mutex<Queues>>,
    topics: Arc<Mutex<Topics>>,
}

/// All queues of a bus, and their readers.
#[derive(Default)]
struct Queues {
    by_name: HashMap<Arc<str>, Queue>,
    multiplexes: HashMap<u64, Ready>,
    /// The last number assigned to a queue, a consumer or a multiplex.
    last_number: u64,
}

impl Queues {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn open(&mut self, name: &str) -> &mut Queue {
        if !self.by_name.contains_key(name) {
            let queue = Queue::new(self.number());
            self.by_name.insert(name.into(), queue);
        }
        self.by_name.get_mut(name).expect("it was just put there")
    }

    /// Appends `bodies` to a queue and adds the bells to ring to `bells`.
    fn append(&mut self, name: &str, bodies: impl Iterator<Item = Bytes>, bells: &mut Vec<Arc<Notify>>) {
        let queue = self.open(name);
        bodies.for_each(|body| queue.push(body));
        bells.extend(queue.groups().map(|group| group.bell().clone()));
        if queue.has_unlisted_reader() {
            self.list(name, bells);
        }
    }

    /// Adds a queue to the ready lists of the multiplexes that read it and do not have it there yet.
    fn list(&mut self, name: &str, bells: &mut Vec<Arc<Notify>>) {
        let Some((key, _)) = self.by_name.get_key_value(name) else { return };
        let key = key.clone();
        let Some(queue) = self.by_name.get_mut(name) else { return };
        for reader in queue.list_readers() {
            let Some(ready) = self.multiplexes.get_mut(&reader) else { continue };
            ready.queues.push_back(key.clone());
            if !bells.iter().any(|bell| Arc::ptr_eq(bell, &ready.bell)) {
                bells.push(ready.bell.clone());
            }
        }
    }

    /// Drops a queue that is empty and has no readers, if its absence makes no difference.
    fn drop_if_idle(&mut self, name: &str) {
        if self.by_name.get(name).is_some_and(Queue::is_idle) {
            self.by_name.remove(name);
        }
    }
}

impl MemoryBus {
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Bus for MemoryBus {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<()> {
        let bells = self.topics.lock().publish(topic, message);
        bells.iter().for_each(|bell| bell.notify_one());
        Ok(())
    }

    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()> {
        let mut bells = Vec::new();
        {
            let mut queues = self.queues.lock();
            queues.append(topic, std::iter::once(message.clone()), &mut bells);
            if let Some(queue) = queues.by_name.get_mut(topic) {
                queue.keep_last(kept);
            }
        }
        bells.iter().for_each(|bell| bell.notify_one());
        self.publish(topic, message).await
    }

    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>> {
        Ok(Box::new(topics::subscribe(&self.topics, topics)))
    }

    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()> {
        let mut bells = Vec::new();
        {
            let mut queues = self.queues.lock();
            let mut entries = entries.into_iter().peekable();
            // Consecutive entries of one queue share its lookup and its bell; the order within each queue is that of
            // the batch.
            while let Some((name, first)) = entries.next() {
                let more = std::iter::from_fn(|| entries.next_if(|(next, _)| *next == name).map(|(_, body)| body));
                queues.append(&name, std::iter::once(first).chain(more), &mut bells);
            }
        }
        bells.iter().for_each(|bell| bell.notify_one());
        Ok(())
    }

    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>> {
        Ok(Box::new(MemoryConsumer::join(self.queues.clone(), queue, group, name)))
    }

    async fn backlog(&self, queue: &str, group: &str) -> Result<u64> {
        Ok(self.queues.lock().by_name.get(queue).map_or(0, |queue| queue.backlog(group)))
    }

    async fn readers(&self, names: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        let (queues, now) = (self.queues.lock(), Instant::now());
        let readers = |name: &String| {
            let group = queues.by_name.get(name.as_str())?.group(group)?;
            let mut readers = group.readers(now);
            readers.retain(|reader| reader.pending > 0 || reader.idle < idle);
            readers.truncate(GROUP_READERS_MAX);
            Some(QueueReaders { readers, is_awaited: false })
        };
        Ok(names.iter().map(readers).collect())
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        Ok(Box::new(MemoryMultiplex::new(self.queues.clone())))
    }

    async fn ends(&self, names: &[String]) -> Result<Vec<QueueEnd>> {
        let queues = self.queues.lock();
        let end = |name: &String| {
            let last = queues.by_name.get(name.as_str())?.last_id()?;
            Some(QueueEnd { queue: name.clone(), last })
        };
        Ok(names.iter().filter_map(end).collect())
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        let mut queues = self.queues.lock();
        for QueueEnd { queue: name, last } in ends {
            if let Some(queue) = queues.by_name.get_mut(name.as_str()) {
                queue.drop_until(last);
            }
            queues.drop_if_idle(name);
        }
        Ok(())
    }

    async fn trim(&self, _queues: &[String]) -> Result<()> {
        // Without consumers there are no readers, and entries that all groups have acknowledged are dropped at once.
        Ok(())
    }

    async fn forget_unread(&self, _queues: &[String], _idle: Duration) -> Result<()> {
        // An empty queue is dropped with its last reader.
        Ok(())
    }

    async fn queues(&self, prefix: &str) -> Result<Vec<String>> {
        let queues = self.queues.lock();
        let held = queues.by_name.iter().filter(|(name, queue)| name.starts_with(prefix) && !queue.is_empty());
        let mut names: Vec<String> = held.map(|(name, _)| name.to_string()).collect();
        // By name, so that a simulation repeats itself.
        names.sort_unstable();
        Ok(names)
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn is_in_process(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_that_is_read_to_the_end_and_left_costs_nothing() {
        let bus = MemoryBus::new();
        let multiplex = bus.multiplex().await.expect("multiplex");
        multiplex.add(&["a".into()]).await.expect("add");
        let consumer = bus.consumer("b", "g", "c").await.expect("consumer");
        let body = Bytes::from_static(b"x");
        bus.push(vec![("a".into(), body.clone()), ("b".into(), body)]).await.expect("push");
        let read = multiplex.next().await.expect("next").remove(0).1;
        let taken = consumer.take(1).await.expect("take");
        multiplex.remove(&["a".into()]).await.expect("remove");
        assert_eq!(bus.queues.lock().by_name.len(), 2, "what is not acknowledged is kept");
        multiplex.ack(&[("a".to_owned(), vec![read[0].id.clone()])]).await.expect("ack");
        consumer.ack(&[taken[0].id.clone()]).await.expect("ack");
        drop(consumer);
        assert!(bus.queues.lock().by_name.is_empty());
        drop(multiplex);
        assert!(bus.queues.lock().multiplexes.is_empty());
        let subscription = bus.subscribe(&["t".into()]).await.expect("subscribe");
        assert!(!bus.topics.lock().is_empty());
        drop(subscription);
        assert!(bus.topics.lock().is_empty());
    }
}
