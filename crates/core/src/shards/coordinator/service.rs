//! One service: its workers, and the shards of each.
//!
//! Grants change in three places: in a rebalance, in an adoption while the service is held, and by a death or a leave,
//! which only remove. The first two use a new version, so that a shard has one holder per version. A shard that a
//! worker was asked to release is in no grant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::member::{Member, Revoking};
use super::moves::Moves;
use super::{Output, Rebalanced, ShardEvent};
use crate::history::{RebalanceCause, ShardChange};
use crate::ids::{ServiceName, WorkerId};
use crate::shards::strategy::NOBODY;
use crate::shards::wire::{self, Report};
use crate::shards::{Shard, Strategy, Version};

/// The terms of all services, at one moment.
pub struct Terms {
    pub strategy: Strategy,
    pub heartbeat_timeout: Duration,
    pub settle: Duration,
    pub settle_max: Duration,
    pub takes_over: bool,
    /// The last version of the term.
    pub versions_end: Version,
}

impl Terms {
    /// Returns until when a service that appears now waits for the workers of a predecessor, if any is awaited.
    pub fn hold_until(&self, is_awaiting: bool, now: Duration) -> Option<Duration> {
        ((self.takes_over || is_awaiting) && now < self.heartbeat_timeout).then_some(self.heartbeat_timeout)
    }
}

#[cfg_attr(test, derive(Clone))]
pub struct Service {
    pub shard_count: u32,
    pub version: Version,
    /// A worker had seen a version that is higher than this term would have reached.
    pub is_lifted: bool,
    /// By id, which is the order of `contiguous`.
    pub members: BTreeMap<WorkerId, Member>,
    disturbed: Option<Disturbed>,
    held: Option<Held>,
    /// The changes since the last rebalance, for its record.
    causes: BTreeMap<ShardChange, u32>,
    /// Workers that are gone since the last rebalance and the shards that they should have had, for its record.
    departed: Vec<(WorkerId, Arc<[Shard]>)>,
}

/// Due for a rebalance.
#[cfg_attr(test, derive(Clone, Hash))]
struct Disturbed {
    since: Duration,
    due: Duration,
}

/// Nothing new is granted: workers report the shards that they have from a predecessor.
#[cfg_attr(test, derive(Clone, Hash))]
struct Held {
    until: Duration,
    /// Unlisted workers may report: the hold lasts for the whole time.
    is_for_strangers: bool,
    /// The holder of each shard so far, and the version of its report.
    claims: BTreeMap<Shard, (WorkerId, Version)>,
}

impl Service {
    pub fn new(version: Version, hold_until: Option<Duration>) -> Self {
        let mut service = Service {
            shard_count: 0,
            version,
            is_lifted: false,
            members: BTreeMap::new(),
            disturbed: None,
            held: None,
            causes: BTreeMap::new(),
            departed: Vec::new(),
        };
        if let Some(until) = hold_until {
            service.add_cause(ShardChange::Takeover);
            service.hold(until, false);
        }
        service
    }

    fn add_cause(&mut self, change: ShardChange) {
        let count = self.causes.entry(change).or_default();
        *count = count.saturating_add(1);
    }

    /// Remembers a worker that is gone until the next rebalance.
    pub fn depart(&mut self, worker: WorkerId, target: Arc<[Shard]>, change: ShardChange) {
        self.add_cause(change);
        self.departed.push((worker, target));
    }

    /// Schedules a rebalance after a time without changes.
    pub fn disturb_by(&mut self, change: ShardChange, now: Duration, terms: &Terms) {
        self.add_cause(change);
        self.disturb(now, terms);
    }

    /// Schedules a rebalance after a time without changes, whose cause is known.
    pub fn disturb(&mut self, now: Duration, terms: &Terms) {
        let since = self.disturbed.as_ref().map_or(now, |disturbed| disturbed.since);
        self.disturbed = Some(Disturbed { since, due: (now + terms.settle).min(since + terms.settle_max) });
    }

    /// Changes the number of shards. The worker that makes a service known joins it at the same time, which is the cause.
    pub fn resize(&mut self, shard_count: u32, now: Duration, terms: &Terms) {
        if std::mem::replace(&mut self.shard_count, shard_count) > 0 {
            self.add_cause(ShardChange::Resized);
        }
        self.disturb(now, terms);
    }

    /// Schedules a rebalance without a delay.
    pub fn disturb_at_once(&mut self, now: Duration) {
        self.disturbed = Some(Disturbed { since: now, due: now });
    }

    /// Returns when it is to be rebalanced, if at all.
    pub fn due_at(&self) -> Option<Duration> {
        let due = self.disturbed.as_ref()?.due;
        Some(self.held.as_ref().map_or(due, |held| held.until.max(due)))
    }

    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Waits for reports. Present grants count as reported with the highest version.
    pub fn hold(&mut self, until: Duration, is_for_strangers: bool) {
        if let Some(held) = &mut self.held {
            held.until = held.until.max(until);
            held.is_for_strangers |= is_for_strangers;
            return;
        }
        let mut claims = BTreeMap::new();
        for (worker, member) in &self.members {
            let held = member.granted.iter().copied().chain(member.revoking.iter().map(|it| it.shard));
            claims.extend(held.map(|shard| (shard, (worker.clone(), Version::MAX))));
        }
        self.held = Some(Held { until, is_for_strangers, claims });
    }

