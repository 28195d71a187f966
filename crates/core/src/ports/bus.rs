//! Hints between processes. Everything on the bus may be lost, late or doubled: the store is the truth.
//!
//! *Topics* reach every present subscriber, at most once. *Queues* give each entry to one consumer of a group, at least
//! once: an entry stays pending until it is acknowledged, and can be taken over from a consumer that died. Entries that
//! nobody was given are never trimmed. A [`Multiplex`] reads many queues at a cost per message that does not grow with
//! their number.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;

#[async_trait]
pub trait Bus: Send + Sync {
    async fn publish(&self, topic: &str, message: Bytes) -> Result<()>;
    /// Publishes a message and appends it to a queue of the topic's name, which keeps about the last `kept` entries whoever read
    /// them: for readers that know queues only.
    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()>;
    /// From when it returns, every message published to one of `topics` arrives, unless the subscriber is too slow.
    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>>;

    /// Appends each entry to its queue, in order, as one batch.
    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()>;
    /// Joins `group` on `queue` under `name`, which no other consumer of the group has or had: a process that starts
    /// again takes a new one. A group begins with everything the queue holds, and stays when its members have gone.
    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>>;
    /// How many entries of `queue` no consumer of `group` has been given yet: all it holds where there is no such group.
    async fn backlog(&self, queue: &str, group: &str) -> Result<u64>;
    /// Returns, of each of `queues`, who reads it as a member of `group`, and nothing of a queue that has no such group. At most
    /// [`GROUP_READERS_MAX`](crate::limits::GROUP_READERS_MAX) of a queue, without those that have nothing pending and did not
    /// read for `idle`; members that have nothing and did not read for an hour may be forgotten.
    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>>;
    /// One reader for many queues.
    async fn multiplex(&self) -> Result<Box<dyn Multiplex>>;

    /// Returns where those of `queues` that exist end now, for [`close`](Self::close).
    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>>;
    /// Drops the entries of each queue up to its end, pending ones included. Entries that were pushed since the end was read
    /// stay; a queue without any is removed. Not an error if a queue does not exist. Readers of a queue go on with what is
    /// pushed afterwards.
    async fn close(&self, ends: &[QueueEnd]) -> Result<()>;
    /// Drops what every group of a queue was given and has acknowledged. A [`Consumer`] leaves nothing of the kind; somebody
    /// who reads the queue without one may. What is pending, or was not given to some group, is never touched.
    async fn trim(&self, queues: &[String]) -> Result<()>;
    /// Forgets those of `queues` that hold nothing, of which nothing is pending and whose consumers were not heard of for
    /// `idle`. A queue that is read all the same is there again with the next read, and its group begins anew.
    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()>;
    /// Queues whose names begin with `prefix` and that hold something, and perhaps empty ones that are not forgotten; some may
    /// be named twice. Walks over everything there is: for housekeeping, now and then.
    async fn queues(&self, prefix: &str) -> Result<Vec<String>>;
    /// Whether it answers.
    async fn ping(&self) -> Result<()>;
    /// Where it is, for people to read and without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// Whether it ends with the process: then nobody else can be reached by it.
    fn is_in_process(&self) -> bool {
        false
    }
}

/// The readers of a queue in one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueReaders {
    pub readers: Vec<GroupReader>,
    /// Somebody who is no [`Consumer`] may wait for an entry of this queue without being listed: the backend knows of readers
    /// that wait, but not where.
    pub is_awaited: bool,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReader {
    /// That of a [`Consumer`] begins with the name it joined under.
    pub name: String,
    /// How long ago it last read, by the backend's clock. A backend may not count reads that found nothing.
    pub idle: Duration,
    /// Entries that it was given and has not acknowledged.
    pub pending: u64,
    /// It joined by [`Bus::consumer`], in this process or another.
    pub is_consumer: bool,
}

/// The last entry of a queue at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEnd {
    pub queue: String,
    /// The entry's id.
    pub last: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub channel: String,
    pub body: Bytes,
}

#[async_trait]
pub trait Subscription: Send {
    /// The next message, in order per topic. Messages that came while the subscriber lagged too far behind are dropped;
    /// one `Ok(None)` stands in their place, however many they were: read the state again. Safe to cancel.
    async fn next(&mut self) -> Result<Option<Message>>;
}

/// An entry handed to one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: String,
    pub body: Bytes,
    /// 1 for the first time.
    pub deliveries: u32,
}

/// An entry that a multiplex read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    pub body: Bytes,
}

#[async_trait]
pub trait Consumer: Send + Sync {
    /// Takes at most `max` of the entries that nobody was given, and about
    /// [`TAKE_BYTES_MAX`](crate::limits::TAKE_BYTES_MAX) bytes, without waiting for more. Returns none if there are none, and may
    /// return none for an entry that [`ready`](Self::ready) has yet to signal. Safe to cancel: what was not returned was not
    /// taken.
    async fn take_now(&self, max: usize) -> Result<Vec<Delivery>>;
    /// Waits until there may be something to take, and takes nothing. A signal wakes one caller of a process: call
    /// [`take_now`](Self::take_now) next, which wakes another if it leaves something behind. Safe to cancel.
    async fn ready(&self) -> Result<()>;
    /// Waits for at least one entry and takes as [`take_now`](Self::take_now) does. Waits on while the backend is away. Safe to cancel: what was
    /// not returned was not taken.
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
    /// Done with these entries: they are not given to the group again. Ids that mean nothing (any more) are passed over.
    async fn ack(&self, ids: &[String]) -> Result<()>;
    /// Takes over entries that were given to another consumer at least `idle` ago and never acknowledged: at most `max`,
    /// and about [`TAKE_BYTES_MAX`](crate::limits::TAKE_BYTES_MAX) bytes.
    async fn take_over(&self, idle: Duration, max: usize) -> Result<Vec<Delivery>>;
    /// Leaves the group. What was given to this consumer and not acknowledged can be taken over at once. It takes no
    /// more afterwards: `NotFound`. One that is dropped without leaving has vanished: others wait until it was idle.
    /// Its name is removed from the group if nothing is pending, and never otherwise.
    async fn leave(&self) -> Result<()>;
}

/// A reader of many queues that have one reader each: the channels of jobs (`Channels::status`, `Channels::logs`). A name
/// that is no job's may be refused as `Invalid`. Reading leaves no trace: there are no groups and no counts, and where several
/// read a queue each is given every entry that none has acknowledged.
#[async_trait]
pub trait Multiplex: Send + Sync {
    /// Starts to read these queues; what they hold already arrives too, within moments, also what was given before to a
    /// multiplex that did not acknowledge it. Changes nothing for a queue that it reads already.
    async fn add(&self, queues: &[String]) -> Result<()>;
    async fn remove(&self, queues: &[String]) -> Result<()>;
    /// Waits for something in any of the queues; returns about [`TAKE_BYTES_MAX`](crate::limits::TAKE_BYTES_MAX) bytes at
    /// most. Entries of one queue arrive in order. Safe to cancel. A bell that could not
    /// be read may be among them, under the bell's own name and without an id, so that it can be set aside.
    async fn next(&self) -> Result<Vec<(String, Vec<Entry>)>>;
    /// Done with these entries of each queue: they are gone, for all. A queue that is empty then leaves nothing behind.
    async fn ack(&self, done: &[(String, Vec<String>)]) -> Result<()>;
}
