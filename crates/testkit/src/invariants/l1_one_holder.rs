//! L1: at most one holder of an epoch, and epochs never fall.

use std::collections::BTreeMap;

use super::{Broken, Change, Entry};

/// A term that somebody was given, in the order in which terms were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub holder: String,
    pub epoch: u64,
}

/// `terms` is the history of every acquisition, also across restarts of the backend.
pub fn check(terms: &[Term]) -> Vec<Broken> {
    let broken = |what| Broken { invariant: "L1", what };
    let mut found = Vec::new();
    let mut holders: BTreeMap<u64, &str> = BTreeMap::new();
    let mut highest = 0;
    for term in terms {
        match holders.insert(term.epoch, &term.holder) {
            Some(before) => {
                found.push(broken(format!("epoch {} was given to {before} and to {}", term.epoch, term.holder)));
            }
            None if term.epoch < highest => {
                found.push(broken(format!("epoch {} of {} came after {highest}", term.epoch, term.holder)));
            }
            None => {}
        }
        highest = highest.max(term.epoch);
    }
    found
}

/// The terms that began with a seal, as the store's chronicle has them. A term that never sealed never wrote.
pub fn terms(entries: &[Entry]) -> Vec<Term> {
    let sealed = entries.iter().filter_map(|entry| match entry.change {
        Change::Sealed(epoch) => Some(Term { holder: entry.writer.clone(), epoch }),
        Change::Job { .. } => None,
    });
    sealed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(all: &[(&str, u64)]) -> Vec<Term> {
        all.iter().map(|(holder, epoch)| Term { holder: (*holder).into(), epoch: *epoch }).collect()
    }

    #[test]
    fn holds_while_epochs_rise_whoever_holds_them() {
        assert_eq!(check(&terms(&[("a", 1), ("b", 2), ("a", 5)])), []);
    }

    #[test]
    fn an_epoch_given_twice_is_found_even_to_the_same_holder() {
        assert_eq!(check(&terms(&[("a", 1), ("b", 1)])).len(), 1);
        assert_eq!(check(&terms(&[("a", 1), ("a", 1)])).len(), 1);
    }

    #[test]
    fn an_epoch_that_falls_is_found() {
        assert_eq!(check(&terms(&[("a", 4), ("b", 3), ("c", 5)])).len(), 1);
    }

    #[test]
    fn a_seal_is_a_term_of_who_wrote_it() {
        let entry = |writer: &str, epoch| Entry { writer: writer.into(), change: Change::Sealed(epoch) };
        assert_eq!(super::terms(&[entry("a", 1), entry("b", 2)]), terms(&[("a", 1), ("b", 2)]));
    }
}
