//! Who belongs to a namespace and who leads it.
//!
//! Epochs only rise, also after expiry and resignation, and also where a backend of which that is to be expected lost its
//! data. One that counts anew all the same is given a [`Floor`] by the candidate. A backend judges expiry by its own time, never by the caller's; a file, which has none, by that of the
//! machine that all its callers are on.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::ids::Epoch;

/// Longer than any lease that is meant, short enough to be added to any instant. A backend takes a longer one for this.
pub const TTL_MAX: Duration = Duration::from_secs(365 * 86_400);

/// How far above the last epoch a new one is if another system wrote the last, or may: such a system decides late, for the last one
/// plus one.
pub const EPOCH_GAP: u64 = 2;

#[async_trait]
pub trait Leases: Send + Sync {
    /// Adds a member to the roster, or refreshes it.
    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()>;
    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()>;
    /// Members whose enrolment has not expired, in order of their ids.
    async fn roster(&self, namespace: &str) -> Result<Vec<String>>;
    /// The present term, unless it has expired or was resigned.
    async fn read(&self, namespace: &str) -> Result<Option<Lease>>;
    /// Takes the leadership where nobody has it; `Conflict` where somebody does. The new epoch is above every earlier
    /// one and above `floor`.
    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease>;
    /// Prolongs the term; `Fenced` where it is over, even if nobody else leads yet. Where requests are paid for it may be
    /// `Unavailable` because another wrote at the same time: the next attempt tells.
    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease>;
    /// Ends the term at once. Not an error where it is over already.
    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()>;
    /// How often a follower may `read` between its heartbeats, to notice a resignation at once. None where every request is
    /// paid for: there a follower reads with its heartbeats, and when a lease should have run out.
    fn lease_check_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
    /// Tells a member of another system that shares the namespaces by its id. None if no other system does.
    fn foreign(&self) -> Option<fn(&str) -> bool> {
        None
    }
    /// Whether what a leader publishes of itself is kept for others to read.
    fn carries_reports(&self) -> bool {
        false
    }
    /// Keeps a leader's [report](crate::election::Report) as JSON while it leads; where requests are paid for, with its next enrolment. A deposed leader may still replace that of
    /// its successor: whoever reads it compares the term that it names.
    async fn publish(&self, _namespace: &str, _report: &str) -> Result<()> {
        Ok(())
    }
    /// The report that was published last, if there is one.
    async fn published(&self, _namespace: &str) -> Result<Option<String>> {
        Ok(None)
    }
    /// Where it is, for people to read and without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// Whether the backend answers.
    async fn ping(&self) -> Result<()>;
}

/// What a new epoch has to be above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Nobody acted on a later one: it is written down where nothing is lost.
    Sealed(Epoch),
    /// The latest that the candidate has heard of. There may have been others since.
    Received(Epoch),
}

impl Floor {
    /// That of a candidate who has heard of none.
    pub const UNKNOWN: Floor = Floor::Received(Epoch(0));

    pub fn epoch(self) -> Epoch {
        let (Floor::Sealed(epoch) | Floor::Received(epoch)) = self;
        epoch
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub holder: String,
    pub epoch: Epoch,
    /// What is left of it, by the backend's time.
    pub remaining: Duration,
    /// Whether another system that shares the namespace wrote it. It may name a member of ours.
    pub is_foreign: bool,
}
