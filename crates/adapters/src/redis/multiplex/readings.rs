//! What a multiplex reads, and which of it is to be read next. Decides, and does nothing: time is an argument.
//!
//! A channel is read when its bell has rung; when it is new and its bell had rung before; a moment after it was added in any
//! case, since its bell may have been missed; and with all others when bells were lost, and now and then anyway. A channel that
//! is removed within that moment was never read. Not every worker rings: as long as no bell of a job was heard its channels are
//! read again, less and less often, so that what is said without one is heard about as long after as the run had taken.
//!
//! A channel is read on from the last entry that was given and not acknowledged, or else from its beginning. Not from the last
//! that was ever given: a channel that is emptied vanishes with its memory of ids, and an entry that comes within the same
//! millisecond may have a lower one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use convoke_core::JobId;
use convoke_core::jobs::channels::JobChannel;
use convoke_core::jobs::wire::Bell;
use convoke_core::ports::Entry;
use tokio::time::Instant;

use super::parked::Parked;
use crate::redis::entry::EntryId;
use crate::redis::sizing::EntrySizes;

/// How long a channel whose bell was not heard waits for its first read, and from each to the next, together with others.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];
/// How often everything is read although no bell rang.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Bounds one round of reads: channels, and entries in all of them.
const CHANNELS_MAX: usize = 1_024;
const ENTRIES_MAX: usize = 8_192;
const ENTRIES_OF_ONE_MIN: usize = 16;
const ENTRIES_OF_ONE_MAX: usize = 1_024;

pub(super) type Channel = (JobId, JobChannel);

pub(super) struct Readings {
    by_channel: HashMap<Channel, Reading>,
    ready: VecDeque<Ticket>,
    /// When a channel is to be looked at although no bell rang, by how often it was before.
    looks: [VecDeque<(Instant, Ticket)>; LOOKS.len()],
    parked: Parked,
    sweep_at: Instant,
    last_number: u64,
    /// Of what one channel brings.
    sizes: EntrySizes,
}

/// A channel that was added once. One that is removed and added again has another number: what is left of the first
/// time means nothing to the second.
type Ticket = (Channel, u64);

struct Reading {
    number: u64,
    name: String,
    /// Among those that are ready.
    is_ready: bool,
    /// It was read, or is to be, since it was added.
    is_begun: bool,
    /// A bell of its job was heard: whoever speaks there rings.
    is_rung: bool,
    /// Given and not acknowledged, in order.
    given: Vec<EntryId>,
}

/// What to read: one channel, from where.
pub(super) struct Order {
    ticket: Ticket,
    pub name: String,
    pub after: Option<EntryId>,
}

/// A round of reads.
pub(super) struct Round {
    pub orders: Vec<Order>,
    /// At most so many entries of each.
    pub entries_max: usize,
}

impl Readings {
    pub(super) fn new(now: Instant) -> Self {
        Readings {
            by_channel: HashMap::new(),
            ready: VecDeque::new(),
            looks: Default::default(),
            parked: Parked::new(now),
            sweep_at: now + SWEEP_INTERVAL,
            last_number: 0,
            sizes: EntrySizes::default(),
        }
    }

