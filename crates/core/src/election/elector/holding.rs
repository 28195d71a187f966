//! A term of our own: how it begins, is prolonged and ends.
//!
//! It is counted from before its request was sent. A term whose time was up does not begin again: a grant that arrives
//! too late is resigned.

use std::collections::VecDeque;

use super::{Ask, Elector, Exchange, Held, Seen, certain_for};
use crate::election::{Moment, Now};
use crate::ids::Epoch;
use crate::ports::leases::Lease;

impl Elector {
    pub(super) fn win(&mut self, lease: &Lease, asked: Moment, now: Now, exchange: &mut Exchange) {
        self.unsure_above = None;
        self.highest.observe(lease);
        let certain_until = asked + certain_for(lease.remaining, self.settings.lease_timeout);
        if certain_until <= now.at || self.abstains(now.at) || self.yields() {
            // Too late to act on it, or not allowed to: resign, so that another can try.
            return self.queue_resign(lease.epoch, exchange);
        }
        if let Some(vacancy) = self.vacancy.take() {
            self.stats.election_took(now.at - vacancy.since);
        }
        if self.conduct.is_lock {
            self.stats.record_candidacy();
        }
        let held = Held { epoch: lease.epoch, certain_until };
        self.term = Some(held);
        exchange.is_secured = true;
        self.is_unsealed = self.conduct.seals;
        if self.is_unsealed {
            exchange.queue.push_front(Ask::Seal { epoch: held.epoch });
        }
        self.await_confirmation(asked);
        self.seen_leading(held);
        self.act_on_term(now.at);
    }

    /// An election whose reply was lost has granted us this term. A term that is to be sealed is resigned: nobody acts on it, so
    /// that everybody would wait for its lease to expire, its holder too.
    pub(super) fn win_without_reply(&mut self, lease: &Lease, asked: Moment, now: Now, exchange: &mut Exchange) {
        if !self.conduct.seals {
            return self.win(lease, asked, now, exchange);
        }
        self.unsure_above = None;
        self.highest.observe(lease);
        self.queue_resign(lease.epoch, exchange);
    }

    /// The store has sealed the term: from now on it may be acted on, unless that took too long.
    pub(super) fn sealed(&mut self, now: Moment, exchange: &mut Exchange) {
        self.is_unsealed = false;
        match self.term {
            Some(held) if now >= held.certain_until => {
                self.lose();
                self.queue_resign(held.epoch, exchange);
            }
            _ => self.act_on_term(now),
        }
    }

    /// Without the seal nothing may act on the term: another may try.
    pub(super) fn not_sealed(&mut self, epoch: Epoch, exchange: &mut Exchange) {
        (exchange.failed, exchange.is_secured) = (true, false);
        self.lose();
        self.queue_resign(epoch, exchange);
    }

    /// Returns the request that reads the leader, if the leader can be read.
    pub(super) fn read_leader(&self) -> VecDeque<Ask> {
        (!self.conduct.is_lock).then_some(Ask::Read).into_iter().collect()
    }

    pub(super) fn seen_leading(&mut self, Held { epoch, certain_until: expires }: Held) {
        self.seen = Some(Seen { holder: self.me.clone(), epoch, expires, leads: self.may_act() });
    }

    fn queue_resign(&self, epoch: Epoch, exchange: &mut Exchange) {
        // The lease of a term that may not be acted on yet expires by itself: no member may lead before. Foreign
        // members to whom we yield do not wait for that.
        if !self.is_caretaker() || self.yields() {
            exchange.queue.push_front(Ask::Resign { holder: self.me.clone(), epoch });
        }
    }

    pub(super) fn prolong(&mut self, lease: &Lease, asked: Moment, now: Now, exchange: &mut Exchange) {
        if self.term.is_some_and(|held| now.at >= held.certain_until) {
            // The tasks of this term have stopped because its time was up: the same term does not begin again.
            self.lose();
            exchange.queue = self.read_leader();
            self.queue_resign(lease.epoch, exchange);
        }
        if let Some(held) = &mut self.term {
            held.certain_until = asked + certain_for(lease.remaining, self.settings.lease_timeout);
            let held = *held;
            exchange.is_secured = true;
            self.seen_leading(held);
            self.confirm(asked, now.at);
        }
    }

    pub(super) fn lose(&mut self) {
        self.foreign.confirm_at = None;
        self.is_unsealed = false;
        if self.term.take().is_some() {
            self.seen = None;
            let epoch = self.shown.1;
            self.publish_leader_change(None, epoch);
        }
    }
}
