//! A term that should not be: its number is not above all that was heard of.
//!
//! A backend that was set back counts anew, and a newcomer who asks it first is given a number that was another's long ago.
//! Whoever guards a resource by the number would refuse that leader for good. So a member that knows better ends such a term
//! and stands itself, with what it knows as the floor. Who held the term may believe in it until its next renewal: the new one
//! is therefore held and renewed, but not acted on, for as long as the old lease may last.

use super::{Ask, Elector, Exchange};
use crate::election::Moment;
use crate::ids::Epoch;
use crate::ports::leases::Lease;

/// The highest term that was ever heard of.
#[derive(Debug, Default)]
pub(super) struct Highest {
    pub epoch: Epoch,
    holder: Option<String>,
}

impl Highest {
    pub fn observe(&mut self, lease: &Lease) {
        if lease.epoch > self.epoch {
            (self.epoch, self.holder) = (lease.epoch, Some(lease.holder.clone()));
        }
    }

    /// Whether that term can only be one of a backend that has forgotten a later one, or another's of the same number.
    pub fn is_above(&self, lease: &Lease) -> bool {
        let is_another = || self.holder.as_ref().is_some_and(|holder| *holder != lease.holder);
        lease.epoch < self.epoch || (lease.epoch == self.epoch && is_another())
    }
}

impl Elector {
    /// Ends a term that should not be, and stands.
    pub(super) fn depose(&mut self, usurper: &Lease, now: Moment, exchange: &mut Exchange) {
        if exchange.has_stood || self.abstains(now) {
            return;
        }
        self.queue_elect(exchange);
        let (holder, epoch) = (usurper.holder.clone(), usurper.epoch);
        exchange.queue.push_front(Ask::Resign { holder, epoch });
        exchange.usurped_for = Some(usurper.remaining.max(self.settings.lease_timeout));
        self.wait_for_usurper(now, exchange);
    }

    /// It may have renewed its lease until the moment at which it was ended.
    pub(super) fn wait_for_usurper(&mut self, now: Moment, exchange: &Exchange) {
        self.office_at = exchange.usurped_for.map(|lease| now + lease).max(self.office_at);
    }

    /// Whether a term that it holds must not be acted on yet.
    pub(super) fn is_caretaker(&self) -> bool {
        self.office_at.is_some()
    }

    /// Begins to act on what was held so far, once nobody else can believe to lead.
    pub(super) fn confirm_term(&mut self, now: Moment) {
        if self.office_at.take_if(|at| now >= *at).is_some() {
            self.act_on_term(now);
        }
    }
}
