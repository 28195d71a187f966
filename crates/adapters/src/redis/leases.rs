//! Rosters and terms of leadership in Redis.
//!
//! A namespace has three keys: `{prefix}:{namespace}:leader`, a hash that expires with the term;
//! `{prefix}:{namespace}:epoch`, which outlives the terms, so that epochs rise; and `{prefix}:{namespace}:members`,
//! sorted by the time until which each is enrolled. Each verb is one script, and all times are the server's. A
//! resignation is published on the channel `{prefix}:{namespace}:resigned`.
//!
//! Redis may lose its last writes, or everything, in a failover or restart. Then an epoch could be issued twice. So the
//! key of the epoch names the server that issued it (by its `run_id`, which is new with each start), and another server
//! takes the next number from its clock, in microseconds, which is above every number issued before. A sealed floor
//! needs no clock: no epoch can be lost, and the numbers stay small.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::error::Invalid;
use convoke_core::ports::leases::{Floor, Lease, TTL_MAX};
use convoke_core::ports::{Leases, Resignations};
use convoke_core::{Epoch, Error, Result};
use redis::Value;
use tokio::sync::watch;

use super::commands::Commands;
use super::dial::Dialer;
use super::entry::{number, text};
use super::failure::{Intent, malformed_reply};
use super::script;
use super::subscription_hub::{Listener, Listening, SubscriptionHub};
use crate::resignations::Watch;

const WHAT: &str = "leases";
/// Scripts count in floating point, which is exact only up to here.
const FLOOR_MAX: u64 = 1 << 52;
/// How often an election is attempted if its reply is lost.
const ELECT_TRIES: u32 = 3;

/// How long a leader's report is kept.
const REPORT_SECONDS: u64 = 3_600;

#[derive(Clone)]
pub struct RedisLeases {
    commands: Commands,
    prefix: String,
    dialer: Dialer,
    /// The connection of the watches. It is made for the first one.
    subscriptions: Arc<OnceLock<SubscriptionHub>>,
}

impl RedisLeases {
    /// Connects. Errors about `url` name the setting `leases.url`.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        let dialer = Dialer::new("leases.url", url)?;
        let commands = Commands::open(WHAT, dialer.clone()).await?;
        Ok(RedisLeases { commands, prefix: prefix.to_owned(), dialer, subscriptions: Arc::default() })
    }

    fn key(&self, namespace: &str, what: &str) -> String {
        format!("{}:{namespace}:{what}", self.prefix)
    }
}

fn ms(ttl: Duration) -> String {
    // At least 1 ms: Redis deletes a key whose TTL is 0.
    ttl.min(TTL_MAX).as_millis().max(1).to_string()
}

fn lease(holder: Value, epoch: &Value, remaining: &Value) -> Option<Lease> {
    let epoch = number(epoch).and_then(|epoch| u64::try_from(epoch).ok())?;
    let remaining = number(remaining).and_then(|ms| u64::try_from(ms).ok())?;
    Some(Lease {
        holder: text(holder)?,
        epoch: Epoch(epoch),
        remaining: Duration::from_millis(remaining),
        is_foreign: false,
    })
}

#[async_trait]
impl Leases for RedisLeases {
    fn address(&self) -> String {
        self.commands.address()
    }

    fn carries_reports(&self) -> bool {
        true
    }

    async fn publish(&self, namespace: &str, report: &str) -> Result<()> {
        let mut set = redis::cmd("SET");
        set.arg(self.key(namespace, "report")).arg(report).arg("EX").arg(REPORT_SECONDS);
        self.commands.change(&set).await?;
        Ok(())
    }

