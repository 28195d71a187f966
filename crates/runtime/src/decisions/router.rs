//! A router that records which shards its coordinator sends to which worker.
//!
//! The coordinator's messages name no worker, so the wrapper remembers by which address each worker sent its own. A peer
//! that sends for several workers or services is left out: its replies could be for any of them. Repetitions of the last
//! assignment, as replies to heartbeats, are left out too.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::decisions::{Decision, Mark, Outcome, What};
use convoke_core::limits::SHARD_WORKERS_MAX;
use convoke_core::ports::router::{Peer, Received, Refusals, Router, RouterBinding, Sent};
use convoke_core::shards::wire::{self, Assignment, CoordinatorMessage, Message};
use convoke_core::shards::{Shard, Version};
use convoke_core::{Result, ServiceName, WorkerId};

use super::Recorder;

/// Ranges of shards in one line; further ones are in further lines.
const RANGES_MAX: usize = 256;

/// Opens sockets that record grants.
pub struct RecordingBinding {
    inner: Arc<dyn RouterBinding>,
    recorder: Arc<Recorder>,
}

impl RecordingBinding {
    /// Wraps a binding.
    pub fn new(inner: Arc<dyn RouterBinding>, recorder: Arc<Recorder>) -> Arc<Self> {
        Arc::new(RecordingBinding { inner, recorder })
    }
}

#[async_trait]
impl RouterBinding for RecordingBinding {
    async fn bind(&self) -> Result<Box<dyn Router>> {
        let inner = self.inner.bind().await?;
        Ok(Box::new(RecordingRouter { inner, recorder: self.recorder.clone(), peers: BTreeMap::new() }))
    }
}

/// A socket that records grants.
struct RecordingRouter {
    inner: Box<dyn Router>,
    recorder: Arc<Recorder>,
    peers: BTreeMap<Peer, KnownPeer>,
}

/// The worker of a peer.
struct KnownPeer {
    service: ServiceName,
    worker: WorkerId,
    /// It sent messages of more than one worker or service.
    is_shared: bool,
    granted: Option<(Version, Vec<(Shard, Shard)>)>,
}

/// Returns the ranges of ascending shards.
fn ranges(shards: &[Shard]) -> Vec<(Shard, Shard)> {
    let mut ranges: Vec<(Shard, Shard)> = Vec::new();
    for shard in shards {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*shard) => *last = *shard,
            _ => ranges.push((*shard, *shard)),
        }
    }
    ranges
}

impl RecordingRouter {
    fn note_sender(&mut self, received: &Received) {
        let (service, worker) = match wire::message(&received.frames) {
            Ok(Message::Register(report) | Message::Heartbeat(report)) => (report.service_name, report.worker_id),
            _ => return,
        };
        match self.peers.get_mut(&received.from) {
            Some(known) => known.is_shared |= (&known.service, &known.worker) != (&service, &worker),
            None => {
                if self.peers.len() >= SHARD_WORKERS_MAX {
                    self.peers.pop_first();
                }
                let known = KnownPeer { service, worker, is_shared: false, granted: None };
                self.peers.insert(received.from.clone(), known);
            }
        }
    }

    /// Returns the records of a message: none unless it is a new assignment.
    fn granted(&mut self, peer: &Peer, message: &Bytes) -> Vec<Decision> {
        let Some(known) = self.peers.get_mut(peer).filter(|known| !known.is_shared) else { return Vec::new() };
        let Some(CoordinatorMessage::Assignment(assignment)) = wire::answer(std::slice::from_ref(message)) else {
            return Vec::new();
        };
        let Assignment { assigned_shards, version, .. } = assignment;
        let granted = (version, ranges(&assigned_shards));
        if known.granted.as_ref() == Some(&granted) {
            return Vec::new();
        }
        let of = |part: &[(Shard, Shard)]| Decision {
            service: Some(known.service.clone()),
            worker: Some(known.worker.clone()),
            after: Some(Mark::Number(version.0)),
            shards: part.to_vec(),
            ..Decision::of(What::ShardGrant, Outcome::Accepted)
        };
        let decisions = granted.1.chunks(RANGES_MAX).map(of).collect();
        known.granted = Some(granted);
        decisions
    }
}

#[async_trait]
impl Router for RecordingRouter {
    fn address(&self) -> &str {
        self.inner.address()
    }

    async fn receive(&mut self, max: usize) -> Result<Vec<Received>> {
        let received = self.inner.receive(max).await?;
        received.iter().for_each(|it| self.note_sender(it));
        Ok(received)
    }

    async fn send(&mut self, messages: Vec<(Peer, Bytes)>) -> Vec<Sent> {
        let since = self.recorder.since();
        let mut decisions = Vec::new();
        for (peer, message) in &messages {
            decisions.extend(self.granted(peer, message));
        }
        // Before they are sent: a grant that a worker received is in the history.
        self.recorder.record(since, decisions);
        self.inner.send(messages).await
    }

    fn refusals(&self) -> Refusals {
        self.inner.refusals()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10]), [(0, 2), (7, 7), (9, 10)]);
        assert_eq!(ranges(&[]), []);
    }
}
