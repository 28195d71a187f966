//! The dispatch window: how many jobs of a queue may be on their way to its workers.
//!
//! Dispatch stays close to the workers, so that a later job of higher priority still overtakes and a queue without a
//! live worker keeps its jobs pending. A queue has a window for each [`Place`] at which it has workers: the gateway of a
//! node, whose inbox the runs are sent to, or the bus. A window is the number of free slots that the workers reported,
//! plus a lookahead, minus the runs that were sent and that no worker has.
//!
//! The lookahead hides the round trip of a heartbeat: it is the number of jobs that the place has lately been sent in
//! `LOOKAHEAD`. A queue of no-op jobs is refilled before its workers report that they are idle; a queue of jobs longer
//! than `MEMORY` gets no lookahead. It never exceeds the number of runs that the workers execute at once and want to have beside
//! them. While a fast place still has runs that no worker has, it is sent no small batch: each write has a fixed cost.
//!
//! A worker of several queues has its slots once. The windows of a node are therefore also bounded together: by the
//! free slots and the lookahead of all its workers, minus all runs that wait there.
//!
//! [`UntakenBytes`] bounds the windows in bytes too, so that a thousand free slots do not put a thousand jobs of a
//! megabyte on their way at once.
//!
//! Heartbeats are hints. A heartbeat that is older than the last one of its worker is ignored; a silent worker is
//! forgotten with its slots. A run that was dispatched by a wrong hint waits where it was sent to, and the leader
//! releases it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::untaken::UntakenBytes;
use super::wire::{WorkerHeartbeat, WorkerState};
use crate::ids::{NodeId, QueueName, WorkerId};

/// The time for which jobs are dispatched ahead of the workers' heartbeats.
const LOOKAHEAD: Duration = Duration::from_millis(40);

/// A place that has runs waiting is sent no fewer jobs than its workers end in this time.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// The same as a fraction of the runs that its workers execute at once, if that is less.
const BATCH_FRACTION: u64 = 4;

/// The time over which the turnover is averaged. Workers that are filled once in this time have none: filling idle
/// workers with long jobs is not turnover.
const MEMORY: Duration = Duration::from_millis(500);

/// How often places take turns in one dispatch.
const TURNS: usize = 8;

/// How late a heartbeat may arrive after a newer one. If it is later than that, a clock was set.
const OUT_OF_ORDER_MAX: Duration = Duration::from_secs(5);

/// Where workers receive their runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The gateway of this node.
    Node(NodeId),
    /// The dispatch queues of the bus.
    Bus,
}

impl Place {
    /// Returns where the worker of a heartbeat receives its runs.
    pub fn of(heartbeat: &WorkerHeartbeat) -> Self {
        match &heartbeat.via {
            Some(node) if heartbeat.inbox.is_some() => Place::Node(node.clone()),
            _ => Place::Bus,
        }
    }

    /// Returns the node, if the place is one.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Place::Node(node) => Some(node),
            Place::Bus => None,
        }
    }
}

/// The dispatch windows of all queues.
#[derive(Debug, Default)]
pub struct Windows {
    workers: BTreeMap<WorkerId, Seen>,
    /// Queues with at least one live worker.
    queues: BTreeMap<QueueName, BTreeMap<Place, Totals>>,
    /// All workers of a place, each counted once.
    places: BTreeMap<Place, Totals>,
    untaken: UntakenBytes,
}

/// The last heartbeat of a worker. A worker that takes no more runs is remembered without queues, so that a late
/// heartbeat does not make it active again.
#[derive(Debug)]
struct Seen {
    place: Place,
    queues: Vec<QueueName>,
    slots: Slots,
    /// When it was sent, by the worker's clock.
    reported_at: Timestamp,
    /// When it was received, by the leader's clock.
    seen_at: Timestamp,
}

