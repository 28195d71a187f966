//! What a failure means for the caller.
//!
//! Where no connection was there, or the server refused, nothing happened: `Unavailable`. Where the answer to a change was
//! lost, it may have happened: `Unknown`. A question whose answer was lost can simply be asked again.

use convoke_core::Error;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

/// Whether a request changes anything, which decides what a lost answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Ask,
    Change,
}

pub(super) fn failure(what: &'static str, intent: Intent, error: RedisError) -> Error {
    match error.code() {
        Some("WRONGTYPE") => Error::Conflict(format!("{what}: a key that it needs holds something else")),
        // The server said no, to this request at least.
        Some(_) => Error::unavailable(what, error),
        None if intent == Intent::Change && !error.is_connection_refusal() => Error::unknown(what, error),
        None => Error::unavailable(what, error),
    }
}

/// Whether the connection is of no more use: it broke, or it is silent, or leads to a server that must not be written to.
pub(super) fn is_fatal(error: &RedisError) -> bool {
    let demoted = ErrorKind::Server(ServerErrorKind::ReadOnly);
    let headless = ErrorKind::Server(ServerErrorKind::MasterDown);
    error.is_unrecoverable_error() || error.is_timeout() || [demoted, headless].contains(&error.kind())
}

pub(super) fn is_no_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP")
}

/// An answer that is not of the form that the command promises.
pub(super) fn malformed_reply(what: &'static str, value: &Value) -> Error {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        Value::Map(_) => "a map",
        _ => "something else",
    };
    Error::unavailable(what, format!("Redis answered {kind}, which makes no sense"))
}
