use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::moment::Moment;

/// The present members as far as known: each one until its entry expires.
///
/// A backend decides by its own time which members are enrolled. Its last list is used for a limited time, so that an
/// elector that cannot reach its backend does not show members that may be gone. Such an expiry is not counted as a
/// departure: the next list decides.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    members: BTreeMap<String, Moment>,
    /// Members whose entries expired, until the next list.
    expired_members: BTreeSet<String>,
}

/// The changes of a new list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Members that were not on the last list.
    pub joined: u64,
    /// Members of the last list that are missing.
    pub gone: u64,
}

impl Turnover {
    /// Returns whether the list is unchanged.
    pub fn is_none(self) -> bool {
        self == Turnover::default()
    }
}

impl Roster {
    /// Replaces the list with that of the backend.
    pub fn update(&mut self, names: &[String], now: Moment, timeout: Duration) -> Turnover {
        let mut before = std::mem::take(&mut self.expired_members);
        before.extend(std::mem::take(&mut self.members).into_keys());
        self.members = names.iter().map(|name| (name.clone(), now + timeout)).collect();
        let stayed = self.members.keys().filter(|name| before.contains(*name)).count();
        Turnover { joined: (self.members.len() - stayed) as u64, gone: (before.len() - stayed) as u64 }
    }

    /// Hides members whose entries have expired. Returns whether there were any.
    pub fn expire(&mut self, now: Moment) -> bool {
        let expired: Vec<String> =
            self.members.extract_if(.., |_, expires| *expires <= now).map(|(name, _)| name).collect();
        let any = !expired.is_empty();
        self.expired_members.extend(expired);
        any
    }

    /// Returns whether a listed member fulfils the condition. Call [`expire`](Self::expire) first.
    pub fn any(&self, is_such: impl Fn(&str) -> bool) -> bool {
        self.members.keys().any(|name| is_such(name))
    }

    /// Returns the present members, in order of their ids.
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
        assert_eq!(roster.update(&names(&["b", "a"]), now, TIMEOUT), Turnover { joined: 2, gone: 0 });
        assert!(roster.update(&names(&["a", "b"]), now, TIMEOUT).is_none());
        assert_eq!(roster.update(&names(&["b", "c"]), now, TIMEOUT), Turnover { joined: 1, gone: 1 });
        assert_eq!(roster.live(now), ["b", "c"]);
    }

    #[test]
    fn who_was_not_heard_of_for_too_long_is_not_shown_and_counts_as_gone_only_when_a_list_says_so() {
        let (mut roster, now) = (Roster::default(), Moment::default());
        roster.update(&names(&["a", "b"]), now, TIMEOUT);
        assert_eq!(roster.live(now + (TIMEOUT - Duration::from_millis(1))), ["a", "b"]);
        assert!(roster.live(now + TIMEOUT).is_empty());
        assert!(roster.expire(now + TIMEOUT));
        assert!(!roster.expire(now + TIMEOUT));
        assert_eq!(roster.update(&names(&["b", "c"]), now + TIMEOUT, TIMEOUT), Turnover { joined: 1, gone: 1 });
        assert_eq!(roster.live(now + TIMEOUT), ["b", "c"]);
    }
}
