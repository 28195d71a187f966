//! The runs that the leader sent to this node for its own workers, until a poll takes them.
//!
//! The leader puts the runs for its own node here directly; another leader sends them by the bus
//! ([`receive`](super::receive)). This node owns them from their dispatch on: no other node can take them. If it drains,
//! or if none of its workers serves their queue any more, it releases them, and their jobs run elsewhere at the same
//! attempt; if it dies, the leader does.
//!
//! A poll waits for runs of its worker's queues. Runs wake no more polls than ask for them, so that a thousand idle
//! workers are not woken by one job. A poll that was woken and returns without taking a run passes the signal on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use convoke_core::jobs::wire::{Dispatch, InboxReport, RunRef};
use convoke_core::limits::{INBOX_BYTES_MAX, INBOX_RUNS_MAX, TAKE_BYTES_MAX};
use convoke_core::{Epoch, ExecutionId, QueueName};
use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Default)]
pub struct Inbox {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The runs that no poll has taken; no queue is without.
    queues: BTreeMap<QueueName, VecDeque<Waiting>>,
    /// These runs, and those that a poll has taken and not recorded yet.
    known: BTreeSet<ExecutionId>,
    /// How many runs of each queue a poll has taken and not recorded yet.
    leaving: BTreeMap<QueueName, usize>,
    bytes: usize,
    /// The last message by the bus.
    received: (Epoch, u64),
    /// The number of the next poll that waits.
    next_poll: u64,
    /// Polls that wait and were not woken, oldest first: how many runs each asks for, and its signal.
    polls: BTreeMap<QueueName, BTreeMap<u64, (usize, Arc<Notify>)>>,
}

struct Waiting {
    run: Dispatch,
    /// It was taken by a poll that ended: it may have been released.
    is_doubtful: bool,
}

impl Inbox {
    /// Adds runs in the order of dispatch, and wakes polls. Returns runs that do not fit.
    pub fn put(&self, runs: impl IntoIterator<Item = Dispatch>) -> Vec<RunRef> {
        let mut inner = self.inner.lock();
        let (mut rest, mut added) = (Vec::new(), Vec::new());
        for run in runs {
            let bytes = bytes(&run);
            let is_full = inner.known.len() >= INBOX_RUNS_MAX || inner.bytes + bytes > INBOX_BYTES_MAX;
            if is_full && !inner.known.is_empty() {
                rest.push(reference(&run));
                continue;
            }
            // The bus may deliver a message twice.
            if !inner.known.insert(run.execution_id) {
                continue;
            }
            inner.bytes += bytes;
            match added.last_mut() {
                Some((queue, count)) if *queue == run.input.queue => *count += 1,
                _ => added.push((run.input.queue.clone(), 1)),
            }
            let waiting = Waiting { run, is_doubtful: false };
            match inner.queues.get_mut(&waiting.run.input.queue) {
                Some(queue) => queue.push_back(waiting),
                None => {
                    inner.queues.insert(waiting.run.input.queue.clone(), VecDeque::from([waiting]));
                }
            }
        }
        for (queue, count) in added {
            inner.wake(&queue, count);
        }
        rest
    }

    /// Records that a message came by the bus.
    pub fn received(&self, epoch: Epoch, seq: u64) {
        let mut inner = self.inner.lock();
        inner.received = inner.received.max((epoch, seq));
    }

    /// Takes at most `max` runs of these queues, in their order, and about [`TAKE_BYTES_MAX`] bytes of arguments. They
    /// count as waiting until the result is dropped.
    pub fn take(&self, queues: &[QueueName], max: usize) -> Taken<'_> {
        let mut taken = Taken { runs: Vec::new(), leaving: Vec::new(), inbox: self };
        let mut inner = self.inner.lock();
        let mut total = 0;
        for queue in queues {
            let Some(waiting) = inner.queues.get_mut(queue) else { continue };
            let (before, start) = (taken.runs.len(), total);
            while taken.runs.len() < max
                && let Some(next) = waiting.front()
                && (taken.runs.is_empty() || total + bytes(&next.run) <= TAKE_BYTES_MAX)
            {
                total += bytes(&next.run);
                taken.runs.extend(waiting.pop_front());
            }
            let left = waiting.len();
            if left == 0 {
                inner.queues.remove(queue);
            }
            inner.bytes -= total - start;
            let count = taken.runs.len() - before;
            if count > 0 {
                *inner.leaving.entry(queue.clone()).or_default() += count;
                taken.leaving.push((queue.clone(), count));
                inner.wake(queue, left);
            }
        }
        drop(inner);
        taken
    }

    /// Removes the runs of queues for which `is_recalled` is true.
    pub fn recall(&self, is_recalled: impl Fn(&QueueName) -> bool) -> Vec<RunRef> {
        let mut inner = self.inner.lock();
        let recalled = inner.queues.extract_if(.., |queue, _| is_recalled(queue));
        let runs: Vec<Waiting> = recalled.flat_map(|(_, waiting)| waiting).collect();
        for Waiting { run, .. } in &runs {
            inner.known.remove(&run.execution_id);
            inner.bytes -= bytes(run);
        }
        runs.iter().map(|waiting| reference(&waiting.run)).collect()
    }

    /// Returns how many runs of the queue no worker has.
    pub fn waiting(&self, queue: &QueueName) -> u64 {
        let inner = self.inner.lock();
        let leaving = inner.leaving.get(queue).copied().unwrap_or(0);
        (inner.queues.get(queue).map_or(0, VecDeque::len) + leaving) as u64
    }

    /// Returns how many runs of each queue no worker has.
    pub fn all_waiting(&self) -> BTreeMap<QueueName, u64> {
        self.inner.lock().all_waiting()
    }

    /// Returns how many runs no worker has.
    pub fn len(&self) -> usize {
        self.inner.lock().known.len()
    }

    /// Returns whether the run is here.
    pub fn has(&self, execution: &ExecutionId) -> bool {
        self.inner.lock().known.contains(execution)
    }

    /// Returns the state of the inbox for the leader.
    pub fn report(&self) -> InboxReport {
        let inner = self.inner.lock();
        let (epoch, seq) = inner.received;
        InboxReport { epoch, seq, waiting: inner.all_waiting(), prefetch: 0 }
    }

    /// Waits for runs of one of these queues. Runs that come after this call wake it.
    pub fn poll<'a>(&'a self, queues: &'a [QueueName], max: usize) -> WaitingPoll<'a> {
        let signal = Arc::new(Notify::new());
        let mut inner = self.inner.lock();
        let number = inner.next_poll;
        inner.next_poll += 1;
        // A worker without free slots asks for no runs, and waits for cancellations.
        for queue in queues.iter().filter(|_| max > 0) {
            let poll = (max, signal.clone());
            match inner.polls.get_mut(queue) {
                Some(polls) => {
                    polls.insert(number, poll);
                }
                None => {
                    inner.polls.insert(queue.clone(), BTreeMap::from([(number, poll)]));
                }
            }
        }
        drop(inner);
        WaitingPoll { inbox: self, queues, number, signal }
    }
}