    /// Ends the wait because all awaited workers have reported, unless unlisted ones may have shards.
    pub fn release(&mut self, now: Duration) {
        if let Some(held) = self.held.as_mut().filter(|held| !held.is_for_strangers) {
            held.until = held.until.min(now);
        }
    }

    /// Returns whether a report of an awaited worker is final: the worker will accept no further grant of a
    /// predecessor. If not, stores the version from which on a report is final.
    pub fn has_reported(&mut self, report: &Report) -> bool {
        let Some(member) = self.members.get_mut(&report.worker_id) else { return false };
        if !member.handoff {
            return true;
        }
        if let Some(confirmed_from) = member.confirmed_from {
            return report.version.is_some_and(|seen| seen >= confirmed_from);
        }
        // Every reply from now on has this version or a higher one, and the worker has seen none of them yet.
        let unseen = report.version.map_or(0, |seen| seen.0.saturating_add(1));
        member.confirmed_from = Some(self.version.max(Version(unseen)));
        false
    }

    /// Raises the version above one that a worker has seen, unless that is out of range.
    pub fn lift(&mut self, seen: Option<Version>) {
        if let Some(seen) = seen.filter(|seen| *seen > self.version && *seen <= Version::BELIEVED_MAX) {
            self.version = seen.next();
            self.is_lifted = true;
        }
    }

    /// While the service is held, grants a worker the shards that it reports: those without another holder, and those
    /// that another reported with a lower version, because that one does not know yet that they moved. A worker with
    /// handoff cannot be in that situation, and keeps its shards. Shards that a worker no longer reports are released.
    pub fn adopt(&mut self, worker: &WorkerId, shards: &[Shard], seen: Version) {
        let (Some(held), Some(member)) = (&mut self.held, self.members.get(worker)) else { return };
        // It still has the shards that it was asked to release. They are not granted again: the revocation continues.
        let is_asked_for = |shard: &Shard| member.revoking.binary_search_by_key(shard, |it| it.shard).is_ok();
        let may_keep = |shard: &Shard| *shard < self.shard_count && !is_asked_for(shard);
        let mut reported: Vec<Shard> = shards.iter().copied().filter(may_keep).collect();
        reported.sort_unstable();
        reported.dedup();
        let (mut owned, mut lost) = (Vec::new(), BTreeMap::<WorkerId, Vec<Shard>>::new());
        for shard in reported.iter().copied() {
            match held.claims.get(&shard) {
                None => {}
                Some((holder, _)) if holder == worker => {}
                Some((holder, by)) if *by < seen && self.members.get(holder).is_some_and(|holder| !holder.handoff) => {
                    lost.entry(holder.clone()).or_default().push(shard);
                }
                Some(_) => continue,
            }
            owned.push(shard);
        }
        let Some(member) = self.members.get_mut(worker) else { return };
        for shard in member.granted.iter().filter(|shard| reported.binary_search(shard).is_err()) {
            match held.claims.get(shard) {
                // Granted before the service was held: the worker may not have received it yet.
                Some((_, by)) if *by == Version::MAX => owned.push(*shard),
                _ => drop(held.claims.remove(shard)),
            }
        }
        for shard in &owned {
            let claim = held.claims.entry(*shard).or_insert_with(|| (worker.clone(), seen));
            if claim.1 != Version::MAX {
                *claim = (worker.clone(), seen);
            }
        }
        owned.sort_unstable();
        if owned[..] == member.granted[..] {
            return;
        }
        self.version = self.version.next();
        member.target = owned.into();
        member.grant(member.target.clone(), self.version);
        for (loser, lost) in lost {
            let Some(loser) = self.members.get_mut(&loser) else { continue };
            let is_kept = |shard: &Shard| lost.binary_search(shard).is_err();
            loser.target = loser.granted.iter().copied().filter(is_kept).collect();
            loser.grant(loser.target.clone(), self.version);
            loser.owed.get_or_insert(None);
        }
    }

    /// Sends a worker its assignment and its open revocations; if it waits, with the next rebalance.
    pub fn reply(&mut self, worker: &WorkerId, waits: bool, beat: Option<u64>, terms: &Terms, output: &mut Output) {
        let Some(member) = self.members.get_mut(worker) else { return };
        // A worker that is not listed must not be sent shards, not even its own: a successor would not wait for it.
        if waits || (!member.is_listed && !member.granted.is_empty()) {
            member.owed = Some(beat);
            return;
        }
        let assignment = member.assignment(self.version, terms.heartbeat_timeout);
        output.sends.push((member.peer.clone(), wire::replying_to(&assignment, beat)));
        output.sends.extend(member.revocation(self.version).map(|revocation| (member.peer.clone(), revocation)));
    }

