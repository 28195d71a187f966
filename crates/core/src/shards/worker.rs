//! The worker's side of the protocol: a state machine without a clock or a socket.
//!
//! It registers, sends heartbeats, and holds its shards as long as it is certain that the coordinator considers it
//! alive. A reply to a heartbeat that was sent at `t` gives certainty until `t + timeout − margin`, because the
//! coordinator received it no earlier than `t`. An unrequested assignment gives none. Without certainty it has no
//! shards: it has fenced itself before another worker can get them.
//!
//! The application receives each [`Change`] of its shards, one at a time, and acknowledges it once it has stopped
//! working on the removed ones. Until then those shards are still held: they are reported, and `released` is not sent.
//! A version below the present one is of a former coordinator or out of order, and is ignored. A worker that has fenced
//! itself and received nothing else for a whole timeout accepts any version.
//!
//! A worker that learns that another process has registered under its id gives up its shards and stops. It sends
//! nothing more: two processes that register in turn would take the shards from each other for ever.

use std::collections::VecDeque;
use std::time::Duration;

use super::wire::{Assignment, CoordinatorMessage, Leave, Message, Refusal, Released, Report, Revoke};
use super::{Shard, Version};
use crate::ids::{ServiceName, WorkerId};

/// The timeout of the protocol, until a coordinator sends another.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(15);
/// How often it sends while it has no certainty.
const TRY_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Upper bound of the heartbeats that wait for a reply.
const UNCONFIRMED_MAX: usize = 64;

/// The settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub struct Profile {
    /// The service.
    pub service: ServiceName,
    /// The id of the worker, unique within the service.
    pub worker: WorkerId,
    /// The number of shards of the whole service.
    pub max_shards: u32,
    /// Whether it wants a revocation before it loses a shard, and time to stop.
    pub handoff: bool,
    /// The time between heartbeats. `None`: a third of the coordinator's timeout.
    pub heartbeat_interval: Option<Duration>,
}

/// A change of the shards that the application may work on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// New shards, in order like the other lists.
    pub added: Vec<Shard>,
    /// Stop working on these before acknowledging the change.
    pub removed: Vec<Shard>,
    /// All present shards.
    pub shards: Vec<Shard>,
    /// The version of the assignment: the fence of these shards.
    pub version: Version,
}

/// The state machine of one worker.
#[cfg_attr(test, derive(Clone, Hash))]
pub struct Worker {
    profile: Profile,
    heartbeat_timeout: Duration,
    /// The version of the latest assignment.
    version: Version,
    /// The highest version ever seen: a new coordinator begins above it.
    seen: Version,
    /// The latest assignment, in order.
    assigned: Vec<Shard>,
    certain_until: Option<Duration>,
    /// Numbers and times of heartbeats without a reply.
    unconfirmed: VecDeque<(u64, Duration)>,
    next_beat: u64,
    /// Identifies this process: the number of its first heartbeat.
    instance: u64,
    next_send: Duration,
    last_received: Duration,
    /// When it last received a message of the present version or a higher one.
    version_received_at: Duration,
    /// The shards in the last change for the application.
    reported: Vec<Shard>,
    /// The shards that the last change removed, until it is acknowledged.
    releasing: Option<Vec<Shard>>,
    /// Recently released shards, each with the number of the first heartbeat that no longer lists them.
    recently_released: VecDeque<(u64, Vec<Shard>)>,
    stage: Stage,
    is_replaced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum Stage {
    Working,
    /// It releases its shards before it leaves.
    Leaving,
    /// It holds nothing, and sends `leave` until that is confirmed.
    SendingLeave,
    /// Another process has its id: it stops its work, and sends nothing.
    Replaced,
    Gone,
}

impl Worker {
    /// Numbers its heartbeats from `first_beat`, which should be higher in every later process of a worker, as the time
    /// is: a reply to a former process must not give certainty to this one.
    pub fn new(profile: Profile, first_beat: u64, now: Duration) -> Self {
        Worker {
            profile,
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            version: Version::default(),
            seen: Version::default(),
            assigned: Vec::new(),
            certain_until: None,
            unconfirmed: VecDeque::new(),
            next_beat: first_beat,
            instance: first_beat,
            next_send: now,
            last_received: now,
            version_received_at: now,
            reported: Vec::new(),
            releasing: None,
            recently_released: VecDeque::new(),
            stage: Stage::Working,
            is_replaced: false,
        }
    }

