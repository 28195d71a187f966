//! Nodes that compete for the lead, seal their terms and write as the leader, in every order of events: requests and
//! replies are late or lost, a request that was given up is carried out later, nodes pause, crash and resign, leases
//! expire, and the backend forgets all that it knew.
//!
//! Each node is an [`Elector`] of a coordinator. The model adds the backend, which grants and renews leases, and the store,
//! which seals epochs and compares the epoch of a leader's write with the sealed one. A node that does nothing while time
//! passes is a paused one. Only reads are replied to at once.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use stateright::{Model, Property};

use super::super::*;
use crate::tests::model;

mod checks;

const ONE_HOLDER: &str = "an epoch is acted on by one process";
const FENCED: &str = "a write below the sealed epoch is refused";
const SEALED: &str = "a term is sealed before it is acted on";
const ONE_LEADER: &str = "one node believes that it leads";

type Node = usize;

/// A rule that the model lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The store accepts a leader's write whatever is sealed.
    TheFence,
    /// A term is acted on at once.
    TheSeal,
    /// The store seals any epoch, also one that is sealed already.
    RisingSeals,
    /// A lease counts from the reply.
    TheAnchor,
}

#[derive(Clone, Copy)]
struct Election {
    nodes: usize,
    /// When the time of the model ends, in seconds.
    until: u64,
    /// Requests that are given up: they were not carried out, will be later, or were and the reply is lost.
    losses: u8,
    crashes: u8,
    resignations: u8,
    /// How often the backend forgets everything.
    forgets: u8,
    without: Without,
}

/// What the last step showed.
mod shown {
    /// A write of a former leader was accepted.
    pub const ACCEPTED: u8 = 1;
    pub const FENCED: u8 = 1 << 1;
    pub const SEAL_REFUSED: u8 = 1 << 2;
    pub const RENEWAL_REFUSED: u8 = 1 << 3;
    pub const RESIGNED_UNREAD: u8 = 1 << 4;
    pub const EXPIRED: u8 = 1 << 5;
    pub const WRITTEN: u8 = 1 << 6;
}

#[derive(Clone)]
struct State {
    now: u64,
    electors: Vec<Elector>,
    /// The process of each node: a crash begins another.
    lives: Vec<u8>,
    flights: Vec<Option<Flight>>,
    /// Requests that nobody waits for any more.
    strays: BTreeSet<(Node, Request)>,
    lease: Option<(Node, u64, u64)>,
    highest: u64,
    sealed: u64,
    /// The process that acted on each epoch.
    acted: BTreeSet<(u64, Node, u8)>,
    /// Writes of leaders that are on their way.
    writes: BTreeSet<(Node, u64)>,
    losses: u8,
    crashes: u8,
    resignations: u8,
    forgets: u8,
    shown: u8,
}

/// A request with the data that the driver adds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    Read,
    Elect { floor: u64 },
    Renew { epoch: u64 },
    Seal { epoch: u64 },
    Resign { epoch: u64 },
}

#[derive(Clone, Hash)]
struct Flight {
    round: Round,
    started: u64,
    asked: u64,
    request: Request,
    reply: Option<Served>,
}

/// What the backend returned.
#[derive(Clone, Copy, Hash)]
enum Served {
    Nothing,
    Lease(Node, u64, u64),
    Refused,
    Failed,
    Done,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Pass,
    Begin(Node),
    Serve(Node),
    Receive(Node),
    GiveUp(Node),
    Stray(Node, Request),
    Resign(Node),
    Crash(Node),
    Write(Node),
    Commit(Node, u64),
    Forget,
}

impl Hash for Elector {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // What is shown only, and what never differs, is left out.
        let Elector {
            me: _,
            settings: _,
            conduct: _,
            lease_check_interval: _,
            roster: _,
            stats,
            gate: _,
            term,
            is_unsealed,
            seen,
            leader_read_at: _,
            vacancy,
            shown: _,
            last_leader: _,
            highest,
            foreign: _,
            office_at,
            abstains_until,
            is_fit: _,
            unsure_above,
            exchange,
            heartbeats,
            roll_call_heartbeat: _,
            next_heartbeat,
            last_failed,
        } = self;
        (term, is_unsealed, seen, vacancy.is_some(), highest, office_at, abstains_until).hash(hasher);
        (unsure_above, exchange, *heartbeats > 0, next_heartbeat, last_failed).hash(hasher);
        (stats.breaker().state as u8, stats.breaker().failure_count).hash(hasher);
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.now, &self.electors, &self.lives, &self.flights, &self.strays).hash(hasher);
        (self.lease, self.highest, self.sealed, &self.acted, &self.writes).hash(hasher);
        (self.losses, self.crashes, self.resignations, self.forgets, self.shown).hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        model::digest(self) == model::digest(other)
    }
}

