//! The handoff of runs by a node that shuts down: which runs to offer again, which to mark as orphans, when to exit.
//!
//! The node offers all its runs at once. For each run there are four cases:
//!
//! | case | action |
//! | --- | --- |
//! | **A** another node acknowledges in time | the run is released |
//! | **B** no node acknowledges in time | the run is offered again, up to `handoff_max_retries` times, `handoff_ack_timeout` apart |
//! | **C** no node acknowledges any offer | the run is marked as an orphan, and the leader finds an owner. If only orphans are left, the node waits `handoff_orphan_wait` for late acknowledgements, then exits |
//! | **D** all other nodes die meanwhile | the node makes no offers and waits for a node to return, until `handoff_hard_timeout` |
//!
//! The drain never takes longer than `handoff_hard_timeout`. A node that is alone from the start exits at once. The
//! exit is *clean* if each run was acknowledged or has ended. The remaining runs are marked as orphans first; no run is
//! lost, because the store has them all.
//!
//! This module has no I/O: the caller passes the time of its monotonic clock and carries out the commands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cluster::ClusterSettings;
use super::job::Ownership;
use super::wire::RunRef;
use crate::ids::{JobId, NodeId};

/// Returns whether a node may take a run on an offer that does not name the owner, as offers of Orchestrix do not: if
/// the owner offered it, released it, or is silent for as long as a dead node.
pub const fn may_take_unnamed(ownership: Ownership, is_owner_silent: bool) -> bool {
    match ownership {
        Ownership::HandingOff | Ownership::OrphanPending | Ownership::Unowned => true,
        Ownership::Owned => is_owner_silent,
    }
}

/// Which of the four cases a handoff was. `acknowledged` (A): another node acknowledged the first offer. `offeredAgain`
/// (B): a later offer was acknowledged. `neverAcknowledged` (C): no offer was acknowledged in time, and the run was left
/// as an orphan. `othersSilent` (D): all other nodes were silent meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum AckCase {
    /// A: another node acknowledged the first offer.
    Acknowledged,
    /// B: another node acknowledged a later offer.
    OfferedAgain,
    /// C: no node acknowledged any offer in time.
    NeverAcknowledged,
    /// D: all other nodes were silent meanwhile.
    OthersSilent,
}

impl AckCase {
    /// Returns the letter of the case, as the documents have it.
    pub const fn letter(self) -> char {
        match self {
            AckCase::Acknowledged => 'A',
            AckCase::OfferedAgain => 'B',
            AckCase::NeverAcknowledged => 'C',
            AckCase::OthersSilent => 'D',
        }
    }
}

/// How the handoff of one run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The run.
    pub run: RunRef,
    /// The case. A run that was left as an orphan has an outcome then, and another if it is acknowledged after all.
    pub case: AckCase,
    /// How often the run was offered.
    pub tries: u32,
}

/// An event that the drain reacts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Another node owns the run of the job now.
    Ack {
        /// The job of the run.
        job: JobId,
        /// The node that owns it now.
        new_owner: NodeId,
    },
    /// Time has passed.
    Tick,
    /// Whether any other node is alive.
    OthersAlive(bool),
    /// The run of the job ended during the handoff.
    JobEnded(JobId),
}

/// A step that the caller carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Offer the run to all nodes.
    Publish {
        /// The run.
        run: RunRef,
        /// The number of this offer, from 1.
        tries: u32,
    },
    /// Stop reading the channels of the run: another node owns it.
    Release(RunRef),
    /// Mark the run in the store as an orphan, so that the leader finds an owner.
    MarkOrphan(RunRef),
    /// Exit. This is the last command.
    Exit {
        /// Whether each run was acknowledged or has ended.
        clean: bool,
    },
}

/// A drain in progress. Times are by one monotonic clock with any origin.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Drain {
    settings: ClusterSettings,
    /// Runs that are neither acknowledged nor ended.
    open: BTreeMap<JobId, Open>,
    /// When the wait for each acknowledgement ends, the earliest first. Empty while no other node is alive.
    deadlines: BTreeSet<(Duration, JobId)>,
    others_alive: bool,
    orphans: usize,
    orphans_until: Option<Duration>,
    hard_deadline: Duration,
    gone: bool,
    outcomes: Vec<Outcome>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Open {
    run: RunRef,
    tries: u32,
    deadline: Option<Duration>,
    orphan: bool,
    /// All other nodes were silent since the first offer.
    met_silence: bool,
}

impl Drain {
    /// Begins to drain. The commands are the first offers, or the exit if there are no runs or no other nodes.
    pub fn new(
        jobs: Vec<RunRef>,
        settings: ClusterSettings,
        others_alive: bool,
        now: Duration,
    ) -> (Drain, Vec<Command>) {
        let open =
            |run: RunRef| (run.job_id, Open { run, tries: 0, deadline: None, orphan: false, met_silence: false });
        let mut drain = Drain {
            settings,
            open: jobs.into_iter().map(open).collect(),
            deadlines: BTreeSet::new(),
            others_alive,
            orphans: 0,
            orphans_until: None,
            hard_deadline: now.saturating_add(settings.handoff_hard_timeout),
            gone: false,
            outcomes: Vec::new(),
        };
        let mut commands = Vec::new();
        if others_alive {
            drain.wait_for_acks(now);
            drain.open.values_mut().for_each(|open| commands.push(open.publish()));
            drain.run_timers(now, &mut commands);
        } else {
            drain.exit(&mut commands);
        }
        (drain, commands)
    }

