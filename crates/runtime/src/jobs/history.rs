//! The recent past, as this node records it and shares it with the others.
//!
//! A node records its own terms, refused writes, handoffs, drains and counters, and publishes them on the topic
//! `history`. Every node keeps the records of all, so that any of them can show the whole cluster. A node that
//! subscribes asks for the records so far: each node sends its own, and the leader sends all that it knows. Records are
//! for display: one that is lost is missing, and no decision depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::history::{
    Bucket, DrainRecord, FenceKind, HandoffRecord, History, HistoryMessage, Rebalance, Record, RefusedWrite, STEP,
    SeriesView, Slots, SlowRenewal, TermEnd, TermRecord,
};
use convoke_core::jobs::wire::{self, V1, WorkerState};
use convoke_core::{Epoch, Error, JobId, NodeId, QueueName, Result, ServiceName};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use super::coordinator::Coordinator;
use super::duty::{DutyRun, WokenBy};
use super::node::{Node, NodeBase};
use super::traffic::{Happened, Traffic};

/// The shortest time between two messages.
const PACE: Duration = Duration::from_millis(200);
/// Records that wait to be sent. Further ones are kept here and not sent.
const PENDING_MAX: usize = 4_096;
/// Bounds of one message.
const MESSAGE_RECORDS_MAX: usize = 500;
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Refused writes that are recorded between two messages. Further ones are only counted.
const REFUSED_MAX: usize = 32;
/// Jobs that are read between two messages, to learn what a refused write was compared with.
const JOBS_READ_MAX: usize = 4;

/// The history of a node.
pub struct SharedHistory {
    node: NodeId,
    log: Mutex<History>,
    pending: Mutex<Pending>,
    ring: Notify,
    pub traffic: Traffic,
}

#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    /// Refused writes that may not know yet what they were compared with.
    refused: Vec<RefusedWrite>,
    /// The others are to send their records.
    asks: bool,
    /// Nodes that asked.
    asked_by: Option<NodeId>,
}

impl SharedHistory {
    pub fn new(node: NodeId, now: Timestamp) -> Self {
        SharedHistory {
            node,
            log: Mutex::new(History::new(now)),
            pending: Mutex::default(),
            ring: Notify::new(),
            traffic: Traffic::default(),
        }
    }

    /// Keeps a record, and sends it to the other nodes.
    pub fn record(&self, record: Record, now: Timestamp) {
        self.log.lock().merge(record.clone(), now);
        let mut pending = self.pending.lock();
        if pending.records.len() < PENDING_MAX {
            pending.records.push(record);
        }
        drop(pending);
        self.ring.notify_one();
    }

    /// Keeps a term that was read from the lease. It is not sent: the others read the same.
    pub fn observe_term(&self, epoch: Epoch, leader: &NodeId, now: Timestamp) {
        let term = TermRecord { reported: false, ..term(epoch, leader, now) };
        self.log.lock().merge(Record::Term(term), now);
    }

    pub fn term_began(&self, epoch: Epoch, now: Timestamp) {
        self.record(Record::Term(term(epoch, &self.node, now)), now);
    }

    pub fn term_ended(&self, epoch: Epoch, began_at: Timestamp, by: TermEnd, now: Timestamp) {
        let ended = TermRecord { began_at, ended_at: Some(now), ended_by: Some(by), ..term(epoch, &self.node, now) };
        self.record(Record::Term(ended), now);
    }

    /// Records a renewal that took long, in the term of this node.
    pub fn slow_renewal(&self, epoch: Epoch, duration: Duration, expected: Duration, now: Timestamp) {
        let known = self.log.lock().term(epoch).filter(|term| term.node == self.node).cloned();
        if let Some(known) = known {
            let slow_renewals = vec![SlowRenewal { at: now, duration, expected }];
            self.record(Record::Term(TermRecord { slow_renewals, ..known }), now);
        }
    }