const LEASE: u64 = 2;
const SECOND: Duration = Duration::from_secs(1);

fn moment(second: u64) -> Moment {
    Moment(Duration::from_secs(second))
}

fn time(second: u64) -> Now {
    Now { at: moment(second), wall: Timestamp::UNIX_EPOCH }
}

fn name(node: Node) -> String {
    format!("n{node}")
}

fn elector(node: Node, now: u64, without: Without) -> Elector {
    let settings = Settings {
        heartbeat_interval: SECOND,
        heartbeat_jitter: Duration::ZERO,
        lease_timeout: SECOND * LEASE as u32,
        ..Settings::default()
    };
    let conduct = Conduct { seals: without != Without::TheSeal, ..Conduct::coordinator(SECOND) };
    Elector::new(&name(node), settings, None, time(now), moment(now)).with_conduct(conduct)
}

impl State {
    fn present(&self) -> Option<(Node, u64, u64)> {
        self.lease.filter(|(.., expires)| *expires > self.now)
    }

    /// Returns the term that a node acts on, by its own clock.
    fn acts_on(&self, node: Node) -> Option<u64> {
        self.electors[node].term().filter(|held| moment(self.now) < held.certain_until).map(|held| held.epoch.0)
    }

    /// The backend and the store carry out a request.
    fn carry_out(&mut self, node: Node, request: &Request, without: Without) -> Served {
        let expires = self.now + LEASE;
        match *request {
            Request::Read => self
                .present()
                .map_or(Served::Nothing, |(holder, epoch, until)| Served::Lease(holder, epoch, until - self.now)),
            Request::Elect { .. } if self.present().is_some() => Served::Refused,
            Request::Elect { floor } => {
                self.highest = self.highest.max(floor) + 1;
                self.lease = Some((node, self.highest, expires));
                Served::Lease(node, self.highest, LEASE)
            }
            Request::Renew { epoch } => {
                let is_held = self.present().is_some_and(|(holder, held, _)| (holder, held) == (node, epoch));
                if !is_held {
                    return Served::Refused;
                }
                self.lease = Some((node, epoch, expires));
                Served::Lease(node, epoch, LEASE)
            }
            Request::Seal { epoch } if epoch > self.sealed || without == Without::RisingSeals => {
                self.sealed = self.sealed.max(epoch);
                Served::Done
            }
            Request::Seal { .. } => Served::Failed,
            Request::Resign { epoch } => {
                self.lease.take_if(|(holder, held, _)| (*holder, *held) == (node, epoch));
                Served::Done
            }
        }
    }

    fn request(&self, ask: &Ask) -> Request {
        match ask {
            Ask::Elect { .. } => Request::Elect { floor: self.sealed },
            Ask::Renew { epoch } => Request::Renew { epoch: epoch.0 },
            Ask::Seal { epoch } => Request::Seal { epoch: epoch.0 },
            Ask::Resign { epoch, .. } => Request::Resign { epoch: epoch.0 },
            Ask::Read => Request::Read,
            Ask::Enroll | Ask::Withdraw | Ask::Roster => unreachable!("a coordinator does not enrol"),
        }
    }

    /// Sends the next request of a round, or plans the next round.
    fn go_on(&mut self, node: Node, round: Round, started: u64, next: Option<Ask>, without: Without) {
        let (now, request) = (self.now, next.map(|ask| self.request(&ask)));
        self.flights[node] = request.map(|request| Flight { round, started, asked: now, request, reply: None });
        if matches!(&self.flights[node], Some(Flight { request: Request::Read, .. })) {
            let reply = self.carry_out(node, &Request::Read, without);
            return self.receive(node, reply, without);
        }
        if self.flights[node].is_none() && round == Round::Heartbeat {
            self.electors[node].plan(moment(started), moment(now), 0.0);
        }
    }

