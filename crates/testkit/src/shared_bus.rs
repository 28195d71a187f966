//! A bus in this process that several nodes of it share.
//!
//! To a node, a bus in its process is one that no other node can reach. In a test whose nodes all live in one process
//! that is not so, and this asserts it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::Result;
use convoke_core::ports::{Bus, Consumer, Multiplex, QueueEnd, QueueReaders, Subscription};

pub struct SharedBus(pub Arc<dyn Bus>);

#[async_trait]
impl Bus for SharedBus {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<()> {
        self.0.publish(topic, message).await
    }

    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()> {
        self.0.announce(topic, message, kept).await
    }

    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>> {
        self.0.subscribe(topics).await
    }

    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()> {
        self.0.push(entries).await
    }

    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>> {
        self.0.consumer(queue, group, name).await
    }

    async fn backlog(&self, queue: &str, group: &str) -> Result<u64> {
        self.0.backlog(queue, group).await
    }

    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        self.0.readers(queues, group, idle).await
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        self.0.multiplex().await
    }

    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>> {
        self.0.ends(queues).await
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        self.0.close(ends).await
    }

    async fn trim(&self, queues: &[String]) -> Result<()> {
        self.0.trim(queues).await
    }

    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()> {
        self.0.forget_unread(queues, idle).await
    }

    async fn queues(&self, prefix: &str) -> Result<Vec<String>> {
        self.0.queues(prefix).await
    }

    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }

    fn is_in_process(&self) -> bool {
        false
    }
}
