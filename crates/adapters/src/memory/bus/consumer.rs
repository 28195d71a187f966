//! A member of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::{Consumer, Delivery};
use convoke_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Queues;
use super::queue::Group;

pub(super) struct MemoryConsumer {
    queues: Arc<Mutex<Queues>>,
    queue: String,
    group: String,
    number: u64,
    bell: Arc<Notify>,
    left: AtomicBool,
}

impl MemoryConsumer {
    pub(super) fn join(queues: Arc<Mutex<Queues>>, queue: &str, group: &str, name: &str) -> Self {
        let mut locked = queues.lock();
        let number = locked.number();
        let bell = locked.open(queue).join(group, number, name, Instant::now());
        drop(locked);
        let left = AtomicBool::new(false);
        MemoryConsumer { queues, queue: queue.into(), group: group.into(), number, bell, left }
    }

    fn check_member(&self) -> Result<()> {
        if self.left.load(Ordering::Relaxed) {
            return Err(Error::not_found("consumer", format!("{} of {}", self.number, self.queue)));
        }
        Ok(())
    }

    fn part(&self, left: bool) {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.by_name.get_mut(self.queue.as_str()) {
            queue.part(&self.group, self.number, left);
        }
        queues.drop_if_idle(&self.queue);
    }

    fn take_waiting(&self, max: usize) -> Vec<Delivery> {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_name.get_mut(self.queue.as_str()) else { return Vec::new() };
        queue.saw(&self.group, self.number, Instant::now());
        if !queue.group(&self.group).is_some_and(|group| group.has_member(self.number) && group.has_waiting()) {
            return Vec::new();
        }
        let taken = queue.take(&self.group, self.number, max, Instant::now());
        // A bell wakes one consumer, which wakes the next if entries are left.
        if queue.group(&self.group).is_some_and(Group::has_waiting) {
            self.bell.notify_one();
        }
        taken
    }
}

#[async_trait]
impl Consumer for MemoryConsumer {
    async fn take_now(&self, max: usize) -> Result<Vec<Delivery>> {
        if let Err(error) = self.check_member() {
            // It may have been woken for an entry that it can no longer take.
            self.bell.notify_one();
            return Err(error);
        }
        // Nothing is awaited between taking and returning, so that a dropped future has taken nothing.
        Ok(self.take_waiting(max))
    }

    async fn ready(&self) -> Result<()> {
        // A push while no consumer waits leaves a permit, so a signal between `take_now` and this call is kept.
        self.bell.notified().await;
        Ok(())
    }

    async fn ack(&self, ids: &[String]) -> Result<()> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.by_name.get_mut(self.queue.as_str()) {
            queue.ack(&self.group, ids);
        }
        queues.drop_if_idle(&self.queue);
        Ok(())
    }

    async fn take_over(&self, idle: Duration, max: usize) -> Result<Vec<Delivery>> {
        self.check_member()?;
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_name.get_mut(self.queue.as_str()) else { return Ok(Vec::new()) };
        Ok(queue.take_over(&self.group, self.number, idle, max, Instant::now()))
    }

    async fn leave(&self) -> Result<()> {
        if !self.left.swap(true, Ordering::Relaxed) {
            self.part(true);
            // Wakes the waiting calls of this consumer, and the next one that would wait.
            self.bell.notify_waiters();
            self.bell.notify_one();
        }
        Ok(())
    }
}

impl Drop for MemoryConsumer {
    /// Dropped without `leave`, the consumer vanished: its entries are taken over once it has been idle.
    fn drop(&mut self) {
        if !*self.left.get_mut() {
            self.part(false);
        }
    }
}
