//! One worker of a service, as its coordinator knows it: what it was granted, what it is letting go of, when it was heard.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::ports::router::Peer;
use crate::shards::wire::{Answer, Assignment, Report, Revoke};
use crate::shards::{Shard, Version};

/// A worker of a service, as the coordinator knows it.
pub struct Member {
    /// Where it last spoke from.
    pub peer: Peer,
    pub is_active: bool,
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
            is_active: false,
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

    /// Notes a report. False where a later one came before it.
    pub fn heard(&mut self, from: &Peer, report: &Report, now: Duration) -> bool {
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
    pub fn let_go(&mut self, shards: &[Shard], version: Version) -> bool {
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
                let text = Answer::Assignment(assignment).encode();
                self.encoded = Some((version, text.clone()));
                text
            }
        }
    }

    /// What it is still asked to let go of.
    pub fn revocation(&self, version: Version) -> Option<Bytes> {
        let shards: Vec<Shard> = self.revoking.iter().map(|it| it.shard).collect();
        (!shards.is_empty()).then(|| Answer::Revoke(Revoke { shards, version }).encode())
    }
}
