//! One worker of a service, as its coordinator knows it: what it was granted, what it is letting go of, when it was heard.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::ports::router::Peer;
use crate::shards::wire::{Assignment, CoordinatorMessage, Report, Revoke};
use crate::shards::{Shard, Version};

/// A worker of a service, as the coordinator knows it.
pub struct Member {
    /// Where it last spoke from.
    pub peer: Peer,
    /// Which process it is, if it says so.
    instance: Option<u64>,
    /// Those that had its id before, the latest last. They may still speak.
    former: VecDeque<MessageSource>,
    pub is_active: bool,
    /// The store lists it, or there is no list.
    pub is_listed: bool,
    /// A worker of a predecessor: the version from which on a report of it shows that it has heard of this term.
    pub confirmed_from: Option<Version>,
    pub last_beat: Duration,
    /// The highest number of its beats.
    pub beat: u64,
    /// Wants to be waited for.
    pub handoff: bool,
    /// Said either way, so that it knows our additions.
    pub knows_additions: bool,
    /// What it is meant to have, in order.
    pub target: Arc<[Shard]>,
    /// What it has: its assignment, in order.
    pub granted: Arc<[Shard]>,
    /// The version under which `granted` last changed.
    pub granted_at: Version,
    /// What it was asked to let go of and has not yet, in order. No longer in its assignment, and nobody else's.
    pub revoking: Vec<Revoking>,
    /// A register that is answered by the next rebalance, with its beat.
    pub owed: Option<Option<u64>>,
    /// Its assignment as it was last encoded, with its version.
    encoded: Option<(Version, Bytes)>,
}

/// One that speaks under a worker's id: a process if it says which it is, else a connection.
#[derive(Debug, Clone)]
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

/// How many former holders of an id are remembered.
const FORMER_MAX: usize = 8;

#[derive(Debug, Clone, Copy)]
pub struct Revoking {
    pub shard: Shard,
    /// It is let go by a word from this version on; an earlier one was about an earlier grant.
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
            last_beat: Duration::ZERO,
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

    /// Whether shards are spread over it. One that is not listed is left out, unless it holds some already.
    pub fn takes_part(&self) -> bool {
        self.is_active && (self.is_listed || !self.granted.is_empty() || !self.revoking.is_empty())
    }

    /// Whether it is alive and another has its id since: this one must not be heard.
    pub fn has_replaced(&self, from: &Peer, instance: Option<u64>) -> bool {
        self.is_active && self.former.iter().any(|former| former.is(from, instance))
    }

    /// Lets a report's speaker have this id from now on. Returns the connection of the one that had it, if that is another
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

    /// Notes a report. False where a later one came before it.
    pub fn record_report(&mut self, from: &Peer, report: &Report, now: Duration) -> bool {
        if self.peer != *from {
            self.peer = from.clone();
        }
        self.last_beat = now;
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

    /// Notes that shards were let go of; false where none of them was asked back under that version.
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

    /// It is one of the original protocol, which takes its first answer for good, and others still have all that is meant for it.
    pub fn waits_for_its_part(&self) -> bool {
        !self.knows_additions && self.granted.is_empty() && !self.target.is_empty()
    }

    /// It has fenced itself by now, or never will: it holds nothing.
    pub fn die(&mut self) {
        self.is_active = false;
        self.is_listed = false;
        self.target = Arc::default();
        self.granted = Arc::default();
        self.revoking = Vec::new();
        self.owed = None;
        self.encoded = None;
    }

    /// Its assignment under the service's present version.
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

    /// What it is still asked to let go of.
    pub fn revocation(&self, version: Version) -> Option<Bytes> {
        let shards: Vec<Shard> = self.revoking.iter().map(|it| it.shard).collect();
        (!shards.is_empty()).then(|| CoordinatorMessage::Revoke(Revoke { shards, version }).encode())
    }
}
