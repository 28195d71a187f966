//! One reader for all channels of the jobs that a node owns.
//!
//! It subscribes to one bell, whose messages carry ids; selects the channels that it reads; and reads those, many in
//! one pipeline. So a message costs the same with ten channels as with ten thousand, and there is one subscription and
//! no blocking read, whatever the number. During an outage of Redis it continues to wait; afterwards it reads
//! everything again.

mod parked;
mod readings;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::error::Invalid;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::wire::Bell;
use convoke_core::ports::{Entry, Multiplex};
use convoke_core::{Error, Result};
use futures_util::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use self::readings::{Channel, Readings, Round, Ticket};
use super::commands::Commands;
use super::entry::{self, EntryId};
use super::failure::{Intent, failure, malformed_reply};
use super::script;
use super::subscription_hub::{Listener, Listening, SubscriptionHub};

/// A larger bell is not decoded; everything is read instead.
const BELL_BYTES_MAX: usize = 1 << 20;
/// How many unreadable bells are kept until the caller asks for them; more are dropped.
const SPOILT_MAX: usize = 16;
/// Bounds the time of one script on the server: other clients wait for it.
const ACK_QUEUES_MAX: usize = 200;
const ACK_IDS_MAX: usize = 2_000;
const RETRY_PAUSE_MS: std::ops::Range<u64> = 100..400;

/// The result of a round: the entries of each of its channels.
type Found = Result<Vec<Vec<Entry>>>;

pub(super) struct RedisMultiplex {
    commands: Commands,
    channels: Channels,
    read_state: Arc<ReadState>,
    /// A read that was begun belongs to the multiplex, not to the call: the next call finishes it.
    read: tokio::sync::Mutex<Option<BoxFuture<'static, (Round, Found)>>>,
    _listening: Listening,
}

struct ReadState {
    readings: Mutex<Readings>,
    /// Bells that could not be read, for the caller to set aside.
    spoilt: Mutex<Vec<Bytes>>,
    more: Notify,
}

impl Listener for ReadState {
    fn on_message(&self, _topic: &Arc<str>, body: Bytes) {
        let bell = if body.len() <= BELL_BYTES_MAX { serde_json::from_slice::<Bell>(&body).ok() } else { None };
        let is_ours = match bell {
            Some(bell) => self.readings.lock().ring(&bell, Instant::now()),
            None => {
                debug!(bytes = body.len(), "unreadable bell; reading all channels");
                self.readings.lock().make_all_ready();
                let mut spoilt = self.spoilt.lock();
                if body.len() <= BELL_BYTES_MAX && spoilt.len() < SPOILT_MAX {
                    spoilt.push(body);
                }
                true
            }
        };
        if is_ours {
            self.more.notify_one();
        }
    }

    fn missed(&self) {
        self.readings.lock().make_all_ready();
        self.more.notify_one();
    }
}

impl RedisMultiplex {
    pub(super) async fn open(commands: Commands, subscriptions: &SubscriptionHub, channels: Channels) -> Result<Self> {
        let read_state = Arc::new(ReadState {
            readings: Mutex::new(Readings::new(Instant::now())),
            spoilt: Mutex::default(),
            more: Notify::new(),
        });
        let listening = subscriptions.listen(&[channels.bell()], read_state.clone());
        subscriptions.confirm(&listening).await?;
        Ok(RedisMultiplex {
            commands,
            channels,
            read_state,
            read: tokio::sync::Mutex::default(),
            _listening: listening,
        })
    }

    fn channel(&self, name: &str) -> Result<Channel> {
        let refused = || Invalid::new("queue", format!("expected a job's channel, got {name:?}"));
        self.channels.job_of(name).ok_or_else(|| refused().into())
    }

