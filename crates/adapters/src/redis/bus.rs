//! The bus of a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::Result;
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::{Bus, Consumer, Multiplex, QueueEnd, QueueReaders, Subscription};
use redis::Value;

use super::commands::Commands;
use super::consumer::RedisConsumer;
use super::dial::Dialer;
use super::entry::{self, number};
use super::failure::{Intent, malformed_reply};
use super::member::{Member, PoisonQueue};
use super::multiplex::RedisMultiplex;
use super::readers::{consumer_name, group_readers};
use super::script::Script;
use super::sizing::EntrySizes;
use super::subscription_hub::SubscriptionHub;
use super::wait_slot::WaitSlots;
use super::{push, script, topics};

const WHAT: &str = "bus";
/// An entry that was delivered more often than this is set aside.
const DELIVERIES_MAX: u32 = 16;
/// Upper bound of a backlog that is counted entry by entry, because Redis no longer knows how many entries a group has
/// read.
const BACKLOG_COUNTED_MAX: &str = "10000";
/// Bounds the time of one script on the server: other clients wait for it.
const TIDY_MAX: usize = 100;
/// The same for a script that finds most of its queues missing.
const ENDS_MAX: usize = 500;
/// A member of a group that has nothing pending and did not read for this long is removed from it.
const READER_FORGET_MS: &str = "3600000";
/// So many empty queues are kept while any client waits in a blocking read: it may wait at one of them.
const SPARED_MAX: usize = 1_000;
const READERS_MAX: &str = "1000";
const _: () = assert!(convoke_core::limits::GROUP_READERS_MAX == 1_000);
/// An id begins with a millisecond: after two of them no new entry can have the id of an entry that was removed by a
/// close.
const CLOSE_WAIT: Duration = Duration::from_millis(2);

/// A bus on Redis. Clones are the same bus and share its two connections.
#[derive(Clone)]
pub struct RedisBus {
    commands: Commands,
    subscriptions: SubscriptionHub,
    channels: Channels,
    wait_slots: Arc<WaitSlots>,
    poison: Arc<PoisonQueue>,
}

impl RedisBus {
    /// Connects. Errors about `url` name the setting `bus.url`. `channels` decides which channels belong to jobs.
    pub async fn connect(url: &str, channels: Channels) -> Result<Self> {
        let dialer = Dialer::new("bus.url", url)?;
        let commands = Commands::open(WHAT, dialer.clone()).await?;
        let subscriptions = SubscriptionHub::open(WHAT, dialer).await?;
        let poison = PoisonQueue { queue: channels.poison(), deliveries_max: DELIVERIES_MAX, count: AtomicU64::new(0) };
        Ok(RedisBus { commands, subscriptions, channels, wait_slots: Arc::default(), poison: Arc::new(poison) })
    }

    /// Sets entries aside that were delivered more often than this. Applies to consumers that join afterwards.
    pub fn with_deliveries_max(mut self, deliveries_max: u32) -> Self {
        let queue = self.poison.queue.clone();
        self.poison = Arc::new(PoisonQueue { queue, deliveries_max, count: AtomicU64::new(0) });
        self
    }

    /// Returns how many entries this process has set aside because they were delivered too often.
    pub fn poisoned(&self) -> u64 {
        self.poison.count.load(Ordering::Relaxed)
    }

