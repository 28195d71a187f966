//! One queue: its entries, the groups that share them, and the multiplexes that read it.
//!
//! An entry is kept until every present group has acknowledged it, or a multiplex has; without either it is kept until
//! one joins. Entries are numbered without gaps, so that each is found by its place. The queue's own number is part of
//! every entry's id: the acknowledgement of an entry that was removed by a close cannot affect a later one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::ByteBudget;
use convoke_core::limits::TAKE_BYTES_MAX;
use convoke_core::mutant::mutant;
use convoke_core::ports::{Delivery, Entry, GroupReader};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Queue {
    number: u64,
    /// The number of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    /// Slots that are not done.
    live: u64,
    groups: Vec<Group>,
    readers: Vec<Reader>,
}

struct Slot {
    body: Bytes,
    /// How many groups have not acknowledged it.
    owed: u32,
    done: bool,
}

pub(super) struct Group {
    name: Arc<str>,
    /// The first entry that was not delivered to the group.
    next: u64,
    /// How many entries were not delivered to the group.
    waiting: u64,
    pending: BTreeMap<u64, Pending>,
    members: BTreeMap<u64, Member>,
    bell: Arc<Notify>,
}

struct Member {
    name: Arc<str>,
    /// When it last read, or joined.
    seen: Instant,
}

/// An entry that was delivered to a consumer and not acknowledged.
struct Pending {
    /// `None` once the consumer has left.
    consumer: Option<u64>,
    since: Instant,
    deliveries: u32,
}

/// A multiplex that reads the queue.
struct Reader {
    multiplex: u64,
    next: u64,
    /// The queue is on its ready list.
    listed: bool,
}

impl Group {
    /// Creates a group that begins with the entry `next`, behind which `waiting` ones are held.
    fn new(name: &str, next: u64, waiting: u64) -> Self {
        let (pending, members, bell) = Default::default();
        Group { name: name.into(), next, waiting, pending, members, bell }
    }

    pub(super) fn bell(&self) -> &Arc<Notify> {
        &self.bell
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    pub(super) fn has_member(&self, consumer: u64) -> bool {
        self.members.contains_key(&consumer)
    }

    pub(super) fn readers(&self, now: Instant) -> Vec<GroupReader> {
        let mut pending: BTreeMap<u64, u64> = BTreeMap::new();
        for consumer in self.pending.values().filter_map(|pending| pending.consumer) {
            *pending.entry(consumer).or_default() += 1;
        }
        let reader = |(number, member): (&u64, &Member)| GroupReader {
            name: member.name.to_string(),
            idle: now.duration_since(member.seen),
            pending: pending.get(number).copied().unwrap_or(0),
            is_consumer: true,
        };
        self.members.iter().map(reader).collect()
    }
}

impl Queue {
    pub(super) fn new(number: u64) -> Self {
        Queue { number, first: 0, slots: VecDeque::new(), live: 0, groups: Vec::new(), readers: Vec::new() }
    }

    pub(super) fn push(&mut self, body: Bytes) {
        self.slots.push_back(Slot { body, owed: self.groups.len() as u32, done: false });
        self.live += 1;
        self.groups.iter_mut().for_each(|group| group.waiting += 1);
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    pub(super) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| &*group.name == name)
    }

    pub(super) fn backlog(&self, group: &str) -> u64 {
        self.group(group).map_or(self.live, |group| group.waiting)
    }