impl Inner {
    fn all_waiting(&self) -> BTreeMap<QueueName, u64> {
        let mut all: BTreeMap<QueueName, u64> = BTreeMap::new();
        let queued = self.queues.iter().map(|(queue, waiting)| (queue, waiting.len()));
        for (queue, count) in queued.chain(self.leaving.iter().map(|(queue, count)| (queue, *count))) {
            *all.entry(queue.clone()).or_default() += count as u64;
        }
        all
    }

    /// Wakes polls of the queue that ask for `count` runs together, those first that have waited longest.
    fn wake(&mut self, queue: &QueueName, mut count: usize) {
        let Some(polls) = self.polls.get_mut(queue) else { return };
        while count > 0
            && let Some((_, (max, signal))) = polls.pop_first()
        {
            signal.notify_one();
            count = count.saturating_sub(max);
        }
        if polls.is_empty() {
            self.polls.remove(queue);
        }
    }
}

/// Runs that a poll has taken. They go back if they are not [handed out](Taken::hand_out).
pub struct Taken<'a> {
    runs: Vec<Waiting>,
    leaving: Vec<(QueueName, usize)>,
    inbox: &'a Inbox,
}

impl Taken<'_> {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the runs, and whether each may have been released meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = (&Dispatch, bool)> {
        self.runs.iter().map(|waiting| (&waiting.run, waiting.is_doubtful))
    }

    /// Returns the runs. They are no longer here.
    pub fn hand_out(mut self) -> Vec<Dispatch> {
        let runs = std::mem::take(&mut self.runs);
        let mut inner = self.inbox.inner.lock();
        for Waiting { run, .. } in &runs {
            inner.known.remove(&run.execution_id);
        }
        drop(inner);
        runs.into_iter().map(|waiting| waiting.run).collect()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let mut inner = self.inbox.inner.lock();
        for (queue, count) in &self.leaving {
            if let Some(leaving) = inner.leaving.get_mut(queue) {
                *leaving -= count;
                if *leaving == 0 {
                    inner.leaving.remove(queue);
                }
            }
        }
        // The poll was dropped, or the store was unavailable.
        while let Some(Waiting { run, .. }) = self.runs.pop() {
            inner.bytes += bytes(&run);
            let queue = run.input.queue.clone();
            let waiting = Waiting { run, is_doubtful: true };
            match inner.queues.get_mut(&queue) {
                Some(runs) => runs.push_front(waiting),
                None => {
                    inner.queues.insert(queue.clone(), VecDeque::from([waiting]));
                }
            }
            inner.wake(&queue, 1);
        }
    }
}

/// A poll that waits for runs.
pub struct WaitingPoll<'a> {
    inbox: &'a Inbox,
    queues: &'a [QueueName],
    number: u64,
    signal: Arc<Notify>,
}

impl WaitingPoll<'_> {
    /// Completes once there may be runs.
    pub async fn woken(&self) {
        self.signal.notified().await;
    }
}

impl Drop for WaitingPoll<'_> {
    fn drop(&mut self) {
        let mut inner = self.inbox.inner.lock();
        for queue in self.queues {
            let Some(polls) = inner.polls.get_mut(queue) else { continue };
            polls.remove(&self.number);
            if polls.is_empty() {
                inner.polls.remove(queue);
            }
        }
        // It may have been woken for runs that it did not take.
        for queue in self.queues {
            if let Some(left) = inner.queues.get(queue).map(VecDeque::len) {
                inner.wake(queue, left);
            }
        }
    }
}

fn bytes(run: &Dispatch) -> usize {
    run.input.args.as_str().len()
}

fn reference(run: &Dispatch) -> RunRef {
    RunRef { job_id: run.job_id, execution_id: run.execution_id }
}

#[cfg(test)]
mod tests;
