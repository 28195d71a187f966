//! A shard that moves between two workers, in every order of events: messages are late, lost, repeated and overtake each
//! other, workers pause and crash, their applications stop when they like, and the coordinator crashes and is followed by
//! another.
//!
//! The worker `w1` holds the only shard, and the worker `w0` joins, to which the strategy gives it. Both are [`Worker`]s, and
//! the coordinator is a [`Coordinator`]; the messages between them are the bytes of the protocol.

use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

use super::super::*;
use crate::ids::Epoch;
use crate::shards::worker::{Profile, Worker};
use crate::shards::{Shard, wire};
use crate::tests::model;

type Place = usize;

/// A rule that the model lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A revoked shard counts as released at once.
    TheRelease,
    /// A later coordinator does not wait for the workers of its predecessor.
    TheWait,
    /// The application of a worker without certainty goes on, and counts.
    TheCertainty,
}

struct Move {
    /// For how many seconds after the second worker has joined.
    seconds: u64,
    /// How many seconds a message can take. Later it is lost.
    delay: u64,
    /// Messages that are delivered twice.
    repeats: u8,
    crashes: u8,
    takeovers: u8,
    without: Without,
}

#[derive(Clone)]
struct State {
    now: u64,
    ends_at: u64,
    epoch: u64,
    coordinator: Option<(Coordinator, u64)>,
    processes: [Option<Process>; 2],
    /// Messages on their way, with the second in which they were sent.
    to_coordinator: BTreeSet<(u64, Place, Bytes)>,
    to_workers: BTreeSet<(u64, Place, Bytes)>,
    /// The worker that was granted a shard under a version.
    grants: BTreeMap<(Version, Shard), Place>,
    repeats: u8,
    crashes: u8,
    takeovers: u8,
    shown: u8,
}

#[derive(Clone, Hash)]
struct Process {
    worker: Worker,
    /// The shards that remain once the application has applied the last change.
    applying: Option<Vec<Shard>>,
    works_on: BTreeSet<Shard>,
    /// The shards that it worked on when its certainty ended: they may have another owner from then on.
    expired: BTreeSet<Shard>,
}

/// What the last step showed.
mod shown {
    pub const TWO_GRANTS: u8 = 1;
    pub const REVOKED: u8 = 1 << 1;
    pub const RELEASED: u8 = 1 << 2;
    pub const DIED: u8 = 1 << 3;
    pub const ADOPTED: u8 = 1 << 4;
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Pass,
    /// The worker does what is due.
    Step(Place),
    /// The application has applied the last change.
    Apply(Place),
    Tick,
    ToCoordinator(usize, bool),
    ToWorker(usize, bool),
    Crash(Place),
    CrashCoordinator,
    Lead,
}

impl Hash for Coordinator {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Coordinator {
            settings: _,
            takes_over,
            first,
            floor,
            services,
            dirty,
            roster,
            awaited,
            awaited_count: _,
            workers: _,
            shards: _,
            next_check,
            is_exhausted: _,
        } = self;
        (takes_over, first, floor, services, dirty, roster, awaited, next_check).hash(hasher);
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.now, self.epoch, &self.coordinator, &self.processes, &self.to_coordinator).hash(hasher);
        (&self.to_workers, &self.grants, self.repeats, self.crashes, self.takeovers, self.shown).hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        model::digest(self) == model::digest(other)
    }
}

const SHARD: Shard = 0;

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

fn service() -> ServiceName {
    ServiceName::new("s").expect("a name")
}

fn worker_id(place: Place) -> WorkerId {
    WorkerId::new(format!("w{place}")).expect("a name")
}

fn peer(place: Place) -> Peer {
    Peer(Bytes::from(vec![place as u8]))
}

