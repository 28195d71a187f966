//! Decides which tasks a member may still do, by the term in which they were assigned.
//!
//! A gate keeps the highest known epoch, which never falls, and counts the tasks that it rejected. It is not a fence:
//! the writes of a leader are checked by the store.

use std::time::Duration;

use super::moment::Moment;
use crate::ids::Epoch;

/// Upper bound of an epoch that backends grant. A task with a higher one is forged, and would make the gate reject all
/// others.
const EPOCH_MAX: Epoch = Epoch(1 << 53);

/// Admits tasks of the present term, of a later one and, for a grace period, of the previous term.
///
/// A task that a leader assigned just before it was replaced is still valid; one that comes later, or from an earlier
/// term, is not. A task of a later term comes from a leader that this member does not know yet: it is admitted, and its
/// term becomes the present one. The grace period is for tasks only: a write to a store carries its fence and is
/// checked there.
#[derive(Debug, Clone)]
pub struct EpochGate {
    enabled: bool,
    grace: Duration,
    current: Epoch,
    /// The previous term, if known. Epochs in between may be skipped.
    before: Option<Epoch>,
    changed: Option<Moment>,
    refused: u64,
}

impl EpochGate {
    /// Returns a gate that admits tasks of the previous term for `grace`.
    pub fn new(grace: Duration) -> Self {
        EpochGate { enabled: true, grace, current: Epoch(0), before: None, changed: None, refused: 0 }
    }

    /// Returns a gate that admits everything, for disabled fencing.
    pub fn open() -> Self {
        EpochGate { enabled: false, ..EpochGate::new(Duration::ZERO) }
    }

    /// Records that a term has begun. An older one changes nothing.
    pub fn advance(&mut self, epoch: Epoch, now: Moment) {
        if epoch > self.current {
            self.before = Some(self.current).filter(|before| *before > Epoch(0));
            self.current = epoch;
            self.changed = Some(now);
        }
    }

    /// Returns whether a task of this term may be done. The grace period counts from when the gate received the present
    /// epoch.
    pub fn admit(&mut self, epoch: Epoch, now: Moment) -> bool {
        let in_grace = self.changed.is_some_and(|changed| now - changed <= self.grace);
        self.admit_epoch(epoch, now, in_grace)
    }

    /// Returns whether a task of this term and age may be done. One of the previous term is admitted if it is not older
    /// than the grace period, whenever the term changed.
    pub fn admit_aged(&mut self, epoch: Epoch, age: Duration, now: Moment) -> bool {
        let in_grace = age <= self.grace;
        self.admit_epoch(epoch, now, in_grace)
    }

    fn admit_epoch(&mut self, epoch: Epoch, now: Moment, in_grace: bool) -> bool {
        if !self.enabled {
            return true;
        }
        let is_before = self.before == Some(epoch) || epoch.0.checked_add(1) == Some(self.current.0);
        let is_later = epoch > self.current && epoch <= EPOCH_MAX;
        if is_later {
            self.advance(epoch, now);
        }
        let admitted = is_later || epoch == self.current || (is_before && in_grace);
        self.refused += u64::from(!admitted);
        admitted
    }

    /// Returns the highest known epoch.
    pub fn current(&self) -> Epoch {
        self.current
    }

    /// Returns how many tasks were rejected.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    fn gate(now: Moment) -> EpochGate {
        let mut gate = EpochGate::new(GRACE);
        gate.advance(Epoch(6), now);
        gate
    }

    #[test]
    fn the_present_term_is_admitted_and_the_one_before_for_a_while() {
        let now = Moment::default();
        let mut gate = gate(now);
        assert!(gate.admit(Epoch(6), now + GRACE * 100));
        assert!(gate.admit(Epoch(5), now + GRACE));
        assert!(!gate.admit(Epoch(5), now + GRACE + Duration::from_millis(1)));
        assert_eq!(gate.refused(), 1);
    }

    #[test]
    fn neither_older_terms_nor_ones_that_no_backend_gives_are_admitted() {
        let now = Moment::default();
        let mut gate = gate(now);
        assert!(![0, 4, (1 << 53) + 1, u64::MAX].into_iter().any(|epoch| gate.admit(Epoch(epoch), now)));
        assert_eq!((gate.refused(), gate.current()), (4, Epoch(6)));
    }

    #[test]
    fn a_later_term_is_admitted_and_becomes_the_present_one() {
        let now = Moment::default();
        let mut gate = gate(now);
        assert!(gate.admit(Epoch(7), now + GRACE * 2));
        assert_eq!((gate.current(), gate.refused()), (Epoch(7), 0));
        assert!(gate.admit(Epoch(6), now + GRACE * 3), "the term before has its grace from then on");
        assert!(!gate.admit(Epoch(6), now + GRACE * 3 + Duration::from_millis(1)));
        assert!(!gate.admit(Epoch(5), now + GRACE * 2), "what was the term before is too old by now");
    }

    #[test]
    fn a_task_of_the_term_before_is_judged_by_its_age_where_that_is_known() {
        let now = Moment::default();
        let mut gate = gate(now);
        let later = now + GRACE * 100;
        assert!(gate.admit_aged(Epoch(5), GRACE, later));
        assert!(!gate.admit_aged(Epoch(5), GRACE + Duration::from_millis(1), now));
        assert!(gate.admit_aged(Epoch(6), GRACE * 100, later), "tasks of the present term have no age limit");
        assert!(!gate.admit_aged(Epoch(4), Duration::ZERO, now));
    }

    #[test]
    fn a_term_never_goes_back_nor_begins_a_new_grace() {
        let now = Moment::default();
        let mut gate = gate(now);
        gate.advance(Epoch(6), now + GRACE * 2);
        gate.advance(Epoch(3), now + GRACE * 2);
        assert_eq!(gate.current(), Epoch(6));
        assert!(!gate.admit(Epoch(5), now + GRACE * 2));
    }

    #[test]
    fn an_open_gate_admits_everything() {
        assert!(EpochGate::open().admit(Epoch(3), Moment::default()));
    }
}