    async fn tidy(&self, script: &Script, queues: &[String], args: &[&[u8]]) -> Result<()> {
        for part in queues.chunks(TIDY_MAX) {
            let keys: Vec<&str> = part.iter().map(String::as_str).collect();
            self.commands.run(Intent::Change, script, &keys, args).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Bus for RedisBus {
    fn address(&self) -> String {
        self.commands.address()
    }

    async fn publish(&self, topic: &str, message: Bytes) -> Result<()> {
        self.commands.change(redis::cmd("PUBLISH").arg(topic).arg(&message[..])).await?;
        Ok(())
    }

    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()> {
        let mut pipeline = redis::pipe();
        pipeline.add_command(entry::add(topic, &message, Some(kept)));
        pipeline.cmd("PUBLISH").arg(topic).arg(&message[..]);
        push::check(&self.commands, self.commands.pipe(Intent::Change, &pipeline).await?, false)
    }

    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>> {
        Ok(Box::new(topics::subscribe(&self.subscriptions, topics).await?))
    }

    async fn push(&self, entries: Vec<(String, Bytes)>) -> Result<()> {
        push::push(&self.commands, &self.channels, &entries).await
    }

    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>> {
        let wait_slot = self.wait_slots.wait_slot(&self.subscriptions, queue, group);
        let member = Member {
            commands: self.commands.clone(),
            queue: queue.to_owned(),
            group: group.to_owned(),
            name: consumer_name(name),
            held: parking_lot::Mutex::default(),
            has_lost_some: AtomicBool::new(false),
            poison: self.poison.clone(),
            sizes: EntrySizes::default(),
            has_left_some: AtomicBool::new(false),
        };
        member.join().await?;
        self.subscriptions.confirm(&wait_slot.listening).await?;
        Ok(Box::new(RedisConsumer::new(member, wait_slot)))
    }

    async fn backlog(&self, queue: &str, group: &str) -> Result<u64> {
        let args = [group.as_bytes(), BACKLOG_COUNTED_MAX.as_bytes()];
        let reply = self.commands.run(Intent::Ask, &script::BACKLOG, &[queue], &args).await?;
        number(&reply).and_then(|count| u64::try_from(count).ok()).ok_or_else(|| malformed_reply(WHAT, &reply))
    }

    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        let idle_ms = idle.as_millis().to_string();
        let args = [group.as_bytes(), idle_ms.as_bytes(), READER_FORGET_MS.as_bytes(), READERS_MAX.as_bytes()];
        let mut all = Vec::with_capacity(queues.len());
        for part in queues.chunks(TIDY_MAX) {
            let keys: Vec<&str> = part.iter().map(String::as_str).collect();
            let reply = self.commands.run(Intent::Change, &script::READERS, &keys, &args).await?;
            let complaint = malformed_reply(WHAT, &reply);
            let Value::Array(found) = reply else { return Err(complaint) };
            all.extend(found.into_iter().map(group_readers));
        }
        Ok(all)
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        let (commands, channels) = (self.commands.clone(), self.channels.clone());
        Ok(Box::new(RedisMultiplex::open(commands, &self.subscriptions, channels).await?))
    }

    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>> {
        let mut ends = Vec::new();
        for part in queues.chunks(ENDS_MAX) {
            let keys: Vec<&str> = part.iter().map(String::as_str).collect();
            let value = self.commands.run(Intent::Ask, &script::ENDS, &keys, &[]).await?;
            let complaint = malformed_reply(WHAT, &value);
            let Value::Array(lasts) = value else { return Err(complaint) };
            let lasts = lasts.into_iter().map(|last| entry::text(last).filter(|last| !last.is_empty()));
            let found = part.iter().zip(lasts).filter_map(|(queue, last)| Some((queue.clone(), last?)));
            ends.extend(found.map(|(queue, last)| QueueEnd { queue, last }));
        }
        Ok(ends)
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        if ends.is_empty() {
            return Ok(());
        }
        for part in ends.chunks(TIDY_MAX) {
            let keys: Vec<&str> = part.iter().map(|end| end.queue.as_str()).collect();
            let lasts: Vec<&[u8]> = part.iter().map(|end| end.last.as_bytes()).collect();
            self.commands.run(Intent::Change, &script::CLOSE, &keys, &lasts).await?;
        }
        tokio::time::sleep(CLOSE_WAIT).await;
        Ok(())
    }

    async fn trim(&self, queues: &[String]) -> Result<()> {
        self.tidy(&script::TRIM, queues, &[]).await
    }

    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()> {
        let idle_ms = idle.as_millis().to_string();
        let may_spare: &[u8] = if queues.len() <= SPARED_MAX { b"1" } else { b"0" };
        self.tidy(&script::FORGET, queues, &[idle_ms.as_bytes(), may_spare]).await
    }

    async fn queues(&self, prefix: &str) -> Result<Vec<String>> {
        let escaped: String =
            prefix.chars().flat_map(|c| "\\*?[]^".contains(c).then_some('\\').into_iter().chain([c])).collect();
        let pattern = format!("{escaped}*");
        let (mut cursor, mut names) = ("0".to_owned(), Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000).arg("TYPE").arg("stream");
            let reply = self.commands.ask(&scan).await?;
            let (next, page): (String, Vec<String>) =
                redis::from_redis_value(reply).map_err(|error| convoke_core::Error::unavailable(WHAT, error))?;
            names.extend(page);
            if next == "0" {
                return Ok(names);
            }
            cursor = next;
        }
    }

    async fn ping(&self) -> Result<()> {
        self.commands.ask(&redis::cmd("PING")).await?;
        Ok(())
    }
}
