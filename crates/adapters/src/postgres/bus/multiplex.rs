//! One reader for many queues.
//!
//! A bell makes its queue due; `next` reads the queues that are due, many in one statement. So a message costs the same
//! with ten queues as with ten thousand. Nothing is written by reading. If bells were lost, all queues are due.
//!
//! A queue is read from the last entry on that was returned: it is for queues with one writer, as the channels of a job
//! are.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::Result;
use convoke_core::limits::TAKE_BYTES_MAX;
use convoke_core::ports::{Entry, Multiplex};
use deadpool_postgres::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::Row;
use tracing::debug;

use super::hub::{Interest, Listener, Listening};
use super::{PostgresBus, id_of};
use crate::postgres::failure::{self, Failure};
use crate::postgres::rows::get;
use crate::postgres::server::lent;
use crate::statement::sql;

/// Bounds one statement.
const QUEUES_MAX: usize = 1_000;
const ENTRIES_MAX: usize = 8_192;
const RETRY_PAUSE_MS: std::ops::Range<u64> = 100..400;

pub(super) struct PostgresMultiplex {
    bus: PostgresBus,
    state: Arc<ReadState>,
    /// One call reads at a time.
    reading: tokio::sync::Mutex<()>,
    _listening: Listening,
}

#[derive(Default)]
struct ReadState {
    readings: Mutex<Readings>,
    more: Notify,
}

#[derive(Default)]
struct Readings {
    by_queue: HashMap<Arc<str>, Reading>,
    /// Queues that may have entries, each once.
    due: VecDeque<Arc<str>>,
}

#[derive(Default)]
struct Reading {
    /// The last entry that was returned.
    after: i64,
    is_due: bool,
}

impl Readings {
    fn make_due(&mut self, queue: &str) -> bool {
        let Some((name, _)) = self.by_queue.get_key_value(queue) else { return false };
        let name = name.clone();
        let Some(reading) = self.by_queue.get_mut(queue).filter(|reading| !reading.is_due) else { return false };
        reading.is_due = true;
        self.due.push_back(name);
        true
    }

    fn make_all_due(&mut self) {
        for (name, reading) in self.by_queue.iter_mut().filter(|(_, reading)| !reading.is_due) {
            reading.is_due = true;
            self.due.push_back(name.clone());
        }
    }

    /// Takes queues to read. Queues that were removed meanwhile are left out.
    fn begin(&mut self) -> Round {
        let mut queues = Vec::new();
        while queues.len() < QUEUES_MAX {
            let Some(name) = self.due.pop_front() else { break };
            if let Some(reading) = self.by_queue.get_mut(&name).filter(|reading| reading.is_due) {
                reading.is_due = false;
                queues.push((name, reading.after));
            }
        }
        Round { queues }
    }
}

impl Listener for ReadState {
    fn on_bell(&self, queue: &str) {
        if self.readings.lock().make_due(queue) {
            self.more.notify_one();
        }
    }

    fn missed(&self) {
        self.readings.lock().make_all_due();
        self.more.notify_one();
    }
}

/// Queues that are read together, with the last entry of each that was returned.
struct Round {
    queues: Vec<(Arc<str>, i64)>,
}

/// Makes the queues of a round due again on drop: for a call that is dropped or fails.
struct DueAgainOnDrop<'a> {
    state: &'a ReadState,
    round: Round,
    is_armed: bool,
}

impl Drop for DueAgainOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            let mut readings = self.state.readings.lock();
            self.round.queues.iter().for_each(|(name, _)| {
                readings.make_due(name);
            });
            self.state.more.notify_one();
        }
    }
}

impl PostgresMultiplex {
    pub(super) fn open(bus: PostgresBus) -> Self {
        let state = Arc::new(ReadState::default());
        let listening = bus.hub.listen(Interest::Bells, state.clone());
        PostgresMultiplex { bus, state, reading: tokio::sync::Mutex::default(), _listening: listening }
    }

