//! The bus of a cluster that has PostgreSQL and nothing else.
//!
//! Topics are notifications (`LISTEN`, `NOTIFY`); the entries of queues are rows, whose bells are notifications too. A
//! process has one connection that listens, one that sends, and a few that read queues. All messages that wait to be
//! sent go in one statement.
//!
//! Everything here may be lost, as the port allows: the tables are not logged, commits do not wait for the disk, and a
//! crash of the server empties the queues. Readers notice that their connection broke, and read the store again.
//!
//! The notifications of a cluster have a name made of its schema and its prefix, so that several clusters can share a
//! database. Entries are deleted when they are acknowledged; the statistics of a busy queue are those of a few rows that
//! are inserted, updated in place and deleted.

mod consumer;
mod hub;
mod member;
mod multiplex;
mod publisher;
mod subscription;
mod wait_slot;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::jobs::channels::Channels;
use convoke_core::limits::GROUP_READERS_MAX;
use convoke_core::ports::{Bus, Consumer, GroupReader, Multiplex, QueueEnd, QueueReaders, Subscription};
use convoke_core::{Invalid, Result};
use deadpool_postgres::Client;
use parking_lot::Mutex;

use self::consumer::PostgresConsumer;
use self::hub::Hub;
use self::member::Member;
use self::multiplex::PostgresMultiplex;
use self::publisher::{Item, PublishWork};
use self::wait_slot::WaitSlots;
use super::failure::{self, Failure};
use super::lane::Lane;
use super::migrate::migrate;
use super::rows::get;
use super::server::{Flush, Server, Ways, lent};
use crate::statement::sql;

/// Connections that read queues and acknowledge.
const CONNECTIONS: usize = 3;
/// Plans that are made once: the tables are small, and their statistics are always out of date.
const SESSION: [&str; 3] = ["plan_cache_mode=force_generic_plan", "enable_hashjoin=off", "enable_mergejoin=off"];
/// Bounds one statement, so that messages of other tasks do not wait for all of a large batch.
const PORTION_ENTRIES_MAX: usize = 1_000;
const PORTION_BYTES_MAX: usize = 4 << 20;
/// Bounds what receivers keep of one message.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// So many entries of the poison queue are kept.
const POISON_KEPT: usize = 10_000;
/// A queue that keeps its last entries only is trimmed once in so many additions.
const TRIM_EVERY: usize = 64;
/// Upper bound of a backlog that is counted.
const BACKLOG_COUNTED_MAX: i64 = 10_000;
const NAMES_MAX: usize = 1_000;

/// A bus in a PostgreSQL database. Clones are the same bus and share its connections.
#[derive(Clone)]
pub struct PostgresBus {
    ways: Ways,
    hub: Hub,
    publisher: Arc<Lane<PublishWork>>,
    wait_slots: Arc<WaitSlots>,
    channels: Channels,
    /// Additions to each queue that keeps its last entries, since it was trimmed.
    untrimmed: Arc<Mutex<HashMap<String, usize>>>,
}

impl PostgresBus {
    /// Connects and migrates. Errors about `url` name `field`. `prefix` separates clusters in one database: a process
    /// receives the messages of its own.
    pub async fn connect(field: &'static str, url: &str, prefix: &str) -> Result<Self> {
        let server = Server::new(field, url)?;
        migrate(&server, None).await?;
        let mut ways = server.pool_with(CONNECTIONS, Flush::Later, &SESSION).await?;
        ways.what = "bus";
        let channel = lent!(Read, &ways, |db| channel(db, prefix))?;
        let hub = Hub::open(server.clone(), channel.clone()).await?;
        let publisher = Lane::start(&server, Flush::Later, 1, PublishWork::new(channel)).await?;
        Ok(PostgresBus {
            ways,
            hub,
            publisher: Arc::new(publisher),
            wait_slots: Arc::default(),
            channels: Channels::new(prefix),
            untrimmed: Arc::default(),
        })
    }

    /// Sends the bell of a queue.
    async fn ring(&self, queue: &str) -> Result<()> {
        self.publisher.call(vec![Item::Bell { queue: queue.to_owned() }]).await.map(drop)
    }

