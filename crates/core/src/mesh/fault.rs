//! The `error` of a reply.
//!
//! It is one string. A missing handler has the text of the existing system. The errors that we added have the same
//! form, so that an instance of that system shows them as errors of the handler.

use crate::ids::Epoch;
use crate::limits::ERROR_BYTES_MAX;

const NO_HANDLER: &str = "MESH_NO_HANDLER:";
const BUSY: &str = "MESH_BUSY:";
const TOO_LARGE: &str = "MESH_TOO_LARGE:";
const STOPPED: &str = "MESH_STOPPED:";
const STALE_EPOCH: &str = "MESH_STALE_EPOCH:";

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The instance has no handler for the type.
    NoHandler,
    /// The instance already runs its maximum of handlers.
    Busy,
    /// The request's data is over the limit.
    TooLarge,
    /// The instance stopped before the handler returned.
    Stopped,
    /// The caller's term is over, or it sent none; with the lowest epoch that is accepted.
    StaleEpoch(Epoch),
    /// The handler failed, with its error text.
    Handler(String),
}

impl Fault {
    /// Returns the text of a reply's `error`.
    pub fn to_error(&self, request_type: &str) -> String {
        match self {
            Fault::NoHandler => format!("{NO_HANDLER}{request_type}"),
            Fault::Busy => format!("{BUSY}{request_type}"),
            Fault::TooLarge => format!("{TOO_LARGE}{request_type}"),
            Fault::Stopped => format!("{STOPPED}{request_type}"),
            Fault::StaleEpoch(lowest) => format!("{STALE_EPOCH}{request_type}:{lowest}"),
            Fault::Handler(message) => truncated(message).to_owned(),
        }
    }

    /// Parses the text of a reply's `error`. A text that does not name the called type is the handler's own.
    pub fn from_error(error: &str, request_type: &str) -> Fault {
        let names_type = |prefix| error.strip_prefix(prefix).and_then(|rest: &str| rest.strip_prefix(request_type));
        let is = |prefix| names_type(prefix) == Some("");
        if is(NO_HANDLER) {
            return Fault::NoHandler;
        }
        if is(BUSY) {
            return Fault::Busy;
        }
        if is(TOO_LARGE) {
            return Fault::TooLarge;
        }
        if is(STOPPED) {
            return Fault::Stopped;
        }
        let lowest = names_type(STALE_EPOCH).and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        match lowest {
            Some(lowest) => Fault::StaleEpoch(Epoch(lowest)),
            None => Fault::Handler(truncated(error).to_owned()),
        }
    }
}

/// Truncates a text to the limit of an error, between characters.
fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_was_written() {
        let faults = [
            Fault::NoHandler,
            Fault::Busy,
            Fault::TooLarge,
            Fault::Stopped,
            Fault::StaleEpoch(Epoch(7)),
            Fault::Handler("no such user".into()),
            Fault::Handler(String::new()),
        ];
        for fault in faults {
            for request_type in ["getStatus", "a:b", "MESH_BUSY:x", ""] {
                assert_eq!(Fault::from_error(&fault.to_error(request_type), request_type), fault);
            }
        }
    }

    #[test]
    fn no_handler_is_said_as_the_existing_system_says_it() {
        assert_eq!(Fault::NoHandler.to_error("getStatus"), "MESH_NO_HANDLER:getStatus");
    }

    #[test]
    fn a_fault_of_another_type_is_a_handlers_own_words() {
        for error in
            ["MESH_NO_HANDLER:other", "MESH_BUSY:", "MESH_STALE_EPOCH:getStatus", "MESH_STALE_EPOCH:getStatus:x"]
        {
            assert_eq!(Fault::from_error(error, "getStatus"), Fault::Handler(error.into()));
        }
    }

    #[test]
    fn what_a_handler_says_is_cut_between_characters() {
        let long = format!("x{}", "ü".repeat(ERROR_BYTES_MAX));
        let error = Fault::Handler(long).to_error("t");
        assert_eq!(error.len(), ERROR_BYTES_MAX - 1);
    }
}
