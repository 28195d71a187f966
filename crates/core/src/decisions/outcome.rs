//! The result of an operation, as its caller received it.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The result of an operation. All but the first three changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It was carried out.
    #[default]
    Accepted,
    /// It is about to be requested: written before an operation whose record must not be lost.
    Asked,
    /// Its reply was lost: it may have been carried out.
    Unknown,
    /// The thing existed already.
    Existing,
    /// The epoch is below the sealed one, or the term is over.
    Fenced,
    /// Another caller was first.
    Conflict,
    /// The job has another run by now, or the run has ended otherwise.
    Stale,
    /// The same end was recorded before.
    Duplicate,
    /// Another node owns the run.
    NotOwner,
    /// The thing is unknown, or is over.
    Gone,
    /// The backend could not be reached.
    Unavailable,
    /// The request was wrong.
    Invalid,
}

impl Outcome {
    /// Returns whether the operation was carried out.
    pub fn is_accepted(&self) -> bool {
        *self == Outcome::Accepted
    }
}

impl From<&Error> for Outcome {
    fn from(error: &Error) -> Self {
        match error {
            Error::Fenced { .. } => Outcome::Fenced,
            Error::Conflict(_) => Outcome::Conflict,
            Error::NotFound { .. } => Outcome::Gone,
            Error::Unavailable { .. } => Outcome::Unavailable,
            Error::Unknown { .. } => Outcome::Unknown,
            Error::Invalid(_) => Outcome::Invalid,
        }
    }
}

impl<T> From<&Result<T, Error>> for Outcome {
    fn from(result: &Result<T, Error>) -> Self {
        result.as_ref().map_or_else(Outcome::from, |_| Outcome::Accepted)
    }
}
