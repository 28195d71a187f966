//! Ids are newtypes, so that a job cannot be completed by a worker's name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::error::Invalid;
use crate::limits::NAME_BYTES_MAX;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                Uuid::parse_str(text)
                    .map($name)
                    .map_err(|_| Invalid::new($field, format!("expected a UUID, got {text:?}")))
            }
        }
    };
}

uuid_id!(
    /// A job, for all its attempts. UUIDv7: sorts by time of creation.
    JobId, "id"
);
uuid_id!(
    /// One run of a job. New for every attempt and for every dispatch that is published again: the fence of a run.
    ExecutionId, "executionId"
);

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// A name from outside: 1 to 255 bytes, no control characters.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                let text = text.as_ref();
                check_name($field, text)?;
                Ok($name(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                $name::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                $name::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_id!(
    /// A coordinator node.
    NodeId, "nodeId"
);
name_id!(
    /// A worker process.
    WorkerId, "workerId"
);
name_id!(
    /// A queue: what workers subscribe to and limits apply to.
    QueueName, "queue"
);
name_id!(
    /// A job's type: which handler runs it.
    JobType, "type"
);
name_id!(
    /// A schedule.
    ScheduleName, "name"
);

fn check_name(field: &str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(field, "expected a name of 1 to 255 bytes, got an empty one"));
    }
    if text.len() > NAME_BYTES_MAX {
        let bytes = text.len();
        return Err(Invalid::new(
            field,
            format!("expected a name of at most {NAME_BYTES_MAX} bytes, got {bytes} bytes"),
        ));
    }
    if let Some(bad) = text.chars().find(|c| c.is_control()) {
        return Err(Invalid::new(field, format!("expected a name without control characters, got {bad:?} in it")));
    }
    Ok(())
}

/// The number of a term of leadership. Only ever rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    pub fn next(self) -> Self {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