    /// Reads the queues that are due. `None` if there are none.
    async fn next_now(&self) -> Result<Option<Vec<(String, Vec<Entry>)>>> {
        let _reading = self.reading.lock().await;
        let round = self.state.readings.lock().begin();
        if round.queues.is_empty() {
            return Ok(None);
        }
        let mut guard = DueAgainOnDrop { state: &self.state, round, is_armed: true };
        let rows = lent!(Read, &self.bus.ways, |db| read(db, &guard.round))?;
        let bytes: usize = rows.iter().map(|(_, entry)| entry.body.len()).sum();
        // The entries that did not fit are read next.
        guard.is_armed = rows.len() >= ENTRIES_MAX || bytes >= TAKE_BYTES_MAX;
        let mut found: Vec<(String, Vec<Entry>)> = Vec::new();
        let mut readings = self.state.readings.lock();
        for (place, entry) in rows {
            let Some((name, _)) = guard.round.queues.get(place) else { continue };
            // A queue that was removed meanwhile is not read any more.
            let Some(reading) = readings.by_queue.get_mut(name) else { continue };
            reading.after = id_of(&entry.id).unwrap_or(reading.after);
            match found.last_mut().filter(|(queue, _)| **queue == **name) {
                Some((_, entries)) => entries.push(entry),
                None => found.push((name.to_string(), vec![entry])),
            }
        }
        drop(readings);
        Ok(Some(found))
    }
}

async fn read(db: &Client, round: &Round) -> failure::Result<Vec<(usize, Entry)>> {
    let statement = db.prepare_cached(sql!(include_str!("sql/read_channels.sql"))).await?;
    let (names, after): (Vec<&str>, Vec<i64>) = round.queues.iter().map(|(name, after)| (&**name, *after)).unzip();
    let (entries, bytes) = (ENTRIES_MAX as i64, TAKE_BYTES_MAX as i64);
    let rows = db.query(&statement, &[&names, &after, &entries, &bytes]).await?;
    let entry = |row: &Row| -> failure::Result<(usize, Entry)> {
        let (place, id, body): (i64, i64, Vec<u8>) = (get(row, "place")?, get(row, "id")?, get(row, "body")?);
        Ok((usize::try_from(place - 1).unwrap_or(usize::MAX), Entry { id: id.to_string(), body: body.into() }))
    };
    rows.iter().map(entry).collect()
}

#[async_trait]
impl Multiplex for PostgresMultiplex {
    async fn add(&self, queues: &[String]) -> Result<()> {
        let mut readings = self.state.readings.lock();
        for queue in queues {
            if !readings.by_queue.contains_key(queue.as_str()) {
                readings.by_queue.insert(queue.as_str().into(), Reading::default());
                readings.make_due(queue);
            }
        }
        drop(readings);
        self.state.more.notify_one();
        Ok(())
    }

    async fn remove(&self, queues: &[String]) -> Result<()> {
        let mut readings = self.state.readings.lock();
        for queue in queues {
            readings.by_queue.remove(queue.as_str());
        }
        // Names of removed queues must not accumulate if nobody reads.
        if readings.due.len() > 2 * readings.by_queue.len() + QUEUES_MAX {
            let Readings { by_queue, due } = &mut *readings;
            due.retain(|name| by_queue.contains_key(name));
        }
        Ok(())
    }

    async fn next(&self) -> Result<Vec<(String, Vec<Entry>)>> {
        loop {
            match self.next_now().await {
                Ok(Some(found)) if !found.is_empty() => return Ok(found),
                Ok(Some(_)) => {}
                Ok(None) => self.state.more.notified().await,
                Err(error) if error.is_transient() => {
                    debug!(%error, "reading jobs' channels failed");
                    tokio::time::sleep(Duration::from_millis(rand::random_range(RETRY_PAUSE_MS))).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn ack(&self, done: &[(String, Vec<String>)]) -> Result<()> {
        let pairs = done.iter().flat_map(|(queue, ids)| ids.iter().filter_map(|id| Some((queue.as_str(), id_of(id)?))));
        let (queues, ids): (Vec<&str>, Vec<i64>) = pairs.unzip();
        if ids.is_empty() {
            return Ok(());
        }
        lent!(Write, &self.bus.ways, |db| delete(db, &queues, &ids))
    }
}

async fn delete(db: &Client, queues: &[&str], ids: &[i64]) -> failure::Result<()> {
    let statement = db
        .prepare_cached(sql!(
            "delete from convoke_bus_entries e using unnest($1::text[], $2::bigint[]) as d (queue, id)
             where e.queue = d.queue and e.id = d.id"
        ))
        .await?;
    db.execute(&statement, &[&queues, &ids]).await.map_err(Failure::of_commit)?;
    Ok(())
}