    /// Grants each live worker the shards that the strategy plans for it and that no other worker still holds. Notifies
    /// the workers whose shards changed: first those that lose some, then those that gain some.
    pub fn rebalance(&mut self, name: &ServiceName, terms: &Terms, output: &mut Output) {
        (self.disturbed, self.held) = (None, None);
        if self.version >= Version::MAX {
            // There is no version left for a new grant.
            return;
        }
        let next = self.version.next();
        let mut ids = Vec::new();
        let mut members = Vec::new();
        for (id, member) in self.members.iter_mut().filter(|(_, member)| member.takes_part()) {
            ids.push(id);
            members.push(member);
        }
        let (parts, moved, moves) = divide(self.shard_count as usize, &ids, &members, terms.strategy, &self.departed);
        let (moves, cut) = moves.named(&ids, &self.departed);
        let mut reported = Vec::new();
        let mut changed = false;
        for (member, part) in members.into_iter().zip(parts) {
            let loses = !part.revoked.is_empty() || part.granted.len() < member.granted.len();
            let is_changed = loses || part.granted != member.granted[..];
            member.target = part.target.into();
            if is_changed {
                let since = |shard| Revoking { shard, since: next };
                member.revoking.extend(part.revoked.into_iter().map(since));
                member.revoking.sort_unstable_by_key(|it| it.shard);
                member.grant(part.granted.into(), next);
                changed = true;
            }
            if !member.is_listed {
                member.owed.get_or_insert(None);
            } else if is_changed || (member.owed.is_some() && !member.waits_for_its_part()) {
                reported.push((!loses, is_changed, member));
            }
        }
        if changed || moved > 0 {
            self.version = next;
            let causes = std::mem::take(&mut self.causes).into_iter();
            output.rebalances.push(Rebalanced {
                service: name.clone(),
                version: next,
                shard_count: self.shard_count,
                causes: causes.map(|(change, count)| RebalanceCause { change, count }).collect(),
                moved: moved as u64,
                moves,
                cut,
            });
            self.departed.clear();
            output.events.push(ShardEvent::Rebalanced { service: name.clone(), version: next, moved });
        }
        reported.sort_by_key(|(gains, ..)| *gains);
        for (_, is_changed, member) in reported {
            let assignment = member.assignment(self.version, terms.heartbeat_timeout);
            let beat = member.owed.take().flatten();
            output.sends.push((member.peer.clone(), wire::replying_to(&assignment, beat)));
            let revocation = member.revocation(self.version).filter(|_| is_changed);
            output.sends.extend(revocation.map(|revocation| (member.peer.clone(), revocation)));
        }
    }
}

/// The result of a rebalance for one worker.
#[derive(Default)]
struct Part {
    target: Vec<Shard>,
    granted: Vec<Shard>,
    /// The shards that it has, should release, and was not asked for yet.
    revoked: Vec<Shard>,
}

/// In place of a holder: it was asked to release the shard.
const LETTING_GO: u32 = 1 << 31;

/// Returns the part of each live worker, how many shards are planned for another worker than before, and which.
fn divide(
    shards: usize,
    ids: &[&WorkerId],
    members: &[&mut Member],
    strategy: Strategy,
    departed: &[(WorkerId, Arc<[Shard]>)],
) -> (Vec<Part>, usize, Moves) {
    let (mut current, mut holders) = (vec![NOBODY; shards], vec![NOBODY; shards]);
    let mut parts: Vec<Part> = members.iter().map(|_| Part::default()).collect();
    for (place, member) in members.iter().enumerate() {
        let set = |list: &mut Vec<u32>, shard: Shard, value: u32| list.get_mut(shard as usize).map(|it| *it = value);
        for shard in member.target.iter() {
            set(&mut current, *shard, place as u32);
        }
        for shard in member.granted.iter() {
            let is_left = set(&mut holders, *shard, place as u32).is_some();
            if !is_left && member.handoff {
                // The service has fewer shards now.
                parts[place].revoked.push(*shard);
            }
        }
        for revoking in &member.revoking {
            set(&mut holders, revoking.shard, place as u32 | LETTING_GO);
        }
    }
    let plan = strategy.plan(ids, &current);
    let mut moved = 0;
    let mut moves = Moves::new(shards, ids.len(), departed);
    for (shard, (owner, holder)) in plan.iter().zip(&holders).enumerate() {
        let (shard, owner, holder) = (shard as Shard, *owner, *holder);
        moved += usize::from(owner != current[shard as usize]);
        moves.add(shard, current[shard as usize], owner);
        let Some(part) = parts.get_mut(owner as usize) else { continue };
        part.target.push(shard);
        if holder == NOBODY || holder == owner {
            part.granted.push(shard);
        } else if holder & LETTING_GO == 0 {
            let is_waited_for = members[holder as usize].handoff;
            let to = if is_waited_for { &mut parts[holder as usize].revoked } else { &mut part.granted };
            to.push(shard);
        }
    }
    (parts, moved, moves)
}

/// Without what is for display only, for models.
#[cfg(test)]
impl std::hash::Hash for Service {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        (self.shard_count, self.version, self.is_lifted, &self.members, &self.disturbed, &self.held).hash(hasher);
    }
}
