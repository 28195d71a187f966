//! The requests of a member of a consumer group, without the waiting.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use convoke_core::jobs::wire::{self, Poison};
use convoke_core::limits::TAKE_BYTES_MAX;
use convoke_core::ports::Delivery;
use convoke_core::{Error, Result};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use redis::Value;
use tracing::warn;

use super::commands::Commands;
use super::entry;
use super::failure::{Intent, failure, is_no_group, malformed_reply};
use super::script;
use super::sizing::EntrySizes;

/// Bounds the time of one script on the server: other clients wait for it.
const ACK_IDS_MAX: usize = 1_000;
const PAGE_MAX: usize = 200;
/// A consumer with nothing pending is removed after this, or after the idle time of a takeover if that is longer.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// One consumer, as Redis knows it.
pub(super) struct Member {
    pub commands: Commands,
    pub queue: String,
    pub group: String,
    /// Unique among all consumers, past and present.
    pub name: String,
    /// Ids that were returned to the caller and are not acknowledged.
    pub held: Mutex<HashSet<String>>,
    /// The reply to a read was lost: Redis may count entries as delivered that never arrived.
    pub has_lost_some: AtomicBool,
    pub poison: Arc<PoisonQueue>,
    pub sizes: EntrySizes,
    /// The last read ended at its limit in bytes.
    pub has_left_some: AtomicBool,
}

/// Receives entries that were delivered too often: each time the consumer ended before it acknowledged them, or could
/// not process them.
pub(super) struct PoisonQueue {
    pub queue: String,
    pub deliveries_max: u32,
    pub count: AtomicU64,
}

