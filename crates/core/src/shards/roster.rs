//! The roster of a shard coordinator: the workers that may hold shards, as the store lists them.
//!
//! The store lists a worker before the worker is sent its first shard, and until the worker has left or was declared
//! dead. So a worker that is not listed holds nothing, and the coordinator of the next term need not wait for it. Only
//! workers are listed, never shards: a rebalance writes nothing.
//!
//! One change is written at a time, and repeated until the store confirms it. Later requests are collected in the next
//! change, so that many registrations cost few writes. While a row is being written its state is unknown, and the
//! worker counts as not listed.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ServiceName, WorkerId};

/// Upper bound of the rows of one change.
pub const ROSTER_CHANGE_MAX: usize = 2_000;

/// A worker of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardMember {
    /// The service.
    pub service: ServiceName,
    /// The worker.
    pub worker: WorkerId,
}

/// Rows to add and to remove, in one transaction. No row is in both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RosterChange {
    /// Rows to add.
    pub add: Vec<ShardMember>,
    /// Rows to remove.
    pub remove: Vec<ShardMember>,
}

impl RosterChange {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.add.len() + self.remove.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The store's list as far as it is known, and the list as it should be.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub struct Roster {
    rows: BTreeMap<ShardMember, Row>,
    /// Rows that are not as they should be.
    dirty: BTreeSet<ShardMember>,
    /// A change was returned and is not confirmed yet.
    is_writing: bool,
}

#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(Hash))]
struct Row {
    state: RowState,
    is_wanted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum RowState {
    Absent,
    /// Being added or removed.
    Unknown,
    Listed,
}

impl Roster {
    /// Returns a roster with the rows that the store has.
    pub fn new(listed: impl IntoIterator<Item = ShardMember>) -> Self {
        let row = Row { state: RowState::Listed, is_wanted: true };
        let rows = listed.into_iter().map(|member| (member, row)).collect();
        Roster { rows, ..Roster::default() }
    }

    /// Returns whether the store is known to list a worker. If not, the next change adds it.
    pub fn add(&mut self, member: &ShardMember) -> bool {
        let row = self.rows.entry(member.clone()).or_insert(Row { state: RowState::Absent, is_wanted: true });
        row.is_wanted = true;
        let is_listed = row.state == RowState::Listed;
        if is_listed {
            self.dirty.remove(member);
        } else {
            self.dirty.insert(member.clone());
        }
        is_listed
    }

    /// Schedules a worker for removal by the next change.
    pub fn remove(&mut self, member: &ShardMember) {
        let Some(row) = self.rows.get_mut(member) else { return };
        row.is_wanted = false;
        if row.state == RowState::Absent {
            self.rows.remove(member);
            self.dirty.remove(member);
        } else {
            self.dirty.insert(member.clone());
        }
    }

    /// Returns the next change to write, or `None` if there is none or one is being written.
    pub fn next_change(&mut self) -> Option<RosterChange> {
        if self.is_writing || self.dirty.is_empty() {
            return None;
        }
        self.is_writing = true;
        let mut change = RosterChange::default();
        while change.len() < ROSTER_CHANGE_MAX
            && let Some(member) = self.dirty.pop_first()
        {
            let Some(row) = self.rows.get_mut(&member) else { continue };
            row.state = RowState::Unknown;
            if row.is_wanted { change.add.push(member) } else { change.remove.push(member) }
        }
        Some(change)
    }

    /// Records that the store confirmed the change. Returns the workers that are listed now and should be.
    pub fn confirm(&mut self, change: RosterChange) -> Vec<ShardMember> {
        self.is_writing = false;
        for member in &change.remove {
            match self.rows.get_mut(member) {
                // The worker returned while its row was being removed; the next change adds it.
                Some(row) if row.is_wanted => row.state = RowState::Absent,
                _ => drop((self.rows.remove(member), self.dirty.remove(member))),
            }
        }
        let mut listed = change.add;
        listed.retain(|member| {
            let Some(row) = self.rows.get_mut(member) else { return false };
            row.state = RowState::Listed;
            if row.is_wanted {
                self.dirty.remove(member);
            }
            row.is_wanted
        });
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(worker: &str) -> ShardMember {
        ShardMember { service: ServiceName::new("s").expect("a name"), worker: WorkerId::new(worker).expect("a name") }
    }

    fn change(add: &[&str], remove: &[&str]) -> Option<RosterChange> {
        let members = |names: &[&str]| names.iter().map(|name| member(name)).collect();
        Some(RosterChange { add: members(add), remove: members(remove) })
    }

    #[test]
    fn a_worker_counts_as_listed_once_the_store_confirmed_it() {
        let mut roster = Roster::default();
        assert!(!roster.add(&member("a")));
        let first = roster.next_change();
        assert_eq!(first, change(&["a"], &[]));
        assert!(!roster.add(&member("a")), "the write may fail");
        assert!(!roster.add(&member("b")));
        assert_eq!(roster.next_change(), None, "one change at a time");
        assert_eq!(roster.confirm(first.expect("a change")), [member("a")]);
        assert!(roster.add(&member("a")));
        assert_eq!(roster.next_change(), change(&["b"], &[]));
    }

    #[test]
    fn a_worker_that_leaves_before_it_was_written_costs_no_write() {
        let mut roster = Roster::default();
        roster.add(&member("a"));
        roster.remove(&member("a"));
        roster.remove(&member("b"));
        assert_eq!(roster.next_change(), None);
        assert!(roster.rows.is_empty());
    }

    #[test]
    fn a_worker_that_comes_back_is_listed_again_only_after_its_removal() {
        let mut roster = Roster::new([member("a")]);
        roster.remove(&member("a"));
        assert!(roster.add(&member("a")), "nothing was written yet");
        assert_eq!(roster.next_change(), None);
        roster.remove(&member("a"));
        let removal = roster.next_change().expect("a change");
        assert!(!roster.add(&member("a")), "the removal may be in the store already");
        assert_eq!(roster.confirm(removal), []);
        let addition = roster.next_change();
        assert_eq!(addition, change(&["a"], &[]));
        roster.remove(&member("a"));
        assert_eq!(roster.confirm(addition.expect("a change")), [], "it has left meanwhile");
        let removal = roster.next_change();
        assert_eq!(removal, change(&[], &["a"]));
        roster.confirm(removal.expect("a change"));
        assert!(roster.rows.is_empty() && roster.dirty.is_empty());
    }

    #[test]
    fn ten_thousand_workers_are_few_changes() {
        let mut roster = Roster::default();
        for n in 0..10_000 {
            roster.add(&member(&format!("w{n}")));
        }
        let mut changes = 0;
        while let Some(change) = roster.next_change() {
            changes += 1;
            roster.confirm(change);
        }
        assert_eq!(changes, 10_000 / ROSTER_CHANGE_MAX);
    }
}
