//! Whether what several clients saw of a lease could have happened one after the other.
//!
//! Each client does one thing at a time; between when it asked and when it was answered the thing happened, at one moment.
//! The checker looks for an order that respects those times and that one honest set of leases would have answered in the
//! same way. It tries, client by client, whatever could have happened next, and remembers where it has been: with a handful
//! of clients that is quick.
//!
//! Time does not pass in the model: a history is taken with leases that outlast it.

use std::collections::HashSet;
use std::time::Instant;

use convoke_core::Epoch;

/// What a client asked, and what it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Elect { candidate: String, floor: Epoch, elected: Option<Epoch> },
    Renew { holder: String, epoch: Epoch, renewed: bool },
    Resign { holder: String, epoch: Epoch },
    Read { seen: Option<(String, Epoch)> },
}

#[derive(Debug, Clone)]
pub struct Done {
    pub asked: Instant,
    pub answered: Instant,
    pub act: Act,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Model {
    term: Option<(String, Epoch)>,
    highest: Epoch,
}

impl Model {
    /// The state after `act`, where it could have been answered so.
    fn after(&self, act: &Act) -> Option<Model> {
        let is_term =
            |holder: &String, epoch: Epoch| self.term.as_ref().is_some_and(|term| *term == (holder.clone(), epoch));
        match act {
            Act::Elect { elected: None, .. } => self.term.is_some().then(|| self.clone()),
            Act::Elect { candidate, floor, elected: Some(epoch) } => {
                let fits = self.term.is_none() && *epoch > self.highest && *epoch > *floor;
                fits.then(|| Model { term: Some((candidate.clone(), *epoch)), highest: *epoch })
            }
            Act::Renew { holder, epoch, renewed } => (is_term(holder, *epoch) == *renewed).then(|| self.clone()),
            Act::Resign { holder, epoch } if is_term(holder, *epoch) => {
                Some(Model { term: None, highest: self.highest })
            }
            Act::Resign { .. } => Some(self.clone()),
            Act::Read { seen } => (*seen == self.term).then(|| self.clone()),
        }
    }
}

/// Whether one order explains what all clients saw. `clients` has, for each, what it did in order.
pub fn is_linearizable(clients: &[Vec<Done>]) -> bool {
    let mut known = HashSet::new();
    let mut open = vec![(vec![0_usize; clients.len()], Model::default())];
    while let Some((progress, model)) = open.pop() {
        let pending = |i: usize| clients[i].get(progress[i]);
        if (0..clients.len()).all(|i| pending(i).is_none()) {
            return true;
        }
        // Whatever began after another had been answered did not happen before it.
        let horizon = (0..clients.len()).filter_map(pending).map(|done| done.answered).min();
        for i in 0..clients.len() {
            let Some(done) = pending(i).filter(|done| Some(done.asked) <= horizon) else { continue };
            let Some(next) = model.after(&done.act) else { continue };
            let mut further = progress.clone();
            further[i] += 1;
            if known.insert((further.clone(), next.clone())) {
                open.push((further, next));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// From `asked` to `answered`, in milliseconds.
    fn done(asked: u64, answered: u64, act: Act) -> Done {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        let at = |ms| start + Duration::from_millis(ms);
        Done { asked: at(asked), answered: at(answered), act }
    }

    fn elect(candidate: &str, elected: Option<u64>) -> Act {
        Act::Elect { candidate: candidate.into(), floor: Epoch(0), elected: elected.map(Epoch) }
    }

    fn read(seen: Option<(&str, u64)>) -> Act {
        Act::Read { seen: seen.map(|(holder, epoch)| (holder.into(), Epoch(epoch))) }
    }

    #[test]
    fn an_order_is_found_where_there_is_one() {
        let a =
            vec![done(0, 10, elect("a", Some(1))), done(20, 30, Act::Resign { holder: "a".into(), epoch: Epoch(1) })];
        // Its election must have happened between the resignation and the read.
        let b = vec![done(21, 40, elect("b", Some(2))), done(50, 60, read(Some(("b", 2))))];
        let c = vec![done(5, 55, read(None))];
        assert!(is_linearizable(&[a, b, c]));
    }

    #[test]
    fn two_leaders_at_once_are_no_history() {
        let (a, b) = (vec![done(0, 10, elect("a", Some(1)))], vec![done(0, 10, elect("b", Some(2)))]);
        assert!(!is_linearizable(&[a, b]));
    }

    #[test]
    fn a_read_of_what_was_over_before_it_began_is_no_history() {
        let a =
            vec![done(0, 10, elect("a", Some(1))), done(20, 30, Act::Resign { holder: "a".into(), epoch: Epoch(1) })];
        assert!(is_linearizable(&[a.clone(), vec![done(25, 40, read(Some(("a", 1))))]]));
        assert!(!is_linearizable(&[a, vec![done(35, 40, read(Some(("a", 1))))]]));
    }

    #[test]
    fn an_epoch_that_comes_twice_is_no_history() {
        let a = vec![
            done(0, 10, elect("a", Some(5))),
            done(20, 30, Act::Resign { holder: "a".into(), epoch: Epoch(5) }),
            done(40, 50, elect("a", Some(5))),
        ];
        assert!(!is_linearizable(&[a]));
    }

    #[test]
    fn a_renewal_after_the_end_of_a_term_is_no_history() {
        let renew = |renewed| Act::Renew { holder: "a".into(), epoch: Epoch(1), renewed };
        let a = |renewed| {
            vec![
                done(0, 10, elect("a", Some(1))),
                done(20, 30, Act::Resign { holder: "a".into(), epoch: Epoch(1) }),
                done(40, 50, renew(renewed)),
            ]
        };
        assert!(is_linearizable(&[a(false)]));
        assert!(!is_linearizable(&[a(true)]));
    }
}
