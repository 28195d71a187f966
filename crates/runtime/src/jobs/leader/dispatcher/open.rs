//! How many jobs of each queue may be dispatched now, and where their runs are sent to.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::jobs::window::{Place, WaitingRuns, deal};
use convoke_core::jobs::wire::NodeState;
use convoke_core::ports::store::{OwnerShare, Window};
use convoke_core::{QueueName, Result};
use jiff::Timestamp;
use tracing::warn;

use super::{BATCH_MAX, Dispatcher};
use crate::jobs::leader::requeue::recall;

/// How long runs may wait in an inbox while another place has a free slot.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// A window, and the places that its runs are sent to, in the order of dispatch.
pub struct OpenWindow {
    pub order: Window,
    pub shares: Vec<(Place, usize)>,
}

/// How many runs each place may be sent.
type Wants = Vec<(Place, usize)>;

impl Dispatcher {
    /// Returns how many jobs of each changed queue may be dispatched now.
    pub(super) async fn open_windows(&mut self, now: Timestamp) -> Result<Vec<OpenWindow>> {
        let global = self.global.as_mut().map(|global| (global.available(now) as usize, global.next_at(now)));
        let is_shared = global.is_some();
        let (available, next_at) = global.unwrap_or((BATCH_MAX, None));
        let budget = available.min(BATCH_MAX);
        if budget == 0 {
            self.held.append(&mut self.touched);
            self.wake_at(next_at);
            return Ok(Vec::new());
        }
        if self.windows.untaken().is_full() {
            self.observe_untaken().await?;
        }
        let (mut totals, mut places): (Vec<(QueueName, usize)>, Vec<Wants>) = (Vec::new(), Vec::new());
        let (mut total, mut last) = (0, self.first.clone().filter(|_| !is_shared));
        // The slots that this dispatch may fill at each place: a worker of several queues has them once. A queue that
        // finds them taken comes again if the others had fewer jobs.
        let mut granted: BTreeMap<Place, u64> = BTreeMap::new();
        // Each queue gets at least one job of a shared limit: no more queues are needed than there are jobs to
        // dispatch.
        while (if is_shared { totals.len() } else { total }) < budget
            && let Some(queue) = self.turns.next(&mut self.touched, last.as_ref())
        {
            last = Some(queue.clone());
            let (wants, available) = self.wanted(&queue, &granted, now).await?;
            let want = wants.iter().map(|(_, want)| want).sum::<usize>().min(BATCH_MAX).min(available);
            if want > 0 {
                // The limit over all queues is shared by its own rules.
                for (place, want) in wants.iter().filter(|_| !is_shared) {
                    *granted.entry(place.clone()).or_default() += *want as u64;
                }
                if totals.is_empty() {
                    self.first = Some(queue.clone());
                }
                total += want;
                totals.push((queue, want));
                places.push(wants);
            }
        }
        let shares = self.turns.share(budget, &totals);
        let windows = totals.into_iter().zip(places).zip(shares).filter(|(_, share)| *share > 0);
        Ok(windows.map(|(((queue, _), wants), limit)| self.open(queue, &wants, limit)).collect())
    }

    fn open(&self, queue: QueueName, wants: &Wants, limit: usize) -> OpenWindow {
        let shares = deal(wants, limit);
        // If no other process has the store, its only node owns all runs, and there is no need to write it before they
        // are handed out.
        let is_written = !self.node.store().is_exclusive();
        let owned = shares.iter().filter(|_| is_written).filter_map(|(place, runs)| Some((place.node()?, *runs)));
        let owners = owned.map(|(node, runs)| OwnerShare { node: node.clone(), runs }).collect();
        let metered = self.kept_for(&queue);
        OpenWindow { order: Window { metered, owners, ..Window::new(queue, limit) }, shares }
    }

    /// Returns how many jobs of a queue could be sent to each place now if there were no other queue, and how many its
    /// rate limit allows.
    async fn wanted(
        &mut self,
        queue: &QueueName,
        granted: &BTreeMap<Place, u64>,
        now: Timestamp,
    ) -> Result<(Wants, usize)> {
        let nothing = (Vec::new(), 0);
        if !self.waiting.contains(queue) {
            return Ok(nothing);
        }
        if self.node.settings.rate_limit.default.is_some()
            && !self.meters.contains_key(queue)
            && let Some(queue) = self.node.store().queue(queue).await?
        {
            self.configure(&queue).await?;
        }
        let meter = self.meters.get_mut(queue).map(|meter| (meter.available(now) as usize, meter.next_at(now)));
        let (available, next_at) = meter.unwrap_or((BATCH_MAX, None));
        if available == 0 {
            self.held.insert(queue.clone());
            self.wake_at(next_at);
            return Ok(nothing);
        }
        if self.windows.workers(queue) == 0 {
            if !self.leader.group_readers.probe(queue) {
                return Ok(nothing);
            }
            let is_free = self.untaken(queue).await? == Some(0);
            return Ok((vec![(Place::Bus, usize::from(is_free))], available));
        }
        let mut wants = Wants::new();
        let places: Vec<Place> = self.windows.places(queue).cloned().collect();
        for place in places {
            let waiting = match &place {
                Place::Node(_) if !self.is_open(&place) => continue,
                Place::Node(_) => self.waiting_at(&place, queue),
                Place::Bus => match self.waiting_on_bus(queue, now).await? {
                    Some(of_queue) => WaitingRuns { of_queue, of_place: 0 },
                    None => continue,
                },
            };
            let mut want = self.windows.limit(queue, &place, waiting, now);
            if let Some(granted) = granted.get(&place) {
                let of_place = waiting.of_place + granted;
                let left = self.windows.limit(queue, &place, WaitingRuns { of_place, ..waiting }, now);
                if left < want {
                    self.cut.insert(queue.clone());
                }
                want = want.min(left);
            }
            if want > 0 {
                wants.push((place, want));
            }
        }
        // The place with the most room first, and of these its own node, to which there is no way to go.
        let own = &self.node.id;
        wants.sort_by_key(|(place, want)| (std::cmp::Reverse(*want), place.node() != Some(own)));
        Ok((wants, available))
    }