#[derive(Debug, Default, Clone, Copy)]
struct Slots {
    free: u64,
    running: u64,
    /// Runs that a worker has beyond its slots.
    ahead: u64,
    /// Runs that it wants to have beyond its slots.
    prefetch: u64,
}

#[derive(Debug, Default)]
struct Totals {
    workers: usize,
    slots: Slots,
    /// Jobs per second, at `turnover_at`.
    turnover: f64,
    turnover_at: Option<Timestamp>,
}

/// The runs at a place that no worker has: on their way, in the inbox of a node, or untaken on the bus.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRuns {
    /// The runs of the queue.
    pub of_queue: u64,
    /// The runs of all queues. Only used for a node.
    pub of_place: u64,
}

impl Windows {
    /// Returns windows without workers.
    pub fn new() -> Self {
        Windows::default()
    }

    /// Takes in a heartbeat, unless it is older than the last one of its worker.
    pub fn on_heartbeat(&mut self, heartbeat: &WorkerHeartbeat, now: Timestamp) {
        let known = self.workers.remove(&heartbeat.worker_id);
        if let Some(known) = known {
            // A little out of order: the heartbeat is outdated. By more, or if our own clock went back: a clock was
            // set.
            let late = elapsed(heartbeat.at, known.reported_at);
            if !late.is_zero() && late < OUT_OF_ORDER_MAX && now >= known.seen_at {
                self.workers.insert(heartbeat.worker_id.clone(), known);
                return;
            }
            let queues =
                if known.queues == heartbeat.queues { known.queues.clone() } else { distinct(&heartbeat.queues) };
            self.replace(known, heartbeat, queues, now);
        } else {
            let nothing = Seen {
                place: Place::Bus,
                queues: Vec::new(),
                slots: Slots::default(),
                reported_at: heartbeat.at,
                seen_at: now,
            };
            self.replace(nothing, heartbeat, distinct(&heartbeat.queues), now);
        }
    }

    fn replace(&mut self, known: Seen, heartbeat: &WorkerHeartbeat, queues: Vec<QueueName>, now: Timestamp) {
        let queues = if heartbeat.state == WorkerState::Active { queues } else { Vec::new() };
        let (place, slots) = (Place::of(heartbeat), Slots::of(heartbeat));
        let seen = Seen { place, queues, slots, reported_at: heartbeat.at, seen_at: now };
        // Add first, then subtract: otherwise a queue with one worker would lose its turnover with every heartbeat.
        self.add(&seen);
        self.subtract(&known);
        self.workers.insert(heartbeat.worker_id.clone(), seen);
    }

    /// Forgets workers that were last seen `stale_after` ago or longer.
    pub fn forget_stale(&mut self, now: Timestamp, stale_after: Duration) {
        // A worker seen in the future: our clock went back. Its silence counts from now.
        self.workers.values_mut().for_each(|seen| seen.seen_at = seen.seen_at.min(now));
        let stale = self.workers.extract_if(.., |_, seen| elapsed(seen.seen_at, now) >= stale_after);
        let stale: Vec<Seen> = stale.map(|(_, seen)| seen).collect();
        for seen in stale {
            self.subtract(&seen);
        }
    }

    /// Returns the free slots that the workers of the queue reported. A worker of several queues counts for each.
    pub fn free(&self, queue: &QueueName) -> u32 {
        let free: u64 = self.of(queue).map(|(_, totals)| totals.slots.free).sum();
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// Returns the free slots that the workers of the queue at this place reported.
    pub fn free_at(&self, queue: &QueueName, place: &Place) -> u64 {
        self.totals(queue, place).map_or(0, |totals| totals.slots.free)
    }

    /// Returns the number of live workers that take runs of the queue.
    pub fn workers(&self, queue: &QueueName) -> usize {
        self.of(queue).map(|(_, totals)| totals.workers).sum()
    }

    /// Returns the places at which the queue has such a worker: nodes by name, then the bus.
    pub fn places(&self, queue: &QueueName) -> impl Iterator<Item = &Place> {
        self.of(queue).map(|(place, _)| place)
    }

    /// Returns the queues that have such a worker, by name.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.keys()
    }

