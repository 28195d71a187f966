//! What can go wrong inside a verb: it refuses, or the database fails it.
//!
//! The difference decides what the writer does next. A refusal is an answer: the verb changed nothing and its neighbours
//! in the transaction stand. A failure of the database ends the whole transaction.

use convoke_core::{Error, Invalid};
use rusqlite::ErrorCode;

pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Debug)]
pub(super) enum Failure {
    Refused(Error),
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Database(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Failure::Refused(invalid.into())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error,
            Failure::Database(error) => unavailable(error),
        }
    }
}

/// Nothing of it happened, or it was rolled back.
pub(super) fn unavailable(error: rusqlite::Error) -> Error {
    Error::unavailable("store", error)
}

/// Whether a commit that failed with this was certainly undone. A full disk and a lock are met before the commit record is
/// written; an I/O error may come after, when the record is in the file and only its flush failed.
pub(super) fn is_undone(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
