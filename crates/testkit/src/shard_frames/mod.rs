//! Arbitrary frames through the parser and the pure coordinator of shards, with the invariants that must always hold.
//!
//! It has two users: the [generated](hostile) cases of the tests, and a fuzzer, whose bytes [`play`] reads as a script
//! of peers, frames and passing time. Neither may make it panic, break a promise to a worker, keep more than its
//! limits, or keep anything once all peers are silent.

pub mod hostile;
mod script;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::ports::router::Peer;
use convoke_core::shards::coordinator::{Output, ServiceView};
use convoke_core::shards::roster::ROSTER_CHANGE_MAX;
use convoke_core::shards::wire::{self, CoordinatorMessage};
use convoke_core::shards::{Coordinator, Limits, Settings, Start, Strategy, Version};

pub use script::play;

/// Small, so that hostile peers meet them.
const LIMITS: Limits = Limits { services_max: 12, workers_max: 200, shards_max: 150_000 };
const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(1500);
/// The limit of the socket for one message; a longer reply would end a worker's connection.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A coordinator, its clock, and the promises it is held to.
pub struct Session {
    coordinator: Coordinator,
    now: Duration,
    /// Messages that were rejected with an error.
    refused: usize,
    /// Messages that the parser accepted.
    understood: usize,
}

impl Session {
    pub fn new(strategy: Strategy, start: Start) -> Session {
        let settings = Settings {
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            check_interval: Duration::from_millis(500),
            strategy,
            limits: LIMITS,
            ..Settings::default()
        };
        let coordinator = Coordinator::new(settings, start, Version(1 << 30));
        Session { coordinator, now: Duration::ZERO, refused: 0, understood: 0 }
    }

    pub fn refused(&self) -> usize {
        self.refused
    }

    pub fn understood(&self) -> usize {
        self.understood
    }

    /// As the coordinator's socket would hand it over.
    pub fn on_message(&mut self, from: &Peer, frames: &[Bytes]) {
        let mut output = Output::default();
        match wire::message(frames) {
            Ok(message) => {
                self.understood += 1;
                self.coordinator.on_message(from, message, self.now, &mut output);
            }
            Err(refusal) => output.sends.push((from.clone(), CoordinatorMessage::Error(refusal).encode())),
        }
        // The last of them informs a connection that it was replaced.
        assert!(output.sends.len() <= 3, "one message caused {} messages", output.sends.len());
        self.check(&output);
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        // The work of a store meanwhile.
        while let Some(change) = self.coordinator.roster_change() {
            assert!(change.len() <= ROSTER_CHANGE_MAX, "{} rows in one write", change.len());
            self.coordinator.roster_written(change, self.now);
        }
        let mut output = Output::default();
        self.coordinator.tick(self.now, &mut output);
        let reported = output.sends.len();
        assert!(reported <= 2 * LIMITS.workers_max, "{reported} messages for at most {} workers", LIMITS.workers_max);
        self.check(&output);
        assert!(self.coordinator.next_deadline() > self.now, "it is due again before any time has passed");
    }

    fn check(&mut self, output: &Output) {
        for (_, result) in &output.sends {
            assert!(result.len() <= REPLY_BYTES_MAX, "a message of {} bytes", result.len());
            match wire::answer(std::slice::from_ref(result)) {
                Some(CoordinatorMessage::Error(_)) => self.refused += 1,
                Some(CoordinatorMessage::Assignment(_) | CoordinatorMessage::Revoke(_)) => {}
                None => panic!("no worker understands {}", String::from_utf8_lossy(result)),
            }
        }
    }

    /// Checks all its state. The cost grows with the state, so not after every message.
    pub fn inspect(&self) {
        let views: Vec<ServiceView> = self.coordinator.views().collect();
        let workers: usize = views.iter().map(|view| view.workers.len()).sum();
        let shards: usize = views.iter().map(|view| view.max_shard_count as usize).sum();
        assert!(views.len() <= LIMITS.services_max, "{} services", views.len());
        assert!(workers <= LIMITS.workers_max, "{workers} workers");
        assert!(shards <= LIMITS.shards_max, "{shards} shards");
        for view in &views {
            let mut held = BTreeSet::new();
            for worker in &view.workers {
                assert!(worker.active || worker.shards.is_empty(), "a dead worker owns {:?}", worker.shards);
                for shard in worker.shards.iter().chain(&worker.revoking) {
                    assert!(held.insert(*shard), "shard {shard} of {} has two holders", view.service);
                }
            }
            assert!(view.version <= Version::MAX, "version {:?}", view.version);
        }
    }

    /// All peers fall silent: no state may be left.
    pub fn end(mut self) {
        self.inspect();
        for _ in 0..40 {
            self.pass(HEARTBEAT_TIMEOUT / 2);
        }
        let left = self.coordinator.views().count();
        assert_eq!(left, 0, "{left} services are remembered although all of their workers are long gone");
    }
}
