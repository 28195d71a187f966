//! A term to be ended: its epoch is not above all known ones.
//!
//! A backend that was restored from an old state repeats epochs, and a new member that asks it first gets an epoch that
//! was used long ago. A resource that is guarded by the epoch would reject that leader for ever. So a member that knows
//! a higher epoch ends such a term and stands itself, with the known epoch as the floor. The former holder may act on
//! its term until its next renewal; therefore the new term is held and renewed, but not acted on, for as long as the
//! old lease may last.

use super::{Ask, Elector, Exchange};
use crate::election::Moment;
use crate::ids::Epoch;
use crate::ports::leases::Lease;

/// The highest known term.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
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

    /// Returns whether the backend must have lost a later term, or granted the same epoch to two members.
    pub fn is_above(&self, lease: &Lease) -> bool {
        let is_another = || self.holder.as_ref().is_some_and(|holder| *holder != lease.holder);
        lease.epoch < self.epoch || (lease.epoch == self.epoch && is_another())
    }
}

impl Elector {
    /// Ends a term whose epoch is not above all known ones, and stands.
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

    /// Delays acting on our term: the other one may have been renewed until it was ended.
    pub(super) fn wait_for_usurper(&mut self, now: Moment, exchange: &Exchange) {
        self.office_at = exchange.usurped_for.map(|lease| now + lease).max(self.office_at);
    }

    /// Returns whether the held term must not be acted on yet.
    pub(super) fn is_caretaker(&self) -> bool {
        self.office_at.is_some()
    }

    /// Begins to act on the held term once no other member can believe that it leads.
    pub(super) fn confirm_term(&mut self, now: Moment) {
        if self.office_at.take_if(|at| now >= *at).is_some() {
            self.act_on_term(now);
        }
    }
}