    /// Records a write that the store refused.
    pub fn refused(&self, refused: RefusedWrite) {
        let now = refused.at;
        let mut pending = self.pending.lock();
        if pending.refused.len() >= REFUSED_MAX {
            return;
        }
        pending.refused.push(refused.clone());
        drop(pending);
        self.log.lock().merge(Record::Refused(refused), now);
        self.ring.notify_one();
    }

    pub fn handoff(&self, handoff: HandoffRecord) {
        let now = handoff.at;
        self.record(Record::Handoff(handoff), now);
    }

    pub fn drain(&self, drain: DrainRecord) {
        let now = drain.at;
        self.record(Record::Drain(drain), now);
    }

    /// The subscription began, or missed something: the others are to send their records.
    pub fn ask(&self) {
        self.pending.lock().asks = true;
        self.ring.notify_one();
    }

    /// Takes the records of another node.
    pub fn receive(&self, message: HistoryMessage, now: Timestamp) {
        if message.node_id == self.node {
            return;
        }
        let mut log = self.log.lock();
        message.records.into_iter().for_each(|record| log.merge(record, now));
        if let Some(since) = message.since {
            log.knows_since(since);
        }
        drop(log);
        if message.asks {
            self.pending.lock().asked_by = Some(message.node_id);
            self.ring.notify_one();
        }
    }

    fn close_step(&self, step: i64, slots: Option<Slots>, now: Timestamp) {
        let bucket = self.traffic.take(step, slots);
        self.log.lock().count(&self.node, bucket.clone(), now);
        let mut pending = self.pending.lock();
        if pending.records.len() < PENDING_MAX {
            pending.records.push(Record::Bucket { node: self.node.clone(), bucket });
        }
    }

    pub fn read<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.log.lock())
    }
}

fn term(epoch: Epoch, node: &NodeId, began_at: Timestamp) -> TermRecord {
    let (node, slow_renewals) = (node.clone(), Vec::new());
    TermRecord { epoch, node, began_at, ended_at: None, ended_by: None, slow_renewals, reported: true }
}

/// Counts and records that a leader's write was refused, if that is why it failed.
pub fn record_fenced(node: &NodeBase, epoch: Epoch, error: &Error) {
    if let Error::Fenced { what } = error {
        node.history.traffic.refused(1);
        node.history.refused(RefusedWrite {
            at: node.now(),
            node: node.id.clone(),
            fence: FenceKind::Leader,
            what: (*what).to_owned(),
            by: node.id.to_string(),
            number: epoch.to_string(),
            against: None,
            job_id: None,
        });
    }
}

/// Publishes the records of this node, and closes the steps of the time series.
pub async fn share_history(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let history = &node.history;
    let mut step = Bucket::step_of(node.now());
    loop {
        let now = node.now();
        let next = Bucket::begins_at(step.saturating_add(1)).duration_since(now);
        // The clock of the machine may be set back: it waits for one step at most.
        let until_next = Duration::try_from(next).unwrap_or(Duration::ZERO).min(STEP);
        let woken = run.wait(async {
            tokio::select! {
                biased;
                () = tokio::time::sleep(until_next) => {}
                () = history.ring.notified() => {}
            }
        });
        if woken.await.is_none() {
            return Ok(());
        }
        let present = Bucket::step_of(node.now());
        if present != step {
            history.close_step(step, slots(&node).await, node.now());
            step = present;
        }
        send(&node).await;
        if !run.sleep(PACE).await {
            return Ok(());
        }
    }
}

