//! The elector: what to ask of the leases, and what the answers mean.
//!
//! It goes by rounds. A *beat* comes every heartbeat interval: a leader renews and enrols, a follower reads who leads and
//! enrols. A *glance* is a follower's read between two beats, so that a resignation or a lease that ran out is noticed at
//! once. A round is a conversation: [`Elector::begin`] gives the first question, [`Elector::on_reply`] takes the answer and gives
//! the next one, until there is none.
//!
//! What it promises: it believes in a term only where the backend gave it one, and only for as long as [`certain_for`],
//! counted from *before* the question was sent. An answer that never came is not taken for either; the next read tells. What
//! it minted or saw once is the floor of what it asks for next, and a term that is not above it is ended ([`usurper`]): so a
//! backend that counts anew may repeat an epoch only until anybody who knows better looks.

use std::collections::VecDeque;
use std::time::Duration;

use super::conduct::Conduct;
use super::event::ElectionEvent;
use super::gate::EpochGate;
use super::moment::Moment;
use super::roster::{Roster, Turnover};
use super::settings::Settings;
use super::stats::{ElectionStats, HeartbeatOutcome, Metrics, Now};
use crate::election::{BreakerState, BreakerStatus};
use crate::ids::Epoch;
use crate::ports::leases::Lease;
pub use ask::{Ask, Reply};
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Heartbeat,
    LeaseCheck,
}

/// A term that this member holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub epoch: Epoch,
    pub certain_until: Moment,
}

/// For how long, from before it was asked for, a lease vouches: with a margin for clocks that run apart.
pub fn certain_for(remaining: Duration, ttl: Duration) -> Duration {
    remaining.min(ttl).saturating_sub(ttl / 10)
}

#[derive(Debug)]
pub struct Elector {
    me: String,
    settings: Settings,
    conduct: Conduct,
    /// How often reads are cheap enough to be made between beats.
    lease_check_interval: Option<Duration>,
    roster: Roster,
    stats: ElectionStats,
    gate: EpochGate,
    term: Option<Held>,
    /// Whether the term has yet to be sealed before it may be acted on.
    is_unsealed: bool,
    seen: Option<Seen>,
    /// When the last question was sent whose answer told who leads.
    heard_at: Option<Moment>,
    vacancy: Option<Vacancy>,
    /// Whom watchers were told of last.
    shown: (Option<String>, Epoch),
    last_leader: Option<String>,
    highest: Highest,
    foreign: Foreign,
    /// From when a term may be acted on, where another may believe to lead until then.
    office_at: Option<Moment>,
    abstains_until: Option<Moment>,
    /// Whether it could do a leader's work. Else it does not stand.
    is_fit: bool,
    /// An election whose answer never came: it may have given us a term above this, or may yet, where it is on its way.
    unsure_above: Option<Epoch>,
    exchange: Option<Exchange>,
    beats: u64,
    /// At which beat everybody is to be listed, where that is rare.
    roll_call_beat: u64,
    next_beat: Moment,
    last_failed: bool,
}

/// The lease as it was last read.
#[derive(Debug, Clone)]
struct Seen {
    holder: String,
    epoch: Epoch,
    expires: Moment,
    /// Whether its holder leads. Else the place is merely taken: by a predecessor of our name, by a term of ours that we no
    /// longer trust or do not act on yet, or by one that should not be.
    leads: bool,
}

#[derive(Debug, Clone)]
struct Vacancy {
    since: Moment,
    /// Who led before. It let its lease run out or resigned: nobody waits for it.
    former: Option<String>,
    /// When it is our turn, where others should stand before us.
    stand_at: Option<Moment>,
}

#[derive(Debug)]
struct Exchange {
    round: Round,
    started: Moment,
    asked: Ask,
    queue: VecDeque<Ask>,
    has_stood: bool,
    /// Everybody present, if this round has listed them.
    listed: Option<Vec<String>>,
    has_read_back: bool,
    /// For how long one whose term was ended may not know it.
    usurped_for: Option<Duration>,
    /// The lease was won or renewed: whatever else fails can wait for the next beat.
    is_secured: bool,
    failed: bool,
    /// A request had no response, also one on which nothing depends.
    is_cut_short: bool,
}

