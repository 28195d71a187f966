//! Addresses in settings, and the mapping of the library's errors.

use std::io::ErrorKind;

use convoke_core::error::{Error, Invalid, Result};
use omq_tokio::Endpoint;

/// The setting that a bad address is reported under.
const FIELD: &str = "address";

/// Parses `tcp://host:port`. Other transports of the library would listen at unexpected places.
pub(super) fn parse(address: &str) -> Result<Endpoint> {
    let wrong = |why: String| Invalid::new(FIELD, format!("{address:?} {why}: expected tcp://host:port"));
    match address.parse::<Endpoint>() {
        Ok(endpoint @ Endpoint::Tcp { .. }) => Ok(endpoint),
        Ok(_) => Err(wrong("is not TCP".into()).into()),
        Err(error) => Err(wrong(format!("is not an address ({error})")).into()),
    }
}

/// Returns the error for an address that could not be bound.
pub(super) fn bind_failure(address: &str, error: omq_tokio::Error) -> Error {
    let refused = |why: &str| Error::from(Invalid::new(FIELD, format!("cannot listen on {address}: {why}")));
    match error {
        omq_tokio::Error::Io(error) => match error.kind() {
            ErrorKind::AddrInUse => Error::Conflict(format!("{address} is in use by another process")),
            ErrorKind::AddrNotAvailable => refused("it is not an address of this machine"),
            ErrorKind::PermissionDenied => refused("permission denied"),
            _ => Error::unavailable("the shard socket", error),
        },
        omq_tokio::Error::InvalidEndpoint(_) | omq_tokio::Error::UnsupportedScheme(_) => refused(&error.to_string()),
        error => Error::unavailable("the shard socket", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_tcp_with_a_host_and_a_port() {
        for good in ["tcp://127.0.0.1:5555", "tcp://*:5555", "tcp://[::1]:0", "tcp://localhost:1"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", "5555", "localhost:5555", "http://a:1", "ipc:///tmp/x", "inproc://x", "tcp://a", "tcp://a:99999"]
        {
            let error = parse(bad).expect_err(bad);
            assert!(matches!(error, Error::Invalid(_)), "{bad}: {error}");
        }
    }
}
