//! Ids are newtypes, so that a job cannot be completed by a worker's name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::error::Invalid;
use crate::limits::NAME_BYTES_MAX;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        $(#[$doc])*
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
    /// The id of a job, the same for all its attempts. A UUIDv7: ids sort by time of creation.
    JobId, "id"
);
uuid_id!(
    /// The id of one run of a job. New for every attempt and for every dispatch that is published again: the fence of a run.
    ExecutionId, "executionId"
);

impl ExecutionId {
    /// Returns the time at which the leader dispatched the run, by the leader's clock, to the millisecond. `None` if
    /// the id is not a UUID of version 7.
    pub fn minted_at(&self) -> Option<Timestamp> {
        let (seconds, nanos) = self.0.get_timestamp().filter(|_| self.0.get_version_num() == 7)?.to_unix();
        Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
    }
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(
            feature = "openapi",
            derive(utoipa::ToSchema),
            schema(value_type = String, min_length = 1, max_length = 255)
        )]
        #[serde(transparent)]
        $(#[$doc])*
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name from outside: 1 to 255 bytes, no control characters.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                let text = text.as_ref();
                check_name($field, text)?;
                Ok($name(text.into()))
            }

            /// Returns the name as text.
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
    /// The id of a coordinator node.
    NodeId, "nodeId"
);
name_id!(
    /// The id of a worker process.
    WorkerId, "workerId"
);
name_id!(
    /// The name of a queue, which workers subscribe to and limits apply to.
    QueueName, "queue"
);
name_id!(
    /// The type of a job, which selects the handler that runs it.
    #[cfg_attr(feature = "openapi", schema(example = "email.send"))]
    JobType, "type"
);
name_id!(
    /// The name of a schedule.
    ScheduleName, "name"
);
name_id!(
    /// The name of a service whose shards are spread over its workers.
    ServiceName, "serviceName"
);

impl NodeId {
    /// Returns a placeholder for a field that is about to be set.
    pub(crate) fn unread() -> Self {
        NodeId(Arc::default())
    }
}

impl JobType {
    /// Returns a placeholder for a field that is about to be read.
    pub(crate) fn unread() -> Self {
        JobType(Arc::default())
    }
}

/// The queue of jobs that do not name one.
pub const DEFAULT_QUEUE: &str = "default";

impl Default for QueueName {
    fn default() -> Self {
        QueueName(DEFAULT_QUEUE.into())
    }
}

/// Rejects a text from outside that cannot be a name: 1 to 255 bytes, no control characters.
pub fn check_name(field: &str, text: &str) -> Result<(), Invalid> {
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

/// The number of a term of leadership. It only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the epoch of the next term.
    pub fn next(self) -> Self {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0198c0de-0000-7000-8000-0000000000ff";

    #[test]
    fn an_id_is_shown_and_read_as_a_hyphenated_uuid() {
        let id: JobId = TEXT.parse().expect("an id");
        assert_eq!(id.to_string(), TEXT);
        assert_eq!(serde_json::to_string(&id).expect("serialises"), format!("\"{TEXT}\""));
        assert_eq!(serde_json::from_str::<JobId>(&format!("\"{TEXT}\"")).expect("reads"), id);
    }

    #[test]
    fn a_run_id_says_when_it_was_made() {
        let id: ExecutionId = TEXT.parse().expect("an id");
        assert_eq!(id.minted_at(), Timestamp::from_millisecond(0x0198_c0de_0000).ok());
        let random: ExecutionId = "0198c0de-0000-4000-8000-0000000000ff".parse().expect("an id");
        assert_eq!(random.minted_at(), None);
    }

    #[test]
    fn what_is_no_id_is_refused_by_its_field() {
        for text in ["", "1", "0198c0de", "0198c0de-0000-7000-8000-0000000000fg", "../../etc"] {
            let refused = text.parse::<ExecutionId>().expect_err(text);
            assert_eq!(refused.field, "executionId");
            assert!(refused.message.contains("expected a UUID"), "{refused}");
            assert!(serde_json::from_value::<JobId>(text.into()).is_err());
        }
    }

    #[test]
    fn a_name_has_1_to_255_bytes_and_no_control_characters() {
        for fine in ["a", "email.send", "größe:✓ 1", &"x".repeat(255)] {
            assert_eq!(QueueName::new(fine).expect("a name").as_str(), fine);
        }
        for bad in ["", "a\nb", "\0", "tab\t", "\u{7f}", "\u{85}", &"x".repeat(256), &"ü".repeat(128)] {
            let refused = QueueName::new(bad).expect_err("no name");
            assert_eq!(refused.field, "queue");
            assert!(refused.message.contains("expected a name"), "{refused}");
            let error = serde_json::from_value::<QueueName>(bad.into()).expect_err("no name").to_string();
            assert!(error.starts_with("queue: expected a name"), "{error}");
        }
    }

    #[test]
    fn each_kind_of_name_is_refused_as_what_it_is() {
        let fields = [
            NodeId::new("").expect_err("empty").field,
            WorkerId::new("").expect_err("empty").field,
            QueueName::new("").expect_err("empty").field,
            JobType::new("").expect_err("empty").field,
            ScheduleName::new("").expect_err("empty").field,
            ServiceName::new("").expect_err("empty").field,
        ];
        assert_eq!(fields, ["nodeId", "workerId", "queue", "type", "name", "serviceName"]);
    }

    #[test]
    fn an_epoch_only_rises() {
        assert!(Epoch(7).next() > Epoch(7));
        assert_eq!(
            (Epoch(7).to_string(), serde_json::to_string(&Epoch(7)).expect("serialises")),
            ("7".into(), "7".into())
        );
        assert!(serde_json::from_str::<Epoch>("-1").is_err());
    }
}