impl Member {
    /// Creates the group if it does not exist, beginning with everything that the queue holds.
    pub(super) async fn join(&self) -> Result<()> {
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.queue).arg(&self.group).arg("0").arg("MKSTREAM");
        match self.commands.send(&create).await? {
            // A lost reply is harmless: the request can be repeated.
            Err(error) if error.code() != Some("BUSYGROUP") => Err(failure(self.commands.what(), Intent::Ask, error)),
            _ => Ok(()),
        }
    }

    /// Returns entries that were not delivered yet, at most `max`; an empty list if there are none now.
    pub(super) async fn read(self: Arc<Self>, max: usize) -> Result<Vec<Delivery>> {
        let (mut came, mut bytes, mut is_short) = (Vec::new(), 0, false);
        while came.len() < max && bytes < TAKE_BYTES_MAX && !is_short {
            let most = (max - came.len()).min(self.sizes.fitting_in(TAKE_BYTES_MAX - bytes));
            let more = match self.read_any(most).await {
                Err(_) if !came.is_empty() => break,
                more => more?,
            };
            self.sizes.observe(more.iter().map(|delivery| delivery.body.len()));
            bytes += more.iter().map(|delivery| delivery.body.len()).sum::<usize>();
            is_short = more.len() < most;
            came.extend(more);
            // Recovered entries are not in `held` yet, and would be recovered again.
            if self.has_lost_some.load(Ordering::Relaxed) {
                break;
            }
        }
        self.has_left_some.store(came.len() < max && !is_short, Ordering::Relaxed);
        Ok(came)
    }

    async fn read_any(&self, max: usize) -> Result<Vec<Delivery>> {
        if self.has_lost_some.load(Ordering::Relaxed) {
            let found = self.recover(max).await?;
            if !found.is_empty() {
                return Ok(found);
            }
            self.has_lost_some.store(false, Ordering::Relaxed);
        }
        match self.read_new(max).await? {
            // The queue was closed, or Redis has lost its data.
            Err(error) if is_no_group(&error) => {
                self.join().await?;
                self.read_new(max).await?.map_err(|error| self.failed(error))
            }
            other => other.map_err(|error| self.failed(error)),
        }
    }

    async fn read_new(&self, max: usize) -> Result<redis::RedisResult<Vec<Delivery>>> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(&self.name).arg("COUNT").arg(max);
        read.arg("STREAMS").arg(&self.queue).arg(">");
        match self.commands.send(&read).await? {
            Ok(value) => {
                let complaint = malformed_reply(self.commands.what(), &value);
                entry::of_one_stream(value).map(Ok).ok_or(complaint)
            }
            Err(error) => Ok(Err(error)),
        }
    }

    fn failed(&self, error: redis::RedisError) -> Error {
        if error.code().is_none() {
            self.has_lost_some.store(true, Ordering::Relaxed);
        }
        failure(self.commands.what(), Intent::Change, error)
    }

    /// Returns entries that Redis counts as delivered to this consumer although they never arrived, as first
    /// deliveries.
    async fn recover(&self, max: usize) -> Result<Vec<Delivery>> {
        let mut from = "-".to_owned();
        loop {
            let mut list = redis::cmd("XPENDING");
            list.arg(&self.queue).arg(&self.group).arg(&from).arg("+").arg(PAGE_MAX).arg(&self.name);
            let page = match self.commands.send(&list).await? {
                Err(error) if is_no_group(&error) => return Ok(Vec::new()),
                other => ids_of(other.map_err(|error| failure(self.commands.what(), Intent::Ask, error))?),
            };
            let lost: Vec<&String> = {
                let held = self.held.lock();
                page.iter().filter(|id| !held.contains(*id)).take(max).collect()
            };
            if !lost.is_empty() {
                let mut claim = redis::cmd("XCLAIM");
                claim.arg(&self.queue).arg(&self.group).arg(&self.name).arg(0).arg(&lost).arg("RETRYCOUNT").arg(1);
                let value = self.commands.change(&claim).await?;
                let found = entry::deliveries(value).unwrap_or_default();
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE_MAX => from = format!("({last}"),
                _ => return Ok(Vec::new()),
            }
        }
    }

    pub(super) async fn ack(&self, ids: &[String]) -> Result<()> {
        let valid: Vec<&str> = entry::valid_ids(ids).collect();
        let parts = valid.chunks(ACK_IDS_MAX).map(|part| {
            let args: Vec<&[u8]> =
                std::iter::once(self.group.as_bytes()).chain(part.iter().map(|id| id.as_bytes())).collect();
            async move { self.commands.run(Intent::Change, &script::ACK, &[&self.queue], &args).await }
        });
        try_join_all(parts).await?;
        let mut held = self.held.lock();
        valid.iter().for_each(|id| {
            held.remove(*id);
        });
        Ok(())
    }

    pub(super) async fn leave(&self) -> Result<()> {
        let args = [self.group.as_bytes(), self.name.as_bytes()];
        self.commands.run(Intent::Change, &script::LEAVE, &[&self.queue], &args).await?;
        Ok(())
    }

    /// Removes this consumer, which vanished, unless it has pending entries. Entries in `unreturned` can be taken over
    /// at once: no caller has received them.
    pub(super) async fn part(&self, unreturned: &[String]) -> Result<()> {
        let unreturned = unreturned.iter().take(ACK_IDS_MAX).map(|id| id.as_bytes());
        let args: Vec<&[u8]> = [self.group.as_bytes(), self.name.as_bytes()].into_iter().chain(unreturned).collect();
        self.commands.run(Intent::Change, &script::FORGET_CONSUMER, &[&self.queue], &args).await?;
        Ok(())
    }

    pub(super) async fn take_over(&self, idle: Duration, max: usize) -> Result<Vec<Delivery>> {
        let (mut from, mut taken) = ("-".to_owned(), Vec::new());
        let mut bytes = 0;
        while taken.len() < max && bytes < TAKE_BYTES_MAX && !from.is_empty() {
            let size = PAGE_MAX.min(self.sizes.fitting_in(TAKE_BYTES_MAX - bytes));
            let (next, page) = self.take_over_page(idle, max - taken.len(), size, &from).await?;
            self.sizes.observe(page.iter().map(|delivery| delivery.body.len()));
            bytes += page.iter().map(|delivery| delivery.body.len()).sum::<usize>();
            let (spoilt, sound): (Vec<_>, Vec<_>) =
                page.into_iter().partition(|delivery| delivery.deliveries > self.poison.deliveries_max);
            self.set_aside(spoilt).await?;
            self.held.lock().extend(sound.iter().map(|delivery| delivery.id.clone()));
            taken.extend(sound);
            from = next;
        }
        Ok(taken)
    }

    async fn take_over_page(
        &self,
        idle: Duration,
        max: usize,
        size: usize,
        from: &str,
    ) -> Result<(String, Vec<Delivery>)> {
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX).min(i64::MAX as u64).to_string();
        let forget_ms = idle.max(FORGET_AFTER).as_millis().min(i64::MAX as u128).to_string();
        let (max, size) = (max.min(size).to_string(), size.to_string());
        let args = [&self.group, &self.name, &idle_ms, &max, from, &size, &forget_ms].map(str::as_bytes);
        let value = self.commands.run(Intent::Change, &script::TAKE_OVER, &[&self.queue], &args).await?;
        let complaint = malformed_reply(self.commands.what(), &value);
        let Value::Array(parts) = value else { return Err(complaint) };
        let mut parts = parts.into_iter();
        let (Some(next), Some(Value::Array(entries))) = (parts.next().and_then(entry::text), parts.next()) else {
            return Err(complaint);
        };
        Ok((next, entries.into_iter().filter_map(counted).collect()))
    }

    /// Moves entries that were delivered too often to the poison queue, and acknowledges them.
    async fn set_aside(&self, spoilt: Vec<Delivery>) -> Result<()> {
        for delivery in spoilt {
            let reason = format!("delivered {} times and never acknowledged", delivery.deliveries);
            warn!(queue = self.queue, id = delivery.id, reason, "entry set aside");
            let poison = Poison::of(self.queue.clone(), reason, &delivery.body);
            let add = entry::add(&self.poison.queue, &wire::encode(&poison), Some(entry::POISON_KEPT));
            // If this fails, or the process dies in between, the entry is still pending and is set aside later.
            self.commands.change(&add).await?;
            self.ack(&[delivery.id]).await?;
            self.poison.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Parses `[id, fields, deliveries]`.
fn counted(value: Value) -> Option<Delivery> {
    let Value::Array(mut parts) = value else { return None };
    let count = parts.pop().as_ref().and_then(entry::number).and_then(|count| u32::try_from(count).ok())?;
    entry::delivery(Value::Array(parts), count)
}

/// Returns the ids in a reply of XPENDING.
fn ids_of(value: Value) -> Vec<String> {
    let Value::Array(rows) = value else { return Vec::new() };
    let id = |row| match row {
        Value::Array(parts) => parts.into_iter().next().and_then(entry::text),
        _ => None,
    };
    rows.into_iter().filter_map(id).collect()
}