impl State {
    /// The worker `w1` holds the shard, and `w0` has just begun.
    fn new(model: &Move) -> State {
        let mut state = State {
            now: 0,
            ends_at: 0,
            epoch: 0,
            coordinator: None,
            processes: [None, None],
            to_coordinator: BTreeSet::new(),
            to_workers: BTreeSet::new(),
            grants: BTreeMap::new(),
            repeats: model.repeats,
            crashes: model.crashes,
            takeovers: model.takeovers,
            shown: 0,
        };
        state.lead(Start::Fresh);
        state.spawn(1);
        state.run_healed(3, model.without);
        assert!(state.owns(1), "the worker has the shard");
        state.spawn(0);
        (state.ends_at, state.shown) = (state.now + model.seconds, 0);
        state
    }

    fn lead(&mut self, start: Start) {
        self.epoch += 1;
        let settings = Settings {
            heartbeat_timeout: at(2),
            check_interval: at(1),
            settle: Duration::ZERO,
            settle_max: Duration::ZERO,
            ..Settings::default()
        };
        let coordinator = Coordinator::new(settings, start, Version::of_term(Epoch(self.epoch)));
        self.coordinator = Some((coordinator, self.now));
    }

    fn spawn(&mut self, place: Place) {
        let profile = Profile {
            service: service(),
            worker: worker_id(place),
            max_shards: 1,
            handoff: true,
            heartbeat_interval: Some(at(1)),
        };
        let worker = Worker::new(profile, (place as u64 + 1) << 32, at(self.now));
        let (works_on, expired) = (BTreeSet::new(), BTreeSet::new());
        self.processes[place] = Some(Process { worker, applying: None, works_on, expired });
    }

    fn owns(&self, place: Place) -> bool {
        self.processes[place].as_ref().is_some_and(|process| process.worker.owns(SHARD, at(self.now)))
    }

    /// Delivers everything at once for some seconds.
    fn run_healed(&mut self, seconds: u64, without: Without) {
        for _ in 0..seconds * 2 {
            for round in 0..4 {
                for place in [0, 1] {
                    self.step(place);
                    self.apply(place);
                }
                while !self.to_coordinator.is_empty() {
                    self.deliver_to_coordinator(0, false, without);
                }
                self.tick(without);
                while !self.to_workers.is_empty() {
                    self.deliver_to_worker(0, false);
                }
                self.now += u64::from(round == 3);
            }
        }
    }

    /// Puts what a worker sends on its way, and tells its application of a change.
    fn after(&mut self, place: Place, outgoing: Vec<Message>) {
        let now = self.now;
        self.to_coordinator.extend(outgoing.iter().map(|message| (now, place, message.encode())));
        let Some(process) = &mut self.processes[place] else { return };
        if process.applying.is_none()
            && let Some(change) = process.worker.change(at(now))
        {
            // It begins at once, and takes time to stop.
            process.works_on.extend(&change.shards);
            process.applying = Some(change.shards);
        }
    }

    fn step(&mut self, place: Place) {
        let Some(process) = &mut self.processes[place] else { return };
        let mut outgoing = Vec::new();
        process.worker.tick(at(self.now), &mut outgoing);
        self.after(place, outgoing);
    }

    fn apply(&mut self, place: Place) {
        let Some(process) = &mut self.processes[place] else { return };
        let Some(shards) = process.applying.take() else { return };
        process.works_on = shards.into_iter().collect();
        let mut outgoing = Vec::new();
        process.worker.acknowledge(&mut outgoing);
        if outgoing.iter().any(|message| matches!(message, Message::Released(_))) {
            self.shown |= shown::RELEASED;
        }
        self.after(place, outgoing);
    }

    fn deliver_to_worker(&mut self, index: usize, stays: bool) {
        let Some(entry) = self.to_workers.iter().nth(index).cloned() else { return };
        if !stays {
            self.to_workers.remove(&entry);
        }
        let (_, place, text) = entry;
        let Some(process) = &mut self.processes[place] else { return };
        let mut outgoing = Vec::new();
        let message = wire::answer(&[text]).expect("it can be read");
        process.worker.on_message(message, at(self.now), &mut outgoing);
        self.after(place, outgoing);
    }

