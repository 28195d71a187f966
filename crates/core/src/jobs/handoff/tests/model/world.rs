//! The nodes, the store and the bus of the model.

use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use uuid::Uuid;

use super::super::super::*;
use super::{Node, Run, Without};
use crate::ids::{ExecutionId, JobType, QueueName};
use crate::jobs::lifecycle::Status;
use crate::jobs::retry::RetryPolicy;
use crate::jobs::run::{Claim, Outcome as RunOutcome, RunReport};
use crate::jobs::run_log::RunLog;
use crate::jobs::run_state::{Effect, RunState, Source};
use crate::ports::store::{Handover, Reassigned};
use crate::tests::model;

/// The node that drains.
pub const DRAINING: Node = 0;

/// What the last step showed.
pub mod shown {
    pub const CASE_A: u16 = 1;
    pub const CASE_B: u16 = 1 << 1;
    pub const CASE_C: u16 = 1 << 2;
    pub const CASE_D: u16 = 1 << 3;
    pub const LATE: u16 = 1 << 4;
    pub const SECOND: u16 = 1 << 5;
    pub const REFUSED: u16 = 1 << 6;
    pub const ADOPTED: u16 = 1 << 7;
    /// A run was released that nobody else has.
    pub const DROPPED: u16 = 1 << 8;
    /// A report was recorded for a node that is not the owner.
    pub const FOREIGN: u16 = 1 << 9;
}

#[derive(Clone)]
pub struct State {
    pub now: u64,
    pub drain: Drain,
    pub exit: Option<bool>,
    /// Runs that the draining node has left as orphans.
    pub orphans: BTreeSet<Run>,
    /// The store.
    pub rows: Vec<RunState>,
    /// The runs whose channels each node reads.
    pub reads: Vec<BTreeSet<Run>>,
    pub alive: Vec<bool>,
    /// Whether the draining node believes that another is alive.
    pub believes: bool,
    /// Entries of `job.handoff`: the run, and the owner that the offer names.
    pub offers: BTreeSet<(Run, Node)>,
    /// The entry that each node works on, the owner that it will name, and whether it took the run.
    pub taking: Vec<Option<Taking>>,
    /// Acknowledgements that were sent. They can be delivered at any time, any number of times.
    pub acks: BTreeSet<(Run, Node)>,
    /// Runs whose worker has reported the end on their channel.
    pub ended: BTreeSet<Run>,
    pub recorded: Vec<u8>,
    pub crashes: u8,
    pub doubts: u8,
    pub shown: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taking {
    pub run: Run,
    pub from: Node,
    pub owner: Node,
    pub took: bool,
}

impl Hash for Drain {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Drain {
            settings: _,
            open,
            deadlines,
            others_alive,
            orphans,
            orphans_until,
            hard_deadline: _,
            gone,
            outcomes: _,
        } = self;
        for (job, Open { run: _, tries, deadline, orphan, met_silence }) in open {
            (job, tries, deadline, orphan, met_silence).hash(hasher);
        }
        (deadlines, others_alive, orphans, orphans_until, gone).hash(hasher);
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for row in &self.rows {
            (row.status.is_in_flight(), &row.owner, std::mem::discriminant(&row.ownership)).hash(hasher);
        }
        (self.now, &self.drain, self.exit, &self.orphans, &self.reads, &self.alive, self.believes).hash(hasher);
        (&self.offers, &self.taking, &self.acks, &self.ended, &self.recorded).hash(hasher);
        (self.crashes, self.doubts, self.shown).hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        model::digest(self) == model::digest(other)
    }
}

pub fn name(node: Node) -> NodeId {
    NodeId::new(format!("n{node}")).expect("a name")
}

pub fn run_ref(run: Run) -> RunRef {
    RunRef {
        job_id: JobId(Uuid::from_u128(run as u128)),
        execution_id: ExecutionId(Uuid::from_u128(100 + run as u128)),
    }
}

pub fn number(run: RunRef) -> Run {
    run.job_id.0.as_u128() as Run
}

pub fn row(run: Run) -> RunState {
    let at = Timestamp::UNIX_EPOCH;
    RunState {
        execution: Some(run_ref(run).execution_id),
        status: Status::Running,
        attempt: 1,
        attempt_base: 0,
        job_type: JobType::new("t").expect("a name"),
        queue: QueueName::new("q").expect("a name"),
        max_retries: 0,
        retry_policy: RetryPolicy::default(),
        timeout: None,
        due_at: at,
        started_at: Some(at),
        deadline: None,
        worker: None,
        owner: Some(name(DRAINING)),
        ownership: Ownership::HandingOff,
        progress: None,
        by_channel: true,
        has_history: false,
        log: RunLog::default(),
        log_seq: 0,
    }
}

impl State {
    pub fn owner(&self, run: Run) -> Option<Node> {
        let owner = self.rows[run].owner.as_ref()?;
        (0..self.alive.len()).find(|node| name(*node) == *owner)
    }

    pub fn is_in_flight(&self, run: Run) -> bool {
        self.rows[run].is_in_flight(run_ref(run).execution_id)
    }

    pub fn is_another_alive(&self) -> bool {
        self.alive[1..].contains(&true)
    }