    pub(super) fn add(&mut self, channel: Channel, name: &str, now: Instant) {
        if self.by_channel.contains_key(&channel) {
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        let name = name.to_owned();
        let status = self.by_channel.get(&(channel.0, JobChannel::Status));
        let was_rung = self.parked.take(&channel);
        let is_rung = was_rung || status.is_some_and(|status| status.is_rung);
        let reading = Reading { number, name, is_ready: false, is_begun: false, is_rung, given: Vec::new() };
        self.by_channel.insert(channel, reading);
        if was_rung {
            self.make_ready(channel);
        } else {
            self.looks[0].push_back((now + LOOKS[0], (channel, number)));
        }
    }

    pub(super) fn remove(&mut self, channel: &Channel) {
        self.by_channel.remove(channel);
    }

    /// A bell rang. True where something is to be read.
    pub(super) fn ring(&mut self, bell: &Bell, now: Instant) -> bool {
        let mut is_ours = false;
        for job in &bell.jobs {
            is_ours |= self.ring_one((*job, JobChannel::Status), now);
            if let Some(logs) = self.by_channel.get_mut(&(*job, JobChannel::Logs)) {
                logs.is_rung = true;
            }
        }
        for job in bell.logs.as_ref().unwrap_or(&bell.jobs) {
            is_ours |= self.ring_one((*job, JobChannel::Logs), now);
        }
        is_ours
    }

    fn ring_one(&mut self, channel: Channel, now: Instant) -> bool {
        let is_ours = self.make_ready(channel);
        match self.by_channel.get_mut(&channel) {
            Some(reading) => reading.is_rung = true,
            None => self.parked.park(channel, now),
        }
        is_ours
    }

    /// False where it is not read here.
    fn make_ready(&mut self, channel: Channel) -> bool {
        let Some(reading) = self.by_channel.get_mut(&channel) else { return false };
        reading.is_begun = true;
        if !std::mem::replace(&mut reading.is_ready, true) {
            self.ready.push_back((channel, reading.number));
        }
        true
    }

    /// Bells may have been lost: everything is to be read.
    pub(super) fn make_all_ready(&mut self) {
        let all: Vec<Channel> = self.by_channel.keys().copied().collect();
        all.into_iter().for_each(|channel| {
            self.make_ready(channel);
        });
    }

    /// When something is to be read although no bell rings.
    pub(super) fn next_at(&self) -> Instant {
        let looks = self.looks.iter().filter_map(|looks| looks.front()).map(|(at, _)| *at);
        looks.fold(self.sweep_at, Instant::min)
    }

    /// What is to be read now, if anything.
    pub(super) fn next_round(&mut self, now: Instant) -> Option<Round> {
        self.mark_due(now);
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP_INTERVAL;
            self.make_all_ready();
        }
        let fitting = self.sizes.fitting();
        let channels_max = CHANNELS_MAX.min(fitting);
        let mut orders = Vec::with_capacity(self.ready.len().min(channels_max));
        while orders.len() < channels_max {
            let Some(ticket) = self.ready.pop_front() else { break };
            if let Some(reading) = self.of(ticket) {
                reading.is_ready = false;
                orders.push(Order { ticket, name: reading.name.clone(), after: reading.given.last().copied() });
            }
        }
        if orders.is_empty() {
            return None;
        }
        let entries_max = (ENTRIES_MAX / orders.len()).clamp(ENTRIES_OF_ONE_MIN, ENTRIES_OF_ONE_MAX);
        let entries_max = entries_max.min(fitting.max(ENTRIES_OF_ONE_MIN));
        Some(Round { orders, entries_max })
    }

    /// Makes those ready whose bell was not heard for so long, and says when they are to be looked at next.
    fn mark_due(&mut self, now: Instant) {
        for look in 0..LOOKS.len() {
            while let Some((_, ticket)) = self.looks[look].front().copied().filter(|(at, _)| *at <= now) {
                self.looks[look].pop_front();
                let Some(reading) = self.of(ticket) else { continue };
                let (is_begun, is_rung) = (reading.is_begun, reading.is_rung);
                if !is_begun || !is_rung {
                    self.make_ready(ticket.0);
                }
                if let Some(delay) = LOOKS.get(look + 1).filter(|_| !is_rung) {
                    self.looks[look + 1].push_back((now + *delay, ticket));
                }
            }
        }
    }

    fn of(&mut self, (channel, number): Ticket) -> Option<&mut Reading> {
        self.by_channel.get_mut(&channel).filter(|reading| reading.number == number)
    }

    /// A round could not be read: it is to be read again.
    pub(super) fn put_back(&mut self, round: Round) {
        for order in round.orders {
            if self.of(order.ticket).is_some() {
                self.make_ready(order.ticket.0);
            }
        }
    }

    /// What a round brought, in the order of its orders. Leaves out what is not read any more.
    pub(super) fn give(&mut self, round: Round, found: Vec<Vec<Entry>>) -> Vec<(String, Vec<Entry>)> {
        self.sizes.observe(found.iter().map(|entries| entries.iter().map(|entry| entry.body.len()).sum()));
        let mut given = Vec::with_capacity(found.len());
        for (order, mut entries) in round.orders.into_iter().zip(found) {
            let Some(reading) = self.of(order.ticket) else { continue };
            let is_full = entries.len() >= round.entries_max;
            let mut ids = Vec::with_capacity(entries.len());
            let known: HashSet<EntryId> = reading.given.iter().copied().collect();
            entries.retain(|entry| match EntryId::parse(&entry.id) {
                Some(id) if !known.contains(&id) => {
                    ids.push(id);
                    true
                }
                _ => false,
            });
            reading.given.extend(ids);
            if is_full {
                self.make_ready(order.ticket.0);
            }
            if !entries.is_empty() {
                given.push((order.name, entries));
            }
        }
        given
    }

    /// These entries are being acknowledged: whatever is read after that has to be read from where it begins.
    pub(super) fn mark_acknowledged(&mut self, channel: &Channel, ids: &[&str]) {
        let Some(reading) = self.by_channel.get_mut(channel) else { return };
        let done: HashSet<EntryId> = ids.iter().filter_map(|id| EntryId::parse(id)).collect();
        reading.given.retain(|id| !done.contains(id));
    }
}

#[cfg(test)]
mod tests;