    /// Returns the settings.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the version of the latest assignment.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the shards that it may work on, in order: none without certainty.
    pub fn shards(&self, now: Duration) -> &[Shard] {
        if self.is_certain(now) && self.stage == Stage::Working { &self.assigned } else { &[] }
    }

    /// Returns whether it may work on this shard.
    pub fn owns(&self, shard: Shard, now: Duration) -> bool {
        self.shards(now).binary_search(&shard).is_ok()
    }

    /// Returns whether it is certain that the coordinator considers it alive.
    pub fn is_certain(&self, now: Duration) -> bool {
        self.certain_until.is_some_and(|until| now < until)
    }

    /// Returns whether no reply came for half of the timeout: a new connection may reach a coordinator that this one
    /// does not.
    pub fn is_silent(&self, now: Duration) -> bool {
        now >= self.silent_at()
    }

    fn silent_at(&self) -> Duration {
        self.last_received + (self.heartbeat_timeout / 2).max(self.interval() * 2)
    }

    /// Returns whether it has left or was replaced, and holds nothing.
    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// Returns whether another process has registered under its id.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Returns when [`tick`](Self::tick) has something to do, or certainty ends.
    pub fn next_deadline(&self, now: Duration) -> Duration {
        let next = self.next_send.min(self.silent_at());
        self.certain_until.filter(|until| *until > now).map_or(next, |until| until.min(next))
    }

    /// Handles a new connection: the last messages on the old one may be lost.
    pub fn reconnected(&mut self, now: Duration) {
        self.next_send = now;
        self.last_received = now;
    }

    /// Adds the messages that are due.
    pub fn tick(&mut self, now: Duration, outgoing: &mut Vec<Message>) {
        if self.stage == Stage::Leaving && self.holds_nothing() {
            self.stage = Stage::SendingLeave;
            self.next_send = now;
        }
        if self.stage == Stage::Replaced && self.holds_nothing() {
            self.stage = Stage::Gone;
        }
        if now < self.next_send || matches!(self.stage, Stage::Replaced | Stage::Gone) {
            return;
        }
        let interval = if self.is_certain(now) && self.stage != Stage::SendingLeave {
            self.interval()
        } else {
            self.interval().min(TRY_INTERVAL_MAX)
        };
        self.next_send = now + self.apart(interval);
        outgoing.push(match self.stage {
            Stage::SendingLeave => self.leave_message(),
            _ if self.is_certain(now) => Message::Heartbeat(self.report(now)),
            _ => Message::Register(self.report(now)),
        });
    }

