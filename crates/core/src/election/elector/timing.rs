//! When an elector begins its next round, and how long it waits for a reply.

use std::time::Duration;

use super::{Ask, Elector, Round};
use crate::election::BreakerState;
use crate::election::Moment;

/// The number of heartbeats between two lists, if requests are paid for.
const ROLL_CALL_HEARTBEATS: u32 = 3;
/// The shortest time between two lease checks.
const LEASE_CHECK_MIN: Duration = Duration::from_millis(5);
/// Lower bound of a follower's wait for a reply: it has no term to lose.
const FOLLOWER_PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Lower bound of any wait for a reply.
const PATIENCE_MIN: Duration = Duration::from_millis(10);

impl Elector {
    /// Plans the next heartbeat after one has ended or was skipped. `roll` is a random number from 0 to 1.
    pub fn plan(&mut self, started: Moment, now: Moment, roll: f64) {
        let interval = match (self.term, self.last_failed) {
            (Some(_), _) => self.settings.heartbeat_interval,
            (None, false) => self.conduct.follow_interval,
            (None, true) => self.conduct.retry_interval,
        };
        let jitter = self.settings.heartbeat_jitter.mul_f64(roll.clamp(0.0, 1.0));
        self.next_heartbeat = match self.stats.opens_until().filter(|_| !self.renews_regardless()) {
            Some(until) => until.max(now),
            // There is time for a few more attempts before the lease ends.
            None if self.last_failed
                && let Some(held) = self.term =>
            {
                let left = held.certain_until - now;
                now + (interval / 3).min(left / 2).max(interval / 30)
            }
            // A term that needs confirmation is renewed as soon as a renewal counts.
            None => {
                let next = started + interval + jitter;
                self.foreign.confirm_at.map_or(next, |at| at.min(next)).max(now)
            }
        };
    }

    /// Returns when to begin which round. If the time of a leader's term is up by then, its heartbeat begins as a
    /// follower's.
    pub fn due(&self, now: Moment) -> (Moment, Round) {
        if let Some(held) = self.term {
            let due = self.next_heartbeat.min(held.certain_until);
            return match self.office_at {
                // No request is needed: by then the term may be acted on.
                Some(at) if at < due => (at, Round::LeaseCheck),
                _ => (due, Round::Heartbeat),
            };
        }
        match self.next_lease_check(now) {
            Some(glance) if glance < self.next_heartbeat => (glance, Round::LeaseCheck),
            _ => (self.next_heartbeat, Round::Heartbeat),
        }
    }

    /// Whether a heartbeat may be sent. A heartbeat that may be sent must come to its end.
    pub(super) fn may_send_heartbeat(&mut self, now: Moment) -> bool {
        self.renews_regardless() || self.stats.may_send_heartbeat(now)
    }

    /// Whether the lease may be read between two heartbeats. A member that has not enrolled yet must not find it vacant:
    /// it would stand.
    pub(super) fn may_check_lease(&self) -> bool {
        let is_enrolled = self.heartbeats > 0 || !self.conduct.enrols;
        self.term.is_none() && is_enrolled && self.stats.breaker().state == BreakerState::Closed
    }

    /// Whether it holds a term, which it renews although the breaker is open.
    fn renews_regardless(&self) -> bool {
        self.term.is_some() && self.conduct.renews_while_open
    }

    fn next_lease_check(&self, now: Moment) -> Option<Moment> {
        if self.conduct.is_lock {
            return None;
        }
        if self.heartbeats == 0 || self.last_failed || self.stats.breaker().state != BreakerState::Closed {
            return None;
        }
        let soon = self.lease_check_interval.map(|interval| now + interval);
        let at = match (&self.seen, &self.vacancy) {
            (Some(seen), _) => soon.into_iter().chain([seen.expires + LEASE_CHECK_MIN]).min(),
            (None, _) if self.abstains(now) => {
                self.abstains_until.filter(|until| *until > now).into_iter().chain(soon).min()
            }
            (None, Some(vacancy)) => {
                let again = now + self.settings.heartbeat_interval / 4;
                // If others come first, there is time until our turn; otherwise the place is still free.
                let ours = vacancy.stand_at.filter(|turn| *turn > now).unwrap_or(again);
                soon.into_iter().chain([ours]).min()
            }
            (None, None) => soon,
        };
        at.map(|at| at.max(now + LEASE_CHECK_MIN))
    }

    /// Returns how long to wait for the reply to a request.
    pub fn patience(&self, ask: &Ask, now: Moment) -> Duration {
        let interval = self.settings.heartbeat_interval;
        match (self.term, ask) {
            // An attempt that hangs leaves time for another, and none of them outlasts the term.
            (Some(held), Ask::Renew { .. } | Ask::Seal { .. }) => ((held.certain_until - now) / 2).max(PATIENCE_MIN),
            // Nothing else may delay the next renewal.
            (Some(held), _) => {
                let left = (held.certain_until - now) / 2;
                let began = self.exchange.as_ref().map_or(now, |exchange| exchange.started);
                (began + interval - now).min(left).max(PATIENCE_MIN)
            }
            // Nor may these delay the next read of the lease.
            (None, Ask::Enroll | Ask::Roster) => interval.max(FOLLOWER_PATIENCE_MIN),
            (None, _) => self.settings.lease_timeout.max(FOLLOWER_PATIENCE_MIN),
        }
    }

    pub(super) fn is_thrifty(&self) -> bool {
        self.lease_check_interval.is_none()
    }

    /// Returns the TTL of an enrollment: long enough to last until the next one, also if not every heartbeat enrolls.
    pub fn enrolment(&self) -> Duration {
        self.settings.worker_timeout.max(self.between_lists())
    }

    pub(super) fn is_roll_call(&self) -> bool {
        self.conduct.enrols && (!self.is_thrifty() || self.heartbeats >= self.roll_call_heartbeat)
    }

    /// Records that the members were listed, or that it failed: in both cases the next list is as far away.
    pub(super) fn members_listed(&mut self) {
        self.roll_call_heartbeat = self.heartbeats + u64::from(ROLL_CALL_HEARTBEATS);
    }

    /// Returns how long a list is used. If lists are rare, one failed list must not make all members expire.
    pub(super) fn roster_timeout(&self) -> Duration {
        self.settings.worker_timeout + self.between_lists() * 2
    }

    /// Returns the time between two lists; zero if every heartbeat lists.
    fn between_lists(&self) -> Duration {
        let longest = self.settings.heartbeat_interval + self.settings.heartbeat_jitter;
        if self.is_thrifty() { longest * ROLL_CALL_HEARTBEATS } else { Duration::ZERO }
    }
}