impl Elector {
    /// `first_beat` is when the first beat is due.
    pub fn new(
        me: &str,
        settings: Settings,
        lease_check_interval: Option<Duration>,
        now: Now,
        first_beat: Moment,
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
            heard_at: None,
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
            beats: 0,
            roll_call_beat: 1,
            next_beat: first_beat,
            last_failed: false,
            settings,
        }
    }

    /// The same, for another kind of holder than a member of its namespace.
    pub fn with_conduct(self, conduct: Conduct) -> Self {
        Elector { conduct, ..self }
    }

    /// Begins a round; nothing where the breaker is open or there is nothing to look at.
    pub fn begin(&mut self, round: Round, now: Now) -> Option<Ask> {
        self.expire(now.at);
        if self.conduct.is_lock && self.term.is_none() && self.abstains(now.at) {
            return None;
        }
        if round == Round::Heartbeat && !self.may_beat(now.at) {
            self.forget_what_is_stale(now.at);
            return None;
        }
        if round == Round::LeaseCheck && (self.term.is_some() || self.stats.breaker().state != BreakerState::Closed) {
            return None;
        }
        let mut queue = VecDeque::new();
        match self.term {
            Some(held) => {
                queue.push_back(Ask::Renew { epoch: held.epoch });
                queue.extend(self.attendance());
            }
            // Whoever holds it cannot be read: the answer tells.
            None if self.conduct.is_lock => queue.push_back(Ask::Elect { floor: self.floor() }),
            None if !self.conduct.enrols => queue.push_back(Ask::Read),
            // Whether it may be on the roster is known from the list.
            None if round == Round::Heartbeat && self.beats == 0 && self.is_shared() => {
                queue.extend([Ask::Roster, Ask::Read]);
            }
            // A newcomer is on the roster before it may be elected.
            None if round == Round::Heartbeat && self.beats == 0 => {
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

    /// Takes the answer to the last question, which was sent at `asked`, and gives the next. None ends the round.
    pub fn on_reply(&mut self, answer: Reply, asked: Moment, now: Now) -> Option<Ask> {
        let mut exchange = self.exchange.take()?;
        if exchange.asked == Ask::Roster {
            self.members_listed();
        }
        if matches!(exchange.asked, Ask::Resign { .. }) {
            self.wait_for_usurper(now.at, &exchange);
        }
        exchange.is_cut_short |= answer == Reply::Failed;
        if matches!(answer, Reply::Read(_) | Reply::Granted(_)) {
            self.heard_at = Some(asked);
        }
        match (&exchange.asked, answer) {
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
                exchange.queue = self.look();
            }
            (Ask::Seal { .. }, Reply::Done) => self.sealed(now.at, &mut exchange),
            (Ask::Seal { epoch }, _) => {
                let epoch = *epoch;
                self.not_sealed(epoch, &mut exchange);
            }
            (Ask::Elect { floor }, Reply::Failed) if !exchange.has_read_back => {
                (exchange.failed, exchange.has_read_back) = (true, true);
                self.unsure_above = Some(self.highest.epoch.max(*floor));
                self.look().into_iter().for_each(|ask| exchange.queue.push_front(ask));
            }
            // It may be done all the same, and then the place is open to whoever comes first.
            (Ask::Resign { .. }, Reply::Failed) if exchange.usurped_for.is_some() => exchange.failed = true,
            // Nothing hangs on it, and all before it was answered: it is asked for again in its turn.
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
        // A backend that renews is not one to stop asking: the breaker would end the very term that it let us keep.
        self.last_failed = exchange.failed && !exchange.is_secured;
        if self.last_failed {
            self.forget_what_is_stale(now.at);
        }
        if exchange.round == Round::Heartbeat {
            self.beats += 1;
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
            return self.win_unheard(&lease, asked, now, exchange);
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
            // The backend may know how we came to be named: only it can tell a term of ours from a predecessor's.
            self.queue_elect(exchange);
        }
        let leads = !is_ours && !should_not_be;
        let epoch = if should_not_be { self.shown.1 } else { lease.epoch };
        self.publish_leader(leads.then(|| lease.holder.clone()), epoch, now.at);
        self.seen = Some(Seen { holder: lease.holder, epoch: lease.epoch, expires: now.at + lease.remaining, leads });
        if exchange.round == Round::Heartbeat && self.beats > 0 {
            self.attend(exchange, now.at);
        }
    }

    /// The rest of a follower's beat.
    fn attend(&self, exchange: &mut Exchange, now: Moment) {
        for ask in self.attendance() {
            if !exchange.queue.contains(&ask) && (ask != Ask::Enroll || !self.abstains(now)) {
                exchange.queue.push_back(ask);
            }
        }
    }

    /// What a beat asks for besides the lease. Where requests are paid for it is one of the two: an enrolment outlasts a few
    /// beats.
    fn attendance(&self) -> impl Iterator<Item = Ask> + use<> {
        let roll_call = self.is_roll_call();
        let enrols = self.conduct.enrols && !(self.yields() || (self.is_thrifty() && roll_call));
        enrols.then_some(Ask::Enroll).into_iter().chain(roll_call.then_some(Ask::Roster))
    }

    /// Ends a term whose lease is no longer certain, and forgets members who were not heard of for too long.
    pub fn expire(&mut self, now: Moment) {
        if self.term.is_some_and(|held| now >= held.certain_until) {
            self.lose();
        }
        self.confirm_term(now);
        if self.roster.expire(now) {
            self.stats.push_event(ElectionEvent::WorkersUpdated { workers: self.roster.live(now) });
        }
    }

    /// Without an answer from the backend a leader is believed in for as long as its lease was known to last.
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
        // Over a vacancy the one before it is remembered.
        let before = self.shown.0.take().or_else(|| self.last_leader.clone().filter(|_| leader.is_some()));
        if leader.is_some() && (self.last_leader != leader || self.shown.1 != epoch) {
            self.last_leader.clone_from(&leader);
            self.stats.leader_changed();
        }
        self.shown = (leader.clone(), epoch);
        self.stats.push_event(ElectionEvent::LeaderChanged { previous_leader: before, new_leader: leader, epoch });
    }

    /// Gives the place up and lets others stand: until one of them leads, or for the time of a lease. Gives what is to be asked
    /// so that they need not wait for the lease to run out.
    pub fn step_down(&mut self, now: Now) -> Vec<Ask> {
        let mut asks: Vec<Ask> = self.conduct.enrols.then_some(Ask::Withdraw).into_iter().collect();
        let held = self.term.filter(|_| !self.is_caretaker()).map(|held| held.epoch);
        // A lock may be ours although it does not seem so: its answer was lost, or is on its way.
        let unsubscribed_jobs = self.conduct.is_lock.then_some(self.highest.epoch);
        asks.extend(held.or(unsubscribed_jobs).map(|epoch| Ask::Resign { holder: self.me.clone(), epoch }));
        self.foreign.is_enrolled = false;
        let until = now.at + self.conduct.abstention;
        self.abstains_until = Some(until);
        if !self.conduct.enrols {
            self.next_beat = until;
        }
        self.lose();
        asks
    }

    /// Whether it could do a leader's work. One that could not follows, and does not stand. A term that it holds is for the
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

    pub fn me(&self) -> &str {
        &self.me
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The term that may be acted on.
    pub fn term(&self) -> Option<Held> {
        self.term.filter(|_| self.may_act())
    }

    /// Who leads, as far as is known at `now`, and until when that is certain.
    pub fn leader(&self) -> Option<(&str, Epoch, Moment)> {
        self.seen.as_ref().filter(|seen| seen.leads).map(|seen| (seen.holder.as_str(), seen.epoch, seen.expires))
    }

    /// Whom the lease named when it was read last, and until when that is certain, be it a predecessor of our own name.
    pub fn holder(&self) -> Option<(&str, Epoch, Moment)> {
        let is_another = |seen: &&Seen| self.term.is_none() || seen.leads;
        self.seen.as_ref().filter(is_another).map(|seen| (seen.holder.as_str(), seen.epoch, seen.expires))
    }

    /// When the question was sent whose answer told last who leads.
    pub fn heard_at(&self) -> Option<Moment> {
        self.heard_at
    }

    pub fn conduct(&self) -> &Conduct {
        &self.conduct
    }

    /// The highest epoch that was ever heard of.
    pub fn epoch(&self) -> Epoch {
        self.highest.epoch
    }

    pub fn members(&self, now: Moment) -> Vec<String> {
        self.roster.live(now)
    }

    /// Whether a task of that term may still be done.
    pub fn admits(&mut self, epoch: Epoch, now: Moment) -> bool {
        self.gate.admit(epoch, now)
    }

    /// The same of a task whose age is known.
    pub fn admits_aged(&mut self, epoch: Epoch, age: Duration, now: Moment) -> bool {
        self.gate.admit_aged(epoch, age, now)
    }

    pub fn breaker(&self) -> BreakerStatus {
        self.stats.breaker()
    }

    pub fn metrics(&self) -> Metrics {
        Metrics { epochs_refused: self.gate.refused(), ..self.stats.metrics() }
    }

    pub fn take_events(&mut self) -> Vec<ElectionEvent> {
        self.stats.take_events()
    }
}