    /// Returns how many jobs of the queue may be sent to the place now, if these runs wait there.
    pub fn limit(&mut self, queue: &QueueName, place: &Place, waiting: WaitingRuns, now: Timestamp) -> usize {
        self.untaken.observe(queue, place, waiting.of_queue);
        let Some(totals) = self.totals(queue, place) else { return 0 };
        let open = totals.window(now).saturating_sub(waiting.of_queue);
        let open = match place {
            Place::Node(_) => self.places.get(place).map_or(0, |all| {
                // Each queue may want its own lookahead, so that the place is bounded by the sum.
                open.min(all.window(now).saturating_sub(waiting.of_place))
            }),
            Place::Bus => open,
        };
        // The workers have runs to go on with: the rest of the batch comes with the next heartbeats.
        if waiting.of_queue > 0 && open < totals.batch_min(now) {
            return 0;
        }
        usize::try_from(open).unwrap_or(usize::MAX).min(self.untaken.limit(queue, place))
    }

    /// Returns the sizes of the runs that were sent and that no worker has.
    pub fn untaken(&mut self) -> &mut UntakenBytes {
        &mut self.untaken
    }

    /// Adds `n` dispatched jobs to the turnover of the queue at the place.
    pub fn dispatched(&mut self, queue: &QueueName, place: &Place, n: usize, now: Timestamp) {
        let of_queue = self.queues.get_mut(queue).and_then(|places| places.get_mut(place));
        for totals in of_queue.into_iter().chain(self.places.get_mut(place)) {
            totals.turnover = totals.turnover_by(now) + n as f64 / MEMORY.as_secs_f64();
            totals.turnover_at = totals.turnover_at.max(Some(now));
        }
    }

    fn of(&self, queue: &QueueName) -> impl Iterator<Item = (&Place, &Totals)> {
        self.queues.get(queue).into_iter().flatten()
    }

    fn totals(&self, queue: &QueueName, place: &Place) -> Option<&Totals> {
        self.queues.get(queue)?.get(place)
    }

    fn add(&mut self, seen: &Seen) {
        for queue in &seen.queues {
            if !self.queues.contains_key(queue) {
                self.queues.insert(queue.clone(), BTreeMap::new());
            }
            if let Some(places) = self.queues.get_mut(queue) {
                add(places, seen);
            }
        }
        if !seen.queues.is_empty() {
            add(&mut self.places, seen);
        }
    }

    fn subtract(&mut self, seen: &Seen) {
        for queue in &seen.queues {
            let Some(places) = self.queues.get_mut(queue) else { continue };
            subtract(places, seen);
            if places.is_empty() {
                self.queues.remove(queue);
            }
        }
        if !seen.queues.is_empty() {
            subtract(&mut self.places, seen);
        }
    }
}

fn add(places: &mut BTreeMap<Place, Totals>, seen: &Seen) {
    if !places.contains_key(&seen.place) {
        places.insert(seen.place.clone(), Totals::default());
    }
    if let Some(totals) = places.get_mut(&seen.place) {
        totals.workers += 1;
        totals.slots = totals.slots.each(seen.slots, |sum, own| sum + own);
    }
}

fn subtract(places: &mut BTreeMap<Place, Totals>, seen: &Seen) {
    let Some(totals) = places.get_mut(&seen.place) else { return };
    totals.workers -= 1;
    totals.slots = totals.slots.each(seen.slots, |sum, own| sum - own);
    if totals.workers == 0 {
        places.remove(&seen.place);
    }
}

