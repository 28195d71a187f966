//! A worker's half of the bargain: a state machine without a clock or a socket.
//!
//! It registers, beats, and holds what it is assigned for as long as it is certain to be thought alive. Certainty comes from
//! answers: one to the beat that was sent at `t` vouches until `t + timeout − margin`, since the coordinator heard it no
//! earlier than `t`. News that come by themselves vouch for nothing. Without certainty it has no shards: it has fenced
//! itself before anybody else can be given them.
//!
//! What it has changes under the application's hands, so the application is told in [`Change`]s, one at a time, and
//! acknowledges each when it has stopped to work on what was removed. Until then those shards are still held: they are
//! reported, and `released` is not said. A version below the present one is of a former coordinator or out of order, and is
//! ignored; a worker that has fenced itself and heard nothing else for a whole timeout takes any.
//!
//! A worker that is told that another has registered under its id gives up all that it has and is gone. It says nothing more:
//! two that register in turn would take the shards from each other for ever.

use std::collections::VecDeque;
use std::time::Duration;

use super::wire::{Assignment, CoordinatorMessage, Leave, Message, Refusal, Released, Report, Revoke};
use super::{Shard, Version};
use crate::ids::{ServiceName, WorkerId};

/// Until a coordinator says otherwise; the protocol's own.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(15);
/// How often it tries while nobody vouches for it.
const TRY_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Beats whose answers may still come.
const BEATS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub service: ServiceName,
    pub worker: WorkerId,
    /// Of the whole service.
    pub max_shards: u32,
    /// To be asked to let go, and waited for.
    pub handoff: bool,
    /// A third of the coordinator's timeout unless told.
    pub heartbeat_interval: Option<Duration>,
}

/// What is to be different from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// In order, like the rest.
    pub added: Vec<Shard>,
    /// Stop working on these before the change is acknowledged.
    pub removed: Vec<Shard>,
    /// All that are owned now.
    pub shards: Vec<Shard>,
    pub version: Version,
}

pub struct Worker {
    profile: Profile,
    heartbeat_timeout: Duration,
    /// Of the latest assignment.
    version: Version,
    /// The highest ever: a coordinator that began lower begins above it.
    seen: Version,
    /// The latest assignment, in order.
    assigned: Vec<Shard>,
    certain_until: Option<Duration>,
    /// Numbers and times of beats that were not answered yet.
    beats: VecDeque<(u64, Duration)>,
    next_beat: u64,
    /// Of this life: the number of its first beat.
    instance: u64,
    next_send: Duration,
    last_heard: Duration,
    /// When something was last said under the present version or a higher one.
    version_heard: Duration,
    /// What the application was told that it has.
    reported: Vec<Shard>,
    /// What was removed by a change that is not acknowledged yet.
    letting_go: Option<Vec<Shard>>,
    /// What it let go of lately, with the number of the first beat that says so.
    let_go: VecDeque<(u64, Vec<Shard>)>,
    stage: Stage,
    is_replaced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Working,
    /// It wants to go, and lets go first.
    Leaving,
    /// It holds nothing, and says so until it is heard.
    SayingGoodbye,
    /// Another has its id now: it lets go, and says nothing.
    Replaced,
    Gone,
}