    /// Deletes all but the last entries of a queue, once in a while.
    async fn trim_to(&self, queue: &str, added: usize, kept: usize) -> Result<()> {
        let is_due = {
            let mut untrimmed = self.untrimmed.lock();
            // The first addition trims: processes that add little and restart often must not let it grow.
            let count = untrimmed.entry(queue.to_owned()).or_insert(TRIM_EVERY);
            *count += added;
            let is_due = *count >= TRIM_EVERY;
            if is_due {
                *count = 0;
            }
            is_due
        };
        if is_due {
            lent!(Write, &self.ways, |db| keep_last(db, queue, kept))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for PostgresBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresBus").finish_non_exhaustive()
    }
}

/// Returns the number in the id of an entry; `None` for an id of another bus.
fn id_of(id: &str) -> Option<i64> {
    id.parse().ok()
}

fn seconds(duration: Duration) -> f64 {
    // A longer interval has no meaning for PostgreSQL.
    duration.as_secs_f64().min(1e9)
}

fn check_name(field: &'static str, name: &str) -> Result<(), Invalid> {
    match name.contains('\0') {
        true => Err(Invalid::new(field, "expected a name without null characters")),
        false => Ok(()),
    }
}

fn check_message(topic: &str, message: &Bytes) -> Result<(), Invalid> {
    check_name("topic", topic)?;
    match message.len() > MESSAGE_BYTES_MAX {
        true => {
            Err(Invalid::new("message", format!("expected at most {MESSAGE_BYTES_MAX} bytes, got {}", message.len())))
        }
        false => Ok(()),
    }
}

async fn channel(db: &Client, prefix: &str) -> failure::Result<String> {
    let name = "select 'convoke_' || md5(current_schema() || ' ' || $1) as channel";
    get(&db.query_one(name, &[&prefix]).await?, "channel")
}

async fn keep_last(db: &Client, queue: &str, kept: usize) -> failure::Result<()> {
    let statement = db
        .prepare_cached(sql!(
            "delete from convoke_bus_entries where queue = $1 and id < (
                 select e.id from convoke_bus_entries e where e.queue = $1 order by e.id desc offset $2 limit 1)"
        ))
        .await?;
    let offset = i64::try_from(kept.saturating_sub(1)).unwrap_or(i64::MAX);
    db.execute(&statement, &[&queue, &offset]).await.map_err(Failure::of_commit)?;
    Ok(())
}

async fn backlog(db: &Client, queue: &str, group: &str) -> failure::Result<u64> {
    let statement = db.prepare_cached(sql!(include_str!("sql/backlog.sql"))).await?;
    let row = db.query_one(&statement, &[&queue, &group, &BACKLOG_COUNTED_MAX]).await?;
    Ok(u64::try_from(get::<i64>(&row, "backlog")?).unwrap_or(0))
}

async fn readers(
    db: &Client,
    queues: &[String],
    group: &str,
    idle: Duration,
) -> failure::Result<Vec<Option<QueueReaders>>> {
    let statement = db.prepare_cached(sql!(include_str!("sql/readers.sql"))).await?;
    let idle_ms = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
    let rows = db.query(&statement, &[&queues, &group, &idle_ms, &(GROUP_READERS_MAX as i64)]).await?;
    let mut found = vec![None; queues.len()];
    for row in &rows {
        let place = usize::try_from(get::<i64>(row, "place")? - 1).unwrap_or(usize::MAX);
        let Some(found) = found.get_mut(place).filter(|_| get(row, "has_group").unwrap_or(false)) else { continue };
        let readers = &mut found.get_or_insert_with(QueueReaders::default).readers;
        if let Some(name) = get::<Option<String>>(row, "name")? {
            let number =
                |column: &'static str| get::<i64>(row, column).map(|number| u64::try_from(number).unwrap_or(0));
            let (pending, idle) = (number("pending")?, Duration::from_millis(number("idle_ms")?));
            readers.push(GroupReader { name, idle, pending, is_consumer: true });
        }
    }
    Ok(found)
}

async fn ends(db: &Client, queues: &[String]) -> failure::Result<Vec<QueueEnd>> {
    let statement = db
        .prepare_cached(sql!(
            "select q.name, l.id from unnest($1::text[]) with ordinality as q (name, place)
             cross join lateral (select e.id from convoke_bus_entries e where e.queue = q.name order by e.id desc limit 1) l
             order by q.place"
        ))
        .await?;
    let rows = db.query(&statement, &[&queues]).await?;
    rows.iter().map(|row| Ok(QueueEnd { queue: get(row, "name")?, last: get::<i64>(row, "id")?.to_string() })).collect()
}

async fn close(db: &Client, ends: &[QueueEnd]) -> failure::Result<()> {
    let ends = ends.iter().filter_map(|end| Some((end.queue.as_str(), id_of(&end.last)?)));
    let (queues, lasts): (Vec<&str>, Vec<i64>) = ends.unzip();
    let statement = db
        .prepare_cached(sql!(
            "delete from convoke_bus_entries e using unnest($1::text[], $2::bigint[]) as c (queue, last)
             where e.queue = c.queue and e.id <= c.last"
        ))
        .await?;
    db.execute(&statement, &[&queues, &lasts]).await.map_err(Failure::of_commit)?;
    Ok(())
}

async fn forget_unread(db: &Client, queues: &[String], idle: Duration) -> failure::Result<()> {
    let statement = db.prepare_cached(sql!(include_str!("sql/forget_unread.sql"))).await?;
    db.execute(&statement, &[&queues, &seconds(idle)]).await.map_err(Failure::of_commit)?;
    Ok(())
}

