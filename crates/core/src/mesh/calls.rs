//! The calls that wait for a reply.
//!
//! A call is opened, kept alive by heartbeats, and closed exactly once: by its reply, by a failed send, by its
//! deadline, or because the instance stops. The code that closes it gets the waiter; a late or second reply gets
//! nothing. The table holds only open calls.
//!
//! Time is the duration since a moment that the caller chose, on a monotonic clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use uuid::Uuid;

/// Upper bound of a call's timeout (one year).
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400 * 365);
/// The low bits of an id count calls; the others identify the table.
const COUNT_BITS: u32 = 56;

/// The id that a request and its reply share: a UUID. All ids of one table share a random first half, so that a reply
/// to an earlier process with the same instance number matches no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(Uuid);

impl RequestId {
    /// Parses an id. `None` for a text that cannot be the id of one of our calls.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(RequestId)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// The open calls. `W` is the waiter that receives the end of a call.
#[derive(Debug)]
pub struct Calls<W> {
    salt: u64,
    last: u64,
    open: BTreeMap<u64, Open<W>>,
    deadlines: BTreeSet<(Duration, u64)>,
}

#[derive(Debug)]
struct Open<W> {
    waiter: W,
    timeout: Duration,
    deadline: Duration,
}

impl<W> Calls<W> {
    /// Returns an empty table. `salt` is random.
    pub fn new(salt: u64) -> Self {
        Calls { salt, last: 0, open: BTreeMap::new(), deadlines: BTreeSet::new() }
    }

    /// Opens a call that expires after `timeout` without a heartbeat.
    pub fn open(&mut self, timeout: Duration, now: Duration, waiter: W) -> RequestId {
        let timeout = timeout.min(TIMEOUT_MAX);
        let deadline = now + timeout;
        self.last += 1;
        self.open.insert(self.last, Open { waiter, timeout, deadline });
        self.deadlines.insert((deadline, self.last));
        self.id(self.last)
    }

    /// Restarts the timeout of a call whose handler is still running. Returns false if the call is not open.
    pub fn heartbeat(&mut self, id: RequestId, now: Duration) -> bool {
        let Some(number) = self.number(id) else { return false };
        let Some(open) = self.open.get_mut(&number) else { return false };
        self.deadlines.remove(&(open.deadline, number));
        open.deadline = now + open.timeout;
        self.deadlines.insert((open.deadline, number));
        true
    }

    /// Returns whether the call has not ended.
    pub fn is_open(&self, id: RequestId) -> bool {
        self.number(id).is_some_and(|number| self.open.contains_key(&number))
    }

    /// Ends a call and returns its waiter, or `None` if it had ended.
    pub fn close(&mut self, id: RequestId) -> Option<W> {
        let number = self.number(id)?;
        let open = self.open.remove(&number)?;
        self.deadlines.remove(&(open.deadline, number));
        Some(open.waiter)
    }

    /// Ends all calls whose deadline has passed, and returns their waiters.
    pub fn expire(&mut self, now: Duration) -> Vec<W> {
        let mut expired = Vec::new();
        while let Some((deadline, number)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            expired.extend(self.open.remove(&number).map(|open| open.waiter));
        }
        expired
    }

    /// Ends all calls, and returns their waiters.
    pub fn drain(&mut self) -> Vec<W> {
        self.deadlines.clear();
        std::mem::take(&mut self.open).into_values().map(|open| open.waiter).collect()
    }

