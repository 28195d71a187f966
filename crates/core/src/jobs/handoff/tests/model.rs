//! A drain beside other nodes, in every order of events: acknowledgements are late, lost and repeated, the other nodes
//! crash, return and seem to be silent, the run ends at any time, and the leader offers what has no owner.
//!
//! The draining node is node 0 and is a [`Drain`]; the store's rows are [`RunState`]s, to which reports are applied. The model
//! adds what surrounds them: the compare-and-set of an owner, the queue of offers, and the topic of acknowledgements.

use stateright::{Model, Property};

use super::super::*;
use crate::tests::model;
use world::{DRAINING, State, name, row, run_ref, shown};

mod world;

type Node = usize;
type Run = usize;

/// A rule that the model lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A node acknowledges an offer before it has taken the run.
    TakingFirst,
    /// A node that returns does not read what it owned before.
    TheRecovery,
    /// Reports are recorded whoever owns the run.
    TheOwner,
    /// A drain that ends marks nothing.
    TheMark,
}

struct Handoff {
    runs: usize,
    others: usize,
    /// When the time of the model ends, in seconds.
    until: u64,
    crashes: u8,
    /// How often other nodes seem to be silent that are not.
    doubts: u8,
    without: Without,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Pass,
    Wake,
    Acknowledge(Run, Node),
    Believe(bool),
    Read(Node, (Run, Node)),
    Finish(Node),
    Crash(Node),
    Return(Node),
    End(Run),
    Record(Node, Run),
    Offer(Run),
}

