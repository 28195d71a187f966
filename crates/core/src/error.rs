//! Errors, named by what the caller does next.

use std::error::Error as StdError;
use std::sync::Arc;

/// The result of a port's method.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The field under which a rejected token is reported. No request has a field of this name.
const TOKEN_FIELD: &str = "token";

/// The `what` of an [`Error::locked`].
const LOCKED: &str = "a unique key, id or new queue of the request";

/// The error of a port. Cloneable, because callers whose requests were batched each get a copy.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's term is over: stop acting on it. Never retried.
    #[error("fenced: {what} was rejected because its term is over")]
    Fenced {
        /// The rejected operation.
        what: &'static str,
    },
    /// The state of another caller is in the way: read it before trying again.
    #[error("{0}")]
    Conflict(String),
    /// The named thing does not exist.
    #[error("{what} {id:?} does not exist")]
    NotFound {
        /// The kind of thing, such as `job`.
        what: &'static str,
        /// The id that was not found.
        id: String,
    },
    /// Nothing happened; the same call may succeed later.
    #[error("{what} is unavailable: {source}")]
    Unavailable {
        /// The backend or resource that is unavailable.
        what: &'static str,
        /// The cause.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The operation may or may not have happened: read before repeating it.
    #[error("{what} did not confirm the operation, which may have happened: {source}")]
    Unknown {
        /// The backend whose reply is missing.
        what: &'static str,
        /// The cause.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The request itself is wrong. Never retried.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Error {
    /// Returns a [`NotFound`](Self::NotFound).
    pub fn not_found(what: &'static str, id: impl ToString) -> Self {
        Error::NotFound { what, id: id.to_string() }
    }

    /// Returns an [`Unavailable`](Self::Unavailable).
    pub fn unavailable(what: &'static str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Unavailable { what, source: source.into().into() }
    }

    /// Returns an [`Unknown`](Self::Unknown).
    pub fn unknown(what: &'static str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Unknown { what, source: source.into().into() }
    }

    /// Returns whether the same call may succeed later without any other change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Unknown { .. })
    }

    /// Returns the error for a unique key, an id or a new queue that another transaction has locked, possibly for long.
    /// Nothing happened; other requests are not affected.
    pub fn locked() -> Self {
        Error::unavailable(
            LOCKED,
            "another transaction that is still open has locked it; try again when that has ended",
        )
    }

    /// Returns whether this is a [`locked`](Self::locked) error.
    pub fn is_locked(&self) -> bool {
        matches!(self, Error::Unavailable { what: LOCKED, .. })
    }

    /// Returns the error for a caller without permission: its token is missing, wrong or of another role.
    pub fn denied(message: impl Into<String>) -> Self {
        Error::Invalid(Invalid::new(TOKEN_FIELD, message))
    }

    /// Returns whether this is a [`denied`](Self::denied) error.
    pub fn is_denied(&self) -> bool {
        matches!(self, Error::Invalid(invalid) if invalid.field == TOKEN_FIELD)
    }
}

/// A rejected value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
#[non_exhaustive]
pub struct Invalid {
    /// The path of the field, such as `jobs[3].delay`.
    pub field: String,
    /// The expected and the received value, in words.
    pub message: String,
    /// How the value is wrong; selects the HTTP status.
    pub kind: InvalidKind,
}

/// How a value is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidKind {
    /// The field does not accept such a value.
    Argument,
    /// Well formed, but contradictory: two fields that exclude each other, a date that never comes.
    Unprocessable,
    /// Over a size limit.
    TooLarge,
}

impl Invalid {
    /// Returns an error of kind [`Argument`](InvalidKind::Argument).
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid { field: field.into(), message: message.into(), kind: InvalidKind::Argument }
    }

    /// Returns the same error with another kind.
    pub fn of_kind(self, kind: InvalidKind) -> Self {
        Invalid { kind, ..self }
    }

    /// Returns an error of kind [`Unprocessable`](InvalidKind::Unprocessable).
    pub fn unprocessable(field: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid { kind: InvalidKind::Unprocessable, ..Self::new(field, message) }
    }

    /// Returns an error of kind [`TooLarge`](InvalidKind::TooLarge).
    pub fn too_large(field: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid { kind: InvalidKind::TooLarge, ..Self::new(field, message) }
    }

    /// Returns the same error for a field inside `outer`, such as `jobs[3].delay`.
    pub fn within(mut self, outer: impl std::fmt::Display) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_by_itself_is_transient() {
        assert!(Error::unavailable("store", "disk full").is_transient());
        assert!(Error::unknown("store", "timed out").is_transient());
        assert!(!Error::Fenced { what: "dispatch" }.is_transient());
        assert!(!Error::Conflict("taken".into()).is_transient());
        assert!(!Error::not_found("job", 7).is_transient());
        assert!(!Error::from(Invalid::new("type", "expected a name")).is_transient());
    }

    #[test]
    fn an_error_says_what_was_tried_and_why_it_failed() {
        assert_eq!(Error::unavailable("store", "disk full").to_string(), "store is unavailable: disk full");
        assert_eq!(Error::not_found("job", 7).to_string(), "job \"7\" does not exist");
        assert_eq!(Error::from(Invalid::new("type", "expected a name")).to_string(), "type: expected a name");
        let error = Error::unknown("store", "timed out");
        assert_eq!(error.source().map(|source| source.to_string()).as_deref(), Some("timed out"));
    }

    #[test]
    fn a_complaint_within_a_batch_names_its_place_and_keeps_its_kind() {
        let inner = Invalid::too_large("args", "expected less");
        assert_eq!(inner.within("jobs[3]"), Invalid::too_large("jobs[3].args", "expected less"));
    }
}
