//! Members of another system that share the namespace: s3db.js, if the leases are on S3.
//!
//! Such a member decides on a lease that it read several requests ago. It then replaces the stored lease, live or not,
//! with an epoch that is one above the one it read. It treats a lost race as won, never renews, and relies on what it
//! read until its next heartbeat. So three rules hold while one is listed or wrote the last lease:
//!
//! - a new term has an epoch [`EPOCH_GAP`] above the last, so that a late write of theirs has another epoch;
//! - the term is held and renewed, but not acted on, until a renewal is granted that was sent two heartbeats after the
//!   election. By then each of them has read the lease again, and a write that was decided earlier has replaced it,
//!   which the renewal detects;
//! - with [`yield_to_foreign`](super::Settings::yield_to_foreign) our members do not stand, resign what they hold, and
//!   are not on the roster, from which foreign members would elect them.
//!
//! A lease that they wrote is ended only if its epoch is not above one under which a member of ours led. Epochs that
//! they use twice among themselves are not our concern.

use std::time::Duration;

use super::{Ask, Elector, Exchange};
use crate::election::{Moment, Now};
use crate::ids::Epoch;
use crate::ports::leases::{EPOCH_GAP, Lease};

/// For how many heartbeats a foreign member may rely on an outdated read: one with its jitter, and its requests.
const BELIEF_BEATS: u32 = 2;
/// The length of their leases in heartbeats, by the defaults of both systems.
const LEASE_BEATS: u32 = 3;

/// What is known of foreign members.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Foreign {
    /// Returns whether an id is that of a foreign member. `None` if no other system can share the namespace.
    pub is_foreign_name: Option<fn(&str) -> bool>,
    /// Whether one of them wrote the last lease that was read.
    pub wrote_last: bool,
    /// The longest lease that one of them wrote.
    lease: Duration,
    /// The highest epoch under which a member of ours led.
    ours: Epoch,
    /// A renewal that is sent at this time or later confirms the term.
    pub confirm_at: Option<Moment>,
    /// Whether this member is on the roster, as far as it knows.
    pub is_enrolled: bool,
}

impl Foreign {
    /// Records a lease that was read. A term of `me` counts as one under which we led only once it is acted on.
    fn saw(&mut self, lease: &Lease, me: &str) {
        self.wrote_last = lease.is_foreign;
        if lease.is_foreign {
            self.lease = self.lease.max(lease.remaining);
        } else if lease.holder != me {
            self.ours = self.ours.max(lease.epoch);
        }
    }
}

impl Elector {
    /// Sets the function that recognizes members of another system by their ids.
    pub fn sharing_with(mut self, is_foreign_name: Option<fn(&str) -> bool>) -> Self {
        self.foreign.is_foreign_name = is_foreign_name;
        self
    }

    pub(super) fn is_shared(&self) -> bool {
        self.foreign.is_foreign_name.is_some()
    }

    /// Returns whether the last list had foreign members.
    fn lists_foreign(&self) -> bool {
        self.foreign
            .is_foreign_name
            .is_some_and(|is_foreign_name| self.roster.any(|name| name != self.me && is_foreign_name(name)))
    }

    /// Returns whether a foreign member may take part in the next election.
    pub(super) fn is_mixed(&self) -> bool {
        self.is_shared() && (self.foreign.wrote_last || self.lists_foreign())
    }

    /// Returns whether foreign members are left to lead.
    pub fn yields(&self) -> bool {
        self.settings.yield_to_foreign && self.lists_foreign()
    }

    /// Returns whether this member holds a term that it should leave to foreign members.
    pub fn should_yield(&self) -> bool {
        self.term.is_some() && self.yields()
    }

    /// Returns the epoch that the next term has to be above.
    pub(super) fn floor(&self) -> Epoch {
        let gap = if self.is_mixed() { EPOCH_GAP } else { 1 };
        Epoch(self.highest.epoch.0.saturating_add(gap - 1))
    }

    /// Records a lease that was read. Returns true if its epoch is not above those that it has to be above.
    pub(super) fn check_number(&mut self, lease: &Lease) -> bool {
        let is_too_low = if lease.is_foreign { lease.epoch <= self.foreign.ours } else { self.highest.is_above(lease) };
        let should_not_be = is_too_low && !self.conduct.seals;
        self.foreign.saw(lease, &self.me);
        self.highest.observe(lease);
        should_not_be
    }

    /// Begins a term that was requested at `asked`. It needs a confirmation if foreign members may not know of it.
    pub(super) fn await_confirmation(&mut self, asked: Moment) {
        let belief = self.settings.heartbeat_interval.max(self.foreign.lease / LEASE_BEATS) * BELIEF_BEATS;
        self.foreign.confirm_at = self.is_mixed().then(|| asked + belief);
        self.foreign.wrote_last = false;
    }

    /// Records that a renewal that was sent at `asked` was granted.
    pub(super) fn confirm(&mut self, asked: Moment, now: Moment) {
        if self.foreign.confirm_at.take_if(|at| asked >= *at).is_some() {
            self.act_on_term(now);
        }
    }

    /// Returns whether the held term may be acted on.
    pub(super) fn may_act(&self) -> bool {
        !self.is_caretaker() && !self.is_unsealed && self.foreign.confirm_at.is_none()
    }

    /// Begins to act on the term, if it may be acted on.
    pub(super) fn act_on_term(&mut self, now: Moment) {
        let Some(held) = self.term.filter(|_| self.may_act()) else { return };
        self.foreign.ours = self.foreign.ours.max(held.epoch);
        self.seen_leading(held);
        self.publish_leader(Some(self.me.clone()), held.epoch, now);
    }

    /// Handles a lease that names us. Returns false if we should claim it.
    pub(super) fn declines(&self, lease: &Lease, exchange: &mut Exchange) -> bool {
        if self.yields() && lease.is_foreign {
            // They elected us from an old list: after our resignation they elect again at their next heartbeat.
            exchange.queue.push_front(Ask::Resign { holder: self.me.clone(), epoch: lease.epoch });
        }
        self.yields()
    }

    /// Queues enrollment or withdrawal: members that yield are not on the roster, the others are before they may lead.
    pub(super) fn attend_by_list(&self, now: Now, exchange: &mut Exchange) {
        if !self.is_shared() || self.term.is_some() || self.abstains(now.at) {
            return;
        }
        if self.yields() {
            exchange.queue.retain(|ask| *ask != Ask::Enroll);
            if self.foreign.is_enrolled {
                exchange.queue.push_front(Ask::Withdraw);
            }
        } else if !self.foreign.is_enrolled {
            exchange.queue.retain(|ask| *ask != Ask::Enroll);
            exchange.queue.push_front(Ask::Enroll);
        }
    }
}