impl Slots {
    fn of(heartbeat: &WorkerHeartbeat) -> Self {
        // Only a node's gateway knows of both; the reads of a worker on the bus are its own.
        let inbox = heartbeat.inbox.as_ref();
        Slots {
            free: heartbeat.free.into(),
            running: heartbeat.running.into(),
            ahead: inbox.map_or(0, |_| heartbeat.running.saturating_sub(heartbeat.slots()).into()),
            prefetch: inbox.map_or(0, |inbox| inbox.prefetch.into()),
        }
    }

    fn each(self, other: Slots, with: impl Fn(u64, u64) -> u64) -> Slots {
        Slots {
            free: with(self.free, other.free),
            running: with(self.running, other.running),
            ahead: with(self.ahead, other.ahead),
            prefetch: with(self.prefetch, other.prefetch),
        }
    }
}

impl Totals {
    /// Returns how many runs may wait for these workers.
    fn window(&self, now: Timestamp) -> u64 {
        let Slots { free, ahead, prefetch, .. } = self.slots;
        let lookahead = (self.turnover_beyond_filling(now) * LOOKAHEAD.as_secs_f64()) as u64;
        (free + lookahead.min(self.executed() + prefetch)).saturating_sub(ahead)
    }

    /// Returns how many runs these workers execute at once.
    fn executed(&self) -> u64 {
        self.slots.free + self.slots.running - self.slots.ahead
    }

    fn batch_min(&self, now: Timestamp) -> u64 {
        let ended = (self.turnover_beyond_filling(now) * BATCH_TIME.as_secs_f64()) as u64;
        ended.min((self.executed() + self.slots.prefetch) / BATCH_FRACTION)
    }

    /// Returns the turnover without one filling of all slots.
    fn turnover_beyond_filling(&self, now: Timestamp) -> f64 {
        (self.turnover_by(now) - self.executed() as f64 / MEMORY.as_secs_f64()).max(0.0)
    }

    /// Returns the turnover, decayed to `now`.
    fn turnover_by(&self, now: Timestamp) -> f64 {
        let Some(at) = self.turnover_at else { return 0.0 };
        self.turnover * (-elapsed(at, now).as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }
}

/// Divides `limit` runs of a queue among places, of which each may be sent at most so many. The result is in the order
/// of dispatch: the places take turns, so that all get some if there are fewer jobs, and the bus comes last.
pub fn deal(wants: &[(Place, usize)], limit: usize) -> Vec<(Place, usize)> {
    let total = wants.iter().fold(0usize, |sum, (_, want)| sum.saturating_add(*want));
    let limit = limit.min(total);
    let of_bus = wants.iter().find(|(place, _)| *place == Place::Bus).map_or(0, |(_, want)| *want);
    // In proportion, because it comes last.
    let bus = (limit as u128 * of_bus as u128).div_ceil(total.max(1) as u128) as usize;
    let mut left = limit - bus;
    let mut nodes: Vec<(&Place, usize)> =
        wants.iter().filter(|(place, _)| *place != Place::Bus).map(|(place, want)| (place, *want)).collect();
    let turn = (left / (nodes.len().max(1) * TURNS)).max(1);
    let mut dealt: Vec<(Place, usize)> = Vec::new();
    while left > 0 && nodes.iter().any(|(_, want)| *want > 0) {
        for (place, want) in &mut nodes {
            let runs = turn.min(*want).min(left);
            (*want, left) = (*want - runs, left - runs);
            match dealt.last_mut() {
                Some((last, count)) if *last == **place => *count += runs,
                _ if runs > 0 => dealt.push(((*place).clone(), runs)),
                _ => {}
            }
        }
    }
    if bus > 0 {
        dealt.push((Place::Bus, bus));
    }
    dealt
}

/// Returns the time between two instants, or zero if the clock went back.
fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

fn distinct(queues: &[QueueName]) -> Vec<QueueName> {
    let mut seen = BTreeSet::new();
    queues.iter().filter(|queue| seen.insert(*queue)).cloned().collect()
}

#[cfg(test)]
mod tests;
