//! Errors, named by what the caller does next.

use std::error::Error as StdError;
use std::sync::Arc;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The field that a refused token is reported under. No request has one of this name.
const TOKEN_FIELD: &str = "token";

/// What an [`Error::locked`] says is unavailable.
const LOCKED: &str = "a unique key, id or new queue of the request";

/// What a port answers when it cannot do as asked. Those who asked in one go may each be given a copy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The caller's term is over: stop acting on it. Never retried.
    #[error("fenced: {what} was refused because its term is over")]
    Fenced { what: &'static str },
    /// Somebody else's state is in the way; read it before trying again.
    #[error("{0}")]
    Conflict(String),
    #[error("{what} {id:?} does not exist")]
    NotFound { what: &'static str, id: String },
    /// Nothing happened; the same call may succeed later.
    #[error("{what} is unavailable: {source}")]
    Unavailable { what: &'static str, source: Arc<dyn StdError + Send + Sync> },
    /// It may or may not have happened: read before repeating.
    #[error("{what} did not say whether it happened: {source}")]
    Unknown { what: &'static str, source: Arc<dyn StdError + Send + Sync> },
    /// The request itself is wrong. Never retried.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Error {
    pub fn not_found(what: &'static str, id: impl ToString) -> Self {
        Error::NotFound { what, id: id.to_string() }
    }

    pub fn unavailable(what: &'static str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Unavailable { what, source: source.into().into() }
    }

    pub fn unknown(what: &'static str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Unknown { what, source: source.into().into() }
    }

    /// Whether the same call may succeed later without anything else being changed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Unknown { .. })
    }

    /// Another transaction, which may stay open for long, has locked a unique key, an id or a new queue that the request
    /// needs. Nothing happened; requests for others are not affected.
    pub fn locked() -> Self {
        Error::unavailable(
            LOCKED,
            "another transaction that is still open has locked it; try again when that has ended",
        )
    }

    pub fn is_locked(&self) -> bool {
        matches!(self, Error::Unavailable { what: LOCKED, .. })
    }

    /// The caller was turned away for who it is, not for what it asked: a token is missing, wrong or of another role.
    pub fn denied(message: impl Into<String>) -> Self {
        Error::Invalid(Invalid::new(TOKEN_FIELD, message))
    }

    pub fn is_denied(&self) -> bool {
        matches!(self, Error::Invalid(invalid) if invalid.field == TOKEN_FIELD)
    }
}

/// A value that was refused: which field, and what was expected of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    pub field: String,
    pub message: String,
    pub kind: InvalidKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidKind {
    /// Not what the field takes.
    Argument,
    /// Well formed, but it makes no sense: two fields that exclude each other, a date that never comes.
    Unprocessable,
    /// Over a limit of size.
    TooLarge,
}

impl Invalid {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid { field: field.into(), message: message.into(), kind: InvalidKind::Argument }
    }

    pub fn unprocessable(field: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid { kind: InvalidKind::Unprocessable, ..Self::new(field, message) }
    }

    pub fn too_large(field: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid { kind: InvalidKind::TooLarge, ..Self::new(field, message) }
    }

    /// The same complaint about a field inside `outer`, as `jobs[3].delay`.
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