    async fn published(&self, namespace: &str) -> Result<Option<String>> {
        Ok(text(self.commands.ask(redis::cmd("GET").arg(self.key(namespace, "report"))).await?))
    }

    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        let args = [member.as_bytes(), &ms(ttl).into_bytes()];
        self.commands.run(Intent::Change, &script::ENROLL, &[&self.key(namespace, "members")], &args).await?;
        Ok(())
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        self.commands.change(redis::cmd("ZREM").arg(self.key(namespace, "members")).arg(member)).await?;
        Ok(())
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        let reply = self.commands.run(Intent::Ask, &script::ROSTER, &[&self.key(namespace, "members")], &[]).await?;
        let complaint = malformed_reply(WHAT, &reply);
        let Value::Array(members) = reply else { return Err(complaint) };
        let mut members: Vec<String> = members.into_iter().filter_map(text).collect();
        members.sort_unstable();
        Ok(members)
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        let reply = self.commands.run(Intent::Ask, &script::READ, &[&self.key(namespace, "leader")], &[]).await?;
        let complaint = malformed_reply(WHAT, &reply);
        let Value::Array(parts) = reply else { return Err(complaint) };
        match <[Value; 3]>::try_from(parts) {
            Ok([holder, epoch, remaining]) => Ok(lease(holder, &epoch, &remaining)),
            Err(parts) if parts.is_empty() => Ok(None),
            Err(_) => Err(complaint),
        }
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        let lowest = floor.epoch();
        if lowest.0 > FLOOR_MAX {
            return Err(Invalid::new("floor", format!("expected an epoch of at most {FLOOR_MAX}, got {lowest}")).into());
        }
        let (leader, epoch) = (self.key(namespace, "leader"), self.key(namespace, "epoch"));
        let token = uuid::Uuid::now_v7().to_string();
        let (ttl, lowest) = (ms(ttl), lowest.0.to_string());
        let is_sealed = if matches!(floor, Floor::Sealed(_)) { "1" } else { "0" };
        let args = [candidate, &ttl, &lowest, is_sealed, &token].map(str::as_bytes);
        let mut tries = 1;
        let reply = loop {
            match self.commands.run(Intent::Change, &script::ELECT, &[&leader, &epoch], &args).await {
                // The election may have succeeded. If so, the same token finds its own term.
                Err(Error::Unknown { .. }) if tries < ELECT_TRIES => tries += 1,
                other => break other?,
            }
        };
        let complaint = malformed_reply(WHAT, &reply);
        let Value::Array(parts) = reply else { return Err(complaint) };
        let Ok([is_elected, holder, epoch, remaining]) = <[Value; 4]>::try_from(parts) else { return Err(complaint) };
        let lease = lease(holder, &epoch, &remaining).ok_or(complaint)?;
        if number(&is_elected) != Some(1) {
            return Err(Error::Conflict(format!("{} leads until its term {} ends", lease.holder, lease.epoch)));
        }
        Ok(lease)
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        let (number_of_term, ttl) = (epoch.0.to_string(), ms(ttl));
        let args = [holder, &number_of_term, &ttl].map(str::as_bytes);
        let reply = self.commands.run(Intent::Change, &script::RENEW, &[&self.key(namespace, "leader")], &args).await?;
        match number(&reply).map(u64::try_from) {
            Some(Ok(remaining)) => Ok(Lease {
                holder: holder.to_owned(),
                epoch,
                remaining: Duration::from_millis(remaining),
                is_foreign: false,
            }),
            Some(Err(_)) => Err(Error::Fenced { what: "renew" }),
            None => Err(malformed_reply(WHAT, &reply)),
        }
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        let (number_of_term, channel) = (epoch.0.to_string(), self.key(namespace, "resigned"));
        let args = [holder, &number_of_term, &channel].map(str::as_bytes);
        self.commands.run(Intent::Change, &script::RESIGN, &[&self.key(namespace, "leader")], &args).await?;
        Ok(())
    }

    fn watch_resignations(&self, namespace: &str) -> Box<dyn Resignations> {
        let hub = self.subscriptions.get_or_init(|| SubscriptionHub::open_later(WHAT, self.dialer.clone()));
        let notices = watch::Sender::default();
        let watch = Watch::of(&notices);
        let listening = hub.listen(&[self.key(namespace, "resigned")], Arc::new(Published(notices)));
        hub.subscribe_later(&listening);
        Box::new(ChannelWatch { watch, _listening: listening })
    }

    async fn ping(&self) -> Result<()> {
        self.commands.ask(&redis::cmd("PING")).await?;
        Ok(())
    }
}

/// Passes the messages of a channel on as notices.
struct Published(watch::Sender<()>);

impl Listener for Published {
    fn on_message(&self, _topic: &Arc<str>, _body: Bytes) {
        self.0.send_replace(());
    }

    fn missed(&self) {
        self.0.send_replace(());
    }
}

struct ChannelWatch {
    watch: Watch,
    _listening: Listening,
}

#[async_trait]
impl Resignations for ChannelWatch {
    async fn next(&mut self) {
        self.watch.next().await;
    }
}
