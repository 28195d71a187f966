//! Whether what several clients saw of a lease could have happened one after the other.
//!
//! Each client does one thing at a time; it happened at one moment between the request and its response.
//! The checker searches for an order that respects those times and in which one correct set of leases would have returned the
//! same results. It tries, client by client, all that could have happened next, and remembers visited states: with a handful
//! of clients that is quick.
//!
//! A term runs out a lease after it was given or last renewed, at a moment that nobody but the backend knows: not before the
//! lease has passed since the request, and for its holder not after it has passed since the response. How much
//! later others notice is the backend's: where no clock is shared, each goes by when it first saw the term. So in the model
//! somebody may still find a term that has run out, until another is elected; nobody is elected before it could have run out,
//! and its holder does not get it back once it must have.

use std::collections::HashSet;
use std::time::Duration;

use convoke_core::Epoch;

/// Backends count in milliseconds, which they may round at either end.
const GRAIN: Duration = Duration::from_millis(2);

/// The time of a request or a response: on the clock that leases end by, which a test may have paused, and on one that
/// always runs. They are compared in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    leased: tokio::time::Instant,
    passed: std::time::Instant,
}

impl Stamp {
    pub fn now() -> Self {
        Stamp { leased: tokio::time::Instant::now(), passed: std::time::Instant::now() }
    }
}

/// A request of a client, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Elect { candidate: String, ttl: Duration, elected: Option<Epoch> },
    Renew { holder: String, epoch: Epoch, ttl: Duration, renewed: bool },
    Resign { holder: String, epoch: Epoch },
    Read { seen: Option<(String, Epoch)> },
}

#[derive(Debug, Clone)]
pub struct Done {
    pub asked: Stamp,
    pub returned: Stamp,
    pub act: Act,
}

/// A term, with when it was last asked for and given, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Term {
    holder: String,
    epoch: Epoch,
    asked: Stamp,
    given: Stamp,
    ttl: Duration,
}

impl Term {
    fn of(holder: &str, epoch: Epoch, ttl: Duration, done: &Done) -> Self {
        Term { holder: holder.to_owned(), epoch, asked: done.asked, given: done.returned, ttl }
    }

    fn is(&self, holder: &str, epoch: Epoch) -> bool {
        self.holder == holder && self.epoch == epoch
    }

    /// Whether it can have expired before `done` returned.
    fn may_be_over(&self, done: &Done) -> bool {
        done.returned.leased + GRAIN >= self.asked.leased + self.ttl
    }