    /// Recalls runs that wait in an inbox, none of them handed out for a while, if another place has a free slot for
    /// them: the workers that they were sent to are busy for longer than expected, or do not poll.
    pub(super) async fn recall_stuck(&self, now: Timestamp) -> Result<()> {
        let stuck = {
            let mut inboxes = self.leader.inboxes.lock();
            inboxes.observe(&self.node.id, &self.node.gateway.inbox.all_waiting(), now);
            inboxes.stuck(now, STUCK_AFTER)
        };
        for (holder, queue) in stuck {
            let has_room = |place: &Place| {
                place.node() != Some(&holder)
                    && self.is_open(place)
                    && self.windows.free_at(&queue, place) > self.waiting_at(place, &queue).of_queue
            };
            if self.windows.places(&queue).any(has_room) {
                recall(&self.leader, &holder, &queue).await?;
            }
        }
        Ok(())
    }

    /// Returns whether a node takes runs. Runs that are sent to another one would come back.
    fn is_open(&self, place: &Place) -> bool {
        match place.node() {
            Some(node) if *node == self.node.id => !self.node.drain.begun.is_cancelled(),
            Some(node) => self.node.ownership.peers.state_of(node) == Some(NodeState::Active),
            None => true,
        }
    }

    fn waiting_at(&self, place: &Place, queue: &QueueName) -> WaitingRuns {
        match place.node() {
            Some(node) if *node == self.node.id => {
                let inbox = &self.node.gateway.inbox;
                WaitingRuns { of_queue: inbox.waiting(queue), of_place: inbox.len() as u64 }
            }
            Some(node) => {
                let inboxes = self.leader.inboxes.lock();
                WaitingRuns { of_queue: inboxes.waiting(node, queue), of_place: inboxes.waiting_in_all(node) }
            }
            None => WaitingRuns::default(),
        }
    }

    /// Returns how many runs of a queue lie on the bus at most. `None` if its channel cannot be used.
    ///
    /// Only this leader sends runs there, so what was read last and what was sent since is an upper bound. The bus is
    /// asked if that leaves no room for a batch: before a lone job it is not.
    async fn waiting_on_bus(&mut self, queue: &QueueName, now: Timestamp) -> Result<Option<u64>> {
        if let Some(of_queue) = self.on_bus.get(queue).copied()
            && self.windows.limit(queue, &Place::Bus, WaitingRuns { of_queue, of_place: 0 }, now) > 0
        {
            return Ok(Some(of_queue));
        }
        self.untaken(queue).await
    }

    /// Reads how many runs of a queue lie on the bus. `None` if its channel cannot be used.
    async fn untaken(&mut self, queue: &QueueName) -> Result<Option<u64>> {
        self.on_bus.remove(queue);
        // Counted before the bus is read: a run that is published in between counts twice rather than not at all.
        let unpublished = self.sender.unpublished(queue);
        let Some(backlog) = super::super::untaken(&self.node, queue).await? else {
            // Checked again with every pass and every heartbeat, and logged once.
            if self.unusable.insert(queue.clone()) {
                warn!(%queue, "queue not dispatched to workers on the bus: its Redis key has the wrong type");
            }
            return Ok(None);
        };
        self.unusable.remove(queue);
        let waiting = backlog + unpublished;
        self.on_bus.insert(queue.clone(), waiting);
        Ok(Some(waiting))
    }

    /// Returns how long the store must remember the grants of a queue.
    fn kept_for(&self, queue: &QueueName) -> Option<Duration> {
        self.meters.get(queue).into_iter().chain(&self.global).map(|meter| meter.limit().per).max()
    }

    fn wake_at(&mut self, at: Option<Timestamp>) {
        self.metered_until = self.metered_until.into_iter().chain(at).min();
    }

    /// Reads for every queue whose runs may be untaken how many are: those of a queue without pending jobs count until
    /// they are observed.
    async fn observe_untaken(&mut self) -> Result<()> {
        let queues: Vec<(QueueName, Place)> =
            self.windows.untaken().queues().map(|(queue, place)| (queue.clone(), place.clone())).collect();
        for (queue, place) in queues {
            let waiting = match &place {
                Place::Bus => self.untaken(&queue).await?.unwrap_or(0),
                Place::Node(_) => self.waiting_at(&place, &queue).of_queue,
            };
            self.windows.untaken().observe(&queue, &place, waiting);
        }
        Ok(())
    }
}
