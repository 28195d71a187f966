//! The elector: decides what to request of the leases, and what the replies mean.
//!
//! It works in rounds. A *heartbeat* round comes every heartbeat interval: a leader renews and enrolls, a follower
//! reads the lease and enrolls. A *lease check* is a follower's read between two heartbeats, so that it detects a
//! resignation or an expired lease at once. [`Elector::begin`] returns the first request of a round;
//! [`Elector::on_reply`] takes the reply and returns the next request, or `None` at the end of the round.
//!
//! Promises: it believes in a term only if the backend granted it, and only for [`certain_for`], counted from *before*
//! the request was sent. A missing reply counts as neither granted nor refused; the next read decides. Every epoch that
//! it was granted or has read is a lower bound of its next one, and it ends a term whose epoch is not above that bound
//! ([`usurper`]). So a backend that lost its counter can repeat an epoch only until a member that knows a higher one
//! reads the lease.

use std::collections::VecDeque;
use std::time::Duration;

use super::conduct::Conduct;
use super::event::ElectionEvent;
use super::gate::EpochGate;
use super::moment::Moment;
use super::roster::{Roster, Turnover};
use super::settings::Settings;
use super::stats::{ElectionStats, HeartbeatOutcome, Metrics, Now};
use crate::election::BreakerStatus;
use crate::ids::Epoch;
use crate::ports::leases::Lease;
pub use ask::{Ask, Reply, Round};
use foreign::Foreign;
use usurper::Highest;

mod ask;
mod foreign;
mod holding;
mod standing;
mod timing;
mod usurper;

#[cfg(test)]
mod tests;

/// A term that this member holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct Held {
    /// The number of the term.
    pub epoch: Epoch,
    /// The end of the time in which this member may act on the term without a renewal.
    pub certain_until: Moment,
}

/// Returns for how long a lease is certain, counted from before its request was sent. A tenth of the TTL is left as a
/// margin for clock drift.
pub fn certain_for(remaining: Duration, ttl: Duration) -> Duration {
    remaining.min(ttl).saturating_sub(ttl / 10)
}

/// The state machine of one member that wants to lead.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Elector {
    me: String,
    settings: Settings,
    conduct: Conduct,
    /// How often reads are cheap enough to be made between heartbeats.
    lease_check_interval: Option<Duration>,
    roster: Roster,
    stats: ElectionStats,
    gate: EpochGate,
    term: Option<Held>,
    /// Whether the term has yet to be sealed before it may be acted on.
    is_unsealed: bool,
    seen: Option<Seen>,
    /// When the last request was sent whose reply named the leader.
    leader_read_at: Option<Moment>,
    vacancy: Option<Vacancy>,
    /// The leader and epoch of the last event for watchers.
    shown: (Option<String>, Epoch),
    last_leader: Option<String>,
    highest: Highest,
    foreign: Foreign,
    /// When the term may be acted on, if another member may still believe that it leads.
    office_at: Option<Moment>,
    abstains_until: Option<Moment>,
    /// Whether it could do a leader's work. Else it does not stand.
    is_fit: bool,
    /// Set by an election without a reply: it may have granted us a term above this, or may do so while it is on its way.
    unsure_above: Option<Epoch>,
    exchange: Option<Exchange>,
    heartbeats: u64,
    /// The heartbeat at which to list the members, if not every heartbeat does.
    roll_call_heartbeat: u64,
    next_heartbeat: Moment,
    last_failed: bool,
}

/// The lease as it was last read.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(Hash))]
struct Seen {
    holder: String,
    epoch: Epoch,
    expires: Moment,
    /// Whether its holder leads. Otherwise the lease is merely taken: by a predecessor with our id, by a term of ours
    /// that we no longer trust or may not act on yet, or by a term to be ended.
    leads: bool,
}

#[derive(Debug, Clone)]
struct Vacancy {
    since: Moment,
    /// The last leader. It resigned or did not renew, so it is not waited for.
    former: Option<String>,
    /// When it is our turn to stand, if others come first.
    stand_at: Option<Moment>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Exchange {
    round: Round,
    started: Moment,
    asked: Ask,
    queue: VecDeque<Ask>,
    has_stood: bool,
    /// The members, if this round has listed them.
    listed: Option<Vec<String>>,
    has_read_back: bool,
    /// How long the holder of a term that we ended may not know of it.
    usurped_for: Option<Duration>,
    /// The lease was won or renewed: any other failure can wait for the next heartbeat.
    is_secured: bool,
    failed: bool,
    /// At least one request had no reply, required or not.
    is_cut_short: bool,
}

impl Elector {
    /// Returns an elector whose first heartbeat is due at `first_heartbeat_at`.
    pub fn new(
        me: &str,
        settings: Settings,
        lease_check_interval: Option<Duration>,
        now: Now,
        first_heartbeat_at: Moment,
    ) -> Self {
        let grace = settings.epoch_grace_period;
        Elector {
            me: me.to_owned(),
            conduct: Conduct::member(&settings),
            lease_check_interval,
            roster: Roster::default(),
            stats: ElectionStats::new(&settings, now.wall),
            gate: if settings.epoch_fencing { EpochGate::new(grace) } else { EpochGate::open() },
            term: None,
            is_unsealed: false,
            seen: None,
            leader_read_at: None,
            vacancy: None,
            shown: (None, Epoch(0)),
            last_leader: None,
            highest: Highest::default(),
            foreign: Foreign::default(),
            office_at: None,
            abstains_until: None,
            is_fit: true,
            unsure_above: None,
            exchange: None,
            heartbeats: 0,
            roll_call_heartbeat: 1,
            next_heartbeat: first_heartbeat_at,
            last_failed: false,
            settings,
        }
    }

