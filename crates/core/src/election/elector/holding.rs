//! A term of our own: how it begins, is prolonged and ends.
//!
//! It is trusted from before it was asked for, and never longer than until it was seen to be over: what comes too late to be
//! acted on is given back.

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
            // Too late to act on it, or not ours to act on: let another try.
            return self.queue_resign(lease.epoch, exchange);
        }
        if let Some(vacancy) = self.vacancy.take() {
            self.stats.election_took(now.at - vacancy.since);
        }
        let held = Held { epoch: lease.epoch, certain_until };
        self.term = Some(held);
        exchange.is_secured = true;
        self.await_confirmation(asked);
        self.seen_leading(held);
        self.act_on_term(now.at);
    }

    pub(super) fn seen_leading(&mut self, Held { epoch, certain_until: expires }: Held) {
        self.seen = Some(Seen { holder: self.me.clone(), epoch, expires, leads: self.may_act() });
    }

    fn queue_resign(&self, epoch: Epoch, exchange: &mut Exchange) {
        // A caretaker's lease runs out by itself: nobody may lead before that. Foreign members to whom we yield do not wait for it.
        if !self.is_caretaker() || self.yields() {
            exchange.queue.push_front(Ask::Resign { holder: self.me.clone(), epoch });
        }
    }

    pub(super) fn prolong(&mut self, lease: &Lease, asked: Moment, now: Now, exchange: &mut Exchange) {
        if self.term.is_some_and(|held| now.at >= held.certain_until) {
            // Whoever acted on it has seen that its time was up, and has stopped: the same term does not begin again.
            self.lose();
            exchange.queue = [Ask::Read].into();
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
        if self.term.take().is_some() {
            self.seen = None;
            let epoch = self.shown.1;
            self.publish_leader_change(None, epoch);
        }
    }
}