    fn deliver_to_coordinator(&mut self, index: usize, stays: bool, without: Without) {
        let Some(entry) = self.to_coordinator.iter().nth(index).cloned() else { return };
        if !stays {
            self.to_coordinator.remove(&entry);
        }
        let (_, place, text) = entry;
        let message = wire::message(&[text]).expect("it can be read");
        let Some((coordinator, began)) = &mut self.coordinator else { return };
        let mut output = Output::default();
        coordinator.on_message(&peer(place), message, at(self.now - *began), &mut output);
        self.send(output, without);
    }

    fn tick(&mut self, without: Without) {
        let Some((coordinator, began)) = &mut self.coordinator else { return };
        let mut output = Output::default();
        coordinator.tick(at(self.now - *began), &mut output);
        self.send(output, without);
    }

    fn send(&mut self, output: Output, without: Without) {
        if output.events.iter().any(|event| matches!(event, ShardEvent::Dead { .. })) {
            self.shown |= shown::DIED;
        }
        for (to, text) in output.sends {
            let place = Place::from(to.0[0]);
            match wire::answer(std::slice::from_ref(&text)).expect("it can be read") {
                CoordinatorMessage::Assignment(Assignment { assigned_shards, version, .. }) => {
                    for shard in assigned_shards {
                        let holder = *self.grants.entry((version, shard)).or_insert(place);
                        self.shown |= if holder == place { 0 } else { shown::TWO_GRANTS };
                        self.shown |= if self.epoch > 1 { shown::ADOPTED } else { 0 };
                    }
                }
                CoordinatorMessage::Revoke(revoke) => {
                    self.shown |= shown::REVOKED;
                    if without == Without::TheRelease {
                        let (service_name, worker_id) = (service(), worker_id(place));
                        let released =
                            Released { service_name, worker_id, shards: revoke.shards, version: revoke.version };
                        self.to_coordinator.insert((self.now, place, Message::Released(released).encode()));
                    }
                }
                CoordinatorMessage::Error(_) => {}
            }
            self.to_workers.insert((self.now, place, text));
        }
    }

    /// Records which shards a worker works on without certainty.
    fn expire(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            if !process.worker.is_certain(at(self.now)) {
                process.expired.clone_from(&process.works_on);
            }
            let works_on = &process.works_on;
            process.expired.retain(|shard| works_on.contains(shard));
        }
    }

    /// Returns how many workers work on the shard and are certain of it.
    fn at_work(&self, without: Without) -> usize {
        let counts = |process: &&Process| without == Without::TheCertainty || !process.expired.contains(&SHARD);
        let at_work = self.processes.iter().flatten().filter(|process| process.works_on.contains(&SHARD));
        at_work.filter(counts).count()
    }

    /// Returns whether the shard has an owner some time after all faults have ended.
    fn recovers(&self, without: Without) -> bool {
        let mut state = self.clone();
        if state.coordinator.is_none() {
            state.lead(Start::Takeover);
        }
        state.run_healed(8, without);
        state.processes.iter().all(Option::is_none) || state.owns(0) != state.owns(1)
    }
}

