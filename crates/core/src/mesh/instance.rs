//! The instances of a mesh.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;

/// The number of an instance within its mesh. Counts up from 1 and is never reused; 0 is no instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub u64);

impl InstanceId {
    /// No instance: it has not joined yet, or none is meant.
    pub const NOBODY: InstanceId = InstanceId(0);
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for InstanceId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.parse() {
            Ok(number @ 1..) => Ok(InstanceId(number)),
            _ => Err(Invalid::new("instance", format!("expected the number of an instance, from 1 up, got {text:?}"))),
        }
    }
}

/// A live instance, as the registry lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshNode {
    /// Its number.
    pub instance_id: InstanceId,
    /// The name of its host, as it sent it when it joined.
    pub hostname: String,
    /// Time since its last heartbeat, by the registry's clock.
    pub idle: Duration,
    /// Whether it is the instance that asked for the list.
    pub is_self: bool,
    /// The figures that it published last; `None` if it publishes none, as instances of the existing system.
    pub figures: Option<MeshFigures>,
}

/// The figures that an instance publishes with its heartbeats, for people who look at the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MeshFigures {
    /// Its calls that wait for their reply.
    pub in_flight: u64,
    /// The handlers that it runs.
    pub handlers: u64,
    /// The median of its last calls, from the call to its end, in microseconds; null before the first one.
    pub p50_us: Option<u32>,
    /// The 99th percentile of its last calls, in microseconds.
    pub p99_us: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_a_number_from_1_up() {
        assert_eq!("7".parse::<InstanceId>().expect("a number"), InstanceId(7));
        for text in ["", "0", "-1", "1.5", "one", "18446744073709551616"] {
            assert_eq!(text.parse::<InstanceId>().expect_err(text).field, "instance");
        }
    }
}