    /// The same, for another kind of holder than a member of its namespace.
    pub fn with_conduct(self, conduct: Conduct) -> Self {
        Elector { conduct, ..self }
    }

    /// Begins a round; returns nothing if the breaker is open or there is nothing to read.
    pub fn begin(&mut self, round: Round, now: Now) -> Option<Ask> {
        self.expire(now.at);
        if self.conduct.is_lock && self.term.is_none() && self.abstains(now.at) {
            return None;
        }
        if round == Round::Heartbeat && !self.may_send_heartbeat(now.at) {
            self.forget_what_is_stale(now.at);
            return None;
        }
        if round == Round::LeaseCheck && !self.may_check_lease() {
            return None;
        }
        let mut queue = VecDeque::new();
        match self.term {
            Some(held) => {
                queue.push_back(Ask::Renew { epoch: held.epoch });
                queue.extend(self.attendance());
            }
            // The holder of a lock cannot be read: only the reply shows whether it is free.
            None if self.conduct.is_lock => queue.push_back(Ask::Elect { floor: self.floor() }),
            None if !self.conduct.enrols => queue.push_back(Ask::Read),
            // Whether it may be on the roster is known from the list.
            None if round == Round::Heartbeat && self.heartbeats == 0 && self.is_shared() => {
                queue.extend([Ask::Roster, Ask::Read]);
            }
            // A new member enrolls before it may be elected.
            None if round == Round::Heartbeat && self.heartbeats == 0 => {
                queue.extend([Ask::Enroll, Ask::Read]);
                queue.extend(self.attendance().find(|ask| *ask == Ask::Roster));
            }
            None => queue.push_back(Ask::Read),
        }
        let asked = queue.pop_front()?;
        let exchange = Exchange {
            round,
            started: now.at,
            asked,
            queue,
            has_stood: false,
            listed: None,
            has_read_back: false,
            usurped_for: None,
            is_secured: false,
            failed: false,
            is_cut_short: false,
        };
        Some(self.exchange.insert(exchange).asked.clone())
    }

    /// Takes the reply to the last request, which was sent at `asked`, and returns the next one. `None` ends the round.
    pub fn on_reply(&mut self, reply: Reply, asked: Moment, now: Now) -> Option<Ask> {
        let mut exchange = self.exchange.take()?;
        if exchange.asked == Ask::Roster {
            self.members_listed();
        }
        if matches!(exchange.asked, Ask::Resign { .. }) {
            self.wait_for_usurper(now.at, &exchange);
        }
        exchange.is_cut_short |= reply == Reply::Failed;
        if matches!(reply, Reply::Read(_) | Reply::Granted(_)) {
            self.leader_read_at = Some(asked);
        }
        match (&exchange.asked, reply) {
            (Ask::Read, Reply::Read(Some(lease))) => self.read_lease(lease, asked, now, &mut exchange),
            (Ask::Read, Reply::Read(None)) => self.read_vacancy(now, &mut exchange),
            (Ask::Roster, Reply::Roster(names)) => self.read_roster(names, now, &mut exchange),
            (Ask::Enroll, Reply::Done) => self.foreign.is_enrolled = true,
            (Ask::Withdraw, Reply::Done) => self.foreign.is_enrolled = false,
            (Ask::Elect { .. }, Reply::Granted(lease)) => self.win(&lease, asked, now, &mut exchange),
            (Ask::Elect { .. }, Reply::Refused) if self.conduct.is_lock => {}
            (Ask::Elect { .. }, Reply::Refused) => exchange.queue.push_front(Ask::Read),
            (Ask::Renew { .. }, Reply::Granted(lease)) => self.prolong(&lease, asked, now, &mut exchange),
            (Ask::Renew { .. }, Reply::Refused) => {
                self.lose();
                exchange.queue = self.read_leader();
            }
            (Ask::Seal { .. }, Reply::Done) => self.sealed(now.at, &mut exchange),
            (Ask::Seal { epoch }, _) => {
                let epoch = *epoch;
                self.not_sealed(epoch, &mut exchange);
            }
            (Ask::Elect { floor }, Reply::Failed) if !exchange.has_read_back => {
                (exchange.failed, exchange.has_read_back) = (true, true);
                self.unsure_above = Some(self.highest.epoch.max(*floor));
                self.read_leader().into_iter().for_each(|ask| exchange.queue.push_front(ask));
            }
            // The request may have been carried out; then the place is free for the first candidate.
            (Ask::Resign { .. }, Reply::Failed) if exchange.usurped_for.is_some() => exchange.failed = true,
            // Nothing depends on it, and all requests before it had a reply: it is sent again in a later round.
            (Ask::Roster, Reply::Failed) if !self.stands_by_list() => {}
            (_, Reply::Failed) => {
                exchange.failed = true;
                exchange.queue.clear();
            }
            _ => {}
        }
        self.expire(now.at);
        match exchange.queue.pop_front() {
            Some(next) => {
                exchange.asked = next;
                Some(self.exchange.insert(exchange).asked.clone())
            }
            None => {
                self.end_round(&exchange, now);
                None
            }
        }
    }

