//! How a holder of leases behaves, besides its [`Settings`](super::Settings): all that the three kinds of holders differ in.
//!
//! | | member of a namespace | coordinator | lock |
//! | --- | --- | --- | --- |
//! | enrols and lists the members | yes | no: nodes are registered in the store | no: instances are registered in the mesh |
//! | a follower | reads who leads | reads who leads | asks for the lock |
//! | before a term is acted on | – | its epoch is sealed in the store | – |
//! | a term whose number is too low | is ended by any member | is rejected by the seal | has no number |
//! | while the circuit breaker is open | fences itself | renews | renews |
//! | after it stepped down | lets others stand for a lease | stands again soon | stands again soon |

use std::time::Duration;

use super::Settings;

/// How long a coordinator waits before it stands again, if a term of its own ended early: one that ended by itself is not worth
/// fighting for at once.
const STAND_AGAIN_MAX: Duration = Duration::from_millis(100);
/// A coordinator that could not reach the leases tries again after this much, or after its renewal interval if that is shorter.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How one kind of holder uses its lease: the rows of the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conduct {
    /// Whether it enrols in its namespace and lists the members.
    pub enrols: bool,
    /// Whether a term is sealed before it is acted on. Then the seal rejects terms whose number is too low, and nobody ends them.
    pub seals: bool,
    /// Whether the lease is a lock: it has no number, its holder cannot be read, and whoever holds it may ask for it again.
    pub is_lock: bool,
    /// Whether a leader goes on renewing while the circuit breaker is open. Its attempts end with the lease by themselves, and
    /// one that succeeds closes the breaker.
    pub renews_while_open: bool,
    /// How often a follower sends a heartbeat.
    pub follow_interval: Duration,
    /// When a follower sends a heartbeat again after one that failed.
    pub retry_interval: Duration,
    /// For how long others may stand first after it stepped down.
    pub abstention: Duration,
}

impl Conduct {
    /// An elector of an application, one of the members of its namespace.
    pub fn member(settings: &Settings) -> Self {
        Conduct {
            enrols: true,
            seals: false,
            is_lock: false,
            renews_while_open: false,
            follow_interval: settings.heartbeat_interval,
            retry_interval: settings.heartbeat_interval,
            abstention: settings.lease_timeout,
        }
    }

    /// A node of the coordinator's cluster.
    pub fn coordinator(renew_interval: Duration) -> Self {
        Conduct {
            enrols: false,
            seals: true,
            is_lock: false,
            renews_while_open: true,
            follow_interval: renew_interval,
            retry_interval: renew_interval.min(RETRY_MAX),
            abstention: renew_interval.min(STAND_AGAIN_MAX),
        }
    }

    /// A process that wants a lock that others try for too, every `retry_delay`.
    pub fn lock(retry_delay: Duration) -> Self {
        Conduct {
            enrols: false,
            seals: false,
            is_lock: true,
            renews_while_open: true,
            follow_interval: retry_delay,
            retry_interval: retry_delay,
            abstention: retry_delay,
        }
    }
}