/// Sends what waits to be sent.
pub async fn send(node: &Node) {
    complete_refused(node).await;
    let history = &node.history;
    let Pending { records, asks, asked_by, .. } = {
        let mut pending = history.pending.lock();
        // Records that were refused meanwhile are completed first.
        let refused = std::mem::take(&mut pending.refused);
        let taken = std::mem::take(&mut *pending);
        pending.refused = refused;
        taken
    };
    let mut messages = packed(records, None);
    if let Some(asker) = asked_by {
        let leader = node.election.leadership.borrow().leader.clone();
        let sends_all = leader.is_none_or(|leader| leader == node.id || leader == asker);
        let (known, since) = history.read(|log| {
            let since = sends_all.then(|| log.since());
            (log.records((!sends_all).then_some(&node.id)), since)
        });
        messages.extend(packed(known, since));
    }
    if asks && messages.is_empty() {
        messages.push((Vec::new(), None));
    }
    for (place, (records, since)) in messages.into_iter().enumerate() {
        let message = HistoryMessage { v: V1, node_id: node.id.clone(), asks: asks && place == 0, since, records };
        if let Err(error) = node.bus().publish(&node.channels.history(), wire::encode(&message)).await {
            debug!(%error, "sharing the history with other nodes failed");
            if asks {
                history.pending.lock().asks = true;
            }
            return;
        }
    }
}

/// Divides records into messages. Only the last one states since when the sender knows everything.
fn packed(records: Vec<Record>, since: Option<Timestamp>) -> Vec<(Vec<Record>, Option<Timestamp>)> {
    let mut messages: Vec<(Vec<Record>, Option<Timestamp>)> = Vec::new();
    let mut bytes = 0;
    for record in records {
        let size = record.bytes();
        match messages.last_mut() {
            Some((last, _)) if last.len() < MESSAGE_RECORDS_MAX && bytes + size <= MESSAGE_BYTES_MAX => {
                bytes += size;
                last.push(record);
            }
            _ => {
                bytes = size;
                messages.push((vec![record], None));
            }
        }
    }
    if since.is_some() && messages.is_empty() {
        messages.push((Vec::new(), None));
    }
    if let Some((_, last)) = messages.last_mut() {
        *last = since;
    }
    messages
}

/// Reads what refused writes were compared with, as far as that is cheap: the sealed epoch, and the present runs and
/// owners of a few jobs.
async fn complete_refused(node: &Node) {
    let mut refused = std::mem::take(&mut node.history.pending.lock().refused);
    if refused.is_empty() {
        return;
    }
    if refused.iter().any(|refused| refused.fence == FenceKind::Leader)
        && let Ok(sealed) = node.store().sealed().await
    {
        let of_leader = refused.iter_mut().filter(|refused| refused.fence == FenceKind::Leader);
        of_leader.for_each(|refused| refused.against = Some(sealed.to_string()));
    }
    let mut jobs: Vec<JobId> = refused.iter().filter_map(|refused| refused.job_id).collect();
    jobs.dedup();
    jobs.truncate(JOBS_READ_MAX);
    let stored = if jobs.is_empty() { Ok(Vec::new()) } else { node.store().get(&jobs).await };
    let stored: BTreeMap<JobId, _> = stored.into_iter().flatten().flatten().map(|job| (job.id, job)).collect();
    for refused in &mut refused {
        let job = refused.job_id.and_then(|id| stored.get(&id));
        let present = match refused.fence {
            FenceKind::Run => job.and_then(|job| job.execution_id).map(|execution| execution.to_string()),
            FenceKind::Owner => job.and_then(|job| job.owner_node.as_ref()).map(NodeId::to_string),
            FenceKind::Leader => None,
        };
        // An ended job has no present run; a report about its last one was refused because that had ended.
        refused.against = present.or_else(|| refused.against.take());
    }
    refused.into_iter().for_each(|refused| {
        let now = refused.at;
        node.history.record(Record::Refused(refused), now);
    });
}

/// Returns the slots of all workers, if this node leads.
async fn slots(node: &Node) -> Option<Slots> {
    if !node.election.leadership.borrow().is_me {
        return None;
    }
    let workers = node.store().workers().await.ok()?;
    let mut slots = Slots { busy: 0, free: 0 };
    for worker in workers.iter().filter(|worker| worker.state != WorkerState::Gone) {
        slots.busy += u64::from(worker.running);
        if worker.state == WorkerState::Active {
            slots.free += u64::from(worker.concurrency.saturating_sub(worker.running));
        }
    }
    Some(slots)
}

