//! One reader for many queues.
//!
//! A queue with new entries is added to the ready list of each multiplex that reads it, once, however many arrive;
//! `next` empties the list. So a message costs the same with ten queues as with ten thousand.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::limits::TAKE_BYTES_MAX;
use convoke_core::ports::{Entry, Multiplex};
use convoke_core::{ByteBudget, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Queues;

/// Bounds one result of `next`; the rest follows with the next call.
const ENTRIES_MAX: usize = 8_192;

/// The queues of a multiplex, and those with new entries.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) queues: VecDeque<Arc<str>>,
    pub(super) bell: Arc<Notify>,
    reads: BTreeSet<Arc<str>>,
}

pub(super) struct MemoryMultiplex {
    queues: Arc<Mutex<Queues>>,
    number: u64,
    bell: Arc<Notify>,
}

impl MemoryMultiplex {
    pub(super) fn new(queues: Arc<Mutex<Queues>>) -> Self {
        let mut locked = queues.lock();
        let number = locked.number();
        let ready = Ready::default();
        let bell = ready.bell.clone();
        locked.multiplexes.insert(number, ready);
        drop(locked);
        MemoryMultiplex { queues, number, bell }
    }

    fn next_now(&self) -> Vec<(String, Vec<Entry>)> {
        let mut locked = self.queues.lock();
        let queues = &mut *locked;
        let Some(ready) = queues.multiplexes.get_mut(&self.number) else { return Vec::new() };
        let (mut given, mut room) = (Vec::with_capacity(ready.queues.len().min(ENTRIES_MAX)), ENTRIES_MAX);
        let mut budget = ByteBudget::new(TAKE_BYTES_MAX);
        while room > 0 && !budget.is_used_up() {
            let Some(name) = ready.queues.pop_front() else { break };
            // The queue may have been removed or closed since: then there is nothing to read.
            let Some(queue) = queues.by_name.get_mut(&name) else { continue };
            let (entries, more) = queue.read(self.number, room, &mut budget);
            if more {
                ready.queues.push_front(name.clone());
            }
            room -= entries.len();
            if !entries.is_empty() {
                given.push((name.as_ref().to_owned(), entries));
            }
        }
        if !ready.queues.is_empty() {
            self.bell.notify_one();
        }
        given
    }

    fn remove_all(&self, queues: &mut Queues, names: impl Iterator<Item = impl AsRef<str>>) {
        for name in names {
            let name = name.as_ref();
            if let Some(queue) = queues.by_name.get_mut(name) {
                queue.remove_reader(self.number);
            }
            queues.drop_if_idle(name);
        }
    }
}

#[async_trait]
impl Multiplex for MemoryMultiplex {
    async fn add(&self, names: &[String]) -> Result<()> {
        let mut bells = Vec::new();
        let mut queues = self.queues.lock();
        for name in names {
            let queue = queues.open(name);
            if !queue.add_reader(self.number) {
                continue;
            }
            let has_some = queue.has_unlisted_reader();
            let key = queues.by_name.get_key_value(name.as_str()).map(|(key, _)| key.clone());
            if let (Some(ready), Some(key)) = (queues.multiplexes.get_mut(&self.number), key) {
                ready.reads.insert(key);
            }
            if has_some {
                queues.list(name, &mut bells);
            }
        }
        drop(queues);
        bells.iter().for_each(|bell| bell.notify_one());
        Ok(())
    }

    async fn remove(&self, names: &[String]) -> Result<()> {
        let mut queues = self.queues.lock();
        if let Some(ready) = queues.multiplexes.get_mut(&self.number) {
            names.iter().for_each(|name| {
                ready.reads.remove(name.as_str());
            });
        }
        self.remove_all(&mut queues, names.iter());
        Ok(())
    }

    async fn next(&self) -> Result<Vec<(String, Vec<Entry>)>> {
        loop {
            let given = self.next_now();
            if !given.is_empty() {
                return Ok(given);
            }
            self.bell.notified().await;
        }
    }

    async fn ack(&self, done: &[(String, Vec<String>)]) -> Result<()> {
        let mut queues = self.queues.lock();
        for (queue, ids) in done {
            if let Some(queue) = queues.by_name.get_mut(queue.as_str()) {
                queue.ack_read(ids);
            }
            queues.drop_if_idle(queue);
        }
        Ok(())
    }
}

impl Drop for MemoryMultiplex {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        if let Some(ready) = queues.multiplexes.remove(&self.number) {
            self.remove_all(&mut queues, ready.reads.iter());
        }
    }
}