    pub(super) fn has_members(&self) -> bool {
        self.groups.iter().any(|group| !group.members.is_empty()) || !self.readers.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// With at most one group, a new queue that the group joins again is equal to the old one.
    pub(super) fn is_idle(&self) -> bool {
        self.live == 0 && self.groups.len() <= 1 && !self.has_members()
    }

    /// Returns the id of its last entry, if it holds any.
    pub(super) fn last_id(&self) -> Option<String> {
        let last = (self.first + self.slots.len() as u64).checked_sub(1)?;
        (!self.is_empty()).then(|| entry_id(self.number, last))
    }

    /// Drops all entries up to this one, for all groups and readers, which stay.
    pub(super) fn drop_until(&mut self, last: &str) {
        let Some(last) = entry_seq(self.number, last) else { return };
        let end = last.saturating_add(1).min(self.first + self.slots.len() as u64);
        for seq in self.first..end {
            self.drop_entry(seq);
        }
        self.trim();
    }

    /// Joins a group. A new group begins with everything that is held.
    pub(super) fn join(&mut self, group: &str, consumer: u64, name: &str, now: Instant) -> Arc<Notify> {
        let place = match self.groups.iter().position(|known| &*known.name == group) {
            Some(place) => place,
            None if mutant("group begins at 0") => {
                let (next, waiting) = (self.first + self.slots.len() as u64, 0);
                self.groups.push(Group::new(group, next, waiting));
                self.groups.len() - 1
            }
            None => {
                self.slots.iter_mut().filter(|slot| !slot.done).for_each(|slot| slot.owed += 1);
                self.groups.push(Group::new(group, self.first, self.live));
                self.groups.len() - 1
            }
        };
        self.groups[place].members.insert(consumer, Member { name: name.into(), seen: now });
        self.groups[place].bell.clone()
    }

    /// Records that a member reads.
    pub(super) fn saw(&mut self, group: &str, consumer: u64, now: Instant) {
        let group = self.groups.iter_mut().find(|known| &*known.name == group);
        if let Some(member) = group.and_then(|group| group.members.get_mut(&consumer)) {
            member.seen = now;
        }
    }

    /// Drops all entries but the last of this number, in all groups.
    pub(super) fn keep_last(&mut self, kept: usize) {
        let end = self.first + self.slots.len().saturating_sub(kept) as u64;
        for seq in self.first..end {
            self.drop_entry(seq);
        }
        self.trim();
    }

    /// Ends a membership. With `left` its entries can be taken over at once; else its consumer has vanished, and others
    /// must wait until it has been idle.
    pub(super) fn part(&mut self, group: &str, consumer: u64, left: bool) {
        let Some(group) = self.groups.iter_mut().find(|known| &*known.name == group) else { return };
        group.members.remove(&consumer);
        if left {
            let given = group.pending.values_mut().filter(|pending| pending.consumer == Some(consumer));
            given.for_each(|pending| pending.consumer = None);
        }
    }

    pub(super) fn take(&mut self, group: &str, consumer: u64, max: usize, now: Instant) -> Vec<Delivery> {
        let Some(group) = self.groups.iter_mut().find(|known| &*known.name == group) else { return Vec::new() };
        let mut taken = Vec::with_capacity(max.min(group.waiting as usize));
        let mut budget = ByteBudget::new(TAKE_BYTES_MAX);
        group.next = group.next.max(self.first);
        while taken.len() < max && group.waiting > 0 {
            let Some(slot) = self.slots.get((group.next - self.first) as usize) else { break };
            if !slot.done && !budget.admits(slot.body.len()) {
                break;
            }
            let seq = group.next;
            group.next += 1;
            if slot.done {
                continue;
            }
            group.waiting -= 1;
            group.pending.insert(seq, Pending { consumer: Some(consumer), since: now, deliveries: 1 });
            taken.push(Delivery { id: entry_id(self.number, seq), body: slot.body.clone(), deliveries: 1 });
        }
        if mutant("trim only what was read") {
            (group.next - taken.len() as u64..group.next).for_each(|seq| self.drop_entry(seq));
        }
        taken
    }

    pub(super) fn take_over(
        &mut self,
        group: &str,
        consumer: u64,
        idle: Duration,
        max: usize,
        now: Instant,
    ) -> Vec<Delivery> {
        let Some(group) = self.groups.iter_mut().find(|known| &*known.name == group) else { return Vec::new() };
        let free = |pending: &Pending| match pending.consumer {
            None => true,
            Some(other) => other != consumer && now.duration_since(pending.since) >= idle,
        };
        let mut budget = ByteBudget::new(TAKE_BYTES_MAX);
        let abandoned = group.pending.iter_mut().filter(|(_, pending)| free(pending)).take(max);
        abandoned
            .take_while(|(seq, _)| budget.admits(self.slots[(**seq - self.first) as usize].body.len()))
            .map(|(seq, pending)| {
                *pending = Pending { consumer: Some(consumer), since: now, deliveries: pending.deliveries + 1 };
                let body = self.slots[(seq - self.first) as usize].body.clone();
                Delivery { id: entry_id(self.number, *seq), body, deliveries: pending.deliveries }
            })
            .collect()
    }

    pub(super) fn ack(&mut self, group: &str, ids: &[String]) {
        let Some(place) = self.groups.iter().position(|known| &*known.name == group) else { return };
        let number = self.number;
        for seq in ids.iter().filter_map(|id| entry_seq(number, id)) {
            if self.groups[place].pending.remove(&seq).is_some() {
                self.release_entry(seq);
            }
        }
        self.trim();
    }

    /// Records that one group fewer needs this entry.
    fn release_entry(&mut self, seq: u64) {
        let Some(slot) = seq.checked_sub(self.first).and_then(|place| self.slots.get_mut(place as usize)) else {
            return;
        };
        slot.owed = slot.owed.saturating_sub(1);
        if slot.owed == 0 {
            self.finish(seq);
        }
    }

    /// Returns false if it is done already.
    fn finish(&mut self, seq: u64) -> bool {
        let slot = seq.checked_sub(self.first).and_then(|place| self.slots.get_mut(place as usize));
        let Some(slot) = slot.filter(|slot| !slot.done) else { return false };
        slot.done = true;
        slot.body = Bytes::new();
        self.live -= 1;
        true
    }

    fn trim(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.done) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Adds a multiplex as a reader, from the first entry on. Returns false if it is one already.
    pub(super) fn add_reader(&mut self, multiplex: u64) -> bool {
        if self.readers.iter().any(|reader| reader.multiplex == multiplex) {
            return false;
        }
        self.readers.push(Reader { multiplex, next: self.first, listed: false });
        true
    }

    pub(super) fn remove_reader(&mut self, multiplex: u64) {
        self.readers.retain(|reader| reader.multiplex != multiplex);
    }

    pub(super) fn has_unlisted_reader(&self) -> bool {
        self.live > 0 && self.readers.iter().any(|reader| !reader.listed)
    }

    /// Marks its readers as having it on their lists; returns those that did not.
    pub(super) fn list_readers(&mut self) -> Vec<u64> {
        let unlisted = self.readers.iter_mut().filter(|reader| !reader.listed);
        unlisted
            .map(|reader| {
                reader.listed = true;
                reader.multiplex
            })
            .collect()
    }

    /// Returns the entries that a multiplex has not received yet, at most `max` and within `budget`; and whether there
    /// are more.
    pub(super) fn read(&mut self, multiplex: u64, max: usize, budget: &mut ByteBudget) -> (Vec<Entry>, bool) {
        let reader = self.readers.iter_mut().find(|reader| reader.multiplex == multiplex);
        let Some(reader) = reader.filter(|reader| reader.listed) else { return (Vec::new(), false) };
        let mut given = Vec::new();
        reader.next = reader.next.max(self.first);
        while given.len() < max {
            let Some(slot) = self.slots.get((reader.next - self.first) as usize) else { break };
            if !slot.done && !budget.admits(slot.body.len()) {
                break;
            }
            let seq = reader.next;
            reader.next += 1;
            if !slot.done {
                given.push(Entry { id: entry_id(self.number, seq), body: slot.body.clone() });
            }
        }
        let more = reader.next - self.first < self.slots.len() as u64;
        reader.listed = more;
        (given, more)
    }

    /// Drops entries that a multiplex has acknowledged, for all groups and readers.
    pub(super) fn ack_read(&mut self, ids: &[String]) {
        let number = self.number;
        ids.iter().filter_map(|id| entry_seq(number, id)).for_each(|seq| self.drop_entry(seq));
        self.trim();
    }

    /// Ends an entry for every group and reader.
    fn drop_entry(&mut self, seq: u64) {
        if self.finish(seq) {
            for group in &mut self.groups {
                let was_given = group.pending.remove(&seq).is_some();
                group.waiting -= u64::from(!was_given && seq >= group.next);
            }
        }
    }
}

fn entry_id(queue: u64, seq: u64) -> String {
    format!("{queue}-{seq}")
}

/// Returns the entry's number, if the id is one of this queue.
fn entry_seq(queue: u64, id: &str) -> Option<u64> {
    let (number, seq) = id.split_once('-')?;
    if number.parse() != Ok(queue) {
        return None;
    }
    seq.parse().ok()
}