    fn receive(&mut self, node: Node, reply: Served, without: Without) {
        let Some(Flight { round, started, asked, request, .. }) = self.flights[node].take() else { return };
        let lease = |(holder, epoch, remaining): (Node, u64, u64)| Lease {
            holder: name(holder),
            epoch: Epoch(epoch),
            remaining: Duration::from_secs(remaining),
            is_foreign: false,
        };
        let reply = match (&request, reply) {
            (Request::Read, Served::Nothing) => Reply::Read(None),
            (Request::Read, Served::Lease(holder, epoch, remaining)) => {
                Reply::Read(Some(lease((holder, epoch, remaining))))
            }
            (_, Served::Lease(holder, epoch, remaining)) => Reply::Granted(lease((holder, epoch, remaining))),
            (_, Served::Refused) => Reply::Refused,
            (_, Served::Done) => Reply::Done,
            (_, Served::Failed | Served::Nothing) => Reply::Failed,
        };
        self.shown |= match (&request, &reply) {
            (Request::Renew { .. }, Reply::Refused) => shown::RENEWAL_REFUSED,
            (Request::Seal { .. }, Reply::Failed) => shown::SEAL_REFUSED,
            _ => 0,
        };
        let was_unsure = self.electors[node].unsure_above.is_some() && request == Request::Read;
        let asked = if without == Without::TheAnchor { self.now } else { asked };
        let next = self.electors[node].on_reply(reply, moment(asked), time(self.now));
        if was_unsure && matches!(next, Some(Ask::Resign { .. })) {
            self.shown |= shown::RESIGNED_UNREAD;
        }
        self.go_on(node, round, started, next, without);
    }

    /// Nobody waits for the request of a node any more.
    fn abandon(&mut self, node: Node) {
        if let Some(Flight { request, reply: None, .. }) = &self.flights[node] {
            self.strays.insert((node, request.clone()));
        }
    }

    fn step(&mut self, action: Action, without: Without) {
        match action {
            Action::Pass => {
                let led: Vec<bool> = (0..self.electors.len()).map(|node| self.acts_on(node).is_some()).collect();
                self.now += 1;
                let is_over = |node: Node| led[node] && self.acts_on(node).is_none();
                self.shown |= if (0..led.len()).any(is_over) { shown::EXPIRED } else { 0 };
            }
            Action::Begin(node) => {
                let (_, round) = self.electors[node].due(moment(self.now));
                let first = self.electors[node].begin(round, time(self.now));
                self.go_on(node, round, self.now, first, without);
            }
            Action::Serve(node) => {
                let Some(Flight { request, .. }) = self.flights[node].clone() else { return };
                let reply = self.carry_out(node, &request, without);
                self.flights[node].iter_mut().for_each(|flight| flight.reply = Some(reply));
            }
            Action::Receive(node) => {
                let reply = self.flights[node].as_ref().and_then(|flight| flight.reply);
                self.receive(node, reply.unwrap_or(Served::Failed), without);
            }
            Action::GiveUp(node) => {
                self.losses -= 1;
                self.abandon(node);
                self.receive(node, Served::Failed, without);
            }
            Action::Stray(node, request) => {
                self.strays.remove(&(node, request.clone()));
                self.carry_out(node, &request, without);
            }
            Action::Resign(node) => {
                self.resignations -= 1;
                let asks = self.electors[node].step_down(time(self.now));
                let requests: Vec<Request> = asks.iter().map(|ask| self.request(ask)).collect();
                self.strays.extend(requests.into_iter().map(|request| (node, request)));
            }
            Action::Crash(node) => {
                self.crashes -= 1;
                self.abandon(node);
                self.flights[node] = None;
                self.lives[node] += 1;
                self.electors[node] = elector(node, self.now, without);
            }
            Action::Write(node) => self.writes.extend(self.acts_on(node).map(|epoch| (node, epoch))),
            Action::Commit(node, epoch) => {
                self.writes.remove(&(node, epoch));
                self.shown |= match epoch == self.sealed || without == Without::TheFence {
                    true if epoch < self.sealed => shown::ACCEPTED,
                    true => shown::WRITTEN,
                    false => shown::FENCED,
                };
            }
            Action::Forget => {
                self.forgets -= 1;
                (self.lease, self.highest) = (None, 0);
            }
        }
        for node in 0..self.electors.len() {
            self.acted.extend(self.acts_on(node).map(|epoch| (epoch, node, self.lives[node])));
        }
    }
}

