//! The members of a namespace and their leader.
//!
//! Epochs only rise, also after expiry and resignation, and also after a loss of data if the backend is one that can
//! lose it. For a backend that begins again all the same, the candidate passes a [`Floor`]. A backend decides expiry by
//! its own time, never by the caller's; a file, which has no time, by that of the machine that all its callers share.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::ids::Epoch;

/// Upper bound of a TTL (one year). Backends clamp to it.
pub const TTL_MAX: Duration = Duration::from_secs(365 * 86_400);

/// The distance of a new epoch from the last if another system wrote the last one or may write: such a system decides
/// late, and for the last epoch plus one.
pub const EPOCH_GAP: u64 = 2;

/// Membership and leadership of namespaces.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Adds a member to the roster, or refreshes it.
    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()>;
    /// Removes a member from the roster.
    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()>;
    /// Returns the members whose enrollment has not expired, in order of their ids.
    async fn roster(&self, namespace: &str) -> Result<Vec<String>>;
    /// Returns the present term, unless it has expired or was resigned.
    async fn read(&self, namespace: &str) -> Result<Option<Lease>>;
    /// Takes the leadership if it is vacant; otherwise `Conflict`. The new epoch is above every earlier one and above
    /// `floor`.
    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease>;
    /// Prolongs the term; `Fenced` if it is over, even if there is no other leader yet. If requests are paid for, it
    /// may be `Unavailable` because another member wrote at the same time: retry.
    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease>;
    /// Ends the term at once, and notifies those who [watch](Self::watch_resignations) if the backend can. Not an error
    /// if it is over already.
    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()>;
    /// Watches for resignations in the namespace, by any process, from now on. Connections that it needs are made in the
    /// background. The default never notifies: such a backend is read at intervals.
    fn watch_resignations(&self, _namespace: &str) -> Box<dyn Resignations> {
        Box::new(NeverNotified)
    }
    /// Returns how often a follower may `read` between its heartbeats, to detect a resignation at once. `None` if every
    /// request is paid for: then a follower reads with its heartbeats, and when a lease should have expired.
    fn lease_check_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
    /// Returns the function that recognizes members of another system by their ids. `None` if no other system shares
    /// the namespaces.
    fn foreign(&self) -> Option<fn(&str) -> bool> {
        None
    }
    /// Returns whether leaders' reports are stored for others to read.
    fn carries_reports(&self) -> bool {
        false
    }
    /// Stores a leader's [report](crate::election::Report) as JSON while it leads; if requests are paid for, with its
    /// next enrollment. A former leader may still replace the report of its successor: readers compare the term in it.
    async fn publish(&self, _namespace: &str, _report: &str) -> Result<()> {
        Ok(())
    }
    /// Returns the last published report, if there is one.
    async fn published(&self, _namespace: &str) -> Result<Option<String>> {
        Ok(None)
    }
    /// Returns the namespaces that have a leader or members, in order, at most `limit`. `None` if the backend cannot list
    /// them.
    async fn namespaces(&self, _limit: usize) -> Result<Option<Vec<String>>> {
        Ok(None)
    }
    /// Returns the backend's address for display, without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// Checks that the backend responds.
    async fn ping(&self) -> Result<()>;
}

/// Notices that a leader of one namespace has resigned.
///
/// A notice is a hint to read the lease at once, and nothing depends on it: one can be lost (with a connection), come
/// twice, or come without a resignation (after a connection was made again, because notices may have been lost).
/// Notices that nobody waits for are kept as one.
#[async_trait]
pub trait Resignations: Send {
    /// Waits for a notice. A caller that stops waiting and calls again misses nothing.
    async fn next(&mut self);
}

/// The watch of a backend that never notifies.
struct NeverNotified;

#[async_trait]
impl Resignations for NeverNotified {
    async fn next(&mut self) {
        std::future::pending().await
    }
}

/// The lower bound of a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// The epoch that is sealed in a durable store: no leader acted on a later one.
    Sealed(Epoch),
    /// The latest epoch that the candidate has received. There may be later ones.
    Received(Epoch),
}

impl Floor {
    /// The floor of a candidate that has received no epoch.
    pub const UNKNOWN: Floor = Floor::Received(Epoch(0));

    /// Returns the epoch of either kind.
    pub fn epoch(self) -> Epoch {
        let (Floor::Sealed(epoch) | Floor::Received(epoch)) = self;
        epoch
    }
}

/// A term of leadership as the backend stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The id of the leader.
    pub holder: String,
    /// The number of the term.
    pub epoch: Epoch,
    /// The time until it expires, by the backend's clock.
    pub remaining: Duration,
    /// Whether another system that shares the namespace wrote it. It may name a member of ours.
    pub is_foreign: bool,
}