    /// The compare-and-set of the port.
    fn reassign(&mut self, run: Run, from: Node, to: Handover) -> Reassigned {
        if !self.is_in_flight(run) {
            return Reassigned::Over;
        }
        let row = &mut self.rows[run];
        let is_free =
            matches!(to, Handover::Take(_)) && (row.owner.is_none() || row.ownership == Ownership::OrphanPending);
        if !is_free && row.owner.as_ref() != Some(&name(from)) {
            return Reassigned::OwnedBy(row.owner.clone());
        }
        match to {
            Handover::Offer => row.ownership = Ownership::HandingOff,
            Handover::Keep => row.ownership = Ownership::Owned,
            Handover::Orphan => row.ownership = Ownership::OrphanPending,
            Handover::Take(node) => (row.owner, row.ownership) = (Some(node), Ownership::Owned),
        }
        Reassigned::Done
    }

    /// One step of the draining node.
    pub fn drain(&mut self, event: Event, without: Without) {
        let now = Duration::from_secs(self.now);
        let mut commands = self.drain.on(event, now);
        loop {
            self.carry_out(commands, without);
            // Ended, or taken meanwhile.
            let over = self.drain.open().find(|run| !self.reads[DRAINING].contains(&number(*run)));
            let Some(over) = over.filter(|_| self.exit.is_none()) else { break };
            commands = self.drain.on(Event::JobEnded(over.job_id), now);
        }
    }

    pub fn carry_out(&mut self, commands: Vec<Command>, without: Without) {
        for outcome in self.drain.take_outcomes() {
            let was_orphan = self.orphans.contains(&number(outcome.run));
            self.shown |= match outcome.case {
                _ if was_orphan => shown::LATE,
                AckCase::Acknowledged => shown::CASE_A,
                AckCase::OfferedAgain => shown::CASE_B,
                AckCase::NeverAcknowledged => shown::CASE_C,
                AckCase::OthersSilent => shown::CASE_D,
            };
        }
        for command in commands {
            match command {
                Command::Publish { run, .. } => drop(self.offers.insert((number(run), DRAINING))),
                Command::Release(run) => {
                    let run = number(run);
                    self.orphans.remove(&run);
                    self.reads[DRAINING].remove(&run);
                    if self.is_in_flight(run) && self.owner(run) == Some(DRAINING) {
                        self.shown |= shown::DROPPED;
                    }
                }
                Command::MarkOrphan(_) if without == Without::TheMark => {}
                Command::MarkOrphan(run) => match self.reassign(number(run), DRAINING, Handover::Orphan) {
                    Reassigned::Done => drop(self.orphans.insert(number(run))),
                    _ => drop(self.reads[DRAINING].remove(&number(run))),
                },
                Command::Exit { clean } => {
                    self.exit = Some(clean || self.orphans.is_empty() && without != Without::TheMark);
                    self.alive[DRAINING] = false;
                    self.reads[DRAINING].clear();
                }
            }
        }
    }

    /// A node reads an entry and takes the run.
    pub fn read(&mut self, node: Node, (run, from): (Run, Node), without: Without) {
        if without == Without::TakingFirst {
            self.acks.insert((run, node));
        }
        let mut taking = Taking { run, from, owner: node, took: false };
        if without != Without::TakingFirst {
            self.take(node, &mut taking);
        }
        self.taking[node] = Some(taking);
    }

    fn take(&mut self, node: Node, taking: &mut Taking) {
        let Taking { run, from, .. } = *taking;
        let was_orphan = self.rows[run].ownership == Ownership::OrphanPending;
        match self.reassign(run, from, Handover::Take(name(node))) {
            Reassigned::Done => {
                taking.took = true;
                self.shown |= if was_orphan { shown::ADOPTED } else { 0 };
            }
            Reassigned::OwnedBy(Some(_)) => {
                taking.owner = self.owner(run).unwrap_or(node);
                taking.took = taking.owner == node && !self.reads[node].contains(&run);
                self.shown |= if taking.owner == node { 0 } else { shown::SECOND };
            }
            Reassigned::OwnedBy(None) | Reassigned::Over => {}
        }
    }

    /// The node reads the channels of what it took, then acknowledges to the former owner and to the queue.
    pub fn finish(&mut self, node: Node, without: Without) {
        let Some(mut taking) = self.taking[node].take() else { return };
        if without == Without::TakingFirst {
            self.take(node, &mut taking);
        }
        if taking.took {
            self.reads[node].insert(taking.run);
        }
        if taking.from == DRAINING {
            self.acks.insert((taking.run, taking.owner));
        }
        self.offers.remove(&(taking.run, taking.from));
    }

    /// A node records the end of a run that it read from the run's channel.
    pub fn record(&mut self, node: Node, run: Run, without: Without) {
        let RunRef { job_id, execution_id } = run_ref(run);
        let end = RunOutcome::Completed { result: None };
        let mut report = RunReport::of(job_id, execution_id).ended(Timestamp::UNIX_EPOCH, end, 0.0);
        report.owner = (without != Without::TheOwner).then(|| Claim::IfFree(name(node)));
        let owner = self.owner(run);
        match self.rows[run].apply(&report, Source::Run, None) {
            Effect::Applied(_) => {
                self.recorded[run] += 1;
                self.shown |= if owner == Some(node) { 0 } else { shown::FOREIGN };
            }
            Effect::NotOwner => self.shown |= shown::REFUSED,
            Effect::Duplicate | Effect::Stale => {}
        }
        self.reads[node].remove(&run);
    }
}
