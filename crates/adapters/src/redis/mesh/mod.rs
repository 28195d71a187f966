//! A mesh in Redis, compatible with the instances of the existing system.
//!
//! Numbers come from a counter. A sorted set holds the time of each instance's last heartbeat, by the server's clock,
//! and a hash its host name. A key of each number holds its owner's token, in case Redis loses its data. Each instance
//! subscribes to a channel of its own and to one of all; the reply to a publish is the number of subscribers. The
//! leader's lock is a key that expires.
//!
//! A link has two connections, however many calls are under way: one to publish, on which requests do not wait for each
//! other's replies, and one to subscribe. A broken connection is replaced. A message that may have been published is
//! never published again: that would run a handler twice. Messages published during the outage are lost, as usual with
//! pub/sub, and the caller's deadline ends the call.

mod keys;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::mesh::{InstanceId, MeshFigures, MeshNode};
use convoke_core::ports::{Membership, MeshInbox, MeshLink};
use convoke_core::{Error, Result};
use redis::Value;
use uuid::Uuid;

use self::keys::Keys;
use super::commands::Commands;
use super::dial::Dialer;
use super::entry::{number, text};
use super::failure::{Intent, failure, malformed_reply};
use super::script;
use super::subscription_hub::{Listener, Listening, SubscriptionHub};

const WHAT: &str = "mesh";
const PUBLISH: &str = "PUBLISH";
/// How long a number's token is kept after its last heartbeat: longer than any outage after which the instance should
/// keep its number.
const TOKEN_MS: &str = "3600000";
/// Upper bound of a TTL (one year), small enough for the arithmetic of a script.
const TTL_MAX: Duration = Duration::from_secs(86_400 * 365);

/// Clones are the same link.
#[derive(Clone)]
pub struct RedisMesh {
    commands: Commands,
    subscriptions: SubscriptionHub,
    keys: Arc<Keys>,
}

impl RedisMesh {
    /// Connects to the mesh `key`. `lock_prefix` is the prefix of the lock's name, `prefix` that of every other name.
    pub async fn connect(url: &str, prefix: &str, lock_prefix: &str, key: &str) -> Result<Self> {
        let dialer = Dialer::new("mesh.url", url)?;
        let commands = Commands::open(WHAT, dialer.clone()).await?;
        let subscriptions = SubscriptionHub::open(WHAT, dialer).await?;
        Ok(RedisMesh { commands, subscriptions, keys: Arc::new(Keys::new(prefix, lock_prefix, key)) })
    }

    /// Runs a script that returns 1 for yes.
    async fn is_granted(&self, script: &script::Script, holder: &str, ttl: Duration) -> Result<bool> {
        let args = [holder.as_bytes(), &ms(ttl).into_bytes()];
        let answer = self.commands.run(Intent::Change, script, &[&self.keys.lock], &args).await?;
        number(&answer).map(|answer| answer == 1).ok_or_else(|| malformed_reply(WHAT, &answer))
    }
}

fn publish(channel: &str, message: &[u8]) -> redis::Cmd {
    // Sized beforehand: every call does this twice.
    let mut command = redis::Cmd::with_capacity(3, PUBLISH.len() + channel.len() + message.len());
    command.arg(PUBLISH).arg(channel).arg(message);
    command
}

/// Returns the number of subscribers from the reply to a publish.
fn listeners(answer: Value) -> Result<u64> {
    let answer = answer.extract_error().map_err(|error| failure(WHAT, Intent::Change, error))?;
    number(&answer).and_then(|count| u64::try_from(count).ok()).ok_or_else(|| malformed_reply(WHAT, &answer))
}

fn ms(ttl: Duration) -> String {
    ttl.min(TTL_MAX).as_millis().max(1).to_string()
}

fn instance(value: Value) -> Option<InstanceId> {
    text(value)?.parse().ok()
}