    /// Stops reading these queues until what is returned is dropped.
    fn begin_ack(&self, done: &[(String, Vec<String>)]) -> Acknowledging {
        let mut readings = self.read_state.readings.lock();
        let begun = done.iter().filter_map(|(queue, ids)| {
            let ticket = readings.begin_ack(self.channels.job_of(queue)?)?;
            Some((ticket, ids.iter().filter_map(|id| EntryId::parse(id)).collect()))
        });
        Acknowledging { begun: begun.collect(), read_state: self.read_state.clone() }
    }

    /// Deletes entries of the queues of jobs, and those queues that are empty then.
    async fn delete<'a>(&self, done: impl Iterator<Item = &'a (String, Vec<String>)>) -> Result<()> {
        let (mut parts, mut part) = (Vec::new(), Part::default());
        for (queue, ids) in done {
            let ids: Vec<&str> = entry::valid_ids(ids).collect();
            for ids in ids.chunks(ACK_IDS_MAX) {
                if part.queues.len() >= ACK_QUEUES_MAX || part.ids + ids.len() > ACK_IDS_MAX {
                    parts.push(std::mem::take(&mut part));
                }
                part.put(queue, ids);
            }
        }
        if !part.queues.is_empty() {
            parts.push(part);
        }
        let sent = parts.iter().map(|part| {
            let args: Vec<&[u8]> = part.args.iter().map(|arg| arg.as_bytes()).collect();
            async move { self.commands.run(Intent::Change, &script::ACK_READ, &part.queues, &args).await }
        });
        try_join_all(sent).await?;
        Ok(())
    }

    /// Removes those of the queues that hold no more entries than these. Returns the others.
    async fn remove_whole<'a>(&self, done: &[&'a (String, Vec<String>)]) -> Result<Vec<&'a (String, Vec<String>)>> {
        let sent = done.chunks(ACK_QUEUES_MAX).map(|part| async move {
            let queues: Vec<&str> = part.iter().map(|(queue, _)| queue.as_str()).collect();
            let counts: Vec<String> = part.iter().map(|(_, ids)| ids.len().to_string()).collect();
            let args: Vec<&[u8]> = counts.iter().map(|count| count.as_bytes()).collect();
            let left = self.commands.run(Intent::Change, &script::FINISH, &queues, &args).await?;
            let complaint = malformed_reply(self.commands.what(), &left);
            let Value::Array(left) = left else { return Err(complaint) };
            let places = left.iter().filter_map(entry::number).filter_map(|place| usize::try_from(place).ok());
            Ok(places.filter_map(|place| part.get(place).copied()).collect::<Vec<_>>())
        });
        Ok(try_join_all(sent).await?.into_iter().flatten().collect())
    }

    /// Returns the entries that can be read now. `None` if there are none.
    async fn next_now(&self) -> Result<Option<Vec<(String, Vec<Entry>)>>> {
        let mut read = self.read.lock().await;
        if read.is_none() {
            let Some(round) = self.read_state.readings.lock().next_round(Instant::now()) else { return Ok(None) };
            *read = Some(Box::pin(read_round(self.commands.clone(), round)));
        }
        let Some(under_way) = read.as_mut() else { return Ok(None) };
        let (round, found) = under_way.await;
        *read = None;
        let mut readings = self.read_state.readings.lock();
        match found {
            Ok(found) => Ok(Some(readings.give(round, found))),
            Err(error) => {
                readings.put_back(round);
                Err(error)
            }
        }
    }
}

async fn read_round(commands: Commands, round: Round) -> (Round, Found) {
    let mut pipeline = Pipeline::with_capacity(round.orders.len());
    for order in &round.orders {
        let command = pipeline.cmd("XRANGE").arg(&order.name);
        match order.after {
            Some(id) => command.arg(format!("({id}")),
            None => command.arg("-"),
        };
        command.arg("+").arg("COUNT").arg(round.entries_max);
    }
    let replies = commands.pipe(Intent::Ask, &pipeline).await;
    let found = replies.and_then(|replies| replies.into_iter().map(|reply| entries(&commands, reply)).collect());
    (round, found)
}

