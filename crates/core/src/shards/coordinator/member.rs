//! One worker of a service, as its coordinator knows it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::ports::router::Peer;
use crate::shards::wire::{Assignment, CoordinatorMessage, Report, Revoke};
use crate::shards::{Shard, Version};

/// A worker of a service, as the coordinator knows it.
#[cfg_attr(test, derive(Clone))]
pub struct Member {
    /// The connection of its last message.
    pub peer: Peer,
    /// Identifies its process, if it sends that.
    instance: Option<u64>,
    /// Processes or connections that had its id before, the latest last. They may still send messages.
    former: VecDeque<MessageSource>,
    pub is_active: bool,
    /// The store lists it, or there is no roster.
    pub is_listed: bool,
    /// For a worker of a predecessor: a report of this version or later shows that it knows of this term.
    pub confirmed_from: Option<Version>,
    pub last_heartbeat: Duration,
    /// The highest number of its heartbeats.
    pub beat: u64,
    /// It gets a revocation before it loses a shard, and time to stop.
    pub handoff: bool,
    /// It sent `handoff`, so it knows our additions.
    pub knows_additions: bool,
    /// The shards that it should have, in order.
    pub target: Arc<[Shard]>,
    /// The shards that it has: its assignment, in order.
    pub granted: Arc<[Shard]>,
    /// The version under which `granted` last changed.
    pub granted_at: Version,
    /// The shards that it was asked to release and still holds, in order. They are in no assignment.
    pub revoking: Vec<Revoking>,
    /// A registration that the next rebalance replies to, with its `beat`.
    pub owed: Option<Option<u64>>,
    /// The last encoded assignment, with its version.
    encoded: Option<(Version, Bytes)>,
}

/// A sender under a worker's id: a process if it identifies itself, otherwise a connection.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(Hash))]
struct MessageSource {
    peer: Peer,
    instance: Option<u64>,
}

impl MessageSource {
    fn is(&self, from: &Peer, instance: Option<u64>) -> bool {
        match (self.instance, instance) {
            (Some(own), Some(other)) => own == other,
            (None, None) => self.peer == *from,
            _ => false,
        }
    }
}

/// How many former senders of an id are remembered.
const FORMER_MAX: usize = 8;

#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(Hash))]
pub struct Revoking {
    pub shard: Shard,
    /// A release of this version or later counts; an earlier one was for an earlier grant.
    pub since: Version,
}

impl Member {
    pub fn new(peer: Peer) -> Self {
        Member {
            peer,
            instance: None,
            former: VecDeque::new(),
            is_active: false,
            is_listed: false,
            confirmed_from: None,
            last_heartbeat: Duration::ZERO,
            beat: 0,
            handoff: false,
            knows_additions: false,
            target: Arc::default(),
            granted: Arc::default(),
            granted_at: Version::default(),
            revoking: Vec::new(),
            owed: None,
            encoded: None,
        }
    }

    /// Returns whether it gets shards. A worker that is not listed gets none, unless it holds some already.
    pub fn takes_part(&self) -> bool {
        self.is_active && (self.is_listed || !self.granted.is_empty() || !self.revoking.is_empty())
    }

    /// Returns whether the sender is a former one of this id, and a later one is alive: its messages must not take
    /// effect.
    pub fn has_replaced(&self, from: &Peer, instance: Option<u64>) -> bool {
        self.is_active && self.former.iter().any(|former| former.is(from, instance))
    }

    /// Makes the sender of a report the owner of this id. Returns the connection of the former one, if it is another
    /// and still counts as alive.
    pub fn succeed(&mut self, from: &Peer, instance: Option<u64>, beat: Option<u64>) -> Option<Peer> {
        let present = MessageSource { peer: self.peer.clone(), instance: self.instance };
        self.former.retain(|former| !former.is(from, instance));
        self.instance = instance;
        if !self.is_active || present.is(from, instance) {
            return None;
        }
        if self.former.len() == FORMER_MAX {
            self.former.pop_front();
        }
        self.former.push_back(present.clone());
        self.beat = beat.unwrap_or_default();
        self.encoded = None;
        Some(present.peer)
    }

    /// Records a report. Returns false if a later one was received before it.
    pub fn record_report(&mut self, from: &Peer, report: &Report, now: Duration) -> bool {
        if self.peer != *from {
            self.peer = from.clone();
        }
        self.last_heartbeat = now;
        if let Some(handoff) = report.handoff {
            self.handoff = handoff;
            if !std::mem::replace(&mut self.knows_additions, true) {
                self.encoded = None;
            }
        }
        let is_latest = report.beat.is_none_or(|beat| beat >= self.beat);
        self.beat = self.beat.max(report.beat.unwrap_or_default());
        is_latest
    }

    pub fn grant(&mut self, granted: Arc<[Shard]>, version: Version) {
        self.granted = granted;
        self.granted_at = version;
        self.encoded = None;
    }

    /// Records released shards. Returns false if none of them was revoked under that version.
    pub fn on_released(&mut self, shards: &[Shard], version: Version) -> bool {
        if self.revoking.is_empty() {
            return false;
        }
        let mut shards = shards.to_vec();
        shards.sort_unstable();
        let before = self.revoking.len();
        self.revoking.retain(|it| it.since > version || shards.binary_search(&it.shard).is_err());
        self.revoking.len() < before
    }

    /// Returns whether it is a worker of the original protocol, which uses only the first reply, and others still hold
    /// all shards that it should have.
    pub fn waits_for_its_part(&self) -> bool {
        !self.knows_additions && self.granted.is_empty() && !self.target.is_empty()
    }

    /// Records that it is dead: it has fenced itself, so it holds nothing.
    pub fn die(&mut self) {
        self.is_active = false;
        self.is_listed = false;
        self.target = Arc::default();
        self.granted = Arc::default();
        self.revoking = Vec::new();
        self.owed = None;
        self.encoded = None;
    }

    /// Returns its encoded assignment under the service's present version.
    pub fn assignment(&mut self, version: Version, heartbeat_timeout: Duration) -> Bytes {
        match &self.encoded {
            Some((encoded_at, text)) if *encoded_at == version => text.clone(),
            _ => {
                let assignment = Assignment {
                    assigned_shards: self.granted.to_vec(),
                    version,
                    heartbeat_timeout: self.knows_additions.then_some(heartbeat_timeout),
                    beat: None,
                };
                let text = CoordinatorMessage::Assignment(assignment).encode();
                self.encoded = Some((version, text.clone()));
                text
            }
        }
    }

    /// Returns the encoded request for the shards that it has not released yet.
    pub fn revocation(&self, version: Version) -> Option<Bytes> {
        let shards: Vec<Shard> = self.revoking.iter().map(|it| it.shard).collect();
        (!shards.is_empty()).then(|| CoordinatorMessage::Revoke(Revoke { shards, version }).encode())
    }
}

/// Without what is computed from the rest, for models.
#[cfg(test)]
impl std::hash::Hash for Member {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        (&self.peer.0, self.instance, &self.former, self.is_active, self.is_listed, self.confirmed_from).hash(hasher);
        (self.last_heartbeat, self.beat, self.handoff, self.knows_additions, &self.target, &self.granted).hash(hasher);
        (self.granted_at, &self.revoking, self.owed).hash(hasher);
    }
}