impl Model for Handoff {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let second = Duration::from_secs(1);
        let settings = ClusterSettings {
            handoff_ack_timeout: second,
            handoff_max_retries: 1,
            handoff_orphan_wait: second,
            handoff_hard_timeout: second * (self.until as u32 - 1),
            ..ClusterSettings::default()
        };
        let (drain, commands) = Drain::new((0..self.runs).map(run_ref).collect(), settings, true, Duration::ZERO);
        let nodes = self.others + 1;
        let mut state = State {
            now: 0,
            drain,
            exit: None,
            orphans: BTreeSet::new(),
            rows: (0..self.runs).map(row).collect(),
            reads: vec![BTreeSet::new(); nodes],
            alive: vec![true; nodes],
            believes: true,
            offers: BTreeSet::new(),
            taking: vec![None; nodes],
            acks: BTreeSet::new(),
            ended: BTreeSet::new(),
            recorded: vec![0; self.runs],
            crashes: self.crashes,
            doubts: self.doubts,
            shown: 0,
        };
        state.reads[DRAINING] = (0..self.runs).collect();
        state.carry_out(commands, self.without);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.until {
            actions.push(Action::Pass);
        }
        if state.exit.is_none() {
            let is_due = state.drain.next_wake().is_some_and(|at| at <= Duration::from_secs(state.now));
            actions.extend(is_due.then_some(Action::Wake));
            actions.extend(state.acks.iter().map(|(run, owner)| Action::Acknowledge(*run, *owner)));
            let seems_silent = state.believes && (!state.is_another_alive() || state.doubts > 0);
            actions.extend(seems_silent.then_some(Action::Believe(false)));
            actions.extend((!state.believes && state.is_another_alive()).then_some(Action::Believe(true)));
        }
        for node in 1..=self.others {
            if !state.alive[node] {
                actions.push(Action::Return(node));
                continue;
            }
            match state.taking[node] {
                Some(_) => actions.push(Action::Finish(node)),
                None => actions.extend(state.offers.iter().map(|entry| Action::Read(node, *entry))),
            }
            actions.extend((state.crashes > 0).then_some(Action::Crash(node)));
        }
        for run in 0..self.runs {
            if !state.ended.contains(&run) {
                actions.push(Action::End(run));
            }
            let readers = (0..=self.others).filter(|node| state.alive[*node] && state.reads[*node].contains(&run));
            actions.extend(readers.filter(|_| state.ended.contains(&run)).map(|node| Action::Record(node, run)));
            let Some(owner) = state.owner(run).filter(|_| state.is_in_flight(run)) else { continue };
            let has_none = state.rows[run].ownership == Ownership::OrphanPending || !state.alive[owner];
            let is_offered = state.offers.contains(&(run, owner));
            actions.extend((has_none && !is_offered).then_some(Action::Offer(run)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.shown = 0;
        match action {
            Action::Pass => state.now += 1,
            Action::Wake => state.drain(Event::Tick, self.without),
            Action::Acknowledge(run, owner) => {
                state.drain(Event::Ack { job: run_ref(run).job_id, new_owner: name(owner) }, self.without);
            }
            Action::Believe(alive) => {
                state.doubts -= u8::from(!alive && state.is_another_alive());
                state.believes = alive;
                state.drain(Event::OthersAlive(alive), self.without);
            }
            Action::Read(node, entry) => state.read(node, entry, self.without),
            Action::Finish(node) => state.finish(node, self.without),
            Action::Crash(node) => {
                state.crashes -= 1;
                state.alive[node] = false;
                (state.taking[node], state.reads[node]) = (None, BTreeSet::new());
            }
            Action::Return(node) => {
                state.alive[node] = true;
                let recovers = self.without != Without::TheRecovery;
                let is_its_own = |run: &Run| recovers && state.is_in_flight(*run) && state.owner(*run) == Some(node);
                state.reads[node] = (0..self.runs).filter(is_its_own).collect();
            }
            Action::End(run) => drop(state.ended.insert(run)),
            Action::Record(node, run) => {
                state.record(node, run, self.without);
                if node == DRAINING {
                    state.drain(Event::JobEnded(run_ref(run).job_id), self.without);
                }
            }
            Action::Offer(run) => {
                let owner = state.owner(run)?;
                state.offers.insert((run, owner));
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn runs(state: &State) -> impl Iterator<Item = Run> {
            (0..state.rows.len()).filter(|run| state.is_in_flight(*run))
        }
        let mut properties = vec![
            Property::<Self>::always(RELEASED, |_, state| state.shown & shown::DROPPED == 0),
            Property::<Self>::always(RECORDED, |_, state| state.shown & shown::FOREIGN == 0),
            Property::<Self>::always("an end is recorded once", |_, state| {
                state.recorded.iter().all(|ends| *ends <= 1)
            }),
            Property::<Self>::always(KEPT, |_, state| {
                let is_kept =
                    |run| state.owner(run) != Some(DRAINING) || state.rows[run].ownership == Ownership::OrphanPending;
                state.exit.is_none() || runs(state).all(is_kept)
            }),
            Property::<Self>::always("a clean exit leaves nothing", |_, state| {
                state.exit != Some(true) || runs(state).all(|run| state.owner(run) != Some(DRAINING))
            }),
            Property::<Self>::always(READ, |_, state| {
                runs(state).all(|run| match state.owner(run) {
                    Some(owner) if owner != DRAINING && state.alive[owner] => {
                        let is_coming = state.offers.iter().any(|(offered, _)| *offered == run);
                        state.reads[owner].contains(&run) || is_coming || state.taking[owner].is_some()
                    }
                    _ => true,
                })
            }),
            Property::<Self>::always("a drain whose time is up can exit", |model, state| {
                let is_over = state.now >= model.until - 1;
                let can_exit = state.drain.next_wake().is_some_and(|at| at <= Duration::from_secs(state.now));
                !is_over || state.exit.is_some() || can_exit
            }),
            Property::<Self>::sometimes("case A", |_, state| state.shown & shown::CASE_A != 0),
            Property::<Self>::sometimes("case B", |_, state| state.shown & shown::CASE_B != 0),
            Property::<Self>::sometimes("case C", |_, state| state.shown & shown::CASE_C != 0),
            Property::<Self>::sometimes("case D", |_, state| state.shown & shown::CASE_D != 0),
            Property::<Self>::sometimes("an orphan is acknowledged late", |_, state| state.shown & shown::LATE != 0),
            Property::<Self>::sometimes("a former owner is refused", |_, state| state.shown & shown::REFUSED != 0),
            Property::<Self>::sometimes("an orphan is taken", |_, state| state.shown & shown::ADOPTED != 0),
            Property::<Self>::sometimes("a clean exit", |_, state| state.exit == Some(true)),
            Property::<Self>::sometimes("an exit that leaves orphans", |_, state| state.exit == Some(false)),
        ];
        if self.others > 1 {
            properties.push(Property::<Self>::sometimes("an offer finds another owner", |_, state| {
                state.shown & shown::SECOND != 0
            }));
        }
        properties
    }
}

const RELEASED: &str = "a run that is released has another owner";
const RECORDED: &str = "a report is recorded for the owner only";
const KEPT: &str = "after the exit each run has another owner or is an orphan";
const READ: &str = "an owner that is alive reads the channels of its runs";

fn small(without: Without) -> Handoff {
    Handoff { runs: 1, others: 2, until: 4, crashes: 1, doubts: 1, without }
}

#[test]
fn model_of_the_handoff_each_run_has_one_keeper_in_every_order_of_events() {
    model::holds("handoff", "1 run, 3 nodes, 4 s", small(Without::Nothing));
}

#[test]
fn model_of_the_handoff_needs_each_of_its_rules() {
    for (lacks, without, property) in [
        ("taking a run before it is acknowledged", Without::TakingFirst, RELEASED),
        ("the recovery of a node that returns", Without::TheRecovery, READ),
        ("the owner in reports", Without::TheOwner, RECORDED),
        ("the mark of an orphan", Without::TheMark, KEPT),
    ] {
        model::fails("handoff", lacks, small(without), property);
    }
}
