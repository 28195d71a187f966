//! The requests of an elector to the leases, and their replies.

use crate::ids::Epoch;
use crate::ports::leases::Lease;

/// The kind of a round of requests to the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum Round {
    /// Sent every heartbeat interval.
    Heartbeat,
    /// A follower's read between two heartbeats.
    LeaseCheck,
}

/// A request to the leases.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub enum Ask {
    /// Reads the lease.
    Read,
    /// Puts this member on the namespace's list, or keeps it there.
    Enroll,
    /// Lists the members.
    Roster,
    /// Requests the lease for a new term.
    Elect {
        /// The epoch of the term must be above this one.
        floor: Epoch,
    },
    /// Renews the lease.
    Renew {
        /// The term to renew.
        epoch: Epoch,
    },
    /// To the store: raises the sealed epoch to that of a term that was just won.
    Seal {
        /// The epoch to seal.
        epoch: Epoch,
    },
    /// Removes this member from the list.
    Withdraw,
    /// Ends a term: our own, or one that should not exist.
    Resign {
        /// The member whose term ends.
        holder: String,
        /// The term that ends.
        epoch: Epoch,
    },
}

impl Ask {
    /// The verb, for the log.
    pub const fn name(&self) -> &'static str {
        match self {
            Ask::Read => "read",
            Ask::Enroll => "enroll",
            Ask::Roster => "roster",
            Ask::Elect { .. } => "elect",
            Ask::Renew { .. } => "renew",
            Ask::Seal { .. } => "seal",
            Ask::Withdraw => "withdraw",
            Ask::Resign { .. } => "resign",
        }
    }
}

/// The reply of the backend to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `Enroll`, `Seal`, `Withdraw` and `Resign`.
    Done,
    /// To `Read`: the lease; `None` if nobody holds it.
    Read(Option<Lease>),
    /// To `Roster`: the ids of the members.
    Roster(Vec<String>),
    /// To `Elect` and `Renew`.
    Granted(Lease),
    /// To `Elect`: another has it. To `Renew`: the term is over.
    Refused,
    /// No reply, or one that does not show whether the request took effect.
    Failed,
}
