//! Failures inside a verb: it rejects its input, or the database fails.
//!
//! The difference decides what the writer does next. A rejection is a result: the verb changed nothing, and the other
//! verbs of the transaction stay. A failure of the database ends the whole transaction.

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

/// Nothing happened, or it was rolled back.
pub(super) fn unavailable(error: rusqlite::Error) -> Error {
    Error::unavailable("store", error)
}

/// Returns whether a commit that failed with this error was certainly undone. A full disk or a lock is detected before
/// the commit record is written; an I/O error may occur after it, if the record is in the file and only its flush
/// failed.
pub(super) fn is_undone(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
