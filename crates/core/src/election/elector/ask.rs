//! What an elector asks, and what it is answered.

use crate::ids::Epoch;
use crate::ports::leases::Lease;

/// A question to the leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Read,
    Enroll,
    Roster,
    Elect {
        floor: Epoch,
    },
    Renew {
        epoch: Epoch,
    },
    /// To the store: raises the sealed epoch to that of a term that was just won.
    Seal {
        epoch: Epoch,
    },
    Withdraw,
    /// To end a term: our own, or one that should not be.
    Resign {
        holder: String,
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

/// What they answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `Enroll`, `Seal`, `Withdraw` and `Resign`.
    Done,
    Read(Option<Lease>),
    Roster(Vec<String>),
    /// To `Elect` and `Renew`.
    Granted(Lease),
    /// To `Elect`: another has it. To `Renew`: the term is over.
    Refused,
    /// No answer, or none that says whether it happened.
    Failed,
}