impl Model for Move {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((state.now < state.ends_at).then_some(Action::Pass));
        for (place, process) in state.processes.iter().enumerate() {
            let Some(process) = process else { continue };
            let is_due = process.worker.next_deadline(at(state.now)) <= at(state.now);
            let has_change = process.applying.is_none() && process.worker.clone().change(at(state.now)).is_some();
            actions.extend((is_due || has_change).then_some(Action::Step(place)));
            actions.extend(process.applying.is_some().then_some(Action::Apply(place)));
            actions.extend((state.crashes > 0).then_some(Action::Crash(place)));
        }
        match &state.coordinator {
            Some((coordinator, began)) => {
                actions.extend((coordinator.next_deadline() <= at(state.now - began)).then_some(Action::Tick));
                actions.extend((state.takeovers > 0).then_some(Action::CrashCoordinator));
                for index in 0..state.to_coordinator.len() {
                    actions.push(Action::ToCoordinator(index, false));
                    actions.extend((state.repeats > 0).then_some(Action::ToCoordinator(index, true)));
                }
            }
            None => actions.push(Action::Lead),
        }
        for index in 0..state.to_workers.len() {
            actions.push(Action::ToWorker(index, false));
            actions.extend((state.repeats > 0).then_some(Action::ToWorker(index, true)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.shown = 0;
        match action {
            Action::Pass => {
                state.now += 1;
                let is_alive = |sent: u64| sent + self.delay > last.now;
                state.to_coordinator.retain(|(sent, ..)| is_alive(*sent));
                state.to_workers.retain(|(sent, ..)| is_alive(*sent));
            }
            Action::Step(place) => state.step(place),
            Action::Apply(place) => state.apply(place),
            Action::Tick => state.tick(self.without),
            Action::ToCoordinator(index, stays) => {
                state.repeats -= u8::from(stays);
                state.deliver_to_coordinator(index, stays, self.without);
            }
            Action::ToWorker(index, stays) => {
                state.repeats -= u8::from(stays);
                state.deliver_to_worker(index, stays);
            }
            Action::Crash(place) => {
                state.crashes -= 1;
                state.processes[place] = None;
            }
            Action::CrashCoordinator => {
                state.takeovers -= 1;
                state.coordinator = None;
            }
            Action::Lead if self.without == Without::TheWait => state.lead(Start::Fresh),
            Action::Lead => state.lead(Start::Takeover),
        }
        state.expire();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_GRANT, |_, state| state.shown & shown::TWO_GRANTS == 0),
            Property::<Self>::always(ONE_WORKS, |model: &Move, state| state.at_work(model.without) <= 1),
            Property::<Self>::always(HAS_OWNER, |model: &Move, state| {
                let is_last = state.now == state.ends_at && state.to_coordinator.is_empty();
                !is_last || !state.to_workers.is_empty() || state.recovers(model.without)
            }),
            Property::<Self>::sometimes("a shard is revoked", |_, state| state.shown & shown::REVOKED != 0),
            Property::<Self>::sometimes("a shard is released", |_, state| state.shown & shown::RELEASED != 0),
            Property::<Self>::sometimes("a shard has moved", |_, state| state.owns(0)),
            Property::<Self>::sometimes("a shard has no worker while it moves", |_, state| {
                state.at_work(Without::Nothing) == 0
            }),
            Property::<Self>::sometimes("a worker without certainty still works", |_, state| {
                state.processes.iter().flatten().any(|process| !process.expired.is_empty())
            }),
        ];
        if self.seconds > 2 {
            properties
                .push(Property::<Self>::sometimes("a silent worker dies", |_, state| state.shown & shown::DIED != 0));
        }
        if self.takeovers > 0 {
            properties.push(Property::<Self>::sometimes("a later coordinator adopts a holder", |_, state| {
                state.shown & shown::ADOPTED != 0
            }));
        }
        properties
    }
}

const ONE_GRANT: &str = "a shard has one holder under a version";
const ONE_WORKS: &str = "one worker works on a shard";
const HAS_OWNER: &str = "a shard has one owner once all faults are over";

fn small(without: Without) -> Move {
    Move { seconds: 1, delay: 0, repeats: 0, crashes: 0, takeovers: 0, without }
}

#[test]
fn model_of_a_shard_move_one_works_on_it_in_every_order_of_events() {
    model::holds("shard move", "2 workers, 1 s", small(Without::Nothing));
}

#[test]
fn model_of_a_shard_move_needs_each_of_its_rules() {
    let long = |without| Move { seconds: 3, delay: 1, ..small(without) };
    let taken_over = Move { takeovers: 1, ..long(Without::TheWait) };
    for (lacks, model, property) in [
        ("waiting for the release", long(Without::TheRelease), ONE_WORKS),
        ("waiting for the workers of a predecessor", taken_over, ONE_WORKS),
        ("the end of certainty", long(Without::TheCertainty), ONE_WORKS),
    ] {
        model::fails("shard move", lacks, model, property);
    }
}