    /// Handles a message of the coordinator.
    pub fn on_message(&mut self, message: CoordinatorMessage, now: Duration, outgoing: &mut Vec<Message>) {
        match message {
            _ if self.is_replaced => {}
            CoordinatorMessage::Error(refusal) if refusal.code == Refusal::REPLACED => self.give_up(),
            CoordinatorMessage::Assignment(assignment) => self.take_assignment(assignment, now),
            CoordinatorMessage::Revoke(revoke) => self.take_revocation(revoke, now, outgoing),
            // The coordinator is alive; the rejected message is sent again in any case.
            CoordinatorMessage::Error(_) => self.last_received = now,
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
        self.last_received = now;
        let is_of_successor = self.version != Version::default() && assignment.version.term() != self.version.term();
        self.record_version(assignment.version, now);
        if let Some(timeout) = assignment.heartbeat_timeout.filter(|timeout| !timeout.is_zero()) {
            self.heartbeat_timeout = timeout;
        }
        self.assigned = assignment.assigned_shards;
        self.assigned.sort_unstable();
        self.assigned.dedup();
        if let Some(beat) = assignment.beat {
            // This replies to a report of shards that are released by now: a new coordinator may take them for held.
            for (_, gone) in self.recently_released.iter().filter(|(first, _)| *first > beat) {
                self.assigned.retain(|shard| gone.binary_search(shard).is_err());
            }
        }
        match assignment.beat {
            Some(beat) => self.confirm_heartbeat(beat),
            None if self.stage == Stage::SendingLeave && self.assigned.is_empty() => self.stage = Stage::Gone,
            // A grant was sent before the leave was received: send it again, with that version.
            None if self.stage == Stage::SendingLeave => self.next_send = now,
            None => {}
        }
        self.next_send = self.next_send.min(now + self.interval());
        if is_of_successor {
            // A new coordinator waits for a report that is later than all grants of its predecessor.
            self.next_send = now;
        }
    }

    fn take_revocation(&mut self, mut revoke: Revoke, now: Duration, outgoing: &mut Vec<Message>) {
        if self.is_outdated(revoke.version, now) {
            return;
        }
        self.last_received = now;
        self.record_version(revoke.version, now);
        revoke.shards.sort_unstable();
        self.assigned.retain(|shard| revoke.shards.binary_search(shard).is_err());
        let is_held = |shard: &Shard| {
            let going = self.releasing.as_ref().is_some_and(|going| going.binary_search(shard).is_ok());
            going || self.reported.binary_search(shard).is_ok()
        };
        let free: Vec<Shard> = revoke.shards.into_iter().filter(|shard| !is_held(shard)).collect();
        self.release(free, outgoing);
    }

    /// Returns whether a message is of a former coordinator, or overtaken by a later one. But if nothing else was
    /// received for a whole timeout, and no shard is held, the coordinator has begun again with lower versions.
    fn is_outdated(&self, version: Version, now: Duration) -> bool {
        let begins_anew = self.holds_nothing() && now >= self.version_received_at + self.heartbeat_timeout;
        version < self.version && !begins_anew
    }

    fn record_version(&mut self, version: Version, now: Duration) {
        self.version = version;
        self.version_received_at = now;
        self.seen = self.seen.max(version);
    }

    fn confirm_heartbeat(&mut self, beat: u64) {
        let Some((_, sent)) = self.unconfirmed.iter().find(|(number, _)| *number == beat).copied() else { return };
        self.unconfirmed.retain(|(number, _)| *number > beat);
        self.recently_released.retain(|(first, _)| *first > beat);
        // A tenth is left for clock drift, and for the application to stop.
        let until = sent + self.heartbeat_timeout - self.heartbeat_timeout / 10;
        self.certain_until = self.certain_until.max(Some(until));
    }

    /// Returns the next change for the application. `None` if there is none, or the last one is not acknowledged.
    pub fn change(&mut self, now: Duration) -> Option<Change> {
        if self.releasing.is_some() {
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
        self.releasing = Some(removed.clone());
        Some(Change { added, removed, shards, version: self.version })
    }

    /// Records that the application has applied the last change.
    pub fn acknowledge(&mut self, outgoing: &mut Vec<Message>) {
        let released = self.releasing.take().unwrap_or_default();
        if !released.is_empty() {
            self.recently_released.push_back((self.next_beat, released.clone()));
            if self.recently_released.len() > UNCONFIRMED_MAX {
                self.recently_released.pop_front();
            }
        }
        self.release(released, outgoing);
    }

    /// Records that the application works on no shard, and repeats all of them in the next change.
    pub fn start_over(&mut self, outgoing: &mut Vec<Message>) {
        self.acknowledge(outgoing);
        self.releasing = Some(std::mem::take(&mut self.reported));
        self.acknowledge(outgoing);
    }

    fn release(&self, shards: Vec<Shard>, outgoing: &mut Vec<Message>) {
        // A replaced worker is not waited for: its shards are granted to another under a later version.
        if self.profile.handoff && !shards.is_empty() && !self.is_replaced {
            let Profile { service, worker, .. } = &self.profile;
            let (service_name, worker_id) = (service.clone(), worker.clone());
            outgoing.push(Message::Released(Released { service_name, worker_id, shards, version: self.version }));
        }
    }

    /// Leaves: releases everything, then sends `leave`.
    pub fn leave(&mut self) {
        if self.stage == Stage::Working {
            self.stage = Stage::Leaving;
        }
    }

    fn holds_nothing(&self) -> bool {
        self.reported.is_empty() && self.releasing.is_none()
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

    /// Returns its shards, including those that the application still has to stop working on.
    fn report(&mut self, now: Duration) -> Report {
        let beat = self.number();
        self.unconfirmed.push_back((beat, now));
        if self.unconfirmed.len() > UNCONFIRMED_MAX {
            self.unconfirmed.pop_front();
        }
        let mut held = self.reported.clone();
        held.extend(self.releasing.iter().flatten());
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

    /// Shortens an interval by a different amount each time, so that workers that reconnected together do not send in
    /// step.
    fn apart(&self, interval: Duration) -> Duration {
        let id = self.profile.worker.as_str().bytes();
        let hash = id.fold(self.next_beat, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        interval - interval.mul_f64((hash >> 40) as f64 / (1u64 << 24) as f64 * 0.15)
    }
}

#[cfg(test)]
mod tests;
