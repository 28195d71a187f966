use std::time::Duration;

use super::moment::Moment;
use crate::ids::Epoch;

/// Admits tasks of the present term and, for a grace period after a change, those of the term before.
///
/// A task that a leader handed out just before it was replaced is not a mistake; one that comes later, or from further
/// back, is. Nor is one admitted of a term that was not heard of yet: until its next look at the leases a follower
/// refuses what a new leader hands out, which is to offer it again. Grace is for tasks only: a write to a store carries
/// its fence and is judged there.
#[derive(Debug, Clone)]
pub struct EpochGate {
    enabled: bool,
    grace: Duration,
    current: Epoch,
    changed: Option<Moment>,
    refused: u64,
}

impl EpochGate {
    pub fn new(grace: Duration) -> Self {
        EpochGate { enabled: true, grace, current: Epoch(0), changed: None, refused: 0 }
    }

    /// Admits everything: fencing was switched off.
    pub fn open() -> Self {
        EpochGate { enabled: false, ..EpochGate::new(Duration::ZERO) }
    }

    /// A term is known to have begun. An older one changes nothing.
    pub fn advance(&mut self, epoch: Epoch, now: Moment) {
        if epoch > self.current {
            self.current = epoch;
            self.changed = Some(now);
        }
    }

    pub fn admit(&mut self, epoch: Epoch, now: Moment) -> bool {
        let is_before = epoch.0.checked_add(1) == Some(self.current.0);
        let in_grace = || self.changed.is_some_and(|changed| now - changed <= self.grace);
        let admitted = !self.enabled || epoch == self.current || (is_before && in_grace());
        self.refused += u64::from(!admitted);
        admitted
    }

    pub fn current(&self) -> Epoch {
        self.current
    }

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
    fn neither_older_terms_nor_ones_that_nobody_knows_are_admitted() {
        let now = Moment::default();
        let mut gate = gate(now);
        assert!(![0, 4, 7, u64::MAX].into_iter().any(|epoch| gate.admit(Epoch(epoch), now)));
        assert_eq!(gate.refused(), 4);
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