impl Model for Election {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            electors: (0..self.nodes).map(|node| elector(node, 0, self.without)).collect(),
            lives: vec![0; self.nodes],
            flights: (0..self.nodes).map(|_| None).collect(),
            strays: BTreeSet::new(),
            lease: None,
            highest: 0,
            sealed: 0,
            acted: BTreeSet::new(),
            writes: BTreeSet::new(),
            losses: self.losses,
            crashes: self.crashes,
            resignations: self.resignations,
            forgets: self.forgets,
            shown: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((state.now < self.until).then_some(Action::Pass));
        for node in 0..self.nodes {
            match &state.flights[node] {
                None => {
                    let (due, _) = state.electors[node].due(moment(state.now));
                    actions.extend((due <= moment(state.now)).then_some(Action::Begin(node)));
                    let resigns = state.resignations > 0 && state.acts_on(node).is_some();
                    actions.extend(resigns.then_some(Action::Resign(node)));
                }
                Some(flight) => {
                    let is_served = flight.reply.is_some();
                    actions.push(if is_served { Action::Receive(node) } else { Action::Serve(node) });
                    actions.extend((state.losses > 0).then_some(Action::GiveUp(node)));
                }
            }
            actions.extend((state.crashes > 0).then_some(Action::Crash(node)));
            let can_write = state.acts_on(node).is_some_and(|epoch| !state.writes.contains(&(node, epoch)));
            actions.extend(can_write.then_some(Action::Write(node)));
        }
        actions.extend(state.strays.iter().map(|(node, request)| Action::Stray(*node, request.clone())));
        actions.extend(state.writes.iter().map(|(node, epoch)| Action::Commit(*node, *epoch)));
        actions.extend((state.forgets > 0).then_some(Action::Forget));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.shown = 0;
        state.step(action, self.without);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_HOLDER, |_, state| {
                state.acted.iter().zip(state.acted.iter().skip(1)).all(|(one, next)| one.0 != next.0)
            }),
            Property::<Self>::always(FENCED, |_, state| state.shown & shown::ACCEPTED == 0),
            Property::<Self>::always(SEALED, |_, state| {
                (0..state.electors.len()).all(|node| state.acts_on(node).is_none_or(|epoch| epoch <= state.sealed))
            }),
            // A backend that forgets lets another in: then only the fence keeps the former leader out.
            Property::<Self>::always(ONE_LEADER, |model, state| {
                let leaders = (0..state.electors.len()).filter(|node| state.acts_on(*node).is_some());
                state.forgets < model.forgets || leaders.count() <= 1
            }),
            Property::<Self>::sometimes("a leader writes", |_, state| state.shown & shown::WRITTEN != 0),
            Property::<Self>::sometimes("a second node leads", |_, state| {
                state.acted.iter().any(|(_, node, _)| *node != state.acted.first().map_or(*node, |first| first.1))
            }),
            Property::<Self>::sometimes("the write of a former leader is refused", |_, state| {
                state.shown & shown::FENCED != 0
            }),
            Property::<Self>::sometimes("a term ends by the clock of its holder", |_, state| {
                state.shown & shown::EXPIRED != 0
            }),
        ];
        if self.losses > 0 {
            properties.push(Property::<Self>::sometimes("a term without a reply is resigned", |_, state| {
                state.shown & shown::RESIGNED_UNREAD != 0
            }));
        }
        if self.forgets > 0 {
            properties.push(Property::<Self>::sometimes("a seal is refused", |_, state| {
                state.shown & shown::SEAL_REFUSED != 0
            }));
            properties.push(Property::<Self>::sometimes("a renewal is refused", |_, state| {
                state.shown & shown::RENEWAL_REFUSED != 0
            }));
        }
        properties
    }
}