/// A host name is only displayed: whatever bytes it has, the instance is listed.
fn shown(hostname: &Value) -> Option<String> {
    match hostname {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

#[async_trait]
impl MeshLink for RedisMesh {
    fn address(&self) -> String {
        self.commands.address()
    }

    fn key(&self) -> String {
        self.keys.mesh.clone()
    }

    async fn join(&self, hostname: &str, inbox: Arc<dyn MeshInbox>) -> Result<Box<dyn Membership>> {
        let keys = &self.keys;
        let token = Uuid::now_v7().to_string();
        let counted = [keys.counter.as_str(), &keys.heartbeats];
        let args = [&keys.channel_prefix, &keys.bearer_prefix, &token, TOKEN_MS].map(str::as_bytes);
        let answer = self.commands.run(Intent::Change, &script::MESH_NUMBER, &counted, &args).await?;
        let complaint = malformed_reply(WHAT, &answer);
        let id = instance(answer).ok_or(complaint)?;
        // Subscribes before it registers: an instance in the registry can be called.
        let topics = [keys.channel(id), keys.broadcast.clone()];
        let listening = self.subscriptions.listen(&topics, Arc::new(InboxListener(inbox)));
        self.subscriptions.confirm(&listening).await?;
        let membership =
            RedisMembership { id, hostname: hostname.to_owned(), token, link: self.clone(), _listening: listening };
        if let Err(error) = membership.heartbeat(TTL_MAX).await {
            // The heartbeat may have been recorded all the same; other instances would call this one.
            let _ = membership.leave().await;
            return Err(error);
        }
        Ok(Box::new(membership))
    }

    async fn nodes(&self, ttl: Duration) -> Result<Vec<MeshNode>> {
        let keys = [self.keys.heartbeats.as_str(), &self.keys.hostnames];
        let args = [ms(ttl).into_bytes(), self.keys.figures_prefix.clone().into_bytes()];
        let args = [args[0].as_slice(), args[1].as_slice()];
        let answer = self.commands.run(Intent::Ask, &script::MESH_NODES, &keys, &args).await?;
        let complaint = malformed_reply(WHAT, &answer);
        let Value::Array(parts) = answer else { return Err(complaint) };
        let mut parts = parts.into_iter();
        let mut nodes = Vec::with_capacity(parts.len() / 4);
        while let (Some(id), Some(idle), Some(hostname), Some(figures)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        {
            let idle = text(idle).and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
            // Other content of the set is not an instance.
            if let (Some(instance_id), Some(idle), Some(hostname)) = (instance(id), idle, shown(&hostname)) {
                // Figures of another version that cannot be read are none.
                let figures = text(figures).and_then(|text| serde_json::from_str(&text).ok());
                nodes.push(MeshNode { instance_id, hostname, idle, is_self: false, figures });
            }
        }
        nodes.sort_unstable_by_key(|node| node.instance_id);
        Ok(nodes)
    }

    async fn send(&self, letters: &[(InstanceId, Bytes)]) -> Vec<Result<u64>> {
        let mut pipeline = redis::Pipeline::with_capacity(letters.len());
        for (to, message) in letters {
            pipeline.add_command(publish(&self.keys.channel(*to), message));
        }
        match self.commands.pipe(Intent::Change, &pipeline).await {
            Ok(answers) => answers.into_iter().map(listeners).collect(),
            Err(error) => vec![Err(error); letters.len()],
        }
    }

    async fn broadcast(&self, message: Bytes) -> Result<u64> {
        listeners(self.commands.change(&publish(&self.keys.broadcast, &message)).await?)
    }

    async fn lead(&self, holder: &str, ttl: Duration) -> Result<bool> {
        self.is_granted(&script::MESH_LEAD, holder, ttl).await
    }

    async fn renew(&self, holder: &str, ttl: Duration) -> Result<bool> {
        self.is_granted(&script::MESH_RENEW, holder, ttl).await
    }

    async fn resign(&self, holder: &str) -> Result<()> {
        self.commands.run(Intent::Change, &script::MESH_RESIGN, &[&self.keys.lock], &[holder.as_bytes()]).await?;
        Ok(())
    }

    async fn sweep(&self, holder: &str, ttl: Duration) -> Result<Vec<InstanceId>> {
        let keys = [self.keys.lock.as_str(), &self.keys.heartbeats, &self.keys.hostnames];
        let args = [holder.as_bytes(), &ms(ttl).into_bytes()];
        let answer = self.commands.run(Intent::Change, &script::MESH_SWEEP, &keys, &args).await?;
        let complaint = malformed_reply(WHAT, &answer);
        match answer {
            Value::Array(gone) => Ok(gone.into_iter().filter_map(instance).collect()),
            Value::Int(_) => Err(Error::Fenced { what: "sweep" }),
            _ => Err(complaint),
        }
    }
}

struct RedisMembership {
    id: InstanceId,
    hostname: String,
    /// Shows whose the number is: a Redis that has lost its data may assign it to another.
    token: String,
    link: RedisMesh,
    _listening: Listening,
}

#[async_trait]
impl Membership for RedisMembership {
    fn id(&self) -> InstanceId {
        self.id
    }

    async fn heartbeat(&self, ttl: Duration) -> Result<u64> {
        let keys = &self.link.keys;
        let (bearer, channel, id) = (keys.bearer(self.id), keys.channel(self.id), self.id.to_string());
        let named = [keys.heartbeats.as_str(), &keys.hostnames, &keys.counter, &bearer];
        let lately = ms(ttl);
        let args = [&id, &self.hostname, &self.token, TOKEN_MS, &channel, &lately].map(str::as_bytes);
        let answer = self.link.commands.run(Intent::Change, &script::MESH_HEARTBEAT, &named, &args).await?;
        match number(&answer) {
            Some(-1) => Err(Error::Fenced { what: "heartbeat" }),
            count => count.and_then(|count| u64::try_from(count).ok()).ok_or_else(|| malformed_reply(WHAT, &answer)),
        }
    }

    async fn publish(&self, figures: &MeshFigures, ttl: Duration) -> Result<()> {
        let text = serde_json::to_string(figures).expect("numbers always serialise");
        let mut set = redis::cmd("SET");
        set.arg(self.link.keys.figures(self.id)).arg(text).arg("PX").arg(ms(ttl));
        self.link.commands.change(&set).await?;
        Ok(())
    }

    async fn leave(&self) -> Result<()> {
        let (keys, bearer, id) = (&self.link.keys, self.link.keys.bearer(self.id), self.id.to_string());
        let named = [keys.heartbeats.as_str(), &keys.hostnames, &bearer];
        let args = [&id, &self.token].map(|arg| arg.as_bytes());
        self.link.commands.run(Intent::Change, &script::MESH_LEAVE, &named, &args).await?;
        Ok(())
    }
}

struct InboxListener(Arc<dyn MeshInbox>);

impl Listener for InboxListener {
    fn on_message(&self, _topic: &Arc<str>, body: Bytes) {
        self.0.on_message(body);
    }

    fn missed(&self) {
        self.0.missed();
    }
}