impl Worker {
    /// Its beats are numbered from `first_beat`, which should be higher in every later life of a worker, as the time is: an
    /// answer to a former life must not vouch for this one.
    pub fn new(profile: Profile, first_beat: u64, now: Duration) -> Self {
        Worker {
            profile,
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            version: Version::default(),
            seen: Version::default(),
            assigned: Vec::new(),
            certain_until: None,
            beats: VecDeque::new(),
            next_beat: first_beat,
            instance: first_beat,
            next_send: now,
            last_heard: now,
            version_heard: now,
            reported: Vec::new(),
            letting_go: None,
            let_go: VecDeque::new(),
            stage: Stage::Working,
            is_replaced: false,
        }
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Of the latest assignment.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What it may work on, in order: nothing while nobody vouches for it.
    pub fn shards(&self, now: Duration) -> &[Shard] {
        if self.is_certain(now) && self.stage == Stage::Working { &self.assigned } else { &[] }
    }

    pub fn owns(&self, shard: Shard, now: Duration) -> bool {
        self.shards(now).binary_search(&shard).is_ok()
    }

    /// Whether an answer still vouches for it.
    pub fn is_certain(&self, now: Duration) -> bool {
        self.certain_until.is_some_and(|until| now < until)
    }

    /// No answer for half of the timeout: another connection may find a coordinator that this one does not.
    pub fn is_silent(&self, now: Duration) -> bool {
        now >= self.silent_at()
    }

    fn silent_at(&self) -> Duration {
        self.last_heard + (self.heartbeat_timeout / 2).max(self.interval() * 2)
    }

    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// Whether another worker has registered under its id.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// When [`tick`](Self::tick) has something to do, or certainty ends.
    pub fn next_deadline(&self, now: Duration) -> Duration {
        let next = self.next_send.min(self.silent_at());
        self.certain_until.filter(|until| *until > now).map_or(next, |until| until.min(next))
    }

    /// There is a new connection: what was said on the last one may be lost.
    pub fn reconnected(&mut self, now: Duration) {
        self.next_send = now;
        self.last_heard = now;
    }

    /// Says what is due.
    pub fn tick(&mut self, now: Duration, outgoing: &mut Vec<Message>) {
        if self.stage == Stage::Leaving && self.holds_nothing() {
            self.stage = Stage::SayingGoodbye;
            self.next_send = now;
        }
        if self.stage == Stage::Replaced && self.holds_nothing() {
            self.stage = Stage::Gone;
        }
        if now < self.next_send || matches!(self.stage, Stage::Replaced | Stage::Gone) {
            return;
        }
        let interval = if self.is_certain(now) && self.stage != Stage::SayingGoodbye {
            self.interval()
        } else {
            self.interval().min(TRY_INTERVAL_MAX)
        };
        self.next_send = now + self.apart(interval);
        outgoing.push(match self.stage {
            Stage::SayingGoodbye => self.leave_message(),
            _ if self.is_certain(now) => Message::Heartbeat(self.report(now)),
            _ => Message::Register(self.report(now)),
        });
    }

    /// Takes what the coordinator said.
    pub fn on_message(&mut self, answer: CoordinatorMessage, now: Duration, outgoing: &mut Vec<Message>) {
        match answer {
            _ if self.is_replaced => {}
            CoordinatorMessage::Error(refusal) if refusal.code == Refusal::REPLACED => self.give_up(),
            CoordinatorMessage::Assignment(assignment) => self.take_assignment(assignment, now),
            CoordinatorMessage::Revoke(revoke) => self.take_revocation(revoke, now, outgoing),
            // It was heard, at least; what it said is sent again in any case.
            CoordinatorMessage::Error(_) => self.last_heard = now,
        }
    }

    fn give_up(&mut self) {
        self.is_replaced = true;
        self.assigned.clear();
        self.certain_until = None;
        if self.stage != Stage::Gone {
            self.stage = Stage::Replaced;
        }
    }

    fn take_assignment(&mut self, assignment: Assignment, now: Duration) {
        if self.is_outdated(assignment.version, now) {
            return;
        }
        self.last_heard = now;
        let is_of_successor = self.version != Version::default() && assignment.version.term() != self.version.term();
        self.record_version(assignment.version, now);
        if let Some(timeout) = assignment.heartbeat_timeout.filter(|timeout| !timeout.is_zero()) {
            self.heartbeat_timeout = timeout;
        }
        self.assigned = assignment.assigned_shards;
        self.assigned.sort_unstable();
        self.assigned.dedup();
        if let Some(beat) = assignment.beat {
            // It answers a report of shards that are let go of by now: a successor may think that they are still held.
            for (_, gone) in self.let_go.iter().filter(|(first, _)| *first > beat) {
                self.assigned.retain(|shard| gone.binary_search(shard).is_err());
            }
        }
        match assignment.beat {
            Some(beat) => self.confirm_heartbeat(beat),
            None if self.stage == Stage::SayingGoodbye && self.assigned.is_empty() => self.stage = Stage::Gone,
            // Something was granted before the farewell was heard: it must be said again, with that version.
            None if self.stage == Stage::SayingGoodbye => self.next_send = now,
            None => {}
        }
        self.next_send = self.next_send.min(now + self.interval());
        if is_of_successor {
            // A successor waits for a report that is later than all that its predecessor granted.
            self.next_send = now;
        }
    }

    fn take_revocation(&mut self, mut revoke: Revoke, now: Duration, outgoing: &mut Vec<Message>) {
        if self.is_outdated(revoke.version, now) {
            return;
        }
        self.last_heard = now;
        self.record_version(revoke.version, now);
        revoke.shards.sort_unstable();
        self.assigned.retain(|shard| revoke.shards.binary_search(shard).is_err());
        let is_held = |shard: &Shard| {
            let going = self.letting_go.as_ref().is_some_and(|going| going.binary_search(shard).is_ok());
            going || self.reported.binary_search(shard).is_ok()
        };
        let free: Vec<Shard> = revoke.shards.into_iter().filter(|shard| !is_held(shard)).collect();
        self.release(free, outgoing);
    }

    /// Of a former coordinator, or overtaken on the way. But where nothing else was heard for a whole timeout, and nothing is
    /// left to lose, the coordinator has begun anew.
    fn is_outdated(&self, version: Version, now: Duration) -> bool {
        let begins_anew = self.holds_nothing() && now >= self.version_heard + self.heartbeat_timeout;
        version < self.version && !begins_anew
    }

    fn record_version(&mut self, version: Version, now: Duration) {
        self.version = version;
        self.version_heard = now;
        self.seen = self.seen.max(version);
    }

    fn confirm_heartbeat(&mut self, beat: u64) {
        let Some((_, sent)) = self.beats.iter().find(|(number, _)| *number == beat).copied() else { return };
        self.beats.retain(|(number, _)| *number > beat);
        self.let_go.retain(|(first, _)| *first > beat);
        // A tenth is left for clocks that run apart, and for the application to stop.
        let until = sent + self.heartbeat_timeout - self.heartbeat_timeout / 10;
        self.certain_until = self.certain_until.max(Some(until));
    }

    /// What the application has to be told, unless it is still busy with the last.
    pub fn change(&mut self, now: Duration) -> Option<Change> {
        if self.letting_go.is_some() {
            return None;
        }
        let shards = self.shards(now).to_vec();
        let without = |all: &[Shard], others: &[Shard]| -> Vec<Shard> {
            all.iter().copied().filter(|shard| others.binary_search(shard).is_err()).collect()
        };
        let (added, removed) = (without(&shards, &self.reported), without(&self.reported, &shards));
        if added.is_empty() && removed.is_empty() {
            return None;
        }
        self.reported.clone_from(&shards);
        self.letting_go = Some(removed.clone());
        Some(Change { added, removed, shards, version: self.version })
    }

    /// The application has done as the last change said.
    pub fn acknowledge(&mut self, outgoing: &mut Vec<Message>) {
        let released = self.letting_go.take().unwrap_or_default();
        if !released.is_empty() {
            self.let_go.push_back((self.next_beat, released.clone()));
            if self.let_go.len() > BEATS_MAX {
                self.let_go.pop_front();
            }
        }
        self.release(released, outgoing);
    }

    /// The application no longer works on anything, and wants to be told everything anew.
    pub fn start_over(&mut self, outgoing: &mut Vec<Message>) {
        self.acknowledge(outgoing);
        self.letting_go = Some(std::mem::take(&mut self.reported));
        self.acknowledge(outgoing);
    }

    fn release(&self, shards: Vec<Shard>, outgoing: &mut Vec<Message>) {
        // Of one that is replaced nobody waits for anything: the shards are another's under a later version.
        if self.profile.handoff && !shards.is_empty() && !self.is_replaced {
            let Profile { service, worker, .. } = &self.profile;
            let (service_name, worker_id) = (service.clone(), worker.clone());
            outgoing.push(Message::Released(Released { service_name, worker_id, shards, version: self.version }));
        }
    }

    /// Goes: gives up everything, then says so.
    pub fn leave(&mut self) {
        if self.stage == Stage::Working {
            self.stage = Stage::Leaving;
        }
    }

    fn holds_nothing(&self) -> bool {
        self.reported.is_empty() && self.letting_go.is_none()
    }

    fn leave_message(&mut self) -> Message {
        let beat = self.number();
        let Profile { service, worker, .. } = &self.profile;
        let (service_name, worker_id) = (service.clone(), worker.clone());
        Message::Leave(Leave { service_name, worker_id, version: Some(self.version), beat: Some(beat) })
    }

    fn number(&mut self) -> u64 {
        let number = self.next_beat;
        self.next_beat = number.wrapping_add(1);
        number
    }

    /// Says what it holds: also what the application still has to let go of.
    fn report(&mut self, now: Duration) -> Report {
        let beat = self.number();
        self.beats.push_back((beat, now));
        if self.beats.len() > BEATS_MAX {
            self.beats.pop_front();
        }
        let mut held = self.reported.clone();
        held.extend(self.letting_go.iter().flatten());
        held.sort_unstable();
        held.dedup();
        Report {
            service_name: self.profile.service.clone(),
            worker_id: self.profile.worker.clone(),
            max_shard_count: self.profile.max_shards,
            assigned_shards: Some(held),
            version: (self.seen > Version::default()).then_some(self.seen),
            handoff: Some(self.profile.handoff),
            beat: Some(beat),
            instance: Some(self.instance),
        }
    }

    fn interval(&self) -> Duration {
        self.profile.heartbeat_interval.unwrap_or(self.heartbeat_timeout / 3).max(Duration::from_millis(1))
    }

    /// A little less each time by another amount, so that workers that were startled together do not beat together.
    fn apart(&self, interval: Duration) -> Duration {
        let id = self.profile.worker.as_str().bytes();
        let hash = id.fold(self.next_beat, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        interval - interval.mul_f64((hash >> 40) as f64 / (1u64 << 24) as f64 * 0.15)
    }
}

#[cfg(test)]
mod tests;