    /// Whether it must have run out before `done` was asked.
    fn must_be_over(&self, done: &Done) -> bool {
        done.asked.leased > self.given.leased + self.ttl + GRAIN
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Model {
    term: Option<Term>,
    highest: Epoch,
}

impl Model {
    /// Returns the state after `done`, if `done` could have returned its result.
    fn after(&self, done: &Done) -> Option<Model> {
        let may_be_vacant = self.term.as_ref().is_none_or(|term| term.may_be_over(done));
        let named = |holder: &str, epoch: Epoch| self.term.as_ref().filter(|term| term.is(holder, epoch));
        let with = |term: Option<Term>| Model { highest: self.highest, term };
        match &done.act {
            Act::Elect { elected: None, .. } => self.term.is_some().then(|| self.clone()),
            Act::Elect { candidate, ttl, elected: Some(epoch) } => (may_be_vacant && *epoch > self.highest)
                .then(|| Model { term: Some(Term::of(candidate, *epoch, *ttl, done)), highest: *epoch }),
            Act::Renew { holder, epoch, ttl, renewed: true } => named(holder, *epoch)
                .filter(|term| !term.must_be_over(done))
                .map(|_| with(Some(Term::of(holder, *epoch, *ttl, done)))),
            Act::Renew { holder, epoch, renewed: false, .. } => {
                (may_be_vacant || named(holder, *epoch).is_none()).then(|| self.clone())
            }
            Act::Resign { holder, epoch } if named(holder, *epoch).is_some() => Some(with(None)),
            Act::Resign { .. } => Some(self.clone()),
            Act::Read { seen: None } => may_be_vacant.then(|| self.clone()),
            Act::Read { seen: Some((holder, epoch)) } => named(holder, *epoch).map(|_| self.clone()),
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
        // A request that began after another had returned did not happen before it.
        let horizon = (0..clients.len()).filter_map(pending).map(|done| done.returned).min();
        for i in 0..clients.len() {
            let Some(done) = pending(i).filter(|done| Some(done.asked) <= horizon) else { continue };
            let Some(next) = model.after(done) else { continue };
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
    use super::*;

    const TTL: Duration = Duration::from_millis(1_000);

    /// From `asked` to `returned`, in milliseconds.
    fn done(asked: u64, returned: u64, act: Act) -> Done {
        static START: std::sync::OnceLock<Stamp> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Stamp::now);
        let after = |ms| Duration::from_millis(ms);
        let at = |ms| Stamp { leased: start.leased + after(ms), passed: start.passed + after(ms) };
        Done { asked: at(asked), returned: at(returned), act }
    }

    fn elect(candidate: &str, elected: Option<u64>) -> Act {
        Act::Elect { candidate: candidate.into(), ttl: TTL, elected: elected.map(Epoch) }
    }

    fn renew(holder: &str, epoch: u64, renewed: bool) -> Act {
        Act::Renew { holder: holder.into(), epoch: Epoch(epoch), ttl: TTL, renewed }
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
        let a = |renewed| {
            vec![
                done(0, 10, elect("a", Some(1))),
                done(20, 30, Act::Resign { holder: "a".into(), epoch: Epoch(1) }),
                done(40, 50, renew("a", 1, renewed)),
            ]
        };
        assert!(is_linearizable(&[a(false)]));
        assert!(!is_linearizable(&[a(true)]));
    }

    #[test]
    fn nobody_is_elected_before_a_term_can_have_run_out() {
        let a = vec![done(100, 110, elect("a", Some(1)))];
        assert!(!is_linearizable(&[a.clone(), vec![done(500, 1_090, elect("b", Some(2)))]]));
        assert!(is_linearizable(&[a.clone(), vec![done(500, 1_100, elect("b", Some(2)))]]));
        // It was renewed meanwhile, so that it lasts longer.
        let a = [a, vec![done(400, 410, renew("a", 1, true))]].concat();
        assert!(!is_linearizable(&[a.clone(), vec![done(500, 1_100, elect("b", Some(2)))]]));
        assert!(is_linearizable(&[a, vec![done(500, 1_400, elect("b", Some(2)))]]));
    }

    #[test]
    fn a_term_that_must_have_run_out_is_not_renewed_nor_one_that_cannot_have_called_over() {
        let a =
            |asked, renewed| vec![done(0, 10, elect("a", Some(1))), done(asked, asked + 10, renew("a", 1, renewed))];
        assert!(is_linearizable(&[a(1_005, true)]) && is_linearizable(&[a(1_005, false)]));
        assert!(!is_linearizable(&[a(1_020, true)]) && !is_linearizable(&[a(900, false)]));
        let reads = |returned| vec![done(0, 10, elect("a", Some(1))), done(20, returned, read(None))];
        assert!(is_linearizable(&[reads(1_000)]) && !is_linearizable(&[reads(990)]));
    }

    #[test]
    fn a_term_that_ran_out_may_be_found_until_another_is_elected() {
        let a = vec![done(0, 10, elect("a", Some(1)))];
        let b = vec![done(2_000, 2_010, read(Some(("a", 1)))), done(2_020, 2_030, elect("b", None))];
        assert!(is_linearizable(&[a.clone(), b.clone()]));
        let c = vec![done(1_500, 1_510, elect("c", Some(2)))];
        assert!(!is_linearizable(&[a, b, c]));
    }
}