/// A part of the history, as this node knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Known<T> {
    /// Since when this node knows what happened.
    pub since: Timestamp,
    /// The records, the newest first.
    pub records: Vec<T>,
}

impl Coordinator {
    /// Returns the terms of the leader, the newest first.
    pub fn terms(&self) -> Known<TermRecord> {
        let node = self.node();
        let view = node.election.leadership.borrow().clone();
        let until = view.until.filter(|until| *until <= Instant::now());
        let vacant_since = until.map(|until| (view.epoch, node.now() - until.elapsed()));
        node.history.read(|log| Known { since: log.since(), records: log.terms(vacant_since) })
    }

    /// Returns the refused writes, the newest first.
    pub fn refused_writes(&self) -> Known<RefusedWrite> {
        self.node().history.read(|log| Known { since: log.since(), records: log.refused().cloned().collect() })
    }

    /// Returns the handoffs of runs, the newest first.
    pub fn past_handoffs(&self) -> Known<HandoffRecord> {
        self.node().history.read(|log| Known { since: log.since(), records: log.handoffs().cloned().collect() })
    }

    /// Returns the drains of nodes, the newest first.
    pub fn drains(&self) -> Known<DrainRecord> {
        self.node().history.read(|log| Known { since: log.since(), records: log.drains().cloned().collect() })
    }

    /// Returns the rebalances of a service's shards, the newest first.
    pub fn rebalances(&self, service: &ServiceName) -> Known<Rebalance> {
        let node = self.node();
        node.history.read(|log| Known { since: log.since(), records: log.rebalances(service).cloned().collect() })
    }

    /// Returns the last steps of the time series, at most `window`; of one queue, or of all jobs. Also returns since when
    /// this node knows it.
    pub fn time_series(&self, window: Duration, queue: Option<&QueueName>) -> (Timestamp, SeriesView) {
        let node = self.node();
        let steps = usize::try_from(window.as_secs().div_ceil(STEP.as_secs())).unwrap_or(usize::MAX);
        node.history.read(|log| (log.since(), log.series().view(steps, queue, node.now())))
    }
}

/// Counts jobs that were enqueued.
pub fn count_enqueued(node: &NodeBase, queue: &QueueName, count: u64) {
    node.history.traffic.add(queue, Happened::Enqueued, count);
}

/// Counts runs that were dispatched.
pub fn count_started(node: &NodeBase, queue: &QueueName, count: u64) {
    node.history.traffic.add(queue, Happened::Started, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: i64, bytes: usize) -> Record {
        let queue = QueueName::new("q".repeat(bytes.clamp(1, 255))).expect("a name");
        let queues = [(queue, Default::default())].into();
        let bucket = Bucket { step: number, refused: 0, slots: None, queues, other: Default::default() };
        Record::Bucket { node: NodeId::new("n").expect("a name"), bucket }
    }

    #[test]
    fn records_are_divided_by_count_and_bytes_and_the_last_message_states_since_when() {
        let since = Some(Timestamp::UNIX_EPOCH);
        let messages = packed((0..1_200).map(|number| record(number, 1)).collect(), since);
        let counts: Vec<usize> = messages.iter().map(|(records, _)| records.len()).collect();
        assert_eq!(counts, [500, 500, 200]);
        assert_eq!(messages.iter().map(|(_, since)| *since).collect::<Vec<_>>(), [None, None, since]);
        let messages = packed((0..2_000).map(|number| record(number, 255)).collect(), None);
        for (records, _) in &messages {
            assert!(records.iter().map(Record::bytes).sum::<usize>() <= MESSAGE_BYTES_MAX);
        }
        assert_eq!(packed(Vec::new(), since), [(Vec::new(), since)], "also if there is nothing to send");
        assert_eq!(packed(Vec::new(), None), []);
    }
}
