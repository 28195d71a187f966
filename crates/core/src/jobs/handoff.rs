//! How a node that shuts down hands its jobs on: which to offer again, which to give up, when to go.
//!
//! All jobs are offered at once, and each then takes its own way through four cases:
//!
//! - **A** somebody acknowledges in time: the job is released.
//! - **B** nobody does: it is offered again, up to `handoff_max_retries` times, `handoff_ack_timeout` apart.
//! - **C** nobody ever does: it is marked an orphan, for the leader to find. Once only orphans are left the node stays for
//!   `handoff_orphan_wait`, in case an acknowledgement is merely late, and goes.
//! - **D** all other nodes die meanwhile: offering is pointless, so it waits for one to come back, until
//!   `handoff_hard_timeout`.
//!
//! Nothing lasts longer than `handoff_hard_timeout`. A node that is alone from the start goes at once. It goes *clean* when
//! each job was acknowledged or has ended; what it leaves behind is marked as an orphan first, and nothing is lost: the store
//! has it.
//!
//! Pure: time is what the caller's monotonic clock says, and the commands are the caller's to carry out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cluster::ClusterSettings;
use super::job::Ownership;
use super::wire::RunRef;
use crate::ids::{JobId, NodeId};

/// Returns whether a run may be taken on an offer that does not name its owner, as those of Orchestrix do not: if the owner
/// offered it, left it, or is silent for as long as a dead node is.
pub const fn may_take_unnamed(ownership: Ownership, is_owner_silent: bool) -> bool {
    match ownership {
        Ownership::HandingOff | Ownership::OrphanPending | Ownership::Unowned => true,
        Ownership::Owned => is_owner_silent,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Another node has the job now.
    Ack { job: JobId, new_owner: NodeId },
    /// Time has passed.
    Tick,
    /// Whether any other node lives.
    OthersAlive(bool),
    /// The job's run ended while it looked for an owner.
    JobEnded(JobId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Offer the job to all; `tries` counts from 1.
    Publish { run: RunRef, tries: u32 },
    /// It is another's now: stop reading its channels.
    Release(RunRef),
    /// Mark it in the store as waiting for the leader to find it an owner.
    MarkOrphan(RunRef),
    /// Go. The last command there is.
    Exit { clean: bool },
}

/// A shutdown under way. Times are by one monotonic clock, from any origin.
#[derive(Debug)]
pub struct Drain {
    settings: ClusterSettings,
    /// Neither acknowledged nor ended.
    open: BTreeMap<JobId, Open>,
    /// When each offer is up, the earliest first. Empty while nobody else lives.
    deadlines: BTreeSet<(Duration, JobId)>,
    others_alive: bool,
    orphans: usize,
    orphans_until: Option<Duration>,
    hard_deadline: Duration,
    gone: bool,
}

#[derive(Debug)]
struct Open {
    run: RunRef,
    tries: u32,
    deadline: Option<Duration>,
    orphan: bool,
}

impl Drain {
    /// Begins to drain. The commands are the first offers, or the exit where there is nothing or nobody to offer to.
    pub fn new(
        jobs: Vec<RunRef>,
        settings: ClusterSettings,
        others_alive: bool,
        now: Duration,
    ) -> (Drain, Vec<Command>) {
        let open = |run: RunRef| (run.job_id, Open { run, tries: 0, deadline: None, orphan: false });
        let mut drain = Drain {
            settings,
            open: jobs.into_iter().map(open).collect(),
            deadlines: BTreeSet::new(),
            others_alive,
            orphans: 0,
            orphans_until: None,
            hard_deadline: now.saturating_add(settings.handoff_hard_timeout),
            gone: false,
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

    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.gone {
            return commands;
        }
        match event {
            Event::Ack { job, .. } => commands.extend(self.close(job).map(Command::Release)),
            Event::JobEnded(job) => drop(self.close(job)),
            Event::OthersAlive(alive) => self.others_alive(alive, now),
            Event::Tick => {}
        }
        self.run_timers(now, &mut commands);
        commands
    }

    /// When a [`Event::Tick`] is next needed; `None` once it is over.
    pub fn next_wake(&self) -> Option<Duration> {
        if self.gone {
            return None;
        }
        let next_offer = self.deadlines.first().map(|(at, _)| *at);
        [next_offer, self.orphans_until].into_iter().flatten().chain([self.hard_deadline]).min()
    }

    /// Jobs that are neither acknowledged nor ended, those given up included.
    pub fn open(&self) -> impl Iterator<Item = RunRef> {
        self.open.values().map(|open| open.run)
    }

    fn close(&mut self, job: JobId) -> Option<RunRef> {
        let open = self.open.remove(&job)?;
        if let Some(deadline) = open.deadline {
            self.deadlines.remove(&(deadline, job));
        }
        self.orphans -= usize::from(open.orphan);
        Some(open.run)
    }

    fn others_alive(&mut self, alive: bool, now: Duration) {
        if alive && !self.others_alive {
            // The offers still lie on the bus: whoever came back gets the time to find them.
            self.wait_for_acks(now);
        }
        if !alive {
            self.deadlines.clear();
            self.open.values_mut().for_each(|open| open.deadline = None);
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

    /// Does what time asks for.
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
        let left = self.open.values().filter(|open| !open.orphan);
        commands.extend(left.map(|open| Command::MarkOrphan(open.run)));
        commands.push(Command::Exit { clean: self.open.is_empty() });
    }
}

impl Open {
    fn publish(&mut self) -> Command {
        self.tries += 1;
        Command::Publish { run: self.run, tries: self.tries }
    }
}

#[cfg(test)]
mod tests;
