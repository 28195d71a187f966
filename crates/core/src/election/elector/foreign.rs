//! Members of another system that share the namespace: s3db.js, if the leases are on S3.
//!
//! Such a member decides on a lease that it read some requests ago and then replaces whatever is there, live or not, at the number that
//! it read plus one. It takes a lost race for won, never renews, and believes what it read until its next heartbeat. So while one is
//! listed, or wrote the last lease, three rules hold:
//!
//! - a new term is numbered [`EPOCH_GAP`] above the last, so that a late decision of theirs has another number;
//! - the term is held and renewed, but not acted on, until a renewal is granted that was sent two heartbeats after the election. By then
//!   each of them has read the lease again, and a decision from before has replaced it, which the renewal detects;
//! - with [`yield_to_foreign`](super::Settings::yield_to_foreign) we do not stand, resign what we hold, and are not on the roster, from
//!   which they would elect us.
//!
//! A lease that they wrote is ended only if its number is not above one under which ours led. Numbers that they share among themselves
//! are theirs to sort out.

use std::time::Duration;

use super::{Ask, Elector, Exchange};
use crate::election::{Moment, Now};
use crate::ids::Epoch;
use crate::ports::leases::{EPOCH_GAP, Lease};

/// For so many heartbeats a foreign member may believe what is no longer so: one and its jitter, and its requests.
const BELIEF_BEATS: u32 = 2;
/// How many heartbeats a lease of theirs has, by the defaults of both systems.
const LEASE_BEATS: u32 = 3;

/// The observations of foreign members.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// Tells a foreign member by its id. None if no other system can share the namespace.
    pub is_foreign_name: Option<fn(&str) -> bool>,
    /// Whether one of them wrote the lease that was last seen.
    pub wrote_last: bool,
    /// The longest lease that one of them wrote.
    lease: Duration,
    /// The highest number under which ours led.
    ours: Epoch,
    /// A renewal that is sent from then on confirms the term.
    pub confirm_at: Option<Moment>,
    /// Whether this member is on the roster, as far as it knows.
    pub is_enrolled: bool,
}

impl Foreign {
    /// A lease was read. One of `me` counts as led under only from when it was acted on.
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
    /// Members for whose ids `is_foreign_name` returns true are of another system.
    pub fn sharing_with(mut self, is_foreign_name: Option<fn(&str) -> bool>) -> Self {
        self.foreign.is_foreign_name = is_foreign_name;
        self
    }

    pub(super) fn is_shared(&self) -> bool {
        self.foreign.is_foreign_name.is_some()
    }

    /// Whether the last list had foreign members.
    fn lists_foreign(&self) -> bool {
        self.foreign
            .is_foreign_name
            .is_some_and(|is_foreign_name| self.roster.any(|name| name != self.me && is_foreign_name(name)))
    }

    /// Whether a foreign member may have a part in the next election.
    pub(super) fn is_mixed(&self) -> bool {
        self.is_shared() && (self.foreign.wrote_last || self.lists_foreign())
    }

    /// Whether the place is left to foreign members.
    pub fn yields(&self) -> bool {
        self.settings.yield_to_foreign && self.lists_foreign()
    }

    /// Whether a term is held that is to be left to foreign members.
    pub fn should_yield(&self) -> bool {
        self.term.is_some() && self.yields()
    }

    /// The number that the next term has to be above.
    pub(super) fn floor(&self) -> Epoch {
        let gap = if self.is_mixed() { EPOCH_GAP } else { 1 };
        Epoch(self.highest.epoch.0.saturating_add(gap - 1))
    }

    /// Judges a lease that was read: true if its number is one that it should not have.
    pub(super) fn check_number(&mut self, lease: &Lease) -> bool {
        let is_too_low = if lease.is_foreign { lease.epoch <= self.foreign.ours } else { self.highest.is_above(lease) };
        let should_not_be = is_too_low && !self.conduct.seals;
        self.foreign.saw(lease, &self.me);
        self.highest.observe(lease);
        should_not_be
    }

    /// A term begins, asked for at `asked`: if foreign members may not know, it needs to be confirmed.
    pub(super) fn await_confirmation(&mut self, asked: Moment) {
        let belief = self.settings.heartbeat_interval.max(self.foreign.lease / LEASE_BEATS) * BELIEF_BEATS;
        self.foreign.confirm_at = self.is_mixed().then(|| asked + belief);
        self.foreign.wrote_last = false;
    }

    /// A renewal that was sent at `asked` was granted.
    pub(super) fn confirm(&mut self, asked: Moment, now: Moment) {
        if self.foreign.confirm_at.take_if(|at| asked >= *at).is_some() {
            self.act_on_term(now);
        }
    }

    /// Whether the term that is held may be acted on.
    pub(super) fn may_act(&self) -> bool {
        !self.is_caretaker() && !self.is_unsealed && self.foreign.confirm_at.is_none()
    }

    /// Acts on the term from now on, if it may.
    pub(super) fn act_on_term(&mut self, now: Moment) {
        let Some(held) = self.term.filter(|_| self.may_act()) else { return };
        self.foreign.ours = self.foreign.ours.max(held.epoch);
        self.seen_leading(held);
        self.publish_leader(Some(self.me.clone()), held.epoch, now);
    }

    /// A lease names us. Returns false if we should claim it.
    pub(super) fn declines(&self, lease: &Lease, exchange: &mut Exchange) -> bool {
        if self.yields() && lease.is_foreign {
            // They elected us from an old list: resigned, they elect again at their next heartbeat.
            exchange.queue.push_front(Ask::Resign { holder: self.me.clone(), epoch: lease.epoch });
        }
        self.yields()
    }

    /// Members of ours that yield are not on the roster; the others are before they may lead.
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
