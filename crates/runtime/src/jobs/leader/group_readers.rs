//! Detects workers that send no heartbeats: each reader of `job.dispatch.{queue}` in the group of workers is one.
//!
//! The rules are the core's [`Readers`]. The bus is polled once a second, a few times a second while such workers have
//! work, and only about queues that have jobs, that had readers, or that the walk over the bus found. The result takes
//! the place of the heartbeats that these workers do not send: the registry, the dispatcher and the duty that declares
//! workers dead need no other rules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::Moment;
use convoke_core::jobs::readers::{BUSY_SILENCE, Readers, reader_name};
use convoke_core::jobs::wire::{WorkerHeartbeat, WorkerState};
use convoke_core::ports::store::WorkerRecord;
use convoke_core::{QueueName, Result, WorkerId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::LeaderState;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::gateway::runs_of;
use crate::jobs::intake::WORKERS;

/// The shortest interval between two polls, however often one is requested.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The readers that the leader knows of, in its term.
pub struct GroupReaders {
    rules: Mutex<Readers>,
    stale_after: Duration,
    origin: Instant,
    /// Notified when a queue is to be polled before its time.
    wanted: Notify,
    /// The heartbeats of the last poll, for the dispatcher.
    heartbeats: Mutex<Vec<WorkerHeartbeat>>,
    inspected: Notify,
}

impl GroupReaders {
    pub fn new(stale_after: Duration) -> Self {
        GroupReaders {
            rules: Mutex::new(Readers::new(stale_after, BTreeSet::new())),
            stale_after,
            origin: Instant::now(),
            wanted: Notify::new(),
            heartbeats: Mutex::default(),
            inspected: Notify::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment(self.origin.elapsed())
    }

    /// Watches a queue that has jobs, or may have readers.
    pub fn watch(&self, queue: &QueueName) {
        if self.rules.lock().watch(queue, self.now()) {
            self.wanted.notify_one();
        }
    }

    /// Waits for the next poll, and returns the heartbeats that follow from it.
    pub async fn next_beats(&self) -> Vec<WorkerHeartbeat> {
        self.inspected.notified().await;
        std::mem::take(&mut *self.heartbeats.lock())
    }

    /// Returns whether to send one run of a queue that no worker serves.
    pub fn probe(&self, queue: &QueueName) -> bool {
        let probes = self.rules.lock().probe(queue, self.now());
        if probes {
            // The worker that takes it should be detected soon.
            self.wanted.notify_one();
        }
        probes
    }

    /// Returns queues whose readers have entries that they did not acknowledge.
    pub fn queues_held(&self) -> BTreeSet<QueueName> {
        self.rules.lock().queues_held(self.now())
    }

    /// Forgets a worker that left or was declared dead.
    pub fn leave(&self, worker: &WorkerId) {
        self.rules.lock().leave(worker, self.now());
    }

    #[cfg(test)]
    pub fn is_watched(&self, queue: &QueueName) -> bool {
        self.rules.lock().watched(self.now()).contains(queue)
    }

    /// Starts a term with these workers in the registry.
    fn begin(&self, registered: Vec<WorkerRecord>) {
        let readers: Vec<WorkerRecord> = registered.into_iter().filter(is_reader).collect();
        let expected = readers.iter().map(|reader| reader.worker_id.clone()).collect();
        let now = self.now();
        let mut rules = self.rules.lock();
        // The dispatcher may have started before.
        let wanted = rules.watched(now);
        *rules = Readers::new(self.stale_after, expected);
        for queue in readers.iter().flat_map(|reader| &reader.queues).chain(&wanted) {
            rules.watch(queue, now);
        }
    }
}

/// Returns whether the registry has a worker that is known by its reads only.
pub fn is_reader(worker: &WorkerRecord) -> bool {
    worker.via.is_none() && worker.name == reader_name(&worker.worker_id)
}

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let LeaderState { node, group_readers: readers, .. } = &*leader;
    // No other process can read a bus in memory.
    if node.bus().is_in_process() {
        return Ok(());
    }
    let mut has_begun = false;
    loop {
        let inspected = async {
            if !has_begun {
                readers.begin(node.store().workers().await?);
                has_begun = true;
            }
            read_groups(&leader).await
        };
        if let Err(error) = inspected.await {
            run.failed("group readers", &error);
        }
        let pause = readers.rules.lock().pause(readers.now());
        let wanted = async {
            tokio::time::sleep(PAUSE_MIN).await;
            let _ = tokio::time::timeout(pause.saturating_sub(PAUSE_MIN), readers.wanted.notified()).await;
        };
        if run.wait(wanted).await.is_none() {
            return Ok(());
        }
    }
}

async fn read_groups(leader: &LeaderState) -> Result<()> {
    let LeaderState { node, bus_workers, group_readers: readers, .. } = leader;
    let queues = readers.rules.lock().watched(readers.now());
    if queues.is_empty() {
        return Ok(());
    }
    let asked = readers.now();
    let names: Vec<String> = queues.iter().map(|queue| node.channels.dispatch(queue)).collect();
    let seen = node.bus().readers(&names, WORKERS, readers.stale_after * BUSY_SILENCE).await?;
    let found = {
        let (mut rules, now) = (readers.rules.lock(), readers.now());
        for (queue, seen) in queues.iter().zip(&seen) {
            rules.observe(queue, seen.as_ref(), asked, now);
        }
        rules.readers(now)
    };
    let mut heartbeats = Vec::new();
    for reader in found {
        if bus_workers.sends_heartbeats(&reader.worker, readers.stale_after) {
            continue;
        }
        let has_runs = !reader.is_reading && !runs_of(node, &reader.worker).await?.is_empty();
        let heartbeat = reader.heartbeat(has_runs, node.now());
        bus_workers.sight(heartbeat.clone(), reader.silent_for, node.now());
        if heartbeat.state == WorkerState::Gone {
            readers.leave(&reader.worker);
        }
        heartbeats.push(heartbeat);
    }
    *readers.heartbeats.lock() = heartbeats;
    readers.inspected.notify_one();
    Ok(())
}
