//! What a reply's `error` says.
//!
//! It is one string. That there is no handler is said as the existing system says it; what ours adds has the same form, so
//! that an instance of that system takes it for an error of the handler and shows it.

use crate::ids::Epoch;
use crate::limits::ERROR_BYTES_MAX;

const NO_HANDLER: &str = "MESH_NO_HANDLER:";
const BUSY: &str = "MESH_BUSY:";
const TOO_LARGE: &str = "MESH_TOO_LARGE:";
const STOPPED: &str = "MESH_STOPPED:";
const STALE_EPOCH: &str = "MESH_STALE_EPOCH:";

/// Why a request was not answered with a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    NoHandler,
    /// As many handlers run as may.
    Busy,
    /// The request's data is over the limit.
    TooLarge,
    /// The instance stopped before the handler was done.
    Stopped,
    /// The caller's term is over, or it named none; with the lowest epoch that is admitted.
    StaleEpoch(Epoch),
    /// The handler failed, with what it said.
    Handler(String),
}

impl Fault {
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

    /// The other way round. Only what names the very type that was called is more than a handler's own words.
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

/// At most as much as an error may have, cut between characters.
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