    fn end_round(&mut self, exchange: &Exchange, now: Now) {
        // A backend that renews should not open the breaker: that would end the term that it has just prolonged.
        self.last_failed = exchange.failed && !exchange.is_secured;
        if self.last_failed {
            self.forget_what_is_stale(now.at);
        }
        if exchange.round == Round::Heartbeat {
            self.heartbeats += 1;
            let end = match (self.last_failed, exchange.is_cut_short) {
                (true, _) => HeartbeatOutcome::Failed,
                (false, true) => HeartbeatOutcome::CutShort,
                (false, false) => HeartbeatOutcome::Complete,
            };
            self.stats.record_heartbeat(exchange.started, now, end);
        }
    }

    fn read_lease(&mut self, lease: Lease, asked: Moment, now: Now, exchange: &mut Exchange) {
        let is_ours = lease.holder == self.me;
        if is_ours && self.term.is_none() && self.unsure_above.is_some_and(|floor| lease.epoch > floor) {
            return self.win_without_reply(&lease, asked, now, exchange);
        }
        if let Some(vacancy) = self.vacancy.take() {
            self.stats.election_took(now.at - vacancy.since);
        }
        if !is_ours {
            self.abstains_until = None;
        }
        let should_not_be = self.check_number(&lease);
        if should_not_be {
            self.depose(&lease, now.at, exchange);
        } else if is_ours && !self.declines(&lease, exchange) && !exchange.has_stood && !self.abstains(now.at) {
            // Only the backend can distinguish a term of ours from one of a predecessor with the same id.
            self.queue_elect(exchange);
        }
        let leads = !is_ours && !should_not_be;
        let epoch = if should_not_be { self.shown.1 } else { lease.epoch };
        self.publish_leader(leads.then(|| lease.holder.clone()), epoch, now.at);
        self.seen = Some(Seen { holder: lease.holder, epoch: lease.epoch, expires: now.at + lease.remaining, leads });
        if exchange.round == Round::Heartbeat && self.heartbeats > 0 {
            self.attend(exchange, now.at);
        }
    }

    /// Queues the rest of a follower's heartbeat.
    fn attend(&self, exchange: &mut Exchange, now: Moment) {
        for ask in self.attendance() {
            if !exchange.queue.contains(&ask) && (ask != Ask::Enroll || !self.abstains(now)) {
                exchange.queue.push_back(ask);
            }
        }
    }

    /// Returns the requests of a heartbeat besides the lease. If requests are paid for, it is one of the two: an
    /// enrollment lasts for several heartbeats.
    fn attendance(&self) -> impl Iterator<Item = Ask> + use<> {
        let roll_call = self.is_roll_call();
        let enrols = self.conduct.enrols && !(self.yields() || (self.is_thrifty() && roll_call));
        enrols.then_some(Ask::Enroll).into_iter().chain(roll_call.then_some(Ask::Roster))
    }

    /// Ends a term whose lease is no longer certain, and drops members that were not listed for too long.
    pub fn expire(&mut self, now: Moment) {
        if self.term.is_some_and(|held| now >= held.certain_until) {
            self.lose();
        }
        self.confirm_term(now);
        if self.roster.expire(now) {
            self.stats.push_event(ElectionEvent::WorkersUpdated { workers: self.roster.live(now) });
        }
    }

