//! Decides which channels of a multiplex are read next. Does no I/O; time is an argument.
//!
//! A channel is read:
//! - after its bell;
//! - at once if it is added and its bell had arrived before;
//! - shortly after it is added in any case, since its bell may have been missed;
//! - with all others after bells were lost, and from time to time.
//!
//! A channel that is removed within that short time was never read. Not every worker sends bells: until a bell of a job
//! arrives, its channels are read again, less and less often, so that an entry without a bell is read after about as
//! long as the run had taken.
//!
//! A read begins after the last entry that was returned and not acknowledged, or else at the beginning of the channel.
//! It does not begin after the last entry ever returned: a channel that is emptied vanishes with its last id, and an
//! entry that is added within the same millisecond may have a lower one. For the same reason a channel is not read
//! between the request and the reply of an acknowledgement: it is not known what it holds.

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

/// How long a channel without a bell waits for its first read, and from each read to the next, together with others.
const POLL_DELAYS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];
/// How often everything is read although no bell arrived.
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
    /// When a channel is polled although no bell arrived, by the number of polls before.
    polls: [VecDeque<(Instant, Ticket)>; POLL_DELAYS.len()],
    parked: Parked,
    sweep_at: Instant,
    last_number: u64,
    /// Sizes of the entries that one channel returns.
    sizes: EntrySizes,
}

/// One addition of a channel. A channel that is removed and added again has another number, so that leftovers of the
/// first addition do not affect the second.
pub(super) type Ticket = (Channel, u64);

struct Reading {
    number: u64,
    name: String,
    /// The channel is in `ready`.
    is_ready: bool,
    /// The channel was read, or is ready to be, since it was added.
    is_begun: bool,
    /// A bell of its job has arrived: its worker sends bells.
    is_rung: bool,
    /// Returned and not acknowledged, in order.
    given: Vec<EntryId>,
    /// Acknowledgements whose reply has not come.
    acks: u32,
}

/// One channel to read, and from where.
pub(super) struct Order {
    ticket: Ticket,
    pub name: String,
    pub after: Option<EntryId>,
}

/// A round of reads.
pub(super) struct Round {
    pub orders: Vec<Order>,
    /// Limit of entries of each channel.
    pub entries_max: usize,
}

impl Readings {
    pub(super) fn new(now: Instant) -> Self {
        Readings {
            by_channel: HashMap::new(),
            ready: VecDeque::new(),
            polls: Default::default(),
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
        let reading = Reading { number, name, is_ready: false, is_begun: false, is_rung, given: Vec::new(), acks: 0 };
        self.by_channel.insert(channel, reading);
        if was_rung {
            self.make_ready(channel);
        } else {
            self.polls[0].push_back((now + POLL_DELAYS[0], (channel, number)));
        }
    }

    pub(super) fn remove(&mut self, channel: &Channel) {
        self.by_channel.remove(channel);
    }

    /// Handles a bell. Returns whether there is something to read.
    pub(super) fn ring(&mut self, bell: &Bell, now: Instant) -> bool {
        let mut is_ours = false;
        // Log lines first: if they came with the end of their run, they are read with it.
        for job in bell.logs.as_ref().unwrap_or(&bell.jobs) {
            is_ours |= self.ring_one((*job, JobChannel::Logs), now);
        }
        for job in &bell.jobs {
            is_ours |= self.ring_one((*job, JobChannel::Status), now);
            if let Some(logs) = self.by_channel.get_mut(&(*job, JobChannel::Logs)) {
                logs.is_rung = true;
            }
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

    /// Returns false if the channel is not read here.
    fn make_ready(&mut self, channel: Channel) -> bool {
        let Some(reading) = self.by_channel.get_mut(&channel) else { return false };
        reading.is_begun = true;
        if !std::mem::replace(&mut reading.is_ready, true) {
            self.ready.push_back((channel, reading.number));
        }
        true
    }

    /// Makes all channels ready: bells may have been lost.
    pub(super) fn make_all_ready(&mut self) {
        let all: Vec<Channel> = self.by_channel.keys().copied().collect();
        all.into_iter().for_each(|channel| {
            self.make_ready(channel);
        });
    }

    /// Returns when something must be read although no bell arrives.
    pub(super) fn next_at(&self) -> Instant {
        let polls = self.polls.iter().filter_map(|polls| polls.front()).map(|(at, _)| *at);
        polls.fold(self.sweep_at, Instant::min)
    }

    /// Returns the channels to read now, if any.
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
            // If it is being acknowledged it stays ready, and is queued again when that is done.
            if let Some(reading) = self.of(ticket).filter(|reading| reading.is_ready && reading.acks == 0) {
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

    /// Makes the channels ready whose poll is due, and sets the time of their next poll.
    fn mark_due(&mut self, now: Instant) {
        for step in 0..POLL_DELAYS.len() {
            while let Some((_, ticket)) = self.polls[step].front().copied().filter(|(at, _)| *at <= now) {
                self.polls[step].pop_front();
                let Some(reading) = self.of(ticket) else { continue };
                let (is_begun, is_rung) = (reading.is_begun, reading.is_rung);
                if !is_begun || !is_rung {
                    self.make_ready(ticket.0);
                }
                if let Some(delay) = POLL_DELAYS.get(step + 1).filter(|_| !is_rung) {
                    self.polls[step + 1].push_back((now + *delay, ticket));
                }
            }
        }
    }

    fn of(&mut self, (channel, number): Ticket) -> Option<&mut Reading> {
        self.by_channel.get_mut(&channel).filter(|reading| reading.number == number)
    }

    /// Makes the channels of a failed round ready again.
    pub(super) fn put_back(&mut self, round: Round) {
        for order in round.orders {
            if self.of(order.ticket).is_some() {
                self.make_ready(order.ticket.0);
            }
        }
    }

    /// Takes the entries of a round, in the order of its orders. Omits channels that are no longer read.
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

    /// Stops reading a channel until the acknowledgement that begins now is done. Returns `None` if it is not read.
    pub(super) fn begin_ack(&mut self, channel: Channel) -> Option<Ticket> {
        let reading = self.by_channel.get_mut(&channel)?;
        reading.acks += 1;
        Some((channel, reading.number))
    }

    /// Marks entries as acknowledged: a later read begins at the start of the channel if no entry is left. Returns
    /// whether there is something to read.
    pub(super) fn end_ack(&mut self, ticket: Ticket, ids: &[EntryId]) -> bool {
        let Some(reading) = self.of(ticket) else { return false };
        reading.acks -= 1;
        if let [id] = ids {
            reading.given.retain(|given| given != id);
        } else {
            let done: HashSet<&EntryId> = ids.iter().collect();
            reading.given.retain(|id| !done.contains(id));
        }
        let is_due = reading.is_ready && reading.acks == 0;
        if is_due {
            self.ready.push_back(ticket);
        }
        is_due
    }
}

#[cfg(test)]
mod tests;
