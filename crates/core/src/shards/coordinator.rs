//! The coordinator of shards: a state machine without a clock or a socket.
//!
//! Its input is messages and ticks, with the time since the term began; its output is messages to send and events. A
//! change (a worker joins, leaves, dies, returns or releases shards, or the shard count differs) moves nothing by
//! itself: it makes the service due for one rebalance after a short delay, so that a burst of changes costs one. Only
//! workers whose part changed are notified. The reply to a heartbeat is sent at once, with the present grants.
//!
//! After a takeover, the state comes from the workers, not from the predecessor. A service grants nothing new until
//! each worker that may hold shards has reported, or one heartbeat timeout has passed. A worker keeps the shards that
//! it reports in that time if no other worker has them; a worker that reports nothing has fenced itself by the end. The
//! [`Roster`] lists the workers that may hold shards; without one, a service waits for the whole timeout. An unlisted
//! worker that reports shards is evidence of a predecessor: then its service waits for the whole timeout too.
//!
//! A two-phase worker counts as reported once it reports a version of this term: after an earlier report, a grant of
//! the predecessor may still arrive. A worker that has seen a version of this term ignores such a grant.
//!
//! With a roster, a worker takes part once the store lists it. Until then it is granted nothing, and its registration
//! waits.
//!
//! [`Limits`] bound everything that peers can make it store; messages beyond them are rejected with an error.

mod member;
mod moves;
mod service;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

pub use super::settings::{Limits, Settings};
pub use moves::Rebalanced;
pub use view::{ServiceFigures, ServiceView, WorkerView};

use super::wire::{Assignment, CoordinatorMessage, Leave, Message, Refusal, Released, Report};
use super::{Roster, RosterChange, ShardMember, Version};
use crate::history::ShardChange;
use crate::ids::{ServiceName, WorkerId};
use crate::ports::router::Peer;
use member::Member;
use service::{Service, Terms};

/// How many heartbeat timeouts a silent worker is remembered for.
const FORGOTTEN_AFTER_TIMEOUTS: u32 = 10;

/// The known state of earlier terms at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// There was no earlier term, as far as is known.
    Fresh,
    /// Any worker may hold shards that a predecessor granted.
    Takeover,
    /// Only these workers may: the store lists them. The term maintains the list.
    Listed(Vec<ShardMember>),
}

/// The result of a step of the coordinator.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Messages to send, in order.
    pub sends: Vec<(Peer, Bytes)>,
    /// Events for logs and metrics.
    pub events: Vec<ShardEvent>,
    /// The moves of the rebalances among the events, with their reasons, for display.
    pub rebalances: Vec<Rebalanced>,
}

/// A change that the coordinator reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardEvent {
    /// The shards of a service were assigned anew.
    Rebalanced {
        /// The service.
        service: ServiceName,
        /// The version of the new assignment.
        version: Version,
        /// Shards that are assigned to another worker than before.
        moved: usize,
    },
    /// A worker registered.
    Joined {
        /// The service.
        service: ServiceName,
        /// The worker.
        worker: WorkerId,
    },
    /// A worker left by itself.
    Left {
        /// The service.
        service: ServiceName,
        /// The worker.
        worker: WorkerId,
    },
    /// A worker was silent for the heartbeat timeout.
    Dead {
        /// The service.
        service: ServiceName,
        /// The worker.
        worker: WorkerId,
    },
    /// Another process registered under the id of a live worker, which has to stop.
    Replaced {
        /// The service.
        service: ServiceName,
        /// The id of both.
        worker: WorkerId,
    },
}

/// Assigns the shards of all services during one term.
#[cfg_attr(test, derive(Clone))]
pub struct Coordinator {
    settings: Settings,
    /// Any worker may hold shards that a predecessor granted.
    takes_over: bool,
    first: Version,
    /// Lower bound of the first version of a service: a removed service may return.
    floor: Version,
    services: BTreeMap<ServiceName, Service>,
    /// Services that are due for a rebalance.
    dirty: BTreeSet<ServiceName>,
    roster: Option<Roster>,
    /// Workers of a predecessor that have not reported yet, by service.
    awaited: BTreeMap<ServiceName, BTreeSet<WorkerId>>,
    awaited_count: usize,
    workers: usize,
    shards: usize,
    next_check: Duration,
    is_exhausted: bool,
}

/// Returns the error for a worker whose id another process has.
fn replaced(report: &Report) -> Bytes {
    let message = format!(
        "another worker has registered as {} of {}: this one holds no shards any more; give each worker an id of its own",
        report.worker_id, report.service_name
    );
    CoordinatorMessage::Error(Refusal::new(Refusal::REPLACED, message)).encode()
}

