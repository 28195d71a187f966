//! Errors inside a verb, and the errors that its caller receives.
//!
//! A statement that the server rejects has changed nothing. A connection that breaks before the commit was sent has
//! changed nothing either: the server rolls back. Only if a commit, or a statement that commits by itself, was sent and
//! its reply never arrived, it may have happened: that is `Unknown`.

use convoke_core::{Error, Invalid};
use tokio_postgres::error::SqlState;

use super::server::{Kind, PATIENCE};

pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The error code with which `convoke_open_queue` rejects a queue above the limit.
const QUEUES_LIMIT: &str = "CV001";

#[derive(Debug)]
pub(super) enum Failure {
    /// The verb's own result: it changed nothing.
    Refused(Error),
    /// The statement failed, or the connection before the end of the transaction.
    Database(tokio_postgres::Error),
    /// The commit may have happened.
    Doubtful(tokio_postgres::Error),
    /// The statement succeeded, except for a part that was undone: the error of that part, by code and message.
    Undone(String, String),
    /// A row that this program could not have written.
    Unreadable(String),
    /// No reply within the time limit.
    Late(Kind),
}

impl Failure {
    /// For the reply to a statement that commits by itself, or to a commit.
    pub(super) fn of_commit(error: tokio_postgres::Error) -> Self {
        Failure::Doubtful(error)
    }

    /// The transaction collided with another and may succeed at once if repeated.
    pub(super) fn is_collision(&self) -> bool {
        let (Failure::Database(error) | Failure::Doubtful(error)) = self else { return false };
        matches!(error.code(), Some(code) if [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(code))
    }

    /// Another transaction holds a lock that is needed.
    pub(super) fn is_locked(&self) -> bool {
        match self {
            Failure::Database(error) | Failure::Doubtful(error) => error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE),
            Failure::Undone(code, _) => code == SqlState::LOCK_NOT_AVAILABLE.code(),
            _ => false,
        }
    }

    /// The connection is unusable.
    pub(super) fn is_disconnection(&self) -> bool {
        match self {
            Failure::Database(error) | Failure::Doubtful(error) => error.code().is_none_or(is_farewell),
            Failure::Late(_) => true,
            Failure::Refused(_) | Failure::Unreadable(_) | Failure::Undone(..) => false,
        }
    }

    /// Returns the error for the caller; `what` is the port.
    pub(super) fn into_error(self, what: &'static str) -> Error {
        match self {
            Failure::Refused(error) => error,
            Failure::Unreadable(message) => Error::unavailable(what, message),
            Failure::Late(Kind::Read) => {
                Error::unavailable(what, format!("no reply from PostgreSQL within {PATIENCE:?}"))
            }
            Failure::Late(Kind::Write) => Error::unknown(what, format!("no reply from PostgreSQL within {PATIENCE:?}")),
            Failure::Undone(code, message) => describe_code(what, &code, &message),
            Failure::Database(error) => describe(what, &error),
            // An explicit rejection: nothing happened. Except for a shutdown message, which may arrive after the
            // commit.
            Failure::Doubtful(error) if error.code().is_some_and(|code| !is_farewell(code)) => describe(what, &error),
            Failure::Doubtful(error) => Error::unknown(what, in_words(&error)),
        }
    }
}

/// The server ends the session.
fn is_farewell(code: &SqlState) -> bool {
    code.code().starts_with("57P") || code.code().starts_with("08")
}

fn describe(what: &'static str, error: &tokio_postgres::Error) -> Error {
    let Some(refusal) = error.as_db_error() else { return Error::unavailable(what, in_words(error)) };
    describe_code(what, refusal.code().code(), refusal.message())
}

fn describe_code(what: &'static str, code: &str, message: &str) -> Error {
    match code {
        QUEUES_LIMIT => Invalid::new("queue", message).into(),
        // Values that no column can hold.
        _ if code.starts_with("22") => Invalid::new(what, message).into(),
        _ if code == SqlState::LOCK_NOT_AVAILABLE.code() => Error::locked(),
        _ => Error::unavailable(what, format!("{message} ({code})")),
    }
}

/// Returns the message of the error's cause: the driver's own text has no detail.
pub(super) fn in_words(error: &tokio_postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return format!("{} ({})", refusal.message(), refusal.code().code());
    }
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
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
