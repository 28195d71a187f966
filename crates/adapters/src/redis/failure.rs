//! Maps errors of Redis to the errors of the ports.
//!
//! Without a connection, or if the server rejected the request, nothing happened: `Unavailable`. If the reply to a
//! change was lost, the change may have happened: `Unknown`. A query whose reply was lost can be repeated.

use convoke_core::Error;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

/// Whether a request changes anything: decides how a lost reply is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Ask,
    Change,
}

pub(super) fn failure(what: &'static str, intent: Intent, error: RedisError) -> Error {
    match error.code() {
        Some("WRONGTYPE") => Error::Conflict(format!("{what}: a Redis key that it needs has the wrong type")),
        // The server rejected this request.
        Some(_) => Error::unavailable(what, error),
        None if intent == Intent::Change && !error.is_connection_refusal() => Error::unknown(what, error),
        None => Error::unavailable(what, error),
    }
}

/// Returns whether the connection is unusable: broken, silent, or to a server that must not be written to.
pub(super) fn is_fatal(error: &RedisError) -> bool {
    let demoted = ErrorKind::Server(ServerErrorKind::ReadOnly);
    let headless = ErrorKind::Server(ServerErrorKind::MasterDown);
    error.is_unrecoverable_error() || error.is_timeout() || [demoted, headless].contains(&error.kind())
}

pub(super) fn is_no_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP")
}

/// Returns the error for a reply whose form differs from the command's documentation.
pub(super) fn malformed_reply(what: &'static str, value: &Value) -> Error {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        Value::Map(_) => "a map",
        _ => "something else",
    };
    Error::unavailable(what, format!("unexpected reply from Redis: {kind}"))
}