    /// Returns the earliest deadline of an open call.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the number of open calls.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether no call is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn id(&self, number: u64) -> RequestId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.salt.to_be_bytes());
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        RequestId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Returns the number of the call with this id, if the id is of this table.
    fn number(&self, id: RequestId) -> Option<u64> {
        let number = id.0.as_u64_pair().1 & ((1 << COUNT_BITS) - 1);
        (self.id(number) == id).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn a_call_is_closed_once_and_late_replies_find_nothing() {
        let (mut calls, now) = (Calls::new(7), NOW);
        let id = calls.open(SECOND, now, 'a');
        assert!(calls.is_open(id));
        assert_eq!((calls.close(id), calls.close(id)), (Some('a'), None));
        assert!(!calls.is_open(id));
        let late = calls.open(SECOND, now, 'b');
        assert_eq!(calls.expire(now + SECOND), ['b']);
        assert_eq!(calls.close(late), None);
        assert!(!calls.heartbeat(late, now));
        assert!(calls.is_empty() && calls.next_deadline().is_none());
    }

    #[test]
    fn a_heartbeat_gives_the_whole_timeout_again() {
        let (mut calls, now) = (Calls::new(7), NOW);
        let slow = calls.open(SECOND, now, 'a');
        calls.open(SECOND, now, 'b');
        assert!(calls.heartbeat(slow, now + SECOND / 2));
        assert_eq!(calls.expire(now + SECOND), ['b']);
        assert_eq!(calls.next_deadline(), Some(now + SECOND * 3 / 2));
        assert!(calls.expire(now + SECOND * 5 / 4).is_empty());
        assert_eq!(calls.expire(now + SECOND * 3 / 2), ['a']);
    }

    #[test]
    fn a_reply_to_another_table_finds_nothing() {
        let (mut before, mut after) = (Calls::new(1), Calls::new(1 << 63));
        let (old, new) = (before.open(SECOND, NOW, 'a'), after.open(SECOND, NOW, 'b'));
        assert_ne!(old, new);
        assert_eq!(after.close(old), None);
        assert_eq!(after.close(new), Some('b'));
    }

    #[test]
    fn an_id_is_a_uuid_that_reads_as_it_is_shown() {
        let mut calls = Calls::new(u64::MAX);
        for _ in 0..300 {
            let id = calls.open(SECOND, NOW, ());
            assert_eq!(RequestId::parse(&id.to_string()), Some(id));
            assert_eq!(id.to_string().len(), 36);
            assert_eq!(calls.close(id), Some(()));
        }
        assert_eq!(RequestId::parse("1"), None);
    }

    #[test]
    fn a_timeout_without_end_is_only_long() {
        let (mut calls, now) = (Calls::new(7), NOW);
        calls.open(Duration::MAX, now, 'a');
        calls.open(SECOND, now, 'b');
        assert_eq!(calls.expire(now + SECOND), ['b']);
        assert_eq!(calls.drain(), ['a']);
        assert!(calls.is_empty() && calls.next_deadline().is_none());
    }

    proptest! {
        /// Compares with the simplest possible table.
        #[test]
        fn whatever_happens_a_call_ends_once(steps in prop::collection::vec((0..4_u8, 0..24_usize, 1..9_u64), 1..200)) {
            let (mut calls, mut ids, mut now) = (Calls::new(3), Vec::new(), NOW);
            let mut model: BTreeMap<usize, (Duration, Duration)> = BTreeMap::new();
            for (what, which, seconds) in steps {
                let span = Duration::from_secs(seconds);
                match (what, ids.get(which).copied()) {
                    (0, _) => {
                        model.insert(ids.len(), (span, now + span));
                        ids.push(calls.open(span, now, ids.len()));
                    }
                    (1, Some(id)) => {
                        if let Some((timeout, deadline)) = model.get_mut(&which) {
                            *deadline = now + *timeout;
                        }
                        prop_assert_eq!(calls.heartbeat(id, now), model.contains_key(&which));
                    }
                    (2, Some(id)) => prop_assert_eq!(calls.close(id), model.remove(&which).map(|_| which)),
                    _ => {
                        now += span;
                        let due: Vec<_> = model.iter().filter(|(_, call)| call.1 <= now).map(|call| *call.0).collect();
                        let mut expired = calls.expire(now);
                        expired.sort_unstable();
                        prop_assert_eq!(&expired, &due);
                        model.retain(|which, _| !due.contains(which));
                    }
                }
                prop_assert_eq!(calls.len(), model.len());
                prop_assert_eq!(calls.next_deadline(), model.values().map(|call| call.1).min());
            }
        }
    }
}
