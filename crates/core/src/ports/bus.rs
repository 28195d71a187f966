//! Hints between processes. Any message on the bus may be lost, late or doubled: the store is the truth.
//!
//! *Topics* reach every present subscriber, at most once. *Queues* deliver each entry to one consumer of a group, at
//! least once: an entry stays pending until it is acknowledged, and can be taken over from a consumer that died.
//! Entries that were not delivered are never trimmed. A [`Multiplex`] reads many queues at a cost per message that does
//! not grow with their number.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;

/// Topics and queues between processes.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Publishes a message to the present subscribers of a topic.
    async fn publish(&self, topic: &str, message: Bytes) -> Result<()>;
    /// Publishes a message and appends it to a queue with the topic's name, for readers that support queues only. The
    /// queue keeps about the last `kept` entries, read or not.
    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()>;
    /// Subscribes to `topics`. Once it has returned, every message published to one of them arrives, unless the
    /// subscriber is too slow.
    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>>;

    /// Appends each entry to its queue, in order, as one batch.
    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()>;
    /// Joins `group` on `queue` under `name`, which no other consumer of the group has or had: a restarted process uses
    /// a new one. A new group begins with all entries of the queue, and remains when its members have left.
    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>>;
    /// Returns how many entries of `queue` were not delivered to `group` yet: all of them if there is no such group.
    async fn backlog(&self, queue: &str, group: &str) -> Result<u64>;
    /// Returns the members of `group` that read each of `queues`; `None` for a queue without such a group. At most
    /// [`GROUP_READERS_MAX`](crate::limits::GROUP_READERS_MAX) per queue, without members that have nothing pending and
    /// did not read for `idle`. A member that has nothing pending and did not read for an hour may be removed.
    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>>;
    /// Returns one reader for many queues.
    async fn multiplex(&self) -> Result<Box<dyn Multiplex>>;

    /// Returns the present end of each of `queues` that exists, for [`close`](Self::close).
    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>>;
    /// Deletes the entries of each queue up to its end, pending ones included. Entries that were pushed after the end
    /// was read stay; a queue without any is removed. Not an error if a queue does not exist. Readers of a queue
    /// continue with later entries.
    async fn close(&self, ends: &[QueueEnd]) -> Result<()>;
    /// Deletes entries that every group of a queue has received and acknowledged. A [`Consumer`] leaves none; other
    /// readers may. Entries that are pending, or that some group has not received, are never deleted.
    async fn trim(&self, queues: &[String]) -> Result<()>;
    /// Removes those of `queues` that are empty, have no pending entries, and whose consumers did not read for `idle`.
    /// The next read of such a queue creates it and its group again.
    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()>;
    /// Returns the queues whose names begin with `prefix` and that hold entries, and possibly empty ones that were not
    /// removed; a name may occur twice. Scans the whole keyspace: for rare housekeeping only.
    async fn queues(&self, prefix: &str) -> Result<Vec<String>>;
    /// Checks that the backend responds.
    async fn ping(&self) -> Result<()>;
    /// Returns the backend's address for display, without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// Returns whether the bus ends with the process: then it reaches no other process.
    fn is_in_process(&self) -> bool {
        false
    }
}

/// The readers of a queue in one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueReaders {
    /// The listed members.
    pub readers: Vec<GroupReader>,
    /// Whether a reader that is not a [`Consumer`] may wait for an entry of this queue without being listed: the
    /// backend shows that readers wait, but not on which queue.
    pub is_awaited: bool,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReader {
    /// The name of a [`Consumer`] begins with the name that it joined under.
    pub name: String,
    /// Time since its last read, by the backend's clock. A backend may not count reads that returned nothing.
    pub idle: Duration,
    /// Entries that were delivered to it and not acknowledged.
    pub pending: u64,
    /// Whether it joined by [`Bus::consumer`], in this process or another.
    pub is_consumer: bool,
}

/// The last entry of a queue at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEnd {
    /// The name of the queue.
    pub queue: String,
    /// The id of the entry.
    pub last: String,
}

/// A message of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The topic.
    pub channel: String,
    /// The message as it was published.
    pub body: Bytes,
}

/// The messages of some topics.
#[async_trait]
pub trait Subscription: Send {
    /// Waits for the next message; messages are in order per topic. If the subscriber falls too far behind, messages
    /// are dropped and one `Ok(None)` is returned in their place: read the state again. Safe to cancel.
    async fn next(&mut self) -> Result<Option<Message>>;
}