async fn queues(db: &Client, prefix: &str) -> failure::Result<Vec<String>> {
    let statement = db.prepare_cached(sql!(include_str!("sql/queues.sql"))).await?;
    let rows = db.query(&statement, &[&prefix, &format!("{prefix}\u{10FFFF}")]).await?;
    rows.iter().map(|row| get(row, "queue")).collect()
}

async fn ping(db: &Client) -> failure::Result<()> {
    db.simple_query("select 1").await?;
    Ok(())
}

/// Returns how many of the entries go together: at least one, however large.
fn portion(entries: &[(String, Bytes)]) -> usize {
    let mut bytes = 0;
    let fits = entries.iter().take(PORTION_ENTRIES_MAX).take_while(|(_, body)| {
        bytes += body.len();
        bytes <= PORTION_BYTES_MAX
    });
    fits.count().max(1)
}

#[async_trait]
impl Bus for PostgresBus {
    fn address(&self) -> String {
        self.ways.address()
    }

    async fn publish(&self, topic: &str, message: Bytes) -> Result<()> {
        check_message(topic, &message)?;
        self.publisher.call(vec![Item::Message { topic: topic.to_owned(), body: message }]).await?;
        Ok(())
    }

    async fn announce(&self, topic: &str, message: Bytes, kept: usize) -> Result<()> {
        check_message(topic, &message)?;
        let entry = Item::Entry { queue: topic.to_owned(), body: message.clone() };
        self.publisher.call(vec![entry, Item::Message { topic: topic.to_owned(), body: message }]).await?;
        self.trim_to(topic, 1, kept).await
    }

    async fn subscribe(&self, topics: &[String]) -> Result<Box<dyn Subscription>> {
        Ok(Box::new(subscription::subscribe(&self.hub, topics).await?))
    }

    async fn push(&self, mut entries: Vec<(String, Bytes)>) -> Result<()> {
        let poison = self.channels.poison();
        let poisoned = entries.iter().filter(|(queue, _)| *queue == poison).count();
        while !entries.is_empty() {
            let rest = entries.split_off(portion(&entries));
            let mut items = Vec::with_capacity(entries.len());
            for (queue, body) in entries {
                check_name("queue", &queue)?;
                items.push(Item::Entry { queue, body });
            }
            self.publisher.call(items).await?;
            entries = rest;
        }
        if poisoned > 0 {
            self.trim_to(&poison, poisoned, POISON_KEPT).await?;
        }
        Ok(())
    }

    async fn consumer(&self, queue: &str, group: &str, name: &str) -> Result<Box<dyn Consumer>> {
        check_name("queue", queue)?;
        check_name("group", group)?;
        check_name("consumer", name)?;
        let wait_slot = self.wait_slots.wait_slot(&self.hub, queue, group);
        let member = Member::new(self, queue, group, name);
        member.join().await?;
        self.hub.connected().await?;
        Ok(Box::new(PostgresConsumer::new(member, wait_slot)))
    }

    async fn backlog(&self, queue: &str, group: &str) -> Result<u64> {
        lent!(Read, &self.ways, |db| backlog(db, queue, group))
    }

    async fn readers(&self, queues: &[String], group: &str, idle: Duration) -> Result<Vec<Option<QueueReaders>>> {
        let mut all = Vec::with_capacity(queues.len());
        for part in queues.chunks(NAMES_MAX) {
            all.extend(lent!(Read, &self.ways, |db| readers(db, part, group, idle))?);
        }
        Ok(all)
    }

    async fn multiplex(&self) -> Result<Box<dyn Multiplex>> {
        self.hub.connected().await?;
        Ok(Box::new(PostgresMultiplex::open(self.clone())))
    }

    async fn ends(&self, queues: &[String]) -> Result<Vec<QueueEnd>> {
        let mut all = Vec::new();
        for part in queues.chunks(NAMES_MAX) {
            all.extend(lent!(Read, &self.ways, |db| ends(db, part))?);
        }
        Ok(all)
    }

    async fn close(&self, ends: &[QueueEnd]) -> Result<()> {
        for part in ends.chunks(NAMES_MAX) {
            lent!(Write, &self.ways, |db| close(db, part))?;
        }
        Ok(())
    }

    async fn trim(&self, _queues: &[String]) -> Result<()> {
        // Without consumers there are no readers, and an acknowledged entry is deleted at once.
        Ok(())
    }

    async fn forget_unread(&self, queues: &[String], idle: Duration) -> Result<()> {
        for part in queues.chunks(NAMES_MAX) {
            lent!(Write, &self.ways, |db| forget_unread(db, part, idle))?;
        }
        Ok(())
    }

    async fn queues(&self, prefix: &str) -> Result<Vec<String>> {
        lent!(Read, &self.ways, |db| queues(db, prefix))
    }

    async fn ping(&self) -> Result<()> {
        lent!(Read, &self.ways, |db| ping(db))
    }
}