fn entries(commands: &Commands, reply: Value) -> Result<Vec<Entry>> {
    match reply.extract_error() {
        Ok(value) => {
            let complaint = malformed_reply(commands.what(), &value);
            entry::entries(value).ok_or(complaint)
        }
        Err(error) => match failure(commands.what(), Intent::Ask, error) {
            // A key of the wrong type has nothing to read; it must not block the other channels.
            Error::Conflict(_) => Ok(Vec::new()),
            error => Err(error),
        },
    }
}

#[async_trait]
impl Multiplex for RedisMultiplex {
    async fn add(&self, queues: &[String]) -> Result<()> {
        let wanted: Vec<Channel> = queues.iter().map(|name| self.channel(name)).collect::<Result<_>>()?;
        let now = Instant::now();
        let mut readings = self.read_state.readings.lock();
        wanted.into_iter().zip(queues).for_each(|(channel, name)| readings.add(channel, name, now));
        drop(readings);
        // A waiting call must compute its wait again.
        self.read_state.more.notify_one();
        Ok(())
    }

    async fn remove(&self, queues: &[String]) -> Result<()> {
        let mut readings = self.read_state.readings.lock();
        queues.iter().filter_map(|name| self.channels.job_of(name)).for_each(|channel| readings.remove(&channel));
        Ok(())
    }

    async fn next(&self) -> Result<Vec<(String, Vec<Entry>)>> {
        loop {
            let spoilt = std::mem::take(&mut *self.read_state.spoilt.lock());
            if !spoilt.is_empty() {
                let entries = spoilt.into_iter().map(|body| Entry { id: String::new(), body });
                return Ok(vec![(self.channels.bell(), entries.collect())]);
            }
            match self.next_now().await {
                Ok(Some(given)) if !given.is_empty() => return Ok(given),
                Ok(Some(_)) => {}
                Ok(None) => {
                    let until = self.read_state.readings.lock().next_at();
                    let _ = tokio::time::timeout_at(until, self.read_state.more.notified()).await;
                }
                Err(error) if error.is_transient() => {
                    debug!(%error, "reading jobs' channels failed");
                    let pause = rand::random_range(RETRY_PAUSE_MS);
                    tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn ack(&self, done: &[(String, Vec<String>)]) -> Result<()> {
        let _acknowledging = self.begin_ack(done);
        // A queue that does not belong to a job is not deleted from.
        self.delete(done.iter().filter(|(queue, _)| self.channels.job_of(queue).is_some())).await
    }

    async fn finish(&self, done: &[(String, Vec<String>)]) -> Result<()> {
        let _acknowledging = self.begin_ack(done);
        let of_jobs = done.iter().filter(|(queue, ids)| !ids.is_empty() && self.channels.job_of(queue).is_some());
        let left = self.remove_whole(&of_jobs.collect::<Vec<_>>()).await?;
        self.delete(left.into_iter()).await
    }
}

/// Queues that are not read, because some of their entries are being deleted. Dropped if that is done, has failed or
/// was given up: then the next read finds out what they hold.
struct Acknowledging {
    begun: Vec<(Ticket, Vec<EntryId>)>,
    read_state: Arc<ReadState>,
}

impl Drop for Acknowledging {
    fn drop(&mut self) {
        let mut readings = self.read_state.readings.lock();
        let due = self.begun.iter().filter(|(ticket, ids)| readings.end_ack(*ticket, ids)).count();
        drop(readings);
        if due > 0 {
            self.read_state.more.notify_one();
        }
    }
}

/// The entries that one script acknowledges.
#[derive(Default)]
struct Part<'a> {
    queues: Vec<&'a str>,
    args: Vec<std::borrow::Cow<'a, str>>,
    ids: usize,
}

impl<'a> Part<'a> {
    fn put(&mut self, queue: &'a str, ids: &[&'a str]) {
        self.queues.push(queue);
        self.args.push(ids.len().to_string().into());
        self.args.extend(ids.iter().map(|id| (*id).into()));
        self.ids += ids.len();
    }
}