    /// Returns the steps to carry out after `event`. After [`Command::Exit`] there are none.
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.gone {
            return commands;
        }
        match event {
            Event::Ack { job, .. } => {
                if let Some(open) = self.close(job) {
                    self.outcomes.push(open.outcome());
                    commands.push(Command::Release(open.run));
                }
            }
            Event::JobEnded(job) => drop(self.close(job)),
            Event::OthersAlive(alive) => self.others_alive(alive, now),
            Event::Tick => {}
        }
        self.run_timers(now, &mut commands);
        commands
    }

    /// Returns when the next [`Event::Tick`] is needed; `None` after the exit.
    pub fn next_wake(&self) -> Option<Duration> {
        if self.gone {
            return None;
        }
        let next_offer = self.deadlines.first().map(|(at, _)| *at);
        [next_offer, self.orphans_until].into_iter().flatten().chain([self.hard_deadline]).min()
    }

    /// Returns the runs that are neither acknowledged nor ended, orphans included.
    pub fn open(&self) -> impl Iterator<Item = RunRef> {
        self.open.values().map(|open| open.run)
    }

    /// Returns how the handoffs went that were completed or given up since the last call.
    pub fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    fn close(&mut self, job: JobId) -> Option<Open> {
        let open = self.open.remove(&job)?;
        if let Some(deadline) = open.deadline {
            self.deadlines.remove(&(deadline, job));
        }
        self.orphans -= usize::from(open.orphan);
        Some(open)
    }

    fn others_alive(&mut self, alive: bool, now: Duration) {
        if alive && !self.others_alive {
            // The offers are still on the bus: a node that returned has time to receive them.
            self.wait_for_acks(now);
        }
        if !alive {
            self.deadlines.clear();
            self.open.values_mut().for_each(|open| (open.deadline, open.met_silence) = (None, true));
        }
        self.others_alive = alive;
    }

    fn wait_for_acks(&mut self, now: Duration) {
        let deadline = now.saturating_add(self.settings.handoff_ack_timeout);
        for (job, open) in self.open.iter_mut().filter(|(_, open)| !open.orphan) {
            open.deadline = Some(deadline);
            self.deadlines.insert((deadline, *job));
        }
    }

    /// Carries out all timers that have expired.
    fn run_timers(&mut self, now: Duration, commands: &mut Vec<Command>) {
        while let Some((deadline, job)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.remove(&(deadline, job));
            self.offer_again(job, now, commands);
        }
        if self.open.len() > self.orphans {
            self.orphans_until = None;
        } else {
            self.orphans_until.get_or_insert(now.saturating_add(self.settings.handoff_orphan_wait));
        }
        let waited = self.orphans_until.is_some_and(|until| until <= now);
        if self.open.is_empty() || waited || self.hard_deadline <= now {
            self.exit(commands);
        }
    }

    fn offer_again(&mut self, job: JobId, now: Duration, commands: &mut Vec<Command>) {
        let Some(open) = self.open.get_mut(&job) else { return };
        if open.tries > self.settings.handoff_max_retries {
            open.deadline = None;
            open.orphan = true;
            self.orphans += 1;
            self.outcomes.push(open.outcome());
            commands.push(Command::MarkOrphan(open.run));
        } else {
            let deadline = now.saturating_add(self.settings.handoff_ack_timeout.max(Duration::from_millis(1)));
            open.deadline = Some(deadline);
            self.deadlines.insert((deadline, job));
            commands.push(open.publish());
        }
    }

    fn exit(&mut self, commands: &mut Vec<Command>) {
        self.gone = true;
        for open in self.open.values_mut().filter(|open| !open.orphan) {
            open.orphan = true;
            self.outcomes.push(open.outcome());
            commands.push(Command::MarkOrphan(open.run));
        }
        commands.push(Command::Exit { clean: self.open.is_empty() });
    }
}

impl Open {
    fn publish(&mut self) -> Command {
        self.tries += 1;
        Command::Publish { run: self.run, tries: self.tries }
    }

    fn outcome(&self) -> Outcome {
        let case = match (self.met_silence, self.orphan, self.tries) {
            (true, ..) => AckCase::OthersSilent,
            (false, true, _) => AckCase::NeverAcknowledged,
            (false, false, 0 | 1) => AckCase::Acknowledged,
            (false, false, _) => AckCase::OfferedAgain,
        };
        Outcome { run: self.run, case, tries: self.tries }
    }
}

#[cfg(test)]
mod tests;