/// An entry that was delivered to one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The id of the entry, for [`Consumer::ack`].
    pub id: String,
    /// The entry as it was pushed.
    pub body: Bytes,
    /// How often the entry was delivered; 1 for the first time.
    pub deliveries: u32,
}

/// An entry that a multiplex read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The id of the entry, for [`Multiplex::ack`]; empty for an unreadable bell.
    pub id: String,
    /// The entry as it was pushed.
    pub body: Bytes,
}

/// A member of a consumer group on one queue.
#[async_trait]
pub trait Consumer: Send + Sync {
    /// Returns at most `max` undelivered entries, and about [`TAKE_BYTES_MAX`](crate::limits::TAKE_BYTES_MAX) bytes,
    /// without waiting for more. Returns none if there are none, and may return none for an entry that
    /// [`ready`](Self::ready) has yet to signal. Safe to cancel: entries that were not returned stay undelivered.
    async fn take_now(&self, max: usize) -> Result<Vec<Delivery>>;
    /// Waits until there may be an entry, without taking it. A signal wakes one caller in a process: call
    /// [`take_now`](Self::take_now) next, which wakes another if it leaves entries behind. Safe to cancel.
    async fn ready(&self) -> Result<()>;
    /// Waits for at least one entry and returns entries as [`take_now`](Self::take_now) does. Continues to wait while
    /// the backend is unavailable. Safe to cancel: entries that were not returned stay undelivered.
    async fn take(&self, max: usize) -> Result<Vec<Delivery>> {
        loop {
            match self.take_now(max.max(1)).await {
                Ok(taken) if taken.is_empty() => {}
                Err(error) if error.is_transient() => {}
                done => return done,
            }
            self.ready().await?;
        }
    }
    /// Acknowledges these entries: they are not delivered to the group again. Unknown ids are ignored.
    async fn ack(&self, ids: &[String]) -> Result<()>;
    /// Takes over entries that were delivered to another consumer at least `idle` ago and not acknowledged: at most
    /// `max`, and about [`TAKE_BYTES_MAX`](crate::limits::TAKE_BYTES_MAX) bytes.
    async fn take_over(&self, idle: Duration, max: usize) -> Result<Vec<Delivery>>;
    /// Leaves the group. Entries that this consumer has not acknowledged can be taken over at once. Later reads return
    /// `NotFound`. If a consumer is dropped without leaving, others wait until it was idle for long enough. Its name is
    /// removed from the group only if nothing is pending.
    async fn leave(&self) -> Result<()>;
}

/// A reader of many queues that have one reader each: the channels of jobs (`Channels::status`, `Channels::logs`).
/// Another queue may be rejected as `Invalid`. Reading leaves no state in the backend: there are no groups and no
/// delivery counts, and if several readers share a queue each one receives every entry that is not acknowledged.
#[async_trait]
pub trait Multiplex: Send + Sync {
    /// Starts to read these queues. Entries that they hold already arrive too, also those that another multiplex
    /// received and did not acknowledge. No effect on a queue that it reads already.
    async fn add(&self, queues: &[String]) -> Result<()>;
    /// Stops reading these queues.
    async fn remove(&self, queues: &[String]) -> Result<()>;
    /// Waits for entries in any of the queues; returns about [`TAKE_BYTES_MAX`](crate::limits::TAKE_BYTES_MAX) bytes at
    /// most. Entries of one queue arrive in order. Safe to cancel. An unreadable bell may be among them, under the
    /// bell's own name and without an id, so that the caller can set it aside.
    async fn next(&self) -> Result<Vec<(String, Vec<Entry>)>>;
    /// Acknowledges these entries of each queue: they are deleted for all readers. A queue that is then empty is
    /// removed. May be called while [`next`](Self::next) waits or reads.
    async fn ack(&self, done: &[(String, Vec<String>)]) -> Result<()>;
    /// Acknowledges the entries of queues whose jobs have ended: all that were read of each, and none that was
    /// acknowledged before. Cheaper than [`ack`](Self::ack) if the backend can remove whole queues. Entries that were
    /// added meanwhile stay.
    async fn finish(&self, done: &[(String, Vec<String>)]) -> Result<()> {
        self.ack(done).await
    }
}