    /// Drops a leader whose lease has expired as far as known, if the backend has not replied since.
    fn forget_what_is_stale(&mut self, now: Moment) {
        if self.seen.as_ref().is_some_and(|seen| now >= seen.expires) {
            let epoch = self.shown.1;
            self.publish_leader(None, epoch, now);
        }
    }

    fn publish_leader(&mut self, leader: Option<String>, epoch: Epoch, now: Moment) {
        self.gate.advance(epoch, now);
        self.publish_leader_change(leader, epoch);
    }

    fn publish_leader_change(&mut self, leader: Option<String>, epoch: Epoch) {
        if self.shown.0 == leader && (leader.is_none() || self.shown.1 == epoch) {
            return;
        }
        // After a vacancy, the event names the last leader.
        let before = self.shown.0.take().or_else(|| self.last_leader.clone().filter(|_| leader.is_some()));
        if leader.is_some() && (self.last_leader != leader || self.shown.1 != epoch) {
            self.last_leader.clone_from(&leader);
            self.stats.leader_changed();
        }
        self.shown = (leader.clone(), epoch);
        self.stats.push_event(ElectionEvent::LeaderChanged { previous_leader: before, new_leader: leader, epoch });
    }

    /// Resigns and does not stand until another member leads, or for the time of one lease. Returns the requests to
    /// send, so that the others need not wait until the lease expires.
    pub fn step_down(&mut self, now: Now) -> Vec<Ask> {
        let mut asks: Vec<Ask> = self.conduct.enrols.then_some(Ask::Withdraw).into_iter().collect();
        let held = self.term.filter(|_| !self.is_caretaker()).map(|held| held.epoch);
        // A lock may be ours although it does not seem so: its reply was lost, or is on its way.
        let unread_lock = self.conduct.is_lock.then_some(self.highest.epoch);
        asks.extend(held.or(unread_lock).map(|epoch| Ask::Resign { holder: self.me.clone(), epoch }));
        self.foreign.is_enrolled = false;
        let until = now.at + self.conduct.abstention;
        self.abstains_until = Some(until);
        if !self.conduct.enrols {
            self.next_heartbeat = until;
        }
        self.lose();
        asks
    }

    /// Whether it could do a leader's work. A member that could not follows, and does not stand. A term that it holds is for the
    /// caller to give up.
    pub fn set_fit(&mut self, is_fit: bool) {
        self.is_fit = is_fit;
    }

    fn abstains(&self, now: Moment) -> bool {
        !self.is_fit || self.abstains_until.is_some_and(|until| now < until)
    }

    /// Members came or went, by a list that is kept elsewhere.
    pub fn members_changed(&mut self, turnover: Turnover) {
        self.stats.members_changed(turnover);
    }

    /// Returns the id of this member.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the term that this member holds and may act on.
    pub fn term(&self) -> Option<Held> {
        self.term.filter(|_| self.may_act())
    }

    /// Returns the known leader, its epoch, and until when its lease lasts.
    pub fn leader(&self) -> Option<(&str, Epoch, Moment)> {
        self.seen.as_ref().filter(|seen| seen.leads).map(|seen| (seen.holder.as_str(), seen.epoch, seen.expires))
    }

    /// Whom the lease named when it was read last, and until when that is certain, be it a predecessor of our own name.
    pub fn holder(&self) -> Option<(&str, Epoch, Moment)> {
        let is_another = |seen: &&Seen| self.term.is_none() || seen.leads;
        self.seen.as_ref().filter(is_another).map(|seen| (seen.holder.as_str(), seen.epoch, seen.expires))
    }

    /// Returns when the last request was sent whose reply named the leader.
    pub fn leader_read_at(&self) -> Option<Moment> {
        self.leader_read_at
    }

    /// Returns the rules of this kind of holder.
    pub fn conduct(&self) -> &Conduct {
        &self.conduct
    }

    /// Returns the highest epoch that it has received.
    pub fn epoch(&self) -> Epoch {
        self.highest.epoch
    }

    /// Returns the ids of the present members, in order.
    pub fn members(&self, now: Moment) -> Vec<String> {
        self.roster.live(now)
    }

    /// Returns whether a task of that term may still be done.
    pub fn admits(&mut self, epoch: Epoch, now: Moment) -> bool {
        self.gate.admit(epoch, now)
    }

    /// The same for a task whose age is known.
    pub fn admits_aged(&mut self, epoch: Epoch, age: Duration, now: Moment) -> bool {
        self.gate.admit_aged(epoch, age, now)
    }

    /// Returns the state of the circuit breaker.
    pub fn breaker(&self) -> BreakerStatus {
        self.stats.breaker()
    }

    /// Returns the counters.
    pub fn metrics(&self) -> Metrics {
        Metrics { epochs_refused: self.gate.refused(), ..self.stats.metrics() }
    }

    /// Returns the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<ElectionEvent> {
        self.stats.take_events()
    }
}
