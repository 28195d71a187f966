use std::collections::BTreeMap;
use std::time::Duration;

use super::moment::Moment;

/// Who is present, as far as was heard: each member until its enrolment runs out.
///
/// A backend tells who is enrolled by its own time. What it said last holds for one worker timeout, so that an elector
/// that cannot reach its backend does not go on showing a fleet that may be long gone.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    members: BTreeMap<String, Moment>,
}

/// What a new list changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turnover {
    pub joined: u64,
    pub gone: u64,
}

impl Turnover {
    pub fn is_none(self) -> bool {
        self == Turnover::default()
    }
}

impl Roster {
    /// The backend named these.
    pub fn hear(&mut self, names: &[String], now: Moment, timeout: Duration) -> Turnover {
        let before = self.members.len() as u64;
        let fresh: BTreeMap<String, Moment> = names.iter().map(|name| (name.clone(), now + timeout)).collect();
        let stayed = fresh.keys().filter(|name| self.members.contains_key(*name)).count() as u64;
        let joined = fresh.len() as u64 - stayed;
        self.members = fresh;
        Turnover { joined, gone: before - stayed }
    }

    /// Forgets those of whom nothing was heard for too long.
    pub fn expire(&mut self, now: Moment) -> Turnover {
        let before = self.members.len();
        self.members.retain(|_, expires| *expires > now);
        Turnover { joined: 0, gone: (before - self.members.len()) as u64 }
    }

    /// In order of their ids.
    pub fn live(&self, now: Moment) -> Vec<String> {
        self.members.iter().filter(|(_, expires)| **expires > now).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_changed_is_counted() {
        let (mut roster, now) = (Roster::default(), Moment::default());
        assert_eq!(roster.hear(&names(&["b", "a"]), now, TIMEOUT), Turnover { joined: 2, gone: 0 });
        assert!(roster.hear(&names(&["a", "b"]), now, TIMEOUT).is_none());
        assert_eq!(roster.hear(&names(&["b", "c"]), now, TIMEOUT), Turnover { joined: 1, gone: 1 });
        assert_eq!(roster.live(now), ["b", "c"]);
    }

    #[test]
    fn who_was_not_heard_of_for_too_long_is_gone() {
        let (mut roster, now) = (Roster::default(), Moment::default());
        roster.hear(&names(&["a"]), now, TIMEOUT);
        assert_eq!(roster.live(now + TIMEOUT - Duration::from_millis(1)), ["a"]);
        assert!(roster.live(now + TIMEOUT).is_empty());
        assert_eq!(roster.expire(now + TIMEOUT), Turnover { joined: 0, gone: 1 });
        assert!(roster.expire(now + TIMEOUT).is_none());
    }
}