fn key(service: &ServiceName, worker: &WorkerId) -> ShardMember {
    ShardMember { service: service.clone(), worker: worker.clone() }
}

impl Coordinator {
    /// Returns a coordinator for one term, whose versions are all above `first`. Time counts from here.
    pub fn new(settings: Settings, start: Start, first: Version) -> Self {
        let mut awaited = BTreeMap::<ServiceName, BTreeSet<WorkerId>>::new();
        let takes_over = start == Start::Takeover;
        let roster = if let Start::Listed(members) = start {
            for ShardMember { service, worker } in &members {
                awaited.entry(service.clone()).or_default().insert(worker.clone());
            }
            Some(Roster::new(members))
        } else {
            None
        };
        Coordinator {
            next_check: settings.check_interval,
            settings,
            takes_over,
            first,
            floor: first,
            services: BTreeMap::new(),
            dirty: BTreeSet::new(),
            roster,
            awaited_count: awaited.values().map(BTreeSet::len).sum(),
            awaited,
            workers: 0,
            shards: 0,
            is_exhausted: false,
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns whether the term has used up its versions: it should end, so that the next one takes over.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    pub fn next_deadline(&self) -> Duration {
        let due = self.dirty.iter().filter_map(|name| self.services.get(name)?.due_at());
        due.min().map_or(self.next_check, |due| due.min(self.next_check))
    }

    /// Handles a message of the peer `from`.
    pub fn on_message(&mut self, from: &Peer, message: Message, now: Duration, output: &mut Output) {
        match message {
            Message::Register(report) => self.take_report(from, report, true, now, output),
            Message::Heartbeat(report) => self.take_report(from, report, false, now, output),
            Message::Leave(leave) => self.on_leave(from, leave, now, output),
            Message::Released(released) => self.take_released(released, now),
        }
    }

    fn take_report(&mut self, from: &Peer, report: Report, registers: bool, now: Duration, output: &mut Output) {
        if let Some(member) = self.member(&report)
            && member.has_replaced(from, report.instance)
        {
            // Its report must not take effect. A process that shares its connection with its successor cannot be
            // notified.
            if member.peer != *from {
                output.sends.push((from.clone(), replaced(&report)));
            }
            return;
        }
        if let Err(refusal) = self.make_room(&report) {
            output.sends.push((from.clone(), CoordinatorMessage::Error(refusal).encode()));
            return;
        }
        let (floor, terms) = (self.floor, self.terms());
        let name = report.service_name.clone();
        let awaited = self.awaited.get(&name);
        let is_awaited = awaited.is_some_and(|awaited| awaited.contains(&report.worker_id));
        let hold_until = terms.hold_until(awaited.is_some(), now);
        let service = self.services.entry(name.clone()).or_insert_with(|| Service::new(floor, hold_until));
        if service.shard_count != report.max_shard_count {
            self.shards = self.shards - service.shard_count as usize + report.max_shard_count as usize;
            service.resize(report.max_shard_count, now, &terms);
        }
        let worker = report.worker_id.clone();
        let member = service.members.entry(worker.clone()).or_insert_with(|| {
            self.workers += 1;
            Member::new(from.clone())
        });
        if let Some(former) = member.succeed(from, report.instance, report.beat) {
            if former != *from {
                output.sends.push((former, replaced(&report)));
            }
            // A worker of the original protocol does not register after a reconnect: only its connection differs.
            if registers || report.instance.is_some() {
                output.events.push(ShardEvent::Replaced { service: name.clone(), worker: worker.clone() });
            }
            // If both believe to hold a shard for a moment, the version decides.
            if service.version < Version::MAX && !member.granted.is_empty() {
                service.version = service.version.next();
                member.grant(member.granted.clone(), service.version);
            }
        }
        let is_latest = member.record_report(from, &report, now);
        let is_new = !std::mem::replace(&mut member.is_active, true);
        if is_new {
            member.is_listed = self.roster.as_mut().is_none_or(|roster| roster.add(&key(&name, &worker)));
            // A worker that is not listed yet takes part later.
            if member.is_listed {
                service.disturb_by(ShardChange::Joined, now, &terms);
            }
            output.events.push(ShardEvent::Joined { service: name.clone(), worker: worker.clone() });
        }
        service.lift(report.version);
        if let Some(shards) = report.assigned_shards.as_ref().filter(|_| is_latest) {
            if is_new && !is_awaited && !shards.is_empty() && now < terms.heartbeat_timeout {
                service.hold(terms.heartbeat_timeout, true);
            }
            service.adopt(&worker, shards, report.version.unwrap_or_default());
        }
        if is_awaited && service.has_reported(&report) {
            self.stop_awaiting(&name, &worker, now);
        }
        self.reply(&report, registers, output);
    }

    /// Sends a worker its assignment, now or with the next rebalance.
    fn reply(&mut self, report: &Report, registers: bool, output: &mut Output) {
        let terms = self.terms();
        let (name, worker) = (&report.service_name, &report.worker_id);
        let Some(service) = self.services.get_mut(name) else { return };
        // A worker of the original protocol uses only the first reply to its registration: it waits until that has
        // shards.
        let is_listed = service.members.get(worker).is_some_and(|member| member.is_listed);
        let is_due = service.due_at().is_some() && (report.beat.is_none() || !service.is_held());
        service.reply(worker, registers && (is_due || !is_listed), report.beat, &terms, output);
        if service.due_at().is_some() {
            self.dirty.insert(name.clone());
        }
    }

    /// Records that a worker of a predecessor has reported. After the last one of a service, no shard of it is
    /// disputed.
    fn stop_awaiting(&mut self, name: &ServiceName, worker: &WorkerId, now: Duration) {
        let Some(awaited) = self.awaited.get_mut(name) else { return };
        self.awaited_count -= usize::from(awaited.remove(worker));
        if awaited.is_empty() {
            self.awaited.remove(name);
            if let Some(service) = self.services.get_mut(name) {
                service.release(now);
            }
        }
    }

    /// Returns the next change of the roster to write to the store. The caller repeats the write until the store confirms
    /// it, then calls [`roster_written`](Self::roster_written).
    pub fn roster_change(&mut self) -> Option<RosterChange> {
        self.roster.as_mut()?.next_change()
    }

    /// Lets the workers that the store lists now take part.
    pub fn roster_written(&mut self, change: RosterChange, now: Duration) {
        let terms = self.terms();
        let listed = self.roster.as_mut().map(|roster| roster.confirm(change)).unwrap_or_default();
        for ShardMember { service: name, worker } in listed {
            let Some(service) = self.services.get_mut(&name) else { continue };
            let Some(member) = service.members.get_mut(&worker).filter(|member| member.is_active) else { continue };
            member.is_listed = true;
            service.disturb_by(ShardChange::Joined, now, &terms);
            self.dirty.insert(name);
        }
    }

    fn member(&self, report: &Report) -> Option<&Member> {
        self.services.get(&report.service_name)?.members.get(&report.worker_id)
    }

    /// Rejects a report that would exceed a limit.
    fn make_room(&self, report: &Report) -> Result<(), Refusal> {
        let Limits { services_max, workers_max, shards_max } = self.settings.limits;
        let refuse = |what: &str, max: usize| {
            Err(Refusal::new(
                Refusal::LIMIT,
                format!("the coordinator has {max} {what} already, which is all it takes"),
            ))
        };
        let service = self.services.get(&report.service_name);
        if service.is_none() && self.services.len() >= services_max {
            return refuse("services", services_max);
        }
        let is_known = service.is_some_and(|service| service.members.contains_key(&report.worker_id));
        // Awaited workers are counted already: the store's list has the same bound.
        let is_awaited = || self.awaited.get(&report.service_name).is_some_and(|it| it.contains(&report.worker_id));
        if !is_known && self.workers + self.awaited_count >= workers_max && !is_awaited() {
            return refuse("workers", workers_max);
        }
        let count = service.map_or(0, |service| service.shard_count);
        let shards = self.shards - count as usize + report.max_shard_count as usize;
        if report.max_shard_count > count && shards > shards_max {
            let message = format!(
                "maxShardCount: expected at most {shards_max} shards in all services together, got {shards} with {} here",
                report.max_shard_count
            );
            return Err(Refusal::new(Refusal::LIMIT, message));
        }
        Ok(())
    }

    fn on_leave(&mut self, from: &Peer, leave: Leave, now: Duration, output: &mut Output) {
        let terms = self.terms();
        let mut version = self.floor;
        if let Some(service) = self.services.get_mut(&leave.service_name) {
            version = service.version;
            if let Some(member) = service.members.get_mut(&leave.worker_id) {
                let is_overtaken = leave.version.is_some_and(|seen| seen < member.granted_at);
                let is_of_former_life = leave.beat.is_some_and(|beat| beat < member.beat);
                if is_overtaken || is_of_former_life {
                    service.reply(&leave.worker_id, false, None, &terms, output);
                    return;
                }
                let target = member.target.clone();
                service.members.remove(&leave.worker_id);
                service.depart(leave.worker_id.clone(), target, ShardChange::Left);
                self.workers -= 1;
                if let Some(roster) = &mut self.roster {
                    roster.remove(&key(&leave.service_name, &leave.worker_id));
                }
                service.disturb(now, &terms);
                self.dirty.insert(leave.service_name.clone());
                self.stop_awaiting(&leave.service_name, &leave.worker_id, now);
                output.events.push(ShardEvent::Left { service: leave.service_name, worker: leave.worker_id });
            }
        }
        // Confirms the leave.
        let farewell = CoordinatorMessage::Assignment(Assignment { version, ..Assignment::default() });
        output.sends.push((from.clone(), farewell.encode()));
    }

    fn take_released(&mut self, released: Released, now: Duration) {
        let terms = self.terms();
        let Some(service) = self.services.get_mut(&released.service_name) else { return };
        let Some(member) = service.members.get_mut(&released.worker_id) else { return };
        if member.on_released(&released.shards, released.version) {
            service.disturb_by(ShardChange::Released, now, &terms);
            self.dirty.insert(released.service_name);
        }
    }

    /// Does what is due: rebalances services, and checks for silent workers.
    pub fn tick(&mut self, now: Duration, output: &mut Output) {
        if now >= self.next_check {
            self.next_check = now + self.settings.check_interval;
            self.remove_silent_workers(now, output);
        }
        let terms = self.terms();
        let is_due = |name: &ServiceName, services: &BTreeMap<ServiceName, Service>| {
            services.get(name).is_none_or(|service| service.due_at().is_none_or(|due| due <= now))
        };
        let due: Vec<ServiceName> = self.dirty.iter().filter(|name| is_due(name, &self.services)).cloned().collect();
        for name in due {
            self.dirty.remove(&name);
            let Some(service) = self.services.get_mut(&name) else { continue };
            service.rebalance(&name, &terms, output);
            self.is_exhausted |= service.version.0 >= terms.versions_end.0 && !service.is_lifted;
            if service.members.is_empty() {
                self.forget(&name);
            }
        }
    }

    /// Ends the wait for workers of a predecessor: those that did not report in time have fenced themselves.
    fn give_up_awaited(&mut self, output: &mut Output) {
        self.awaited_count = 0;
        for (service, workers) in std::mem::take(&mut self.awaited) {
            for worker in workers {
                // A worker that reported, but no version of this term, is a member by now.
                if self.services.get(&service).is_some_and(|it| it.members.contains_key(&worker)) {
                    continue;
                }
                if let Some(roster) = &mut self.roster {
                    roster.remove(&key(&service, &worker));
                }
                output.events.push(ShardEvent::Dead { service: service.clone(), worker });
            }
        }
    }

    fn remove_silent_workers(&mut self, now: Duration, output: &mut Output) {
        if now >= self.settings.heartbeat_timeout {
            self.give_up_awaited(output);
        }
        let forgotten_after = self.settings.heartbeat_timeout * FORGOTTEN_AFTER_TIMEOUTS;
        for (name, service) in &mut self.services {
            let before = service.members.len();
            let mut died = Vec::new();
            service.members.retain(|worker, member| {
                let silent_for = now.saturating_sub(member.last_heartbeat);
                if member.is_active && silent_for >= self.settings.heartbeat_timeout {
                    died.push((worker.clone(), member.target.clone()));
                    member.die();
                    if let Some(roster) = &mut self.roster {
                        roster.remove(&key(name, worker));
                    }
                    output.events.push(ShardEvent::Dead { service: name.clone(), worker: worker.clone() });
                }
                silent_for < forgotten_after
            });
            let forgotten = before - service.members.len();
            self.workers -= forgotten;
            if !died.is_empty() || (forgotten > 0 && service.members.is_empty()) {
                // No delay is useful: all workers that were silent for as long were found in the same check.
                service.disturb_at_once(now);
                self.dirty.insert(name.clone());
            }
            died.into_iter().for_each(|(worker, target)| service.depart(worker, target, ShardChange::Dead));
        }
    }

    fn forget(&mut self, name: &ServiceName) {
        if let Some(service) = self.services.remove(name) {
            self.shards -= service.shard_count as usize;
            self.floor = self.floor.max(service.version);
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            strategy: self.settings.strategy,
            heartbeat_timeout: self.settings.heartbeat_timeout,
            settle: self.settings.settle,
            settle_max: self.settings.settle_max,
            takes_over: self.takes_over,
            versions_end: Version(self.first.0.saturating_add(Version::PER_TERM - 1)).min(Version::MAX),
        }
    }
}
